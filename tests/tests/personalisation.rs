//! Personal models: made in rounds, with crashes at any step; used, tested and refreshed by the programs without a connection.
#![cfg(unix)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use aggregator::coordinator::Outcome;
use federation_tests::faults::Faults;
use federation_tests::faulty_disk::Loss;
use federation_tests::process::{Ended, run};
use federation_tests::programs::programs;
use federation_tests::scenario::Scenario;
use federation_tests::simulator::Simulator;
use federation_tests::testbed::Testbed;
use serde_json::Value;
use shared::id::RunId;
use shared::personalisation::Method;
use shared::personalisation::Personal;

const LIMIT: Duration = Duration::from_hours(24);

/// A small network with an extractor and a head; personal models of all kinds, of which MFE's is kept.
const SETTINGS: [&str; 8] = [
    "model.name=cnn-small",
    "run.rounds=2",
    "personalisation.method=[\"mfe\",\"ft\",\"fb\",\"mf\",\"fixed\"]",
    "personalisation.head.learning-rate=0.1",
    "personalisation.head.batch=8",
    "personalisation.gate.learning-rate=0.05",
    "evaluate.hold-out=0.25",
    "personalisation.report.gate=false",
];

fn scenario(more: &[&str]) -> Scenario {
    Scenario::small(&[&SETTINGS[..], &["round.min-updates=4"], more].concat())
}

fn simulator(scenario: &Scenario, directory: &Path) -> Simulator {
    Simulator::new(scenario.clone(), Faults::NONE, 0, directory)
}

fn kept(simulator: &Simulator) -> Vec<Vec<u8>> {
    let run = RunId::from_bytes([9; 8]);
    simulator.devices().iter().map(|device| device.personal(run).unwrap_or_default()).collect()
}

#[test]
fn every_client_makes_its_own_of_the_last_model_and_tells_what_it_may() {
    let directory = tempfile::tempdir().unwrap();
    let scenario = scenario(&[]);
    let mut simulator = simulator(&scenario, directory.path());
    assert_eq!(simulator.run_until_end(LIMIT), Some(Outcome::Completed));
    let records = simulator.records();
    assert_eq!(records.iter().map(|record| record.closing).collect::<Vec<_>>(), [false, false, true]);
    let closing = &records[2];
    assert_eq!((closing.clients.len(), records[1].clients.len()), (4, 0));
    let subjects = ["", "fb-", "fixed-", "ft-", "mf-", "mfe-"];
    let names = subjects.iter().flat_map(|of| ["global", "local"].map(|test| format!("{of}{test}-test")));
    let mut names: Vec<String> = names.collect();
    names.sort();
    for measured in closing.clients.values() {
        assert_eq!(measured.keys().collect::<Vec<_>>(), names.iter().collect::<Vec<_>>());
        assert!(measured.values().all(|share| (0.0..=1.0).contains(share)), "{measured:?}");
    }
    for ((device, share), bytes) in simulator.devices().iter().zip(&scenario.shares).zip(kept(&simulator)) {
        let personal = Personal::from_bytes(&bytes).unwrap();
        assert_eq!((personal.round, personal.model.method), (3, Method::Mfe), "{}", device.client());
        assert_eq!(personal.model.global, simulator.model());
        // A quarter of its forty samples is held out for tests, and a quarter of the rest is the gate's.
        assert_eq!((personal.split.samples(), personal.split.gate.len()), (30, 7));
        // Each sample is of one kind, and those that are held out are those that the specification says.
        let parts = [&personal.split.expert, &personal.split.gate, &personal.held_out];
        let mut all: Vec<u32> = parts.into_iter().flatten().copied().collect();
        all.sort_unstable();
        assert_eq!(all, (0..40).collect::<Vec<u32>>());
        let mut held_out = scenario.config.spec.divided(device.client(), share).1;
        held_out.sort_unstable();
        assert_eq!(personal.held_out, held_out);
    }
    // One model is not another's.
    let models: std::collections::BTreeSet<_> = kept(&simulator).into_iter().collect();
    assert_eq!(models.len(), 4);
    // The update of the closing round is an empty record: what came up is the reports.
    assert!(closing.bytes_up < 4 * 1000, "{closing:?}");
}

#[test]
fn personal_models_can_be_made_on_the_way() {
    let directory = tempfile::tempdir().unwrap();
    let mut simulator = simulator(&scenario(&["personalisation.every=1", "run.rounds=3"]), directory.path());
    assert_eq!(simulator.run_until_end(LIMIT), Some(Outcome::Completed));
    let records = simulator.records();
    assert_eq!(records.iter().map(|record| record.clients.len()).collect::<Vec<_>>(), [0, 4, 4, 4]);
    // Of the first global model in the second round: as after a run of one round.
    let other = tempfile::tempdir().unwrap();
    let mut short = Simulator::new(scenario(&["run.rounds=1"]), Faults::NONE, 0, other.path());
    assert_eq!(short.run_until_end(LIMIT), Some(Outcome::Completed));
    assert_eq!(short.records()[1].clients, records[1].clients);
    for (first, last) in kept(&short).iter().zip(kept(&simulator)) {
        let [first, last] = [first, &last].map(|bytes| Personal::from_bytes(bytes).unwrap());
        assert_eq!((first.round, last.round), (2, 4));
        assert_eq!(first.split, last.split, "what a gate learns from stays the same");
    }
    // Training is what it is without.
    let directory = tempfile::tempdir().unwrap();
    let mut plain = Scenario::small(&[&SETTINGS[..2], &["round.min-updates=4", "run.rounds=3"]].concat());
    plain.config.spec.evaluate.hold_out = 0.25;
    let mut without = Simulator::new(plain, Faults::NONE, 0, directory.path());
    assert_eq!(without.run_until_end(LIMIT), Some(Outcome::Completed));
    assert_eq!(without.model(), simulator.model());
}

#[test]
fn after_any_crash_the_personal_models_are_the_same() {
    let scenario = scenario(&["run.rounds=1"]);
    let directory = tempfile::tempdir().unwrap();
    let mut reference = simulator(&scenario, directory.path());
    assert_eq!(reference.run_until_end(LIMIT), Some(Outcome::Completed));
    let found = |simulator: &Simulator| -> Vec<BTreeMap<_, _>> {
        simulator.records().iter().map(|record| record.clients.clone()).collect()
    };
    // A run that dies before it has begun begins again as another run.
    let models = |simulator: &Simulator| -> Vec<Personal> {
        let personal = |bytes: &Vec<u8>| Personal::from_bytes(bytes).unwrap();
        let of_any_run = |personal| Personal { run: RunId::from_bytes([0; 8]), ..personal };
        kept(simulator).iter().map(personal).map(of_any_run).collect()
    };
    for fatal in (0..reference.disk().operations()).step_by(3) {
        let directory = tempfile::tempdir().unwrap();
        let mut simulator = simulator(&scenario, directory.path());
        simulator.synced_uploads = true;
        simulator.die_at(fatal, if fatal % 2 == 0 { Loss::Nothing } else { Loss::Everything });
        assert_eq!(simulator.run_until_end(LIMIT), Some(Outcome::Completed), "death at operation {fatal}");
        assert_eq!(found(&simulator), found(&reference), "death at operation {fatal}");
        assert!(models(&simulator) == models(&reference), "death at operation {fatal}");
    }
}

/// Runs the client's program to its end.
fn client(arguments: &[&str]) -> Ended {
    run(&programs().edge_client, arguments)
}

fn last_line(ended: &Ended) -> Value {
    assert_eq!(ended.code, Some(0), "{}", ended.text);
    serde_json::from_str(ended.text.lines().last().unwrap()).unwrap()
}

#[test]
fn devices_answer_with_their_own_models_and_take_newer_global_ones() {
    // A quarter of their samples is held out. Devices test personal models on their test split, which is the simulation's
    // common one.
    let testbed = Testbed::new(2, &[&SETTINGS[..], &["run.rounds=1"]].concat());
    for index in 0..2 {
        for file in fs::read_dir(testbed.path("data/test")).unwrap().map(Result::unwrap) {
            fs::copy(file.path(), testbed.data(index).join(file.file_name())).unwrap();
        }
    }
    let server = testbed.serve();
    let devices: Vec<_> = (0..2).map(|index| testbed.join(index)).collect();
    for device in devices {
        assert_eq!(device.wait().code, Some(0));
    }
    assert_eq!(server.wait().code, Some(0));
    assert!(testbed.model() == testbed.simulated(), "the model is not the simulation's");
    let closing = testbed.rounds().pop().unwrap();
    let simulated = testbed.path("simulated").join(testbed.run().file_name().unwrap());
    for index in 0..2 {
        let id = testbed.client(index);
        let file =
            fs::read_dir(testbed.state(index).join("personal")).unwrap().next().unwrap().unwrap().path();
        let bytes = fs::read(&file).unwrap();
        let kept = Personal::from_bytes(&bytes).unwrap();
        // The simulated client's is the same, but for the run that it was made in.
        let virtual_one =
            fs::read(simulated.join(format!("state/clients/{id}.personal.safetensors"))).unwrap();
        let virtual_one = Personal::from_bytes(&virtual_one).unwrap();
        assert_eq!(Personal { run: virtual_one.run, ..kept.clone() }, virtual_one);

        let (state, data) =
            (testbed.state(index).display().to_string(), testbed.data(index).display().to_string());
        let at = ["--state", &state, "--data", &data, "--json"];
        // What the device says offline is what the server was told.
        let elsewhere = testbed.name("data/test");
        let evaluation = last_line(&client(&[&["evaluate", "--test", &elsewhere], &at[..]].concat()));
        for (key, name) in [("global", "global-test"), ("mixture", "mfe-global-test")] {
            let told = closing.clients[&id][name];
            let found = evaluation[key]["global-test"].as_f64().unwrap();
            assert!((told - found).abs() < 1e-9, "{name}: {told} {found}");
        }
        for (key, name) in [("global", "local-test"), ("mixture", "mfe-local-test")] {
            let (told, found) = (closing.clients[&id][name], evaluation[key]["local-test"].as_f64().unwrap());
            assert!((told - found).abs() < 1e-9, "{name}: {told} {found}");
        }
        let by_class = &evaluation["by-class"]["classes"];
        let sum = |key: &str| {
            by_class.as_array().unwrap().iter().map(|class| class[key].as_f64().unwrap()).sum::<f64>()
        };
        let right = evaluation["mixture"]["global-test"].as_f64().unwrap();
        assert!(
            (sum("correct") / sum("samples") - right).abs() < 1e-9,
            "the mixture, by class: {evaluation}"
        );
        // Without a test split it is about what was held out.
        let alone = testbed.name(&format!("alone-{index}"));
        fs::create_dir(&alone).unwrap();
        for file in fs::read_dir(&data).unwrap().map(Result::unwrap) {
            if file.file_name().to_str().unwrap().starts_with("train") {
                fs::copy(file.path(), Path::new(&alone).join(file.file_name())).unwrap();
            }
        }
        let held_out = last_line(&client(&["evaluate", "--state", &state, "--data", &alone, "--json"]));
        assert_eq!(held_out["samples"].as_u64(), Some(kept.held_out.len() as u64));
        let predicted = client(&[&["predict", "--personal", "--gate"], &at[..]].concat());
        let score = last_line(&predicted);
        assert!((score["accuracy"].as_f64().unwrap() - closing.clients[&id]["mfe-global-test"]).abs() < 1e-9);
        let row: Value = serde_json::from_str(predicted.text.lines().next().unwrap()).unwrap();
        assert!(row["gate"].as_f64().is_some_and(|gate| gate > 0.0 && gate < 1.0), "{row}");

        // A newer global model of the same network is taken; the personal head stays.
        let model = testbed.run().join("model.safetensors").display().to_string();
        let newer = testbed.name("newer.safetensors");
        let (architecture, mut params, extra) =
            models::read_model(&mut &fs::read(&model).unwrap()[..]).unwrap();
        params.scale(0.5);
        models::write_model(&architecture, &params, &extra, &mut fs::File::create(&newer).unwrap()).unwrap();
        last_line(&client(&["refresh", "--model", &newer, "--state", &state, "--json"]));
        let refreshed = Personal::from_bytes(&fs::read(&file).unwrap()).unwrap();
        assert_eq!((&refreshed.model.local, &refreshed.model.gate), (&kept.model.local, &kept.model.gate));
        assert_eq!(refreshed.model.global, params);
        last_line(&client(&[&["evaluate"], &at[..]].concat()));

        // One of another network is not, and nothing is lost.
        let other =
            models::Architecture::by_name("mlp-2nn", &architecture.input, architecture.classes).unwrap();
        let params = other.initialise(|name| shared::seed::Seed::root(1).derive(name).rng()).unwrap();
        models::write_model(&other, &params, &extra, &mut fs::File::create(&newer).unwrap()).unwrap();
        let refused = client(&["refresh", "--model", &newer, "--state", &state]);
        assert_eq!(refused.code, Some(3), "{}", refused.text);
        for part in ["extractor.", "kept as it was", "cnn-small"] {
            assert!(refused.text.contains(part), "no {part:?} in {}", refused.text);
        }
        assert_eq!(Personal::from_bytes(&fs::read(&file).unwrap()).unwrap(), refreshed);
    }
}
