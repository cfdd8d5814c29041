//! Event files for TensorBoard, read by TensorBoard's own reader.

use std::fs;
use std::path::Path;
use std::process::Command;

use aggregator::round::jsonl;
use federation_tests::process::run;
use federation_tests::programs::programs;
use federation_tests::python::with_tensorboard;
use serde_json::{Value, json};

const READER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tensorboard_reader.py");

fn aggregator(arguments: &[&str]) {
    let ended = run(&programs().aggregator, arguments);
    assert_eq!(ended.code, Some(0), "{}", ended.text);
}

fn read(python: &Path, run: &Path) -> Value {
    let output = Command::new(python).arg(READER).arg(run.join("tensorboard")).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

/// The steps and values of a tag.
fn series(found: &Value, tag: &str) -> Vec<(u64, f32)> {
    let points = found["scalars"][tag].as_array().unwrap_or_else(|| panic!("{tag} is not in {found}"));
    points.iter().map(|point| (point[0].as_u64().unwrap(), point[2].as_f64().unwrap() as f32)).collect()
}

#[test]
fn tensorboard_reads_the_rounds_as_they_are_written_down() {
    let python = match with_tensorboard() {
        Ok(python) => python,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().join("runs").display().to_string();
    let simulate = |rounds: &str| {
        let settings =
            ["data.max-samples=400", "training.optimizer.sgd.learning-rate=0.05", "evaluate.hold-out=0.25"];
        let clients = ["data.clients=4", "evaluate.on-clients-every=1", rounds];
        let settings = settings.into_iter().chain(clients).flat_map(|setting| ["--set", setting]);
        let arguments: Vec<&str> =
            ["simulate", "--runs", &runs, "--tensorboard"].into_iter().chain(settings).collect();
        aggregator(&arguments);
    };
    simulate("run.rounds=3");
    // More rounds of the same run, by another process.
    simulate("run.rounds=5");
    let run = folder.path().join("runs/glyphs-fedavg");
    let live = read(&python, &run);
    let rounds = jsonl::read(&fs::read(run.join("rounds.jsonl")).unwrap()).unwrap().records;
    assert!(rounds.len() >= 5);
    let expected = |value: &dyn Fn(&aggregator::round::RoundRecord) -> Option<f64>| -> Vec<(u64, f32)> {
        rounds.iter().filter_map(|round| Some((round.round.into(), value(round)? as f32))).collect()
    };
    assert_eq!(series(&live, "test/accuracy"), expected(&|round| round.accuracy));
    assert_eq!(series(&live, "test/loss"), expected(&|round| round.loss));
    assert_eq!(series(&live, "training/loss"), expected(&|round| round.train_loss));
    assert_eq!(series(&live, "traffic/bytes-up"), expected(&|round| Some(round.bytes_up as f64)));
    assert_eq!(series(&live, "updates/accepted"), expected(&|round| Some(round.accepted as f64)));
    let histogram = live["histograms"]["clients/own-accuracy"].as_array().unwrap();
    let tested = rounds.iter().filter(|round| !round.clients.is_empty()).count();
    assert_eq!((histogram.len(), histogram[0][1].as_f64()), (tested, Some(4.0)), "{histogram:?}");
    let settings = &live["hparams"];
    assert_eq!(
        (&settings["algorithm"], &settings["training.optimizer.sgd.learning-rate"]),
        (&json!("fedavg"), &json!(0.05)),
        "{settings}"
    );
    assert_eq!(live["group"], "glyphs-fedavg");

    // Of a run that was not written while it went on, the same.
    fs::remove_dir_all(run.join("tensorboard")).unwrap();
    aggregator(&["report", "--tensorboard", &run.display().to_string()]);
    let later = read(&python, &run);
    assert_eq!((&later["scalars"], &later["histograms"]), (&live["scalars"], &live["histograms"]));
    assert_eq!(fs::read_dir(run.join("tensorboard")).unwrap().count(), 1);
}
