//! `edge-client predict --int8`: answers with weights of 8 bits.
#![cfg(unix)]

use federation_tests::process::run;
use federation_tests::programs::programs;
use serde_json::Value;

fn lines(program: &std::path::Path, arguments: &[&str]) -> Vec<Value> {
    let ended = run(program, arguments);
    assert_eq!(ended.code, Some(0), "{arguments:?}: {}", ended.text);
    let lines = ended.text.lines().filter(|line| line.starts_with('{'));
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn answers_with_8_bits_are_nearly_those_with_32() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (lab, device) = (&programs().aggregator, &programs().edge_client);
    let learned =
        run(lab, &["simulate", "--runs", &at("runs"), "--set", "run.name=small", "--set", "run.rounds=8"]);
    assert_eq!(learned.code, Some(0), "{}", learned.text);
    let split = run(lab, &["data", "split", "--out", &at("shares"), "--set", "data.clients=2"]);
    assert_eq!(split.code, Some(0), "{}", split.text);
    let (model, data) = (at("runs/small"), at("shares/test"));

    let given = ["--model", &model, "--data", &data, "--json"];
    let tested = |int8: &[&str]| {
        let line = &lines(device, &[&["evaluate"], &given[..], int8].concat())[0];
        line["accuracy"].as_f64().unwrap()
    };
    let (whole, quantised) = (tested(&[]), tested(&["--int8"]));
    assert!(whole > 0.8 && (whole - quantised).abs() < 0.01, "{whole} {quantised}");

    let said = |int8: &[&str]| {
        let mut lines = lines(device, &[&["predict", "--limit", "20"], &given[..], int8].concat());
        // The score is no answer.
        lines.retain(|line| line.get("probability").is_some());
        lines
    };
    let (whole, quantised) = (said(&[]), said(&["--int8"]));
    let probability = |line: &Value| line["probability"].as_f64().unwrap();
    let close = |pair: (&Value, &Value)| (probability(pair.0) - probability(pair.1)).abs() < 0.05;
    assert_eq!((whole.len(), quantised.len()), (20, 20));
    assert!(whole.iter().zip(&quantised).all(close), "{whole:?} {quantised:?}");
    assert_ne!(whole, quantised, "the weights have 8 bits");

    let bench = ["bench", "--predict", "--int8", "--model", &model, "--seconds", "0.1", "--json"];
    let row = &lines(device, &bench)[0];
    assert!(row["median_ms"].as_f64() > Some(0.0), "{row}");
    let refused = run(device, &["bench", "--int8"]);
    assert_eq!(refused.code, Some(2), "it measures training: {}", refused.text);
}
