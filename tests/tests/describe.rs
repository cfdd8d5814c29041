//! `aggregator data describe` and `data split`, of a researcher's own table.
#![cfg(unix)]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use federation_tests::process::run;
use federation_tests::programs::programs;

/// A table of two classes, one of whose rows has no label, and a network for it that is never tested.
fn own_table(folder: &Path) -> String {
    let mut rows = "width,height,label\n".to_owned();
    for row in 0..20 {
        let _ = writeln!(rows, "0.{row},1.5,{}", if row % 2 == 0 { "oak" } else { "elm" });
    }
    rows.push_str("0.1,0.2,\n");
    fs::write(folder.join("train.csv"), rows).unwrap();
    let config = folder.join("run.toml");
    let text = format!(
        "data.set = \"csv\"\ndata.path = {:?}\ndata.clients = 2\ndata.shape = [2]\ndata.on-error = \"skip\"\n\
         data.class-names = [\"elm\", \"oak\"]\nmodel.name = \"linear\"\nevaluate.every = 0\n",
        folder.display().to_string()
    );
    fs::write(&config, text).unwrap();
    config.display().to_string()
}

#[test]
fn data_that_is_never_tested_needs_no_test_samples_and_what_is_left_out_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let config = own_table(folder.path());
    let aggregator = &programs().aggregator;
    let described = run(aggregator, &["data", "describe", &config]);
    assert_eq!(described.code, Some(0), "{}", described.text);
    for part in ["20 samples", "2 classes to train on, 0 to test on", "left out", "1 training sample ("] {
        assert!(described.text.contains(part), "{part:?} is not in:\n{}", described.text);
    }
    let json = run(aggregator, &["data", "describe", "--json", &config]);
    assert!(json.text.contains("\"left_out\":[\"1 training"), "{}", json.text);

    let out = folder.path().join("shares");
    let split = run(aggregator, &["data", "split", &config, "--out", &out.display().to_string()]);
    assert_eq!(split.code, Some(0), "{}", split.text);
    assert!(split.text.contains("no test samples are there"), "{}", split.text);
    assert!(out.join("client-001").is_dir() && !out.join("test").exists());

    // Clients that are tested need some.
    let tested = run(aggregator, &["data", "describe", "--set", "evaluate.every=1", &config]);
    assert!(tested.code == Some(3) && tested.text.contains("test.csv"), "{}", tested.text);
}
