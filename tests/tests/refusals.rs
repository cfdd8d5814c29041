//! Messages and exit codes of both programs for mistakes of people and machines:
//! trust, addresses, directories, data, configurations, disks.
#![cfg(unix)]

use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::Command;

use federation_tests::process::{Ended, INTERRUPTED, Process, run};
use federation_tests::programs::programs;
use federation_tests::testbed::Testbed;
use serde_json::json;

/// It ended with this code, and named all of `parts`.
fn assert_ended(ended: &Ended, code: i32, parts: &[&str]) {
    assert_eq!(ended.code, Some(code), "{}", ended.text);
    for part in parts {
        assert!(ended.text.contains(part), "{part:?} is not in:\n{}", ended.text);
    }
    assert!(!ended.text.contains("panicked"), "{}", ended.text);
}

fn assert_refused(program: &Path, arguments: &[&str], code: i32, parts: &[&str]) {
    let ended = run(program, arguments);
    assert_ended(&ended, code, parts);
}

#[test]
fn a_device_that_was_told_another_key_does_not_join() {
    let testbed = Testbed::new(4, &[]);
    let _server = testbed.serve();
    let (told, shown) = ("00".repeat(32), testbed.ready()["key"].as_str().unwrap().to_owned());
    let ended = testbed.join_with(0, &["--server-key", &told]).wait();
    assert_ended(&ended, 4, &[&told, &shown, &testbed.address(), "new ticket"]);
    assert!(!testbed.state(0).join("server").exists(), "nothing was remembered");

    // The right one is remembered, in any spelling.
    let mut device = testbed.join_with(0, &["--server-key", &shown.to_uppercase()]);
    device.object(&json!({ "event": "pinned", "key": shown }));
    device.object(&json!({ "event": "joined" }));
}

#[test]
fn the_first_server_is_remembered_and_no_other_believed() {
    let testbed = Testbed::new(4, &[]);
    let server = testbed.serve();
    let first = testbed.ready()["key"].as_str().unwrap().to_owned();
    let mut device = testbed.join(0);
    device.object(&json!({ "event": "pinned", "key": first }));
    device.object(&json!({ "event": "joined" }));
    device.interrupt();
    assert_ended(&device.wait(), INTERRUPTED, &[]);
    let pin = testbed.state(0).join("server");
    assert!(fs::read_to_string(&pin).unwrap().contains(&first));
    // One that its server has welcomed waits for it to come back, regardless of what has its address meanwhile.
    let mut waiting = testbed.join(1);
    waiting.object(&json!({ "event": "joined" }));
    server.kill();

    let _server = testbed.serve_as("other identity");
    let other = testbed.ready()["key"].as_str().unwrap().to_owned();
    assert_ne!(other, first);
    let parts = [first.as_str(), &other, "another server", "new ticket"];
    assert_ended(&testbed.join(0).wait(), 4, &parts);
    waiting.line("that another server answers", |line| parts[..3].iter().all(|part| line.contains(part)));
    waiting.interrupt();
    assert_ended(&waiting.wait(), INTERRUPTED, &[]);
    assert!(fs::read_to_string(&pin).unwrap().contains(&first), "the pin is the user's to remove");

    // The advice works.
    fs::remove_file(&pin).unwrap();
    testbed.join(0).object(&json!({ "event": "pinned", "key": other }));
}

/// A model of 100 MB, and a device that allows less: it does not begin to receive it.
#[test]
fn a_run_that_a_device_has_no_memory_for_is_left_with_the_figures() {
    let testbed = Testbed::new(1, &["model.name=mlp-25m", "run.rounds=1", "data.max-samples=2"]);
    let mut server = testbed.serve();
    let ended = testbed.join_with(0, &["--max-memory", "90MB"]).wait();
    assert_ended(
        &ended,
        3,
        &["\"too-large\"", "needs about 2", "allows 90 MB", "smaller model", "--max-memory"],
    );
    assert!(!ended.text.contains("\"training\""), "{}", ended.text);
    server.line("why the device has left", |line| {
        line.contains(&testbed.client(0).short()) && line.contains("this run needs about 2")
    });
    // With more it takes part.
    let device = testbed.join_with(0, &["--max-memory", "4GB"]);
    assert_ended(&device.wait(), 0, &[]);
    assert_eq!(server.wait().code, Some(0));
}

#[test]
fn addresses_and_directories_are_for_one_process() {
    let testbed = Testbed::new(4, &[]);
    let taken = UdpSocket::bind(testbed.address()).unwrap();
    let arguments = testbed.serve_arguments("identity");
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let aggregator = [&["serve"], &arguments[..]].concat();
    assert_refused(&programs().aggregator, &aggregator, 3, &[&testbed.address(), "in use", "--listen"]);
    assert!(!testbed.path("ready.json").exists(), "an address that does not work is not announced");
    assert!(!testbed.run().exists(), "no run is begun that cannot be served");
    drop(taken);

    let _server = testbed.serve();
    let parts = [testbed.run().to_str().unwrap().to_owned(), "in use by another aggregator".to_owned()];
    assert_refused(&programs().aggregator, &aggregator, 3, &parts.each_ref().map(String::as_str));

    let mut device = testbed.join(0);
    device.object(&json!({ "event": "joined" }));
    let state = testbed.state(0);
    let parts = [state.to_str().unwrap(), "in use by another process", "a state directory of its own"];
    assert_ended(&testbed.join(0).wait(), 3, &parts);
    assert!(device.alive());
}

/// Data directories that are wrong, each with what has to be said of it.
fn wrong_data(testbed: &Testbed) -> Vec<(PathBuf, Vec<&'static str>)> {
    let (images, labels) = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte");
    let copy = |name: &str| {
        let folder = testbed.path(name);
        fs::create_dir(&folder).unwrap();
        for file in [images, labels] {
            fs::copy(testbed.data(0).join(file), folder.join(file)).unwrap();
        }
        folder
    };
    let change = |path: PathBuf, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = fs::read(&path).unwrap();
        change(&mut bytes);
        fs::write(path, bytes).unwrap();
    };
    let empty = testbed.path("empty");
    fs::create_dir(&empty).unwrap();
    let truncated = copy("truncated");
    change(truncated.join(images), &|bytes| bytes.truncate(bytes.len() - 1));
    let longer = copy("longer");
    change(longer.join(labels), &|bytes| bytes.push(0));
    let mislabelled = copy("mislabelled");
    change(mislabelled.join(labels), &|bytes| bytes[8] = 10);
    let exchanged = copy("exchanged");
    fs::copy(exchanged.join(labels), exchanged.join(images)).unwrap();
    let fewer = copy("fewer");
    change(fewer.join(labels), &|bytes| {
        bytes.pop();
        bytes[7] -= 1;
    });
    let nothing = copy("nothing");
    change(nothing.join(labels), &|bytes| {
        bytes.truncate(8);
        bytes[4..8].fill(0);
    });
    vec![
        (testbed.path("absent"), vec!["absent", "no such directory"]),
        ("/dev/null".into(), vec!["/dev/null: is not a directory"]),
        (empty, vec!["empty", "train-images-idx3-ubyte"]),
        (truncated, vec!["truncated/train-images-idx3-ubyte", "is truncated", "31360 bytes", "31359"]),
        (longer, vec!["longer/train-labels-idx1-ubyte", "continues after the 40 bytes"]),
        (mislabelled, vec!["mislabelled/train-labels-idx1-ubyte", "label 10"]),
        (exchanged, vec!["exchanged/train-images-idx3-ubyte", "not an IDX file of images"]),
        (fewer, vec!["fewer/train-labels-idx1-ubyte", "40 images", "39 labels"]),
        (nothing, vec!["nothing/train-labels-idx1-ubyte", "no sample"]),
    ]
}

#[test]
fn data_that_cannot_be_used_is_named() {
    let testbed = Testbed::new(4, &[]);
    let (state, runs) = (testbed.name("state"), testbed.name("runs"));
    for (folder, parts) in wrong_data(&testbed) {
        let data = folder.to_str().unwrap();
        let join = ["join", &testbed.address(), "--data", data, "--state", &state, "--classes", "10"];
        assert_refused(&programs().edge_client, &join, 3, &parts);
        let path = format!("data.path={data}");
        let sets = ["--set", "data.set=mnist", "--set", &path, "--set", "evaluate.every=0"];
        let arguments = [&["simulate", "--runs", &runs], &sets[..]].concat();
        assert_refused(&programs().aggregator, &arguments, 3, &parts);
    }
}

#[test]
fn a_device_whose_classes_are_not_the_runs_leaves_at_once() {
    let testbed = Testbed::new(1, &[]);
    let folder = testbed.path("table");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("train.csv"), "width,height,label\n0.1,1.5,oak\n0.2,0.5,elm\n").unwrap();
    let data = folder.display().to_string();
    let config = format!(
        "data.set = \"csv\"\ndata.path = {data:?}\ndata.clients = 1\ndata.shape = [2]\n\
         data.class-names = [\"elm\", \"oak\"]\nmodel.name = \"linear\"\nevaluate.every = 0\nround.count.min = 1\n"
    );
    fs::write(testbed.path("run.toml"), config).unwrap();
    let _server = testbed.serve();
    let (address, state) = (testbed.address(), testbed.name("state"));
    let join = ["join", &address, "--data", &data, "--state", &state, "--classes", "oak,elm", "--json"];
    let unfit = "\"blame\":\"owner\",\"event\":\"unfit\"";
    let why = "the device's classes are oak, elm, and the run's elm, oak: give --classes as the run has them";
    assert_refused(&programs().edge_client, &join, 3, &[unfit, why]);
}

#[test]
fn a_configuration_that_makes_no_sense_is_explained() {
    let testbed = Testbed::new(4, &[]);
    let runs = testbed.name("runs");
    let file = testbed.name("wrong.toml");
    for (text, parts) in [
        (
            "[training]\nepoch = 5\n",
            &["training.epoch", "5", "accepted", "epochs, batch, drop-last, optimizer"][..],
        ),
        ("[run]\nrounds = \"5\"\n", &["run.rounds", "\"5\" (a text)", "a whole number, at least 1"]),
        ("[run]\nrounds = 0\n", &["run.rounds", "0", "at least 1"]),
        ("[round]\nfraction = 1.5\n", &["round.fraction", "1.5", "at most 1"]),
        ("[model]\nname = \"cnn-smal\"\n", &["model.name", "cnn-smal", "accepted", "cnn-small"]),
        ("[algorithm.fedagv]\n", &["algorithm", "fedagv", "accepted", "fedavg"]),
        ("[data]\nset = \"cifar\"\n", &["data.set", "cifar", "accepted", "mnist"]),
        ("rounds = 5\n", &["rounds", "5", "accepted", "run"]),
        ("[run\nrounds = 5\n", &["wrong.toml:1:", "TOML"]),
        (
            "title = \"x\"\n[base]\nrun.rounds = 5\n[variants.a]\n",
            &["wrong.toml:4: `variants`", "`aggregator compare FILE`"],
        ),
        (
            "[stop]\ntarget = 90\n",
            &["early-stopping.target = 90", "early-stopping.metric", "an accuracy is at most 1", "0.9"],
        ),
        ("[data]\nclients = 3\n[round.count]\nmin = 4\n", &["round.min-updates", "4", "data.clients", "3"]),
        (
            "[run]\nround = 5\n[model]\nname = \"cnn\"\n[data]\nclients = 3\n[round.count]\nmin = 4\n",
            &["3 mistakes", "wrong.toml:2: ", "did you mean `rounds`?", "wrong.toml:4: ", "wrong.toml:8)"],
        ),
    ] {
        fs::write(&file, text).unwrap();
        for command in [
            &["simulate", &file, "--runs", &runs][..],
            &["serve", &file, "--runs", &runs],
            &["config", &file],
        ] {
            let parts = [&[file.as_str()], parts].concat();
            assert_refused(&programs().aggregator, command, 2, &parts);
        }
    }
    let set = |given: &str, parts: &[&str]| {
        let arguments = ["simulate", "--runs", &runs, "--set", given];
        assert_refused(&programs().aggregator, &arguments, 2, &[&[given], parts].concat());
    };
    set("run.seed=", &["run.seed"]);
    set("run.rounds=-1", &["run.rounds", "-1", "at least 1"]);
    set("training", &["KEY=VALUE"]);
    set("update.precision=f8", &["update.precision", "f8", "f32", "f16", "bf16"]);
    let attack = ["serve", "--runs", &runs, "--set", "simulation.attack.sign-flip={}"];
    let parts = ["sign flip", "real devices are not asked to attack", "simulation.attack.none={}"];
    assert_refused(&programs().aggregator, &attack, 2, &parts);
    let absent = testbed.name("absent.toml");
    assert_refused(&programs().aggregator, &["simulate", &absent], 2, &[&absent, "cannot read"]);
    for command in ["simulate", "serve"] {
        let cuda = [command, "--runs", &runs, "--device", "cuda"];
        let parts = ["CUDA cannot be used", "--features cuda", "--device cpu"];
        assert_refused(&programs().aggregator, &cuda, 3, &parts);
    }
    assert!(!testbed.path("runs").exists(), "no run was begun for a configuration that makes no sense");
}

#[cfg(target_os = "linux")]
#[test]
fn rounds_that_cannot_be_shown_do_not_end_in_success() {
    let testbed = Testbed::new(2, &[]);
    let full = || fs::File::options().write(true).open("/dev/full").unwrap();
    for more in [&["--json"][..], &[]] {
        let output = Command::new(&programs().aggregator)
            .args([
                "simulate",
                "--runs",
                &testbed.name("runs"),
                "--set",
                "run.rounds=1",
                "--set",
                "data.max-samples=40",
            ])
            .args(["--set", "data.clients=2", "--set", "model.name=linear", "--set", "evaluate.every=0"])
            .args(more)
            .stdout(full())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains("cannot write to standard output"), "{said}");
    }
}

#[test]
fn places_that_cannot_be_written_are_named() {
    let testbed = Testbed::new(4, &[]);
    let (config, file, data) = (testbed.name("run.toml"), testbed.name("file"), testbed.data(0));
    fs::write(&file, "").unwrap();
    let below = format!("{file}/below");
    let (aggregator, edge_client) = (&programs().aggregator, &programs().edge_client);
    let (runs, listen) = (testbed.name("runs"), testbed.address());
    let parts = [below.as_str()];
    for runs in [&file, &below] {
        assert_refused(aggregator, &["simulate", &config, "--runs", runs], 3, &[runs]);
        assert_refused(aggregator, &["serve", &config, "--runs", runs, "--listen", &listen], 3, &[runs]);
    }
    let serve = ["serve", &config, "--runs", &runs, "--listen", &listen];
    assert_refused(aggregator, &[&serve[..], &["--identity", &below]].concat(), 3, &parts);
    assert_refused(aggregator, &[&serve[..], &["--ready-file", &below]].concat(), 3, &parts);
    assert_refused(aggregator, &["data", "split", &config, "--out", &below], 3, &parts);
    let join = ["join", &listen, "--data", data.to_str().unwrap(), "--state"];
    for state in [&file, &below] {
        assert_refused(edge_client, &[&join[..], &[state]].concat(), 3, &[state, "a file is in the way"]);
    }
}

/// A file system of its own in memory; unmounted when dropped.
struct Small(PathBuf);

impl Small {
    /// `None` where this user may not mount.
    fn mount(path: PathBuf, options: &str) -> Option<Self> {
        fs::create_dir(&path).unwrap();
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&path).output();
        match mount {
            Ok(output) if output.status.success() => Some(Self(path)),
            _ => {
                println!(
                    "skipped: this user may not mount a tmpfs, so there is no full or read-only disk to test with"
                );
                None
            }
        }
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn full_and_read_only_disks_are_said_to_be_so() {
    let testbed = Testbed::new(4, &[]);
    let Some(full) = Small::mount(testbed.path("full"), "size=64k") else { return };
    let Some(closed) = Small::mount(testbed.path("closed"), "ro") else { return };
    let config = testbed.name("run.toml");
    let join = |state: &Path| {
        let (data, address) = (testbed.data(0), testbed.address());
        let arguments =
            ["join", &address, "--data", data.to_str().unwrap(), "--state", state.to_str().unwrap()];
        run(&programs().edge_client, &arguments)
    };

    let runs = closed.0.join("runs");
    let simulate = |runs: &Path| {
        let arguments = ["simulate", &config, "--runs", runs.to_str().unwrap()];
        run(&programs().aggregator, &arguments)
    };
    assert_ended(&simulate(&runs), 3, &[runs.to_str().unwrap(), "Read-only"]);
    let state = closed.0.join("state");
    assert_ended(&join(&state), 3, &[state.to_str().unwrap(), "Read-only", "writable"]);

    let runs = full.0.join("runs");
    assert_ended(&simulate(&runs), 3, &[runs.to_str().unwrap(), "No space", "the same command goes on"]);
    // The advice is true: once there is space, the same command goes on.
    let more = Command::new("mount").args(["-o", "remount,size=8m"]).arg(&full.0).status().unwrap();
    assert!(more.success());
    assert_ended(&simulate(&runs), 0, &[]);
}

#[test]
fn a_device_whose_disk_is_full_says_so_and_goes_on_when_there_is_space() {
    let testbed = Testbed::new(5, &["data.max-samples=200", "round.min-updates=4"]);
    let Some(disk) = Small::mount(testbed.path("full"), "size=64k") else { return };
    let server = testbed.serve();
    let state = disk.0.join("state");
    let mut command = Command::new(&programs().edge_client);
    command
        .args(["join", &testbed.address(), "--json", "--data"])
        .arg(testbed.data(0))
        .arg("--state")
        .arg(&state);
    let mut device = Process::start("a device with a small disk", &mut command);
    device.object(&json!({ "event": "joined" }));
    let fill =
        Command::new("sh").arg("-c").arg("cat /dev/zero > \"$0\"/zeros").arg(&disk.0).output().unwrap();
    assert!(!fill.status.success(), "the disk is full now");
    let others: Vec<_> = (1..4).map(|index| testbed.join(index)).collect();
    let gate = testbed.gate(4);
    let held = gate.held();
    let waits = device.object(&json!({ "event": "no-room", "round": 1 }));
    for part in [state.to_str().unwrap(), "No space", "make some space"] {
        assert!(waits["reason"].as_str().unwrap().contains(part), "{part:?} is not in {waits}");
    }

    // The update is not lost, and nothing is trained again.
    fs::remove_file(disk.0.join("zeros")).unwrap();
    device.object(&json!({ "event": "trained", "round": 1 }));
    device.object(&json!({ "event": "receipt", "round": 1, "verdict": "accepted" }));
    held.open();
    for round in 2..=3 {
        let held = gate.held();
        assert_eq!(held.round, round);
        held.open();
        device.object(&json!({ "event": "receipt", "round": round, "verdict": "accepted" }));
    }
    assert_ended(&server.wait(), 0, &[]);
    for device in others.into_iter().chain([device]) {
        assert_ended(&device.wait(), 0, &["completed"]);
    }
    let counts: Vec<_> = testbed.rounds().iter().map(|round| (round.accepted, round.failed)).collect();
    assert_eq!(counts, [(5, 0); 3]);
}

#[test]
fn an_aggregator_whose_disk_is_full_pauses_and_goes_on_when_there_is_space() {
    let testbed = Testbed::new(3, &["data.max-samples=120"]);
    let Some(disk) = Small::mount(testbed.path("runs"), "size=2m") else { return };
    let mut server = testbed.serve();
    let devices: Vec<_> = (0..2).map(|index| testbed.join(index)).collect();
    let gate = testbed.gate(2);
    let held = gate.held();
    assert_eq!(held.round, 1);
    let fill =
        Command::new("sh").arg("-c").arg("cat /dev/zero > \"$0\"/zeros").arg(&disk.0).output().unwrap();
    assert!(!fill.status.success(), "the disk is full now");
    held.open();
    let told = server.line("that it pauses", |line| line.contains("The run pauses"));
    for part in [disk.0.to_str().unwrap(), "No space", "bytes are free"] {
        assert!(told.contains(part), "{part:?} is not in {told}");
    }
    fs::remove_file(disk.0.join("zeros")).unwrap();
    server.line("that it goes on", |line| line.contains("the run goes on"));
    for round in 2..=3 {
        let held = gate.held();
        assert_eq!(held.round, round);
        held.open();
    }
    testbed.assert_completed(server, devices);
}

#[test]
fn an_aggregator_that_waits_for_room_can_be_stopped_and_continued() {
    let testbed = Testbed::new(2, &["data.max-samples=80", "run.rounds=2"]);
    let Some(disk) = Small::mount(testbed.path("runs"), "size=2m") else { return };
    let mut server = testbed.serve();
    let device = testbed.join(0);
    let gate = testbed.gate(1);
    let held = gate.held();
    let fill =
        Command::new("sh").arg("-c").arg("cat /dev/zero > \"$0\"/zeros").arg(&disk.0).output().unwrap();
    assert!(!fill.status.success(), "the disk is full now");
    held.open();
    server.line("that it pauses", |line| line.contains("The run pauses"));
    server.interrupt();
    let stopped = server.wait();
    assert!(matches!(stopped.code, Some(INTERRUPTED | 3)), "{}", stopped.text);
    fs::remove_file(disk.0.join("zeros")).unwrap();
    let server = testbed.serve();
    let held = gate.held();
    assert_eq!(held.round, 2);
    held.open();
    testbed.assert_completed(server, vec![device]);
}

#[test]
fn a_device_all_of_whose_rounds_failed_does_not_end_in_success() {
    let testbed = Testbed::new(5, &["data.max-samples=200", "round.min-updates=4", "run.rounds=2"]);
    let server = testbed.serve();
    let state = testbed.state(0);
    let mut command = Command::new(&programs().edge_client);
    command
        .args(["join", &testbed.address(), "--json", "--data"])
        .arg(testbed.data(0))
        .arg("--state")
        .arg(&state);
    let mut device = Process::start("a device with a small disk", &mut command);
    device.object(&json!({ "event": "joined" }));
    // A file is where the update should go.
    fs::write(state.join("outbox.partial"), "").unwrap();
    let others: Vec<_> = (1..5).map(|index| testbed.join(index)).collect();
    assert_ended(
        &device.wait(),
        3,
        &[
            "completed",
            "\"blame\":\"machine\"",
            "none of this device's rounds",
            "in 2 tried",
            "a file is in the way",
        ],
    );
    for other in others {
        assert_ended(&other.wait(), 0, &["completed"]);
    }
    assert_ended(&server.wait(), 0, &[]);
}

#[test]
fn a_run_without_any_acceptable_update_fails_and_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().to_str().unwrap();
    let mut arguments = vec!["simulate", "--runs", runs];
    let small =
        ["run.rounds=1", "data.clients=2", "data.max-samples=20", "model.name=linear", "training.epochs=1"];
    for change in small.iter().chain(&["update.max-abs=1e-30"]) {
        arguments.extend(["--set", change]);
    }
    // There is nothing to continue: the same command begins another run, which is no better.
    for name in ["glyphs-fedavg", "glyphs-fedavg-2"] {
        let begun = format!("new run in {}", folder.path().join(name).display());
        let parts = [&begun[..], "1 round in a row had too few acceptable updates", "rejected"];
        assert_refused(&programs().aggregator, &arguments, 4, &parts);
        assert!(folder.path().join(name).join("report.html").is_file());
    }
}
