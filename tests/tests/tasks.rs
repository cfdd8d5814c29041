//! Numbers and several labels are learned as classes are: in simulation and on devices to the same bytes, and both programs say and
//! test the same.
#![cfg(unix)]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use aggregator::round::RoundRecord;
use federation_tests::process::{Process, run};
use federation_tests::programs::programs;
use federation_tests::testbed::Testbed;
use serde_json::Value;
use shared::seed::{Seed, standard_normal};

/// A table of 400 rows to train on and 100 to test on: three features, two numbers that follow from them and two flags.
fn table(folder: &Path) {
    let mut rng = Seed::root(4).derive("a table").rng();
    for (split, rows) in [("train", 400), ("test", 100)] {
        let mut text = "a,price,b,c,rent,is-dear,is-wide\n".to_owned();
        for _ in 0..rows {
            let [a, b, c] = [(); 3].map(|()| standard_normal(&mut rng));
            let (price, rent) = (2.0 + a - 0.5 * b, 10.0 * c);
            let (dear, wide) = (u8::from(price > 2.0), u8::from(b + c > 0.0));
            let _ = writeln!(text, "{a},{price},{b},{c},{rent},{dear},{wide}");
        }
        fs::write(folder.join(format!("{split}.csv")), text).unwrap();
    }
}

/// The columns of the table without some of them, in a folder of its own.
fn without(folder: &Path, dropped: &[&str]) -> tempfile::TempDir {
    let kept = tempfile::tempdir().unwrap();
    for split in ["train.csv", "test.csv"] {
        let text = fs::read_to_string(folder.join(split)).unwrap();
        let names: Vec<&str> = text.lines().next().unwrap().split(',').collect();
        let line = |line: &str| {
            let fields = names.iter().zip(line.split(',')).filter(|(name, _)| !dropped.contains(name));
            fields.map(|(_, field)| field).collect::<Vec<_>>().join(",") + "\n"
        };
        fs::write(kept.path().join(split), text.lines().map(line).collect::<String>()).unwrap();
    }
    kept
}

fn json_of(program: &Path, arguments: &[&str]) -> Value {
    let ended = run(program, arguments);
    assert_eq!(ended.code, Some(0), "{arguments:?}: {}", ended.text);
    let line = ended.text.lines().find(|line| line.starts_with('{'));
    serde_json::from_str(line.unwrap_or_else(|| panic!("{}", ended.text))).unwrap()
}

/// What devices make of the table in six rounds, which is what the simulation makes of it, and the records of the rounds.
fn learned(data: &Path, settings: &[&str]) -> (Testbed, Vec<RoundRecord>) {
    let path = format!("data.path={}", data.display());
    let common = [
        "data.set=csv",
        &path,
        "data.shape=3",
        "model.name=mlp-2nn",
        "run.rounds=6",
        "data.max-samples=",
        "training.batch=10",
        "training.epochs=2",
        "training.optimizer.adam.learning-rate=0.01",
        "evaluate.every=1",
        "evaluate.on-clients-every=3",
        "evaluate.hold-out=0.25",
    ];
    let testbed = Testbed::new(3, &[&common[..], settings].concat());
    let server = testbed.serve();
    let devices: Vec<Process> = (0..3).map(|index| testbed.join(index)).collect();
    let ended = server.wait();
    assert_eq!(ended.code, Some(0), "{}", ended.text);
    for device in devices {
        let ended = device.wait();
        assert_eq!(ended.code, Some(0), "{}", ended.text);
    }
    assert!(testbed.model() == testbed.simulated(), "devices learn something else than the simulation");
    let records = testbed.rounds();
    assert!(records.iter().any(|record| record.closing && record.clients.len() == 3), "{records:?}");
    (testbed, records)
}

/// How the model does, as both programs find it on these samples; one more than 1e-6 apart is a mistake.
fn evaluated(model: &str, data: &str) -> Value {
    let arguments = ["evaluate", "--model", model, "--data", data, "--json"];
    let [lab, device] =
        [&programs().aggregator, &programs().edge_client].map(|program| json_of(program, &arguments));
    assert_eq!(lab.get("by-label"), device.get("by-label"));
    for (key, value) in lab.as_object().unwrap().iter().filter(|(key, _)| *key != "by-label") {
        let apart = (value.as_f64().unwrap() - device[key].as_f64().unwrap()).abs();
        assert!(apart < 1e-6, "{key}: {lab} and {device}");
    }
    lab
}

/// What both programs say of the first sample of a file.
fn said(model: &str, file: &str) -> Value {
    let arguments = ["predict", "--model", model, "--data", file, "--limit", "1", "--json"];
    let [lab, device] =
        [&programs().aggregator, &programs().edge_client].map(|program| json_of(program, &arguments));
    assert_eq!(lab, device);
    lab
}

#[test]
fn a_number_is_learned_by_devices_as_in_the_simulation() {
    let whole = tempfile::tempdir().unwrap();
    table(whole.path());
    let data = without(whole.path(), &["rent", "is-dear", "is-wide"]);
    let (testbed, records) =
        learned(data.path(), &["model.task=regression", "data.label=price", "model.huber-delta=2"]);
    let tested: Vec<&RoundRecord> = records.iter().filter(|record| !record.closing).collect();
    let (first, last) = (tested[0], tested[5]);
    assert!(tested.iter().all(|record| record.accuracy.is_none() && record.metrics.contains_key("mae")));
    assert!(last.metrics["r2"] > 0.9 && last.loss < first.loss, "{first:?} {last:?}");
    let own = records.last().unwrap().clients.values().all(|own| own["own-r2"] > 0.8);
    assert!(own, "{:?}", records.last());

    let (model, folder) = (testbed.run().display().to_string(), data.path().display().to_string());
    let found = evaluated(&model, &folder);
    assert!((found["r2"].as_f64().unwrap() - last.metrics["r2"]).abs() < 1e-6, "{found} {last:?}");
    let answer = said(&model, &data.path().join("test.csv").display().to_string());
    assert!(answer["values"]["price"].is_number() && answer["truth"]["price"].is_number(), "{answer}");
    // Without the column of the truth it answers the same.
    let features = without(data.path(), &["price"]);
    let blind = said(&model, &features.path().join("test.csv").display().to_string());
    assert_eq!((&blind["values"], blind.get("truth")), (&answer["values"], None));

    let listed = run(&programs().aggregator, &["runs", "list", "--runs", &testbed.name("runs")]);
    assert!(listed.text.contains(&format!("loss {:.4}", last.loss.unwrap())), "{}", listed.text);
    let report = fs::read_to_string(testbed.run().join("report.html")).unwrap();
    for part in ["Coefficient of determination", "MAE", "Best test loss"] {
        assert!(report.contains(part), "{part} is missing");
    }
    assert!(!report.contains("Test accuracy"), "numbers have no accuracy");
}

#[test]
fn several_numbers_are_learned_in_the_order_of_their_names() {
    let whole = tempfile::tempdir().unwrap();
    table(whole.path());
    let data = without(whole.path(), &["is-dear", "is-wide"]);
    let (testbed, records) =
        learned(data.path(), &["model.task=regression", r#"data.targets=["rent","price"]"#]);
    // Of different units there is no common share that is explained.
    assert!(records[5].metrics.contains_key("rmse") && !records[5].metrics.contains_key("r2"));
    let model = testbed.run().display().to_string();
    let answer = said(&model, &data.path().join("test.csv").display().to_string());
    let text = fs::read_to_string(data.path().join("test.csv")).unwrap();
    let row: Vec<f64> = text.lines().nth(1).unwrap().split(',').map(|field| field.parse().unwrap()).collect();
    let near = |value: &Value, expected: f64| (value.as_f64().unwrap() - expected).abs() < 1e-4;
    assert!(near(&answer["truth"]["price"], row[1]) && near(&answer["truth"]["rent"], row[4]), "{answer}");
}

#[test]
fn several_labels_are_learned_by_devices_as_in_the_simulation() {
    let whole = tempfile::tempdir().unwrap();
    table(whole.path());
    let data = without(whole.path(), &["price", "rent"]);
    let (testbed, records) =
        learned(data.path(), &["model.task=multi-label", r#"data.targets=["is-dear","is-wide"]"#]);
    let last = &records[5];
    assert!(last.accuracy > Some(0.8) && last.metrics["f1"] > 0.9, "{last:?}");
    let own = &records.last().unwrap().clients;
    assert!(own.values().all(|own| own["own-f1"] > 0.8 && own["own-accuracy"] > 0.6), "{own:?}");
    let (model, folder) = (testbed.run().display().to_string(), data.path().display().to_string());
    let found = evaluated(&model, &folder);
    assert!((found["accuracy"].as_f64().unwrap() - last.accuracy.unwrap()).abs() < 1e-9, "{found} {last:?}");
    let (dear, wide) = (&found["by-label"][0], &found["by-label"][1]);
    assert_eq!((&dear["name"], &wide["name"]), (&"is-dear".into(), &"is-wide".into()));
    assert!(dear["f1"].as_f64() > Some(0.8) && wide["recall"].as_f64() > Some(0.8), "{found}");
    let answer = said(&model, &data.path().join("test.csv").display().to_string());
    let set: Vec<&str> =
        answer["labels"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    for name in ["is-dear", "is-wide"] {
        let probability = answer["values"][name].as_f64().unwrap();
        assert_eq!(set.contains(&name), probability > 0.5, "{answer}");
    }

    // A program that asks a model which stays loaded.
    let line = testbed.asked(&model, r#"{"values": [3.0, 0.0, -3.0]}"#);
    assert!(line.contains(r#""labels":["is-dear"]"#), "{line}");
}
