//! Frozen parameters: they are what they were in the beginning, travel once, and are a part of every model that is written.
#![cfg(unix)]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aggregator::config::{Config, Raw};
use aggregator::storage::Disk;
use edge_client::store::PersonalModels;
use federation_tests::process::Process;
use federation_tests::scenario::Scenario;
use federation_tests::testbed::Testbed;
use federation_tests::whole_run::{start, whole};
use models::ParamSet;
use serde_json::json;
use shared::id::RunId;

/// Two hidden layers, of which the first is frozen: the representation is learned all the same.
const FIRST: [&str; 2] = ["model.name=mlp-2nn", "model.freeze=['extractor.fc1.*']"];
/// All but the head is frozen.
const HEAD_ALONE: [&str; 2] = ["model.name=mlp-2nn", "model.freeze=['extractor.*']"];

/// The tensors of a model's file, which any reader of models reads.
fn tensors(path: &Path) -> ParamSet {
    let (architecture, params, _) = models::read_model(&mut fs::File::open(path).unwrap()).unwrap();
    assert!(architecture.frozen.is_none());
    params
}

/// What a run of these settings begins with, if everything is learned.
fn initial(settings: &[&str]) -> ParamSet {
    let folder = tempfile::tempdir().unwrap();
    let settings: Vec<&str> =
        settings.iter().copied().filter(|set| !set.starts_with("model.freeze")).collect();
    let begun = start(Arc::new(Disk), folder.path(), &Scenario::small(&settings)).unwrap();
    begun.run.current_model().unwrap()
}

/// Every tensor whose name begins with `frozen` is what it was; of the others something was learned if `learned`.
fn assert_frozen(model: &ParamSet, initial: &ParamSet, frozen: &str, learned: bool, of: &str) {
    initial.check_same_layout(model).unwrap();
    let mut moved = false;
    for (name, array) in model {
        let same = initial.get(name) == Some(array);
        assert!(same || !name.starts_with(frozen), "{of}: {name} is frozen");
        moved |= !same;
    }
    assert_eq!(moved, learned, "{of}");
}

#[tokio::test]
async fn every_algorithm_learns_the_rest() {
    let begun = initial(&["model.name=mlp-2nn"]);
    // Its network has a tensor more.
    let of_fedetf = initial(&["model.name=mlp-2nn", "algorithm.fedetf={}"]);
    for algorithm in shared::algorithm::registry::names() {
        let (parameters, settings): (&str, &[&str]) = match algorithm {
            // They keep whole models side by side, and are refused.
            "ensemble" | "fafi" | "fedproto" => continue,
            "fedmatch" => ("lambda-l2=0.5", &["data.labels=server", "data.labelled=40"]),
            "fedmix" => ("", &["data.labels=server", "data.labelled=40"]),
            "fedsgd" => ("", &["training.batch=0"]),
            _ => ("", &[]),
        };
        let name = format!("algorithm.{algorithm}={{{parameters}}}");
        let scenario = Scenario::small(&[&FIRST, &[name.as_str()][..], settings].concat());
        let [one, two] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let run = whole(one.path(), &scenario).await;
        let model = tensors(&run.directory().model());
        let begun = if algorithm == "fedetf" { &of_fedetf } else { &begun };
        assert_frozen(&model, begun, "extractor.fc1.", algorithm != "local", algorithm);
        assert!(run.current_model().unwrap().names().all(|name| !name.starts_with("extractor.fc1.")));
        let again = whole(two.path(), &scenario).await;
        assert!(tensors(&again.directory().model()) == model, "{algorithm}");
    }
}

/// Convolutions with batch normalisation, whose running statistics are a part of what is frozen.
#[tokio::test]
async fn a_backbone_of_convolutions_keeps_its_running_statistics() {
    let network =
        ["model.name=resnet-18", "model.norm=batch", "data.clients=2", "data.max-samples=24", "run.rounds=2"];
    let begun = initial(&network);
    assert!(begun.names().any(|name| name.starts_with("extractor.") && name.ends_with(".running-mean")));
    for (frozen, kept) in [("extractor.*", "extractor."), ("extractor.layer1-*", "extractor.layer1-")] {
        let freeze = format!("model.freeze=['{frozen}']");
        let scenario = Scenario::small(&[&network[..], &[freeze.as_str()]].concat());
        let folder = tempfile::tempdir().unwrap();
        let run = whole(folder.path(), &scenario).await;
        assert_frozen(&tensors(&run.directory().model()), &begun, kept, true, frozen);
        assert!(run.current_model().unwrap().names().all(|name| !name.starts_with(kept)));
    }
}

#[tokio::test]
async fn server_optimisers_rules_and_other_precisions_leave_them_alone() {
    let begun = initial(&["model.name=mlp-2nn"]);
    for settings in [
        &[
            "aggregation.server-optimizer.adam={}",
            "training.optimizer.sgd.momentum=0.9",
            "training.clip-norm=0.5",
        ][..],
        &["aggregation.rule.median={}", "aggregation.weights=uniform"],
        &["update.precision=f16", "round.staleness.enabled=true"],
    ] {
        let folder = tempfile::tempdir().unwrap();
        let run = whole(folder.path(), &Scenario::small(&[&HEAD_ALONE, settings].concat())).await;
        assert_frozen(&tensors(&run.directory().model()), &begun, "extractor.", true, settings[0]);
    }
}

#[tokio::test]
async fn a_run_begins_with_what_another_has_learned_and_freezes_it() {
    let folder = tempfile::tempdir().unwrap();
    let first = whole(folder.path(), &Scenario::small(&["model.name=mlp-2nn"])).await;
    let learned = tensors(&first.directory().model());
    let from = format!("model.from.run={}", first.directory().root().display());
    let second = Scenario::small(&[&HEAD_ALONE[..], &["run.name=second", from.as_str()]].concat());
    let run = whole(folder.path(), &second).await;
    assert_frozen(&tensors(&run.directory().model()), &learned, "extractor.", true, "the second run");
    // And one of the frozen run, whose model is taken from its checkpoint.
    fs::remove_file(run.directory().model()).unwrap();
    let from = format!("model.from.run={}", run.directory().root().display());
    let third = Scenario::small(&["model.name=mlp-2nn", "run.name=third", from.as_str()]);
    let begun = start(Arc::new(Disk), folder.path(), &third).unwrap().run.current_model().unwrap();
    assert_frozen(&begun, &learned, "extractor.", true, "the third run");
}

#[tokio::test]
async fn a_run_whose_frozen_parameters_are_damaged_or_gone_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = Scenario::small(&HEAD_ALONE);
    let begun = start(Arc::new(Disk), folder.path(), &scenario).unwrap();
    let state = begun.run.directory().state();
    drop(begun);
    let file = frozen_in(&state);
    let mut bytes = fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&file, bytes).unwrap();
    let refused = |what: &str| {
        let error = start(Arc::new(Disk), folder.path(), &scenario).err().unwrap().to_string();
        assert!(error.contains("damaged") && error.contains(what), "{error}");
    };
    refused("digest");
    fs::remove_file(&file).unwrap();
    refused("the frozen parameters are not in it");
}

/// The one file of frozen parameters in a folder.
fn frozen_in(folder: &Path) -> PathBuf {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files = files.filter(|path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.ends_with(".safetensors") && (name.starts_with("frozen-") || folder.ends_with("frozen"))
    });
    let file = files.next().unwrap();
    assert_eq!(files.next(), None);
    file
}

#[test]
fn over_quic_they_travel_once_and_a_round_takes_what_is_learned() {
    let testbed = Testbed::new(2, &[&HEAD_ALONE[..], &["run.rounds=4"]].concat());
    let server = testbed.serve();
    let devices: Vec<Process> = (0..2).map(|index| testbed.join(index)).collect();
    testbed.assert_completed(server, devices);
    let model = tensors(&testbed.run().join("model.safetensors"));
    let head = 4 * model.select("head.").parameters() as u64;
    let backbone = 4 * model.select("extractor.").parameters() as u64;
    for record in testbed.rounds() {
        let bound = 2 * (head + 4096);
        let once = if record.round == 1 { 2 * (backbone + 4096) } else { 0 };
        assert!(
            record.bytes_up <= bound,
            "round {}: {} bytes up, {bound} allowed",
            record.round,
            record.bytes_up
        );
        assert!(
            record.bytes_down <= bound + once,
            "round {}: {} bytes down",
            record.round,
            record.bytes_down
        );
        assert!(record.bytes_down >= once, "round {}: they are sent in it", record.round);
    }
}

#[test]
fn twenty_rounds_and_kills_of_both_sides_leave_them_bit_for_bit() {
    let testbed = Testbed::new(2, &[&HEAD_ALONE[..], &["run.rounds=20"]].concat());
    let begun = initial(&["model.name=mlp-2nn"]);
    let server = testbed.serve();
    let gate = testbed.gate(1);
    let device = testbed.join(0);
    let pass = |round| {
        let held = gate.held();
        assert_eq!(held.round, round);
        held.open();
        let _ = gate.receipt(round);
    };
    (1..=5).for_each(pass);
    device.kill();
    let mut device = testbed.join(0);
    (6..=9).for_each(pass);
    let kept = frozen_in(&testbed.state(0).join("frozen"));
    server.kill();
    let server = testbed.serve();
    device.object(&json!({ "event": "disconnected" }));
    device.object(&json!({ "event": "joined" }));
    // A flipped bit is told, and they are received again.
    device.kill();
    let mut bytes = fs::read(&kept).unwrap();
    bytes[1000] ^= 4;
    fs::write(&kept, &bytes).unwrap();
    let mut device = testbed.join(0);
    // If it had trained in round 10 before it was killed, it needs them in the next round.
    pass(10);
    device.line("the damage is told", |line| line.contains("received again"));
    (11..=20).for_each(pass);
    assert_eq!(device.wait().code, Some(0));
    assert_eq!(server.wait().code, Some(0));
    bytes[1000] ^= 4;
    assert!(fs::read(&kept).unwrap() == bytes, "what was received again is what was received first");
    assert_frozen(&tensors(&testbed.run().join("model.safetensors")), &begun, "extractor.", true, "the run");
    assert!(testbed.model() == testbed.simulated(), "the model is not the simulation's");
}

#[test]
fn a_second_run_finds_them_on_the_device() {
    let testbed = Testbed::new(2, &HEAD_ALONE);
    let first = testbed.serve();
    testbed.assert_completed(first, (0..2).map(|index| testbed.join(index)).collect());
    let server = testbed.serve_with(&["--fresh"]);
    for device in (0..2).map(|index| testbed.join(index)).collect::<Vec<_>>() {
        assert_eq!(device.wait().code, Some(0));
    }
    assert_eq!(server.wait().code, Some(0));
    let runs = fs::read_dir(testbed.path("runs")).unwrap().map(|entry| entry.unwrap().path());
    let second = runs
        .filter(|path| path.is_dir() && *path != testbed.run())
        .find(|path| path.join("rounds.jsonl").is_file());
    let text = fs::read_to_string(second.unwrap().join("rounds.jsonl")).unwrap();
    let down = aggregator::round::jsonl::read(text.as_bytes()).unwrap().records[0].bytes_down;
    assert!(down < 100_000, "{down} bytes down: the frozen parameters are sent again");
}

#[test]
fn a_personal_model_is_whole() {
    let personal = ["personalisation.method=['fb', 'ft']", "personalisation.every=0", "run.rounds=2"];
    let testbed = Testbed::new(2, &[&HEAD_ALONE[..], &personal].concat());
    let server = testbed.serve();
    for device in (0..2).map(|index| testbed.join(index)).collect::<Vec<_>>() {
        let ended = device.wait();
        assert_eq!(ended.code, Some(0), "{}", ended.text);
    }
    assert_eq!(server.wait().code, Some(0));
    let model = PersonalModels::of(&testbed.state(0)).open(None).unwrap().model;
    assert!(model.architecture.frozen.is_none());
    assert_eq!(model.global, tensors(&testbed.run().join("model.safetensors")));
    assert_ne!(model.local, model.global.select("head."), "its head has learned");
}

/// What is said of a configuration that makes no sense.
fn refused(settings: &[&str]) -> String {
    let settings: Vec<String> = settings.iter().map(ToString::to_string).collect();
    let raw = Raw::layered(None, &settings).unwrap();
    Config::validate(&raw, RunId::from_bytes([9; 8])).unwrap_err().to_string()
}

#[test]
fn what_cannot_be_frozen_is_refused_with_the_reason() {
    let said = refused(&["model.name=mlp-2nn", "model.freeze=['extractor.*', 'extractor.fc9.weight']"]);
    for name in ["extractor.fc9.weight", "extractor.fc1.weight", "extractor.fc2.weight", "nearest are"] {
        assert!(said.contains(name), "{name}: {said}");
    }
    assert!(refused(&["model.name=mlp-2nn", "model.freeze=['*']"]).contains("nothing is left to learn"));
    let said = refused(&[&FIRST[..], &["algorithm.fafi={}", "evaluate.on-clients-every=0"]].concat());
    assert!(said.contains("fafi keeps whole models side by side"), "{said}");
    let said = refused(&[&FIRST[..], &["aggregation.rule.fedma={}"]].concat());
    assert!(said.contains("cannot be exchanged"), "{said}");
    // Under MOON the representation is compared, which is the same under every model if all below the head is frozen.
    let said = refused(&[&HEAD_ALONE[..], &["algorithm.moon={}"]].concat());
    assert!(said.contains("moon"), "{said}");
    let said = refused(&[&HEAD_ALONE[..], &["training.measure.alignment=true"]].concat());
    assert!(said.contains("nothing is learned below its head"), "{said}");
}

#[tokio::test]
async fn freezing_nothing_changes_nothing() {
    let scenario = Scenario::small(&["model.name=mlp-2nn"]);
    let text = shared::spec::SpecText::of(&scenario.config.spec);
    assert!(!text.as_str().contains("frozen"), "{}", text.as_str());
}
