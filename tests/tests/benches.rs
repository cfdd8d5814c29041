//! `edge-client bench` of a network that is in no registry.
#![cfg(unix)]

use std::path::Path;

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

#[test]
fn what_cannot_be_measured_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let (lab, device) = (&programs().aggregator, &programs().edge_client);
    let init =
        run(Path::new(env!("CARGO_BIN_EXE_federation-lab")), &["trainer", "--init", &at("init.safetensors")]);
    assert_eq!(init.code, Some(0), "{}", init.text);
    let opaque = format!("model.parameters={}", at("init.safetensors"));
    let trainer = format!("simulation.trainer={} trainer", env!("CARGO_BIN_EXE_federation-lab"));
    for (name, settings) in [
        ("opaque", [opaque.as_str(), &trainer, "evaluate.every=0"]),
        ("ensemble", ["algorithm.ensemble={}", "model.name=linear", "training.epochs=1"]),
    ] {
        let name = format!("run.name={name}");
        let common = ["--set", &name, "--set", "run.rounds=1", "--set", "data.clients=2"];
        let set = settings.map(|setting| ["--set", setting]);
        let made =
            run(lab, &[&["simulate", "--runs", &at("runs")], &common[..], set.as_flattened()].concat());
        assert_eq!(made.code, Some(0), "{}", made.text);
    }
    for (model, code, part) in [
        (at("runs/opaque"), 2, "its owner's program trains it"),
        (at("runs/ensemble"), 3, "ensemble"),
        (at("runs/onw"), 3, "onw is not there"),
        (at("init.safetensors"), 3, "was not written as a model by this program"),
        ("lenet-6".to_owned(), 2, "lenet-5"),
    ] {
        let refused = run(device, &["bench", "--model", &model]);
        assert!(refused.code == Some(code) && refused.text.contains(part), "{model}: {refused:?}");
    }
}
