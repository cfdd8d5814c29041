//! One-shot learning through whole runs: the clients' models side by side, with crashes at any step, and between processes.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use aggregator::coordinator::{Outcome, Resume};
use aggregator::data::TestSet;
use aggregator::ensemble::{Bundle, leave_out};
use aggregator::events::Notice;
use aggregator::run::Run;
use aggregator::run::directory::RunDirectory;
use aggregator::simulate::{Transport, simulate};
use aggregator::storage::Disk;
use federation_tests::faults::Faults;
use federation_tests::faulty_disk::Loss;
use federation_tests::scenario::Scenario;
use federation_tests::simulator::Simulator;
use models::{ParamSet, Precision};
use shared::record::ToRecord as _;
use tokio::sync::watch;

const LIMIT: Duration = Duration::from_hours(24);

/// Four clients in one round, unless more is said.
const ONE_SHOT: [&str; 6] = [
    "algorithm.fafi={}",
    "model.name=mlp-2nn",
    "run.rounds=1",
    "round.min-updates=4",
    "training.batch=0",
    "augment.random-shift=1",
];

fn scenario(more: &[&str]) -> Scenario {
    Scenario::small(&[&ONE_SHOT[..], more].concat())
}

/// The ensemble of a run under these faults.
fn left(scenario: &Scenario, faults: Faults, seed: u64) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let simulator = Simulator::completed(scenario, faults, seed, directory.path());
    fs::read(simulator.run_directory().ensemble()).unwrap()
}

#[test]
fn the_ensemble_is_the_same_under_any_faults() {
    let scenario = scenario(&[]);
    let reference = left(&scenario, Faults::NONE, 0);
    for seed in 0..6 {
        assert!(left(&scenario, Faults::HEAVY, seed) == reference, "seed {seed}");
    }
}

#[test]
fn a_kill_at_any_operation_gives_the_same_ensemble() {
    // Two rounds of two clients each, or of one who was there before.
    let scenario = scenario(&["run.rounds=2", "round.fraction=0.5", "round.min-updates=2"]);
    let directory = tempfile::tempdir().unwrap();
    let simulator = Simulator::completed(&scenario, Faults::NONE, 0, directory.path());
    let operations = simulator.disk().operations();
    let reference = fs::read(simulator.run_directory().ensemble()).unwrap();
    for (fatal, loss) in (0..operations).flat_map(|fatal| [(fatal, Loss::Nothing), (fatal, Loss::Everything)])
    {
        let directory = tempfile::tempdir().unwrap();
        let mut simulator = Simulator::new(scenario.clone(), Faults::NONE, 0, directory.path());
        simulator.die_at(fatal, loss);
        simulator.forgiving = loss != Loss::Nothing;
        assert_eq!(simulator.run_until_end(LIMIT), Some(Outcome::Completed), "{fatal} {loss:?}");
        assert!(fs::read(simulator.run_directory().ensemble()).unwrap() == reference, "{fatal} {loss:?}");
    }
}

pub(crate) async fn simulated(scenario: &Scenario, threads: usize) -> (tempfile::TempDir, Run) {
    let tests = TestSet::new(scenario.shares[0].clone(), scenario.config.spec.data.preparation.clone(), 16);
    let directory = tempfile::tempdir().unwrap();
    let root = RunDirectory::new(directory.path().join("run"));
    let run = Run::begin(Arc::new(Disk), root, scenario.config.clone(), Some(tests)).unwrap();
    let (_stop, stopped) = watch::channel(false);
    let shares = scenario.shares.clone();
    let simulated =
        simulate(run, Resume::default(), shares, Transport::Memory, threads, stopped, &mut |_: &Notice<
            '_,
        >| {})
        .await;
    let (run, outcome) = simulated.unwrap();
    assert_eq!(outcome, Outcome::Completed);
    (directory, run)
}

/// Clients tell the difference to what they were sent, and it is added to what the server has.
#[test]
fn whose_models_stay_apart_begins_with_what_is_sent() {
    let begins = |algorithm: &str, broadcast: &str| {
        let (algorithm, broadcast) =
            (format!("algorithm.{algorithm}={{}}"), format!("update.broadcast={broadcast}"));
        let overrides = [algorithm.as_str(), "model.name=mlp-2nn", &broadcast];
        let directory = tempfile::tempdir().unwrap();
        let root = RunDirectory::new(directory.path().join("run"));
        let run = Run::begin(Arc::new(Disk), root, Scenario::small(&overrides).config, None).unwrap();
        run.current_model().unwrap()
    };
    let sent = |params: &ParamSet| params.clone().into_record().sent(Precision::F16).unwrap().tensors;
    let exact = begins("fedavg", "f16");
    assert!(sent(&exact) != exact, "what is averaged needs no such start");
    for algorithm in ["fafi", "fedproto", "ensemble", "local"] {
        assert!(begins(algorithm, "f32") != begins(algorithm, "f16"), "{algorithm}");
        let start = begins(algorithm, "f16");
        assert!(sent(&start) == start, "{algorithm}");
    }
}

#[tokio::test]
async fn a_second_wave_joins_without_the_first_being_trained_again() {
    let waves = scenario(&["run.rounds=6", "round.fraction=0.5", "round.min-updates=2", "evaluate.every=1"]);
    let (_directory, run) = simulated(&waves, 2).await;
    let members: Vec<f64> = run.records().iter().map(|record| record.metrics["members"]).collect();
    assert_eq!((members[0], members[5]), (2.0, 4.0), "{members:?}");
    assert!(members.is_sorted());
    // A round that brings no new client is reported and changes nothing.
    for (index, pair) in run.records().windows(2).enumerate() {
        let (before, after) = (&pair[0], &pair[1]);
        if members[index + 1] - members[index] < 0.5 {
            assert!(after.bytes_up < 2000, "{after:?}");
            assert_eq!((after.accuracy, after.loss), (before.accuracy, before.loss));
        } else {
            assert!(after.bytes_up > 100_000, "{after:?}");
        }
    }
    let waves = run.bundle().unwrap().unwrap();
    let clients: Vec<_> = waves.manifest.members.iter().map(|member| member.client).collect();
    let at_once = scenario(&["evaluate.every=1"]);
    let (_directory, run) = simulated(&at_once, 1).await;
    let all = run.bundle().unwrap().unwrap();
    assert_eq!(all.manifest.members.iter().map(|member| member.client).collect::<Vec<_>>(), clients);
    // Who was in the first round of both has the same model in both.
    let same = (0..4).filter(|&member| all.member(member).unwrap() == waves.member(member).unwrap()).count();
    assert!(same >= 2, "{same}");
}

#[tokio::test]
async fn the_record_has_the_accuracy_of_every_fusion() {
    let mut accuracies = Vec::new();
    for fusion in ["informative", "size", "uniform", "logits"] {
        let chosen = format!("algorithm.fafi.fusion={fusion:?}");
        let scenario = Scenario::small(&[&ONE_SHOT[1..], &[chosen.as_str(), "evaluate.every=1"]].concat());
        let (_directory, run) = simulated(&scenario, 2).await;
        let record = &run.records()[0];
        assert_eq!(record.accuracy, Some(record.metrics[&format!("fused-{fusion}")]), "{fusion}");
        assert!(record.loss.is_some_and(f64::is_finite));
        assert!(record.metrics["best-member"] >= record.metrics["mean-member"]);
        accuracies.push(record.metrics.clone());
    }
    assert!(accuracies.windows(2).all(|pair| pair[0] == pair[1]), "one training gives the whole table");
}

/// Finite parameters, and features that are not: the sender's update is rejected, and the others form the ensemble.
#[tokio::test]
async fn a_model_that_computes_no_numbers_is_no_member() {
    let attack = [
        "simulation.attack.scaled.factor=1e7",
        "simulation.attackers=0.25",
        "update.max-abs=1e12",
        "round.min-updates=3",
        "evaluate.every=1",
    ];
    let scenario = scenario(&attack);
    let (_directory, run) = simulated(&scenario, 2).await;
    let record = &run.records()[0];
    assert_eq!(
        (record.accepted, record.rejected, record.metrics["members"] as usize),
        (3, 1, 3),
        "{record:?}"
    );
    assert!(record.accuracy.is_some() && record.loss.is_some_and(f64::is_finite));
    let bundle = run.bundle().unwrap().unwrap();
    let members = &bundle.manifest.members;
    // No client is trained again when another one is left out.
    let out = run.directory().root().join("without.safetensors");
    let left = leave_out(&Disk, &bundle, &[members[1].client].into(), &out).unwrap();
    let without = Bundle::open(Arc::new(Disk), &out).unwrap();
    assert_eq!((left, without.manifest.members.len()), (2, 2));
    assert_eq!(without.manifest.members, [members[0].clone(), members[2].clone()]);
    assert_eq!(without.member(1).unwrap(), bundle.member(2).unwrap());
    let refused = leave_out(&Disk, &without, &[members[1].client].into(), &out).unwrap_err().to_string();
    assert!(refused.contains(&members[1].client.to_string()) && refused.contains("no member"), "{refused}");
    let all = [members[0].client, members[2].client].into();
    let refused = leave_out(&Disk, &without, &all, &out).unwrap_err().to_string();
    assert!(refused.contains("no members left"), "{refused}");
    assert_eq!(Bundle::open(Arc::new(Disk), &out).unwrap().manifest.members.len(), 2);
}

/// Who is a member already trains nothing and has no loss, and the mean is that of the others.
#[tokio::test]
async fn members_that_come_again_have_no_loss() {
    let (_directory, run) = simulated(&scenario(&["run.rounds=2"]), 2).await;
    assert!(run.records()[0].train_loss.is_some_and(|loss| loss > 0.0));
    assert_eq!((run.records()[1].accepted, run.records()[1].train_loss), (4, None));
}

#[tokio::test]
async fn a_round_whose_ensemble_was_damaged_says_so() {
    let scenario = scenario(&[]);
    let (_directory, run) = simulated(&scenario, 1).await;
    let path = run.directory().ensemble();
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let error = run.bundle().err().unwrap().to_string();
    assert!(error.contains("copy it again") && error.contains("ensemble.safetensors"), "{error}");
    assert!(Bundle::open(Arc::new(Disk), &path).is_err());
}

#[cfg(unix)]
pub(crate) mod processes {
    use std::collections::BTreeMap;
    use std::fs;
    use std::process::Command;

    use federation_tests::keys::device_key;
    use federation_tests::process::{Ended, run};
    use federation_tests::programs::programs;
    use federation_tests::testbed::Testbed;
    use serde_json::Value;

    use super::ONE_SHOT;

    pub(crate) fn aggregator(arguments: &[&str]) -> Ended {
        run(&programs().aggregator, arguments)
    }

    pub(crate) fn json(arguments: &[&str]) -> Value {
        let output = Command::new(&programs().aggregator).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    #[test]
    fn devices_become_an_ensemble_that_answers_and_is_extended() {
        let one_shot = [
            &ONE_SHOT[..3],
            &["training.batch=10", "augment.random-shift=1", "evaluate.every=1", "data.max-samples=240"],
        ]
        .concat();
        let testbed = Testbed::new(3, &one_shot);
        let server = testbed.serve();
        let devices = (0..3).map(|index| testbed.join(index)).collect();
        // The simulation's, byte for byte.
        testbed.assert_completed(server, devices);

        let ensemble = testbed.run().join("ensemble.safetensors").display().to_string();
        let config = testbed.name("run.toml");
        let evaluation = json(&["evaluate", "--model", &ensemble, &config, "--json"]);
        let record = &testbed.rounds()[0];
        assert_eq!(evaluation["accuracy"].as_f64(), record.accuracy, "the same noise, the same answers");
        assert_eq!(evaluation["fusions"]["size"]["accuracy"].as_f64(), Some(record.metrics["fused-size"]));
        let other = json(&["evaluate", "--model", &ensemble, &config, "--json", "--fusion", "logits"]);
        assert_eq!(other["accuracy"], evaluation["fusions"]["logits"]["accuracy"]);

        let predicted = aggregator(&["predict", "--model", &ensemble, &config, "--json", "--limit", "7"]);
        assert_eq!(predicted.code, Some(0), "{}", predicted.text);
        let lines: Vec<Value> =
            predicted.text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        assert_eq!((lines.len(), lines[7]["samples"].as_u64()), (8, Some(7)), "{}", predicted.text);
        assert_a_device_answers_alike(&testbed, &ensemble);
        let table = aggregator(&["evaluate", "--model", &ensemble, &config]);
        let parts =
            ["3 members, informative fusion, on the test split of glyphs", "logits fusion", "best member"];
        for part in parts {
            assert!(table.text.contains(part), "{}", table.text);
        }
        let beside = aggregator(&["evaluate", "--model", &ensemble]);
        assert_eq!(beside.text, table.text, "the run's configuration lies beside it");

        // One who comes late trains in a run of its own.
        let ids = (0..4).map(|index| format!("\"{}\"", device_key(index).public().client()));
        let devices = format!("simulation.devices=[{}]", ids.collect::<Vec<_>>().join(","));
        let late = aggregator(&[
            "simulate",
            &config,
            "--runs",
            &testbed.name("late"),
            "--set",
            "data.clients=4",
            "--set",
            "round.min-updates=4",
            "--set",
            "run.name=late",
            "--set",
            &devices,
        ]);
        assert_eq!(late.code, Some(0), "{}", late.text);
        let late = testbed.path("late").join("late/ensemble.safetensors").display().to_string();
        let out = testbed.name("together.safetensors");
        let extended = aggregator(&["ensemble", "extend", &ensemble, "--with", &late, "--out", &out]);
        let says = "4 members, new 1, replaced 3";
        assert!(extended.code == Some(0) && extended.text.contains(says), "{}", extended.text);
        let shown = json(&["ensemble", "show", &out, "--json"]);
        assert_eq!(shown["members"].as_array().map(Vec::len), Some(4));

        // And one may leave.
        let client = shown["members"][2]["client"].as_str().unwrap().to_owned();
        let rest = testbed.name("rest.safetensors");
        let dropped = aggregator(&["ensemble", "drop", &out, "--client", &client, "--out", &rest]);
        assert!(dropped.code == Some(0) && dropped.text.contains("3 members are left"), "{}", dropped.text);
        let refused = aggregator(&["ensemble", "drop", &rest, "--client", &client]);
        assert!(refused.code == Some(3) && refused.text.contains("no member"), "{}", refused.text);
        let answers = json(&["evaluate", "--model", &rest, &config, "--json"]);
        assert!(answers["accuracy"].is_number(), "{answers}");

        // Each mistake is said, with a code for scripts, and nothing is destroyed.
        let bytes = fs::read(&ensemble).unwrap();
        fs::write(testbed.path("cut.safetensors"), &bytes[..bytes.len() - 5]).unwrap();
        let refused = aggregator(&["evaluate", "--model", &testbed.name("cut.safetensors"), &config]);
        assert!(
            refused.code == Some(3) && refused.text.contains("not copied completely"),
            "{}",
            refused.text
        );
        let other =
            ["--set", "model.name=cnn-small", "--set", "run.name=other", "--set", "training.epochs=1"];
        let runs = testbed.name("other");
        let other = aggregator(&[&["simulate", &config, "--runs", &runs][..], &other].concat());
        assert_eq!(other.code, Some(0), "{}", other.text);
        let stranger = testbed.path("other").join("other/ensemble.safetensors").display().to_string();
        let refused = aggregator(&["ensemble", "extend", &ensemble, "--with", &stranger]);
        assert!(
            refused.code == Some(3) && refused.text.contains("mlp-2nn and cnn-small"),
            "{}",
            refused.text
        );
        assert!(fs::read(&ensemble).unwrap() == bytes);
        let refused = aggregator(&["predict", "--model", &stranger, "--data", &testbed.name("state-0")]);
        assert_eq!(refused.code, Some(3), "{}", refused.text);
    }

    /// A device predicts what the server does, noise and all, with the file or the folder of the run, and refuses half a file.
    pub(crate) fn assert_a_device_answers_alike(testbed: &Testbed, ensemble: &str) {
        let data = testbed.data(0).display().to_string();
        let predictions = |ended: Ended| {
            assert_eq!(ended.code, Some(0), "{}", ended.text);
            let lines = ended.text.lines().filter(|line| line.starts_with('{'));
            lines.map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
        };
        let at_the_server =
            predictions(aggregator(&["predict", "--model", ensemble, "--data", &data, "--json", "--train"]));
        assert!(at_the_server.len() > 64, "more than one batch: {}", at_the_server.len());
        let folder = testbed.run().display().to_string();
        let on_device = |model: &str| {
            let own = ["predict", "--model", model, "--data", &data, "--json", "--split", "train"];
            run(&programs().edge_client, &own)
        };
        for model in [ensemble, &folder] {
            let found = predictions(on_device(model));
            assert_eq!(found.len(), at_the_server.len(), "{model}");
            for (its, ours) in found.iter().zip(&at_the_server) {
                assert_eq!((&its["class"], &its["correct"]), (&ours["class"], &ours["correct"]), "{model}");
                // Batches of another size round otherwise.
                let [its, ours] = [its, ours].map(|line| line["probability"].as_f64().unwrap_or(0.0));
                assert!((its - ours).abs() < 1e-6, "{model}: {its} and {ours}");
            }
        }
        let bytes = fs::read(ensemble).unwrap();
        fs::write(testbed.path("half.safetensors"), &bytes[..bytes.len() - 5]).unwrap();
        let refused = on_device(&testbed.name("half.safetensors"));
        assert!(
            refused.code == Some(3) && refused.text.contains("not copied completely"),
            "{}",
            refused.text
        );
    }

    /// A device that was not there joins a run of its own: the others are not asked again, and say what they said.
    #[test]
    fn a_device_that_comes_late_is_added_from_a_run_of_its_own() {
        let one_shot = |more: &[&'static str]| [&ONE_SHOT[..3], &["training.batch=10"], more].concat();
        let first = Testbed::new(2, &one_shot(&[]));
        let server = first.serve();
        let devices = (0..2).map(|index| first.join(index)).collect();
        first.assert_completed(server, devices);
        let (ensemble, config) = (first.run().join("ensemble.safetensors"), first.name("run.toml"));
        let ensemble = ensemble.display().to_string();
        let before = json(&["evaluate", "--model", &ensemble, &config, "--json"]);

        // The data of three, of which the third alone takes part.
        let second = Testbed::new(
            3,
            &one_shot(&["round.min-clients-to-start=1", "round.min-updates=1", "run.name=late"]),
        );
        let server = second.serve();
        let device = second.join(2).wait();
        assert_eq!(device.code, Some(0), "{}", device.text);
        let server = server.wait();
        assert_eq!(server.code, Some(0), "{}", server.text);
        let late = second.run().join("ensemble.safetensors").display().to_string();
        let shown = json(&["ensemble", "show", &late, "--json"]);
        let clients = |shown: &Value| -> Vec<String> {
            let members = shown["members"].as_array().unwrap().iter();
            members.map(|member| member["client"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(clients(&shown), [device_key(2).public().client().to_string()]);

        let out = first.name("together.safetensors");
        let extended = aggregator(&["ensemble", "extend", &ensemble, "--with", &late, "--out", &out]);
        let says = "3 members, new 1, replaced 0";
        assert!(extended.code == Some(0) && extended.text.contains(says), "{}", extended.text);
        let after = json(&["evaluate", "--model", &out, &config, "--json"]);
        assert!(after["accuracy"].is_number(), "{after}");
        let alone = |evaluation: &Value| -> BTreeMap<String, Value> {
            let members = evaluation["members"].as_array().unwrap().iter();
            members.map(|one| (one["client"].as_str().unwrap().to_owned(), one["alone"].clone())).collect()
        };
        let (mut found, old) = (alone(&after), alone(&before));
        assert!(found.remove(&clients(&shown)[0]).is_some(), "{after}");
        assert_eq!((found.len(), &found), (2, &old), "the members that were there answer as they did");
    }
}
