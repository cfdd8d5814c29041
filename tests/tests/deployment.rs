//! The files that start several servers: a compose file and Kubernetes manifests. They are valid, the program takes what they give it, and
//! the servers of the compose file serve a run.
#![cfg(unix)]

use std::fs;
use std::process::Command;

use federation_tests::postgres::Postgres;
use federation_tests::process::{Process, run};
use federation_tests::programs::programs;
use federation_tests::python;
use federation_tests::testbed::free_port;
use serde_json::Value;

const CHECKER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/deployment.py");
const PACKAGING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../aggregator/packaging");

/// What the files start of the aggregator, once they are found to be valid. `None` without the packages that check them.
fn deployment() -> Option<Value> {
    let imports = "import compose_spec, kubernetes_validate, yaml";
    let python = match python::with(imports, "kubernetes-validate and compose-spec") {
        Ok(python) => python,
        Err(why) => {
            eprintln!("skipped: {why}");
            return None;
        }
    };
    let output = Command::new(python).args([CHECKER, PACKAGING, "127.0.0.1"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

#[test]
fn compose_file_and_manifests_are_valid_and_the_program_takes_what_they_give_it() {
    let Some(files) = deployment() else { return };
    let folder = tempfile::tempdir().unwrap();
    for (of, part) in files.as_object().unwrap() {
        let commands = part["commands"].as_object().unwrap();
        assert!(!commands.is_empty(), "{of} starts something");
        for (name, command) in commands {
            // Help is shown only after all that stands before it was understood.
            let arguments = [texts(command), vec!["--help"]].concat();
            let ended = run(&programs().aggregator, &arguments);
            assert_eq!(ended.code, Some(0), "{of}, {name}: {}", ended.text);
        }
        let config = folder.path().join(format!("{of}.toml"));
        fs::write(&config, part["run"].as_str().unwrap()).unwrap();
        let ended = run(&programs().aggregator, &["config", &config.display().to_string()]);
        assert_eq!(ended.code, Some(0), "{of}: {}", ended.text);
    }
}

#[test]
fn the_servers_of_the_compose_file_serve_a_run() {
    let Some(files) = deployment() else { return };
    let Some(postgres) = Postgres::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let compose = &files["compose"];
    fs::write(path("run.toml"), compose["run"].as_str().unwrap()).unwrap();
    let split = run(&programs().aggregator, &["data", "split", &path("run.toml"), "--out", &path("data")]);
    assert_eq!(split.code, Some(0), "{}", split.text);

    // Folders in the place of volumes, and ports that are free.
    let ports = ["4433", "4434", "4435"].map(|port| (format!(":{port}"), format!(":{}", free_port())));
    let here = |argument: &str, server: &str| match argument {
        "/run.toml" => path("run.toml"),
        "--runs=/runs" => format!("--runs={}", path(server)),
        store if store.starts_with("--store=") => format!("--store={}", postgres.address()),
        other => ports.iter().fold(other.to_owned(), |text, (port, free)| text.replace(port, free)),
    };
    // As the service `key` makes it.
    let key = "2f".repeat(32) + "\n";
    let serve = |(name, command): (&String, &Value)| {
        let identity = folder.path().join(name).join("identity");
        fs::create_dir_all(&identity).unwrap();
        fs::write(identity.join("server.key"), &key).unwrap();
        let mut program = Command::new(&programs().aggregator);
        program.args(texts(command).into_iter().map(|argument| here(argument, name)));
        let mut server = Process::start(name, &mut program);
        server.line("listening", |line| line.contains("listening on "));
        server
    };
    let commands = compose["commands"].as_object().unwrap();
    let servers: Vec<Process> = commands.iter().map(serve).collect();
    assert_eq!(servers.len(), ports.len());

    let addresses = ports.each_ref().map(|(_, port)| format!("127.0.0.1{port}")).join(",");
    let runs = path("a");
    let printed = ["ticket", "--runs", &runs, "--uses", "4", "--address", &addresses];
    let printed = run(&programs().aggregator, &printed);
    assert_eq!(printed.code, Some(0), "{}", printed.text);
    let ticket = printed.text.lines().find(|line| line.starts_with("fed1")).unwrap();
    let mut store = postgres.client();
    let tickets = store.query_one("SELECT count(*) FROM register_tickets", &[]).unwrap();
    assert_eq!(tickets.get::<_, i64>(0), 1, "a ticket that is printed is known to all servers");
    let join = |device: u32| {
        let (data, state) = (path(&format!("data/client-{device:03}")), path(&format!("state-{device}")));
        let mut program = Command::new(&programs().edge_client);
        program.args(["join", ticket, "--threads", "1", "--data", &data, "--state", &state]);
        Process::start(&format!("device {device}"), &mut program)
    };
    let devices: Vec<Process> = (0..4).map(join).collect();
    for process in devices.into_iter().chain(servers) {
        let ended = process.wait();
        assert_eq!(ended.code, Some(0), "{}", ended.text);
    }
    let model = |server: &str| {
        fs::read(folder.path().join(server).join("several-servers/model.safetensors")).unwrap()
    };
    assert!(model("a") == model("b") && model("b") == model("c"), "all servers have the model");

    // After a start of the machine there is nothing to do.
    let (name, command) = commands.iter().next().unwrap();
    let again: Vec<String> = texts(command).into_iter().map(|argument| here(argument, name)).collect();
    let again: Vec<&str> = again.iter().map(String::as_str).collect();
    let ended = run(&programs().aggregator, &again);
    assert_eq!(ended.code, Some(0), "{}", ended.text);
    assert!(ended.text.contains("is complete"), "{}", ended.text);
}
