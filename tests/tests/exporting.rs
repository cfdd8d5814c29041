//! `aggregator export` as a user runs it: what it writes, what it refuses, and the exported file on the test images of a run.

use std::fs;
use std::path::{Path, PathBuf};

use federation_tests::process::{Ended, run};
use federation_tests::programs::programs;
use federation_tests::python::with_numpy;
use serde_json::Value;

/// A short run.
struct Trained {
    folder: tempfile::TempDir,
}

impl Trained {
    fn new() -> Self {
        let trained = Self { folder: tempfile::tempdir().unwrap() };
        let runs = trained.path("runs").display().to_string();
        let sets = ["model.name=cnn-small", "data.clients=2", "data.max-samples=200", "run.rounds=2"];
        let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
        does(&[&["simulate", "--runs", &runs][..], &sets].concat());
        let data = trained.path("data").display().to_string();
        does(&[&["data", "split", "--out", &data][..], &sets].concat());
        trained
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self) -> String {
        self.path("runs/glyphs-fedavg").display().to_string()
    }

    fn export(&self, more: &[&str]) -> Ended {
        run(&programs().aggregator, &[&["export", "--model", &self.run()][..], more].concat())
    }
}

fn does(arguments: &[&str]) -> Ended {
    let ended = run(&programs().aggregator, arguments);
    assert_eq!(ended.code, Some(0), "{arguments:?}: {}", ended.text);
    ended
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn two_files_are_written_and_nothing_is_replaced() {
    let trained = Trained::new();
    let out = text(&trained.path("new/out"));
    let ended = trained.export(&["--to", "torch", "--out", &out, "--json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.text);
    let object: Value = serde_json::from_str(&ended.text).unwrap();
    assert_eq!((&object["target"], &object["model"]), (&"torch".into(), &"cnn-small".into()), "{object}");
    for (file, name) in object["files"].as_array().unwrap().iter().zip(["network.py", "network.safetensors"])
    {
        let path = trained.path("new/out").join(name);
        assert_eq!(file["file"], text(&path), "{object}");
        assert_eq!(file["bytes"], fs::metadata(&path).unwrap().len(), "{object}");
    }
    let source = fs::read_to_string(trained.path("new/out/network.py")).unwrap();

    let ended = trained.export(&["--to", "numpy", "--out", &out]);
    assert_eq!(ended.code, Some(3), "{}", ended.text);
    assert!(
        ended.text.contains("network.py is there already") && ended.text.contains("--force"),
        "{}",
        ended.text
    );
    assert_eq!(fs::read_to_string(trained.path("new/out/network.py")).unwrap(), source);
    let ended = trained.export(&["--to", "numpy", "--out", &out, "--force"]);
    assert_eq!(ended.code, Some(0), "{}", ended.text);
    assert!(!fs::read_to_string(trained.path("new/out/network.py")).unwrap().contains("torch"));

    // A file, whose weights would lie where something else does.
    let named = text(&trained.path("glyphs.py"));
    fs::write(trained.path("glyphs.safetensors"), "mine").unwrap();
    let ended = trained.export(&["--to", "numpy", "--out", &named]);
    assert!(
        ended.code == Some(3) && ended.text.contains("glyphs.safetensors is there already"),
        "{}",
        ended.text
    );
    assert!(!trained.path("glyphs.py").exists(), "the half of it");
}

#[test]
fn one_file_of_onnx_is_written_and_says_what_it_takes() {
    let trained = Trained::new();
    let out = trained.path("glyphs.onnx");
    let ended = trained.export(&["--to", "onnx", "--out", &text(&out), "--json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.text);
    let object: Value = serde_json::from_str(&ended.text).unwrap();
    let file = &object["files"][0];
    assert_eq!((&object["target"], &file["opset"]), (&"onnx".into(), &17.into()), "{object}");
    assert_eq!(
        (&file["input"], &file["output"]),
        (&serde_json::json!([1, 28, 28]), &serde_json::json!([10]))
    );
    assert_eq!(file["bytes"], fs::metadata(&out).unwrap().len(), "{object}");
    let ended = trained.export(&["--to", "onnx", "--out", &text(&out)]);
    assert!(ended.code == Some(3) && ended.text.contains("is there already"), "{}", ended.text);
    let ended = trained.export(&["--to", "onnx", "--out", &text(&out), "--force"]);
    assert!(
        ended.text.contains("`samples` [n, 1, 28, 28] to `logits` and `probabilities` [n, 10]"),
        "{}",
        ended.text
    );
}

#[test]
fn what_cannot_be_exported_is_said() {
    let trained = Trained::new();
    let model = trained.path("runs/glyphs-fedavg/model.safetensors");
    let out = text(&trained.path("out"));
    let over = text(&model.with_extension("py"));
    let export = |model: &str, more: &[&str]| {
        run(&programs().aggregator, &[&["export", "--model", model][..], more].concat())
    };
    fs::write(trained.path("file"), "").unwrap();
    for (model, more, code, says) in [
        (trained.run(), vec!["--to", "keras", "--out", &out], 2, "possible values: torch, numpy, onnx"),
        (
            trained.run(),
            vec!["--to", "torch", "--out", &out, "--preparation", "outside"],
            2,
            "--preparation outside is for --to onnx",
        ),
        (trained.run(), vec!["--to", "onnx", "--out", "a.py"], 2, "a file that ends in .onnx"),
        (trained.run(), vec!["--to", "torch"], 2, "--out"),
        (
            trained.run(),
            vec!["--to", "torch", "--out", &out, "--fusion", "size"],
            2,
            "--fusion is for ensembles",
        ),
        (
            text(&model),
            vec!["--to", "torch", "--out", &out, "--best"],
            2,
            "--best chooses among the models of a run",
        ),
        (text(&trained.path("nothing")), vec!["--to", "torch", "--out", &out], 3, "cannot open"),
        (text(&trained.path("data")), vec!["--to", "torch", "--out", &out], 3, "name a model's file"),
        (
            text(&trained.path("file")),
            vec!["--to", "torch", "--out", &out],
            3,
            "not a readable safetensors file",
        ),
        (trained.run(), vec!["--to", "torch", "--out", &over, "--force"], 2, "is the model that is exported"),
        (trained.run(), vec!["--to", "torch", "--out", &text(&trained.path("file"))], 2, "ends in .py"),
    ] {
        let ended = export(&model, &more);
        assert_eq!(ended.code, Some(code), "{more:?}: {}", ended.text);
        assert!(ended.text.contains(says), "{more:?}: {}", ended.text);
        assert!(!trained.path("out").exists(), "{more:?}");
    }
}

/// Prints, for each of the images of an IDX file, what the exported file says.
const ASK: &str = r"
import pathlib, subprocess, sys
import numpy as np
source, images, folder = sys.argv[1:]
content = pathlib.Path(images).read_bytes()
count, height, width = np.frombuffer(content, '>i4', 3, 4)
array = pathlib.Path(folder) / 'samples.npy'
np.save(array, np.frombuffer(content, np.uint8, offset=16).reshape(count, height, width))
sys.exit(subprocess.run([sys.executable, source, str(array), '--top', '2']).returncode)
";

#[test]
fn the_exported_file_says_of_images_what_predict_says() {
    let python = match with_numpy() {
        Ok(python) => python,
        Err(reason) => {
            println!("skipped: no Python with numpy: {reason}");
            return;
        }
    };
    let trained = Trained::new();
    let source = text(&trained.path("glyphs.py"));
    assert_eq!(trained.export(&["--to", "numpy", "--out", &source]).code, Some(0));
    let images = text(&trained.path("data/test/t10k-images-idx3-ubyte"));
    let said = run(&python, &["-c", ASK, &source, &images, &text(trained.folder.path())]);
    assert_eq!(said.code, Some(0), "{}", said.text);
    let (data, model) = (text(&trained.path("data/test")), trained.run());
    let predicted = does(&["predict", "--model", &model, "--data", &data, "--json"]);
    let rows = predicted.text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let rows: Vec<Value> = rows.filter(|row| row["event"] == "prediction").collect();
    assert!(rows.len() >= 100 && said.text.lines().count() == rows.len(), "{}", said.text);
    for (line, row) in said.text.lines().zip(&rows) {
        // PATH NUMBER  CLASS SHARE %  CLASS SHARE %
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!((words.len(), words[1]), (8, &*row["sample"].to_string()), "{line}");
        assert_eq!(words[2], row["class"].to_string(), "{line}: {row}");
        let share: f64 = words[3].parse().unwrap();
        assert!((share - 100.0 * row["probability"].as_f64().unwrap()).abs() < 0.051, "{line}: {row}");
    }
    let nothing = run(&python, &[&source, "nothing.npy"]);
    assert!(nothing.code == Some(1) && nothing.text.lines().count() == 1, "{}", nothing.text);
}

/// Prints the bytes of an image as the exported file reads them, or nothing where Pillow is not there.
const READ: &str = r"
import importlib.util, json, pathlib, sys
if importlib.util.find_spec('PIL'):
    spec = importlib.util.spec_from_file_location('exported', sys.argv[1])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for path in sys.argv[2:]:
        print(json.dumps(module.read(pathlib.Path(path)).ravel().tolist()))
";

#[test]
fn the_exported_file_reads_images_as_we_do() {
    let python = match with_numpy() {
        Ok(python) => python,
        Err(reason) => {
            println!("skipped: no Python with numpy: {reason}");
            return;
        }
    };
    let trained = Trained::new();
    let source = text(&trained.path("glyphs.py"));
    assert_eq!(trained.export(&["--to", "numpy", "--out", &source]).code, Some(0));
    let mut files = Vec::new();
    for (name, width, height) in [("same.png", 28, 28), ("wide.png", 90, 41), ("tall.png", 20, 33)] {
        let colour = |x: u32, y: u32| image::Rgb([(7 * x + y) as u8, (3 * y) as u8, (x * y) as u8]);
        let path = trained.path(name);
        image::RgbImage::from_fn(width, height, colour).save(&path).unwrap();
        files.push(text(&path));
    }
    // Grey in 16 bits, from black to white.
    let deep = trained.path("deep-same.png");
    let grey = |x: u32, y: u32| image::Luma([(83 * (28 * y + x)) as u16]);
    image::ImageBuffer::from_fn(28, 28, grey).save(&deep).unwrap();
    files.push(text(&deep));
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let said = run(&python, &[&["-c", READ, &source][..], &files].concat());
    assert_eq!(said.code, Some(0), "{}", said.text);
    if said.text.is_empty() {
        println!("skipped: no Pillow");
        return;
    }
    for (line, file) in said.text.lines().zip(&files) {
        let theirs: Vec<u8> = serde_json::from_str(line).unwrap();
        let read = shared::data::images::read_bytes(&fs::read(file).unwrap(), Some(&[1, 28, 28])).unwrap();
        let shared::data::Samples::Bytes(ours) = read.samples() else { panic!("images are bytes") };
        assert_eq!(theirs.len(), ours.len(), "{file}");
        let apart: Vec<u8> = theirs.iter().zip(ours).map(|(a, b)| a.abs_diff(*b)).collect();
        // Each rounds in its own way: grey by one at the edge of a level, and one more where it is scaled.
        let most = if file.ends_with("same.png") { 1 } else { 2 };
        assert!(apart.iter().max() <= Some(&most), "{file}: {apart:?}");
        let other = apart.iter().filter(|apart| **apart > 0).count();
        assert!(most == 2 || other * 20 < apart.len(), "{file}: {other} of {} pixels differ", apart.len());
    }
}

#[test]
fn a_folder_of_the_hub_is_whole_and_goes_on_learning() {
    let trained = Trained::new();
    let folder = text(&trained.path("hub"));
    let ended = trained.export(&["--to", "hub", "--out", &folder, "--license", "mit", "--json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.text);
    let object: Value = serde_json::from_str(&ended.text).unwrap();
    let names = ["README.md", "config.json", "model.safetensors", "onnx/model.onnx"];
    for (file, name) in object["files"].as_array().unwrap().iter().zip(names) {
        let path = trained.path("hub").join(name);
        assert_eq!(file["file"], text(&path), "{object}");
        assert_eq!(file["bytes"], fs::metadata(&path).unwrap().len(), "{object}");
    }
    let card = fs::read_to_string(trained.path("hub/README.md")).unwrap();
    let rounds = fs::read_to_string(Path::new(&trained.run()).join("rounds.jsonl")).unwrap();
    let last: Value = serde_json::from_str(rounds.lines().last().unwrap()).unwrap();
    for part in [
        "license: \"mit\"\n".to_owned(),
        "# glyphs-fedavg\n".to_owned(),
        format!("    - type: accuracy\n      value: {}\n", last["accuracy"]),
        "| clients | 2 simulated clients |\n| samples | 200 training samples: ".to_owned(),
        "| `data.max-samples` | 200 |\n".to_owned(),
    ] {
        assert!(card.contains(&part), "{part:?} is not in:\n{card}");
    }
    let place = trained.folder.path().display().to_string();
    assert!(!card.contains(&place), "a path of this machine: {card}");

    // It answers as the run does, and another run begins with it.
    let data = trained.path("data/test").display().to_string();
    let answers = |model: &str| does(&["predict", "--model", model, "--data", &data, "--json"]).text;
    assert_eq!(answers(&folder), answers(&trained.run()));
    let runs = text(&trained.path("runs"));
    let more = ["simulate", "--runs", &runs, "--from", &folder, "--set", "model.name=cnn-small"];
    let more = [&more[..], &["--set", "data.clients=2", "--set", "data.max-samples=200"]].concat();
    let ended = does(&[&more[..], &["--set", "run.rounds=1", "--set", "run.name=next"]].concat());
    assert!(ended.text.contains("model.safetensors"), "{}", ended.text);

    let ended = trained.export(&["--to", "hub", "--out", &text(&trained.path("x.onnx"))]);
    assert!(ended.code == Some(2) && ended.text.contains("--out takes a directory"), "{}", ended.text);
    let ended = trained.export(&["--to", "numpy", "--out", &text(&trained.path("y")), "--license", "mit"]);
    assert!(ended.code == Some(2) && ended.text.contains("is for --to hub"), "{}", ended.text);
}
