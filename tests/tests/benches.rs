//! `edge-client bench` of a network that is in no registry.
#![cfg(unix)]

use federation_tests::process::run;
use federation_tests::programs::programs;
use serde_json::Value;

#[test]
fn training_of_a_run_s_own_network_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().join("runs").display().to_string();
    let network =
        "model.layers=[{ conv = { out = 4, kernel = 5, stride = 3 } }, 'flatten', { linear = 'classes' }]";
    let set = ["run.name=own", "run.rounds=1", "training.epochs=0", network].map(|set| ["--set", set]);
    let made = run(&programs().aggregator, &[&["simulate", "--runs", &runs], set.as_flattened()].concat());
    assert_eq!(made.code, Some(0), "{}", made.text);
    let file = folder.path().join("runs/own/model.safetensors").display().to_string();
    for model in [format!("{runs}/own"), file] {
        let bench =
            ["bench", "--model", &model, "--batch", "4", "--threads", "1", "--seconds", "0.1", "--json"];
        let told = run(&programs().edge_client, &bench);
        assert_eq!(told.code, Some(0), "{}", told.text);
        let row: Value = serde_json::from_str(told.text.trim()).unwrap();
        assert_eq!((row["model"].as_str(), row["batch"].as_u64()), (Some(model.as_str()), Some(4)), "{row}");
        assert!(row["ms_per_step"].as_f64() > Some(0.0), "{row}");
        let shaped = run(&programs().edge_client, &[&bench[..], &["--input", "1x28x28"]].concat());
        assert!(shaped.code == Some(2) && shaped.text.contains("leave --input out"), "{}", shaped.text);
    }
}
