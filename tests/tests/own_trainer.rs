//! Networks of other frameworks: programs of the devices' owners train them, and what they do wrong costs their device a round.
#![cfg(unix)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use aggregator::config::{Config, Raw};
use aggregator::round::{RoundRecord, jsonl};
use federation_tests::keys::device_key;
use federation_tests::process::{Ended, Process, run, until};
use federation_tests::programs::programs;
use federation_tests::python;
use federation_tests::testbed::free_port;
use models::ParamSet;
use serde_json::json;
use shared::id::RunId;

/// The trainer of these tests.
const LAB: &str = env!("CARGO_BIN_EXE_federation-lab");

/// A folder with an initial model, and a run of it.
struct Bed {
    folder: tempfile::TempDir,
    port: u16,
    clients: u32,
}

impl Bed {
    fn new(clients: u32, settings: &str) -> Self {
        let bed = Self { folder: tempfile::tempdir().unwrap(), port: free_port(), clients };
        let made = Command::new(LAB).args(["trainer", "--init"]).arg(bed.path("init.safetensors")).status();
        assert!(made.unwrap().success());
        bed.configure(settings);
        bed
    }

    fn configure(&self, settings: &str) {
        let devices: Vec<String> =
            (0..self.clients).map(|index| format!("\"{}\"", device_key(index).public().client())).collect();
        let (clients, devices) = (self.clients, devices.join(", "));
        let text = format!(
            "run.name = \"own\"\nmodel.parameters = \"init.safetensors\"\ndata.clients = {clients}\n\
             connection = {{ heartbeat = 0.5, timeout = 2 }}\nsimulation.devices = [{devices}]\n{settings}\n"
        );
        fs::write(self.path("run.toml"), text).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn name(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn serve(&self) -> Process {
        let ready = self.path("ready.json");
        let _ = fs::remove_file(&ready);
        let listen = format!("127.0.0.1:{}", self.port);
        let mut command = Command::new(&programs().aggregator);
        command.args(["serve", "--json", "--enrolment", "anyone", "--listen", &listen]);
        command.args([&self.name("run.toml"), "--runs", &self.name("runs"), "--identity", &self.name("lab")]);
        let server = Process::start("the aggregator", command.arg("--ready-file").arg(&ready));
        until("the aggregator is ready", || ready.exists());
        server
    }

    fn join(&self, index: u32, trainer: &str) -> Process {
        self.join_with(index, trainer, &[])
    }

    fn join_with(&self, index: u32, trainer: &str, more: &[&str]) -> Process {
        let state = self.path(&format!("state-{index}"));
        if !state.exists() {
            fs::create_dir(&state).unwrap();
            fs::write(state.join("identity"), format!("{}\n", device_key(index).digits())).unwrap();
        }
        let mut command = Command::new(&programs().edge_client);
        command.args(["join", &format!("127.0.0.1:{}", self.port), "--json", "--trainer", trainer]);
        Process::start(&format!("device {index}"), command.arg("--state").arg(state).args(more))
    }

    fn simulate(&self, trainer: &str) -> Ended {
        let (config, runs) = (self.name("run.toml"), self.name("simulated"));
        let trainer = format!("simulation.trainer={trainer}");
        run(&programs().aggregator, &["simulate", &config, "--runs", &runs, "--set", &trainer])
    }
}

fn rounds(run: &Path) -> Vec<RoundRecord> {
    jsonl::read(&fs::read(run.join("rounds.jsonl")).unwrap()).unwrap().records
}

fn model(run: &Path) -> ParamSet {
    models::read_model(&mut fs::File::open(run.join("model.safetensors")).unwrap()).unwrap().1
}

/// The trainer of a device.
fn trainer(client: u32) -> String {
    format!("{LAB} trainer --client {client}")
}

#[test]
fn devices_and_a_simulation_come_to_the_same_bytes() {
    let settings = format!(
        "run.rounds = 3\n{TRAINING}\n\
         evaluate = {{ on-clients-every = 1, command = \"{LAB} trainer\" }}"
    );
    let bed = Bed::new(3, &settings);
    let server = bed.serve();
    let devices: Vec<Process> = (0..3).map(|index| bed.join(index, &trainer(index))).collect();
    for device in devices {
        let Ended { code, text } = device.wait();
        assert_eq!(code, Some(0), "{text}");
    }
    let served = server.wait();
    assert_eq!(served.code, Some(0), "{}", served.text);
    let simulated = bed.simulate(&format!("{LAB} trainer"));
    assert_eq!(simulated.code, Some(0), "{}", simulated.text);
    let [served, simulated] = ["runs", "simulated"].map(|runs| bed.path(runs).join("own"));
    let bytes = |run: &Path| fs::read(run.join("model.safetensors")).unwrap();
    assert!(bytes(&served) == bytes(&simulated), "the model is not the simulation's");
    // Each value moves towards the mean of the clients' numbers, by samples: (0*10 + 1*20 + 2*30) / 60.
    let mut expected = 0.5_f64;
    for _ in 0..3 {
        let [first, second, third] = after(expected);
        expected = (10.0 * first + 20.0 * second + 30.0 * third) / 60.0;
    }
    let model = model(&served);
    for &value in model.get("layer.weight").unwrap().values() {
        assert!((f64::from(value) - expected).abs() < 1e-6, "{value} and {expected}");
    }
    assert_eq!(model.get("scale").unwrap().shape(), [0_usize; 0]);
    for record in rounds(&served).iter().filter(|record| !record.closing) {
        assert_eq!((record.accepted, record.accuracy), (3, Some(0.5)), "{record:?}");
        assert!((record.metrics["train-accuracy"] - 0.25).abs() < 1e-12, "{record:?}");
        assert!(record.loss.is_some() && record.train_loss.is_some(), "{record:?}");
    }
    assert!((rounds(&served).last().unwrap().metrics["own-accuracy"] - 0.5).abs() < 1e-12);
    // Nothing of a trainer is left.
    assert!(!served.join("state/tester").exists() && !bed.path("state-0/trainer").exists());
    // What cannot be run here says so.
    let asked = run(
        &programs().aggregator,
        &["predict", "--model", &served.display().to_string(), "--data", &bed.name("lab")],
    );
    assert!(
        asked.code != Some(0)
            && asked.text.contains("no layers here")
            && asked.text.contains("load_state_dict"),
        "{}",
        asked.text
    );
}

#[test]
fn what_a_trainer_does_wrong_costs_its_device_the_round() {
    for (fault, part) in [
        ("ends", "ended (exit status: 3); its last line: the card was pulled out"),
        ("dies", "ended (signal: 9 (SIGKILL))"),
        ("hangs", "no sign of life for 1 s"),
        ("nan", "`scale` has values that are no finite numbers"),
        ("shape", "`layer.weight` has the shape [3, 2] and must have [2, 3]"),
        ("more", "has no tensor `layer.bias`"),
        ("garbage", "answered \"Epoch 1: loss 0.3\""),
        ("floods", "longer than 65536 bytes"),
        ("fails", "the trainer says: the camera is covered"),
    ] {
        let bed = Bed::new(2, "run.rounds = 3\nround.min-updates = 1");
        let server = bed.serve();
        let healthy = bed.join(0, &trainer(0));
        let faulty = format!("{} --fault {fault}", trainer(1));
        let ill = bed.join_with(1, &faulty, &["--trainer-timeout", "1"]);
        for device in [healthy, ill] {
            let Ended { code, text } = device.wait();
            assert_eq!(code, Some(0), "{fault}: {text}");
        }
        let served = server.wait();
        assert_eq!(served.code, Some(0), "{}", served.text);
        assert!(served.text.contains(part), "{fault}: {}", served.text);
        let accepted: Vec<usize> =
            rounds(&bed.path("runs/own")).iter().map(|record| record.accepted).collect();
        assert_eq!(accepted, [2, 1, 2], "{fault}");
    }
}

#[test]
fn a_device_that_is_killed_while_its_trainer_hangs_costs_nothing() {
    let bed = Bed::new(1, "run.rounds = 4");
    let server = bed.serve();
    let slow = format!("{} --fault hangs --round 2", trainer(0));
    let mut device = bed.join(0, &slow);
    device.object(&json!({ "event": "training", "round": 2 }));
    // The device is killed while its trainer hangs; the next one has a trainer that works.
    device.kill();
    let device = bed.join(0, &trainer(0));
    let Ended { code, text } = device.wait();
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(server.wait().code, Some(0));
    let accepted: Vec<usize> = rounds(&bed.path("runs/own")).iter().map(|record| record.accepted).collect();
    assert_eq!(accepted, [1, 1, 1, 1]);
}

/// The training whose results [`after`] knows.
const TRAINING: &str = "training = { epochs = 2, optimizer.sgd.learning-rate = 0.25 }";

/// The values of three clients after a round of this training that began with `value`.
fn after(value: f64) -> [f64; 3] {
    [0.0, 1.0, 2.0].map(|client| client + (value - client) * 0.75 * 0.75)
}

#[test]
fn weights_rules_and_server_optimisers_apply_to_them() {
    let mean = |values: [f64; 3]| values.iter().sum::<f64>() / 3.0;
    let middle = |values: [f64; 3]| values[1];
    let settings = format!("run.rounds = 2\nevaluate.every = 0\nround.min-updates = 3\n{TRAINING}");
    let bed = Bed::new(3, &settings);
    let twice = |combined: &dyn Fn([f64; 3]) -> f64| combined(after(combined(after(0.5))));
    // The second step of FedAvgM is its own and half of the first.
    let first = mean(after(0.5)) - 0.5;
    let momentum = 0.5 + first + (mean(after(0.5 + first)) - (0.5 + first)) + 0.5 * first;
    for (setting, expected) in [
        ("weights = \"uniform\"", twice(&mean)),
        ("weights = \"uniform\"\nrule.median = {}", twice(&middle)),
        ("weights = \"uniform\"\nrule.trimmed-mean.beta = 0.34", twice(&middle)),
        ("weights = \"uniform\"\nserver-optimizer.sgd.momentum = 0.5", momentum),
    ] {
        bed.configure(&format!("{settings}\n[aggregation]\n{setting}"));
        let done = bed.simulate(&format!("{LAB} trainer"));
        assert_eq!(done.code, Some(0), "{}", done.text);
        for &value in model(&bed.path("simulated/own")).get("layer.weight").unwrap().values() {
            assert!((f64::from(value) - expected).abs() < 1e-6, "{setting}: {value} and {expected}");
        }
        fs::remove_dir_all(bed.path("simulated")).unwrap();
    }
}

/// Rounds of one update: that of the slower device counts in the next round, by how late it is.
#[test]
fn an_update_that_comes_late_counts() {
    let buffer =
        "round = { min-updates = 1, max-updates = 1, min-clients-to-start = 2, staleness.enabled = true }";
    // A late update would move statistics that have moved meanwhile.
    let settings = "run.rounds = 2\nevaluate.every = 0\naggregation.buffers = \"local\"";
    let bed = Bed::new(2, &format!("{settings}\n{buffer}\n{TRAINING}"));
    let waits = |client: u32, round: u32, file: &str| {
        bed.join(client, &format!("{} --round {round} --until {}", trainer(client), bed.name(file)))
    };
    let mut server = bed.serve();
    let devices = [waits(0, 2, "never"), waits(1, 1, "closed")];
    server.object(&json!({ "round": 1 }));
    fs::write(bed.path("closed"), "").unwrap();
    for device in devices {
        let Ended { code, text } = device.wait();
        assert_eq!(code, Some(0), "{text}");
    }
    let served = server.wait();
    assert_eq!(served.code, Some(0), "{}", served.text);
    let counts: Vec<_> =
        rounds(&bed.path("runs/own")).iter().map(|round| (round.accepted, round.late)).collect();
    assert_eq!(counts, [(1, 0), (1, 1)]);
    let expected = after(0.5)[0] + (after(0.5)[1] - 0.5) * 0.5_f64.sqrt();
    for &value in model(&bed.path("runs/own")).get("layer.weight").unwrap().values() {
        assert!((f64::from(value) - expected).abs() < 1e-6, "{value} and {expected}");
    }
}

#[test]
fn a_server_that_is_killed_goes_on_with_them() {
    let bed = Bed::new(2, &format!("run.rounds = 4\nround.min-updates = 2\n{TRAINING}"));
    let mut server = bed.serve();
    let first = bed.join(0, &trainer(0));
    let hangs = bed.join(1, &format!("{} --fault hangs", trainer(1)));
    // The second round waits for the device whose trainer hangs, and the server dies in it.
    server.object(&json!({ "round": 1 }));
    server.kill();
    let server = bed.serve();
    hangs.kill();
    for device in [first, bed.join(1, &trainer(1))] {
        let Ended { code, text } = device.wait();
        assert_eq!(code, Some(0), "{text}");
    }
    let served = server.wait();
    assert_eq!(served.code, Some(0), "{}", served.text);
    assert_eq!(bed.simulate(&format!("{LAB} trainer")).code, Some(0));
    assert!(model(&bed.path("runs/own")) == model(&bed.path("simulated/own")));
    assert_eq!(rounds(&bed.path("runs/own")).len(), 4);
}

#[test]
fn a_device_that_does_not_fit_is_told_what_to_do() {
    let bed = Bed::new(1, "run.rounds = 1");
    let mut server = bed.serve();
    let join = |arguments: &[&str], state: &str| {
        let address = format!("127.0.0.1:{}", bed.port);
        let state = bed.name(state);
        run(&programs().edge_client, &[&["join", &address, "--state", &state], arguments].concat())
    };
    let data = bed.name("data");
    fs::create_dir(&data).unwrap();
    fs::write(bed.path("data/train.csv"), "a,b,label\n1,2,0\n3,4,1\n").unwrap();
    let engine = join(&["--data", &data, "--classes", "2"], "engine");
    assert!(engine.code != Some(0) && engine.text.contains("join with --trainer COMMAND"), "{}", engine.text);
    let absent = join(&["--trainer", "/nowhere/train"], "absent");
    assert!(absent.code != Some(0) && absent.text.contains("/nowhere/train"), "{}", absent.text);
    let both = join(&["--trainer", "x", "--data", &data], "both");
    assert_eq!(both.code, Some(2), "{}", both.text);
    server.pass_over();
    assert!(server.alive());
}

/// What is said of a configuration that makes no sense.
fn refused(init: &Path, settings: &[&str]) -> String {
    let mut all = vec![format!("model.parameters={}", init.display())];
    all.extend(settings.iter().map(ToString::to_string));
    let raw = Raw::layered(None, &all).unwrap();
    Config::validate(&raw, RunId::from_bytes([9; 8])).unwrap_err().to_string()
}

#[test]
fn what_needs_our_engine_is_refused_with_the_reason() {
    let bed = Bed::new(1, "");
    let init = bed.path("init.safetensors");
    for (settings, part) in [
        (&["algorithm.moon={}"][..], "moon compares representations"),
        (&["algorithm.scaffold={}"], "scaffold corrects every step"),
        (&["algorithm.fafi={}"], "fafi fuses representations"),
        (&["personalisation.method=mfe"], "personalisation.method"),
        (&["data.labelled=10"], "data.labelled"),
        (&["data.set=glyphs"], "no data set is read here"),
        (&["aggregation.rule.fedma={}"], "fedma"),
        (&["training.keep-optimizer=true"], "training.keep-optimizer"),
        (&["early-stopping.target=0.9"], "evaluate.command"),
        (&["augment.horizontal-flip=0.5"], "augment"),
    ] {
        let said = refused(&init, settings);
        assert!(said.contains(part), "{settings:?}: {said}");
    }
    // What devices are told has to fit a message.
    let many = bed.path("many.safetensors");
    let names =
        (0..1000).map(|number| (format!("{}.{number}", "layer".repeat(16)), models::Array::zeros([1])));
    let bytes = models::codec::to_bytes(&names.collect(), models::Precision::F32, &BTreeMap::new());
    fs::write(&many, bytes.unwrap()).unwrap();
    assert!(refused(&many, &[]).contains("in one message"));
    let tensors = Raw::layered(None, &["model.tensors=['a']".to_owned()]).unwrap_err().to_string();
    assert!(tensors.contains("conv1.weight: 64x3x7x7"), "{tensors}");
    let absent = refused(&bed.path("absent.safetensors"), &[]);
    assert!(absent.contains("absent.safetensors") && absent.contains("No such file"), "{absent}");
    fs::write(bed.path("pickle.pt"), b"PK\x03\x04 and more").unwrap();
    assert!(refused(&bed.path("pickle.pt"), &[]).contains("safetensors.torch.save_file"));
    let raw = Raw::layered(None, &["evaluate.command=x".to_owned(), "data.set=trainer".to_owned()]).unwrap();
    let said = Config::validate(&raw, RunId::from_bytes([9; 8])).unwrap_err().to_string();
    assert!(said.contains("name the file of its tensors as model.parameters"), "{said}");
    let lost = bed.simulate("");
    assert!(lost.code != Some(0) && lost.text.contains("simulation.trainer"), "{}", lost.text);
}

#[test]
fn a_run_without_its_first_file_goes_on_and_another_begins_with_it() {
    let bed = Bed::new(2, "run.rounds = 2");
    let first = bed.simulate(&format!("{LAB} trainer"));
    assert_eq!(first.code, Some(0), "{}", first.text);
    let config = bed.name("simulated/own/config.toml");
    fs::remove_file(bed.path("init.safetensors")).unwrap();
    let runs = bed.name("simulated");
    let more = run(&programs().aggregator, &["simulate", &config, "--runs", &runs, "--set", "run.rounds=4"]);
    assert_eq!(more.code, Some(0), "{}", more.text);
    assert_eq!(rounds(&bed.path("simulated/own")).len(), 4);
    // More tensors than other lists have, and another file in place of the one that was noted.
    let many = bed.path("many.safetensors");
    let names = (0..1200).map(|number| (format!("t{number}"), models::Array::zeros([2])));
    let bytes = models::codec::to_bytes(&names.collect(), models::Precision::F32, &BTreeMap::new());
    fs::write(&many, bytes.unwrap()).unwrap();
    let many = format!("model.parameters={}", many.display());
    for rounds in ["run.rounds=1", "run.rounds=2"] {
        let set = ["--set", &many, "--set", "run.name=many", "--set", rounds];
        let done = run(&programs().aggregator, &[&["simulate", &config, "--runs", &runs], &set[..]].concat());
        assert_eq!(done.code, Some(0), "{}", done.text);
    }
    assert_eq!(model(&bed.path("simulated/many")).len(), 1200);
    assert_eq!(rounds(&bed.path("simulated/many")).len(), 2);
    let own = bed.name("simulated/own");
    let from = ["simulate", &config, "--runs", &runs, "--set", "run.name=next", "--from", &own];
    let next = run(&programs().aggregator, &from);
    assert_eq!(next.code, Some(0), "{}", next.text);
    assert!(next.text.contains("round 4"), "{}", next.text);
}

/// A convolution and a linear layer, as in `own_trainer.py`.
const NETWORK: &str = "model.layers = [{ conv = { out = 4, kernel = 5, stride = 2 } }, \"relu\", \"flatten\", \
                       { linear = \"classes\" }]";

/// The same network by our engine and by `PyTorch`, with all data in a batch and one step: parameters within 1e-5.
#[test]
fn pytorch_comes_to_what_our_engine_comes_to() {
    let python = match python::with_torch() {
        Ok(python) => python.display().to_string(),
        Err(why) => return eprintln!("not tested: {why}"),
    };
    let settings = "data = { clients = 4, max-samples = 160 }\nrun = { rounds = 1, seed = 7 }\nevaluate.every = 0\n\
                    training = { epochs = 1, batch = 0, optimizer.sgd.learning-rate = 0.1 }\nround.min-updates = 4";
    let bed = Bed::new(4, "");
    // Ours, and what it begins with.
    fs::write(bed.path("ours.toml"), format!("{settings}\n{NETWORK}\n")).unwrap();
    let (ours, data, runs) = (bed.name("ours.toml"), bed.name("data"), bed.name("runs"));
    let aggregator = &programs().aggregator;
    for arguments in [
        &["data", "split", &ours, "--out", &data][..],
        &["simulate", &ours, "--runs", &runs, "--set", "run.name=ours"],
        &["simulate", &ours, "--runs", &runs, "--set", "run.name=begun", "--set", "training.epochs=0"],
    ] {
        let done = run(aggregator, arguments);
        assert_eq!(done.code, Some(0), "{}", done.text);
    }
    // Theirs: four devices with the same samples, each with a trainer.
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/own_trainer.py");
    let begun = bed.name("runs/begun/model.safetensors");
    let converted =
        Command::new(&python).args([script, "--convert", &begun, &bed.name("init.safetensors")]).status();
    assert!(converted.unwrap().success());
    bed.configure(
        "run.rounds = 1\ntraining = { epochs = 1, batch = 0, optimizer.sgd.learning-rate = 0.1 }\nround.min-updates = 4",
    );
    let server = bed.serve();
    let devices: Vec<Process> = (0..4)
        .map(|index| bed.join(index, &format!("{python} {script} --data {data}/client-{index:03}")))
        .collect();
    for device in devices {
        let Ended { code, text } = device.wait();
        assert_eq!(code, Some(0), "{text}");
    }
    assert_eq!(server.wait().code, Some(0));
    let (theirs, ours) = (model(&bed.path("runs/own")), model(&bed.path("runs/ours")));
    let begun = model(&bed.path("runs/begun"));
    assert_eq!(theirs.len(), ours.len());
    for ((their_name, their), (our_name, our)) in theirs.iter().zip(&ours) {
        assert_eq!(their.shape(), our.shape(), "{their_name} and {our_name}");
        let difference = |other: &models::Array| {
            let pairs = our.values().iter().zip(other.values());
            pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
        };
        assert!(difference(their) < 1e-5, "{their_name}: {}", difference(their));
        assert!(difference(begun.get(our_name).unwrap()) > 1e-4, "{our_name} has learned nothing");
    }
}
