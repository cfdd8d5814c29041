//! `edge-client bench` as a program.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Output, Stdio};

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_edge-client")).arg("bench").args(arguments).output().unwrap()
}

/// Little to do, so that the test is over soon.
const QUICK: [&str; 9] =
    ["--model", "linear", "--input", "1x4x4", "--batch", "2", "--seconds", "0.01", "--device=cpu"];

#[test]
fn a_table_has_a_row_for_every_choice() {
    let output = bench(&[&QUICK[..], &["--model", "mlp-2nn", "--threads", "1", "--threads", "2"]].concat());
    let table = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{table}");
    let words = |line: &str| line.split_whitespace().take(4).map(str::to_owned).collect::<Vec<_>>();
    let rows: Vec<_> = table.lines().skip(1).map(words).collect();
    let expected = [("linear", "1"), ("linear", "2"), ("mlp-2nn", "1"), ("mlp-2nn", "2")]
        .map(|(model, threads)| [model, "cpu", "2", threads].map(str::to_owned).to_vec());
    assert_eq!(rows, expected, "{table}");
}

#[test]
fn programs_get_one_object_per_row() {
    let output = bench(&[&QUICK[..], &["--threads", "1", "--json"]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    let row: serde_json::Value = serde_json::from_str(text.trim()).unwrap();
    assert_eq!((&row["model"], &row["batch"], &row["threads"]), (&"linear".into(), &2.into(), &1.into()));
    for figure in [
        "ms_per_step",
        "samples_per_s",
        "gflops",
        "peak_share",
        "estimated_mb",
        "peak_mb",
        "first_step_ms",
        "steps",
    ] {
        // Other systems do not say how much memory a process has used.
        let absent = figure.ends_with("_mb") && !cfg!(target_os = "linux");
        assert!(absent || row[figure].as_f64().unwrap() > 0.0, "{figure}: {text}");
    }
}

/// `join` refuses runs by this estimate. Each thread packs the operands of its matrix products, as many as its cache holds, which the
/// estimate has for few threads.
#[cfg(target_os = "linux")]
#[test]
fn the_estimate_of_memory_is_near_the_peak_that_is_measured() {
    for (model, batch) in [
        ("mlp-25m", "10"),
        ("cnn-mnist", "64"),
        ("cnn-cifar", "64"),
        ("resnet-9", "10"),
        ("resnet-18", "10"),
        ("char-lstm", "10"),
    ] {
        let arguments = [
            "--model",
            model,
            "--batch",
            batch,
            "--threads",
            "2",
            "--seconds",
            "0.001",
            "--device=cpu",
            "--json",
        ];
        let text = String::from_utf8(bench(&arguments).stdout).unwrap();
        let row: serde_json::Value = serde_json::from_str(text.trim()).unwrap();
        let [estimated, peak] = ["estimated_mb", "peak_mb"].map(|figure| row[figure].as_f64().unwrap());
        let ratio = estimated / peak;
        assert!((0.7..=1.6).contains(&ratio), "{model} in batches of {batch}: {estimated} MB for {peak} MB");
    }
}

#[test]
fn noise_is_pixels_or_tokens() {
    for model in ["char-lstm", "lenet-5"] {
        let output =
            bench(&["--model", model, "--batch", "1", "--seconds", "0.01", "--device", "cpu", "--json"]);
        assert_eq!(output.status.code(), Some(0), "{model}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn mistakes_are_told_before_anything_is_measured() {
    for (arguments, said) in [
        (&["--model", "lenet"][..], "known are"),
        (&["--model", "lenet-5", "--input", "1x3x3"], "extractor.conv2"),
        (&["--input", "3x"], "1x28x28"),
        (&["--batch", "0"], "at least 1"),
        (&["--threads", "0"], "at least 1"),
        (&["--seconds", "0"], "seconds"),
    ] {
        let output = bench(arguments);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        assert!(error.contains(said) && output.stdout.is_empty(), "{arguments:?}: {error}");
    }
}

/// A stopped benchmark leaves no process behind that goes on measuring.
#[cfg(unix)]
#[test]
fn a_measuring_process_ends_with_the_one_that_waits_for_it() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_edge-client"))
        .args([
            "bench",
            "--in-process",
            "--model",
            "linear",
            "--input",
            "1x4x4",
            "--batch",
            "2",
            "--threads",
            "1",
        ])
        .args(["--seconds", "3600", "--device", "cpu"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut first).unwrap();
    assert!(first.contains("first_step"), "{first}");
    assert_eq!(child.try_wait().unwrap(), None, "it measures");
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

#[test]
fn answers_of_every_kind_of_model_are_measured_as_programs_get_them() {
    let quick = ["--predict", "--seconds", "0.01"];
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.safetensors");
    let architecture = models::Architecture::by_name("linear", &[3], 2).unwrap();
    let params = architecture.initialise(|_| shared::seed::Seed::root(1).rng()).unwrap();
    let mut out = std::fs::File::create(&file).unwrap();
    models::write_model(&architecture, &params, &std::collections::BTreeMap::new(), &mut out).unwrap();
    let mine = file.to_str().unwrap();
    let output = bench(&[&quick[..], &["--json", "--model", "lenet-5", "--model", mine]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let rows: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.iter().map(|row| row["model"].as_str().unwrap()).collect::<Vec<_>>(), ["lenet-5", mine]);
    for row in &rows {
        for figure in ["start_ms", "median_ms", "p99_ms", "requests"] {
            assert!(row[figure].as_f64().unwrap() > 0.0, "{figure}: {text}");
        }
        assert!(row["p99_ms"].as_f64() >= row["median_ms"].as_f64(), "{text}");
        assert_eq!(row["peak_mb"].is_number(), cfg!(target_os = "linux"), "{text}");
    }
    assert!(rows[0]["image_ms"].is_number() && rows[1]["image_ms"].is_null(), "{text}");

    let table = bench(&[&quick[..], &["--model", "lenet-5"]].concat());
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(table.starts_with("model ") && table.lines().all(|line| line.len() <= 80), "{table}");
    // Words are asked for by their numbers.
    let words = bench(&[&quick[..], &["--json", "--model", "word-lstm"]].concat());
    assert_eq!(words.status.code(), Some(0), "{}", String::from_utf8_lossy(&words.stderr));
    let (arguments, said) = (["--batch", "3"], "cannot be used with");
    let output = bench(&[&quick[..], &arguments].concat());
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && error.contains(said), "{error}");
}
