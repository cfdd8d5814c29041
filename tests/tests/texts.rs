//! Texts in a column of a table are told apart: found by `init`, learned in simulation and on devices to the same bytes, and asked of
//! both programs, of a program that stays, and of exports.
#![cfg(unix)]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use federation_tests::process::{Process, run};
use federation_tests::programs::programs;
use federation_tests::python::with_numpy;
use federation_tests::testbed::Testbed;
use rand::RngExt as _;
use serde_json::Value;
use shared::seed::Seed;

/// 240 reviews to train on and 60 to test on, with a number in front and some of them over several lines.
fn reviews(folder: &Path) {
    let mut rng = Seed::root(9).derive("reviews").rng();
    let mut pick = |words: &[&'static str]| words[rng.random_range(0..words.len())];
    for (split, rows) in [("train", 240), ("test", 60)] {
        let mut text = "id,review,mood\n".to_owned();
        for row in 0..rows {
            let subject = pick(&["the film", "this play", "my dinner", "the café"]);
            let (mood, said) = match row % 2 {
                0 => ("glad", pick(&["was a joy", "made me smile", "is a joy to see"])),
                _ => ("sad", pick(&["was dull", "bored us all", "is dull and long"])),
            };
            let between = pick(&[" ", ", in short, ", " \n"]);
            let _ = writeln!(text, "r{row},\"{subject}{between}{said}\",{mood}");
        }
        fs::write(folder.join(format!("{split}.csv")), text).unwrap();
    }
}

const NETWORK: &str = "model.layers=[{ embedding = { vocabulary = 257, dim = 16 } }, { linear = 32 }, 'relu', \
    'mean-positions', { linear = 'classes' }]";

fn answer(program: &Path, arguments: &[&str]) -> Value {
    let ended = run(program, &[&["predict", "--json"], arguments].concat());
    assert_eq!(ended.code, Some(0), "{arguments:?}: {}", ended.text);
    let line = ended.text.lines().find(|line| line.starts_with('{'));
    serde_json::from_str(line.unwrap_or_else(|| panic!("{}", ended.text))).unwrap()
}

#[test]
fn devices_learn_the_texts_of_the_simulation_and_say_what_they_are() {
    let folder = tempfile::tempdir().unwrap();
    reviews(folder.path());
    let data = format!("data.path={}", folder.path().display());
    let settings = [
        "data.set=csv",
        &data,
        "data.text=review",
        "data.shape=48",
        "data.label=mood",
        r#"data.class-names=["glad","sad"]"#,
        "data.max-samples=",
        NETWORK,
        "run.rounds=6",
        "training.batch=10",
        "training.epochs=3",
        "training.optimizer.adam.learning-rate=0.01",
        "evaluate.every=1",
    ];
    let testbed = Testbed::new(3, &settings);
    let server = testbed.serve();
    let devices: Vec<Process> = (0..3).map(|index| testbed.join(index)).collect();
    assert_eq!(server.wait().code, Some(0));
    for device in devices {
        let ended = device.wait();
        assert_eq!(ended.code, Some(0), "{}", ended.text);
    }
    assert!(testbed.model() == testbed.simulated(), "devices learn something else than the simulation");
    let last = testbed.rounds().pop().unwrap();
    assert!(last.accuracy > Some(0.9), "{last:?}");

    let model = testbed.run().display().to_string();
    let said = folder.path().join("said.txt");
    fs::write(&said, "this play made me smile").unwrap();
    let table = folder.path().join("new.csv");
    fs::write(&table, "review\n\"my dinner,\nbored us all\"\n").unwrap();
    for (file, expected) in [(&said, "glad"), (&table, "sad")] {
        let data = file.display().to_string();
        let [lab, device] = [&programs().aggregator, &programs().edge_client]
            .map(|program| answer(program, &["--model", &model, "--data", &data]));
        assert_eq!((&lab, &lab["name"]), (&device, &Value::from(expected)));
    }
    let one = answer(&programs().edge_client, &["--model", &model, "--text", "the film is dull and long"]);
    assert_eq!(one["name"], "sad", "{one}");

    let line = testbed.asked(&model, r#"{"text": "the caf\u00e9 was a joy"}"#);
    assert!(line.contains(r#""name":"glad""#), "{line}");

    match with_numpy() {
        Ok(python) => {
            let out = testbed.name("exported");
            let arguments = ["export", "--model", &model, "--to", "numpy", "--out", &out];
            let ended = run(&programs().aggregator, &arguments);
            assert_eq!(ended.code, Some(0), "{}", ended.text);
            let script = fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().path());
            let script = script.into_iter().find(|path| path.extension().is_some_and(|end| end == "py"));
            for (file, expected) in [(&said, "glad"), (&table, "sad")] {
                let mut command = std::process::Command::new(&python);
                let ended = command.arg(script.as_ref().unwrap()).arg(file).output().unwrap();
                let text = String::from_utf8_lossy(&ended.stdout).into_owned();
                assert!(text.contains(expected), "{text} {}", String::from_utf8_lossy(&ended.stderr));
            }
        }
        Err(reason) => println!("skipped: no Python with numpy: {reason}"),
    }
}

#[test]
fn init_finds_the_column_of_texts_and_its_file_runs() {
    let folder = tempfile::tempdir().unwrap();
    reviews(folder.path());
    let file = folder.path().join("run.toml").display().to_string();
    let data = folder.path().display().to_string();
    let ended = run(&programs().aggregator, &["init", &data, "--out", &file]);
    assert_eq!(ended.code, Some(0), "{}", ended.text);
    let text = fs::read_to_string(&file).unwrap();
    for part in ["text = \"review\"", "label = \"mood\"", "shape = \"64\"", "name = \"text-transformer\""] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let runs = folder.path().join("runs").display().to_string();
    let small = ["--set", "run.rounds=1", "--set", "data.clients=2", "--set", "data.max-samples=20"];
    let name = ["--set", "run.name=reviews"];
    let ended =
        run(&programs().aggregator, &[&["simulate", &file, "--runs", &runs][..], &small, &name].concat());
    assert_eq!(ended.code, Some(0), "{}", ended.text);
    // What the run leaves can be given away as it is, and answers.
    let left = folder.path().join("runs/reviews/model");
    for file in ["README.md", "config.json", "onnx/model.onnx"] {
        assert!(left.join(file).is_file(), "{file}");
    }
    let card = fs::read_to_string(left.join("README.md")).unwrap();
    assert!(
        card.contains("pipeline_tag: text-classification") && card.contains("the first 64 bytes"),
        "{card}"
    );
    let asked = ["--model", &left.display().to_string(), "--text", "the film was a joy"].map(str::to_owned);
    let said = answer(&programs().edge_client, &asked.each_ref().map(String::as_str));
    assert!(said["name"].is_string(), "{said}");
}
