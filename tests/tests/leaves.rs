//! Several servers that serve one run, with a `PostgreSQL` and devices of the test's own. Any of them may die, stand still or lose its
//! folder: the model is the simulation's.
#![cfg(unix)]

use std::fs;

use aggregator::cluster::address::StoreAddress;
use aggregator::cluster::connection::Connection;
use aggregator::run::RunManifest;
use aggregator::run::directory::RunDirectory;
use aggregator::storage::Disk;
use edge_client::session::SessionEnd;
use federation_tests::cluster_testbed::{ClusterTestbed, Root};
use federation_tests::planted::{plant_noise, plant_secret};
use federation_tests::postgres::Postgres;
use federation_tests::process::{INTERRUPTED, Process, run, until};
use federation_tests::programs::programs;
use serde_json::Value;

/// All servers and devices of a lab.
fn start(lab: &ClusterTestbed, devices: u32) -> (Vec<Process>, Vec<Process>) {
    (
        (0..lab.servers()).map(|server| lab.serve(server)).collect(),
        (0..devices).map(|device| lab.join(device)).collect(),
    )
}

/// Waits until another round has closed, or all have.
fn closes_a_round(lab: &ClusterTestbed) {
    let before = lab.closed().expect("the store is there");
    until("a round has closed", || lab.closed() > Some(before) || lab.is_over());
}

fn kill_and_restart(
    lab: &ClusterTestbed,
    servers: &mut Vec<Process>,
    server: usize,
    meanwhile: impl FnOnce(),
) {
    servers.remove(server).kill();
    meanwhile();
    servers.insert(server, lab.serve(server));
}

/// Kills one process after the other, with a closed round between, and starts it again: the servers in turn, and the database as the fourth.
fn kill_in_turn(
    lab: &mut ClusterTestbed,
    servers: &mut Vec<Process>,
    kills: usize,
    start: fn(&ClusterTestbed, usize) -> Process,
) {
    for turn in 0..kills {
        closes_a_round(lab);
        if lab.is_over() {
            // Rounds were faster than servers start.
            return;
        }
        if turn == 3 {
            lab.postgres.kill();
            lab.postgres.restart();
        } else {
            let server = turn % 3;
            servers.remove(server).kill();
            servers.insert(server, start(lab, server));
        }
    }
}

#[test]
fn three_servers_make_the_model_of_one() {
    let Some(lab) = ClusterTestbed::new(3, 6, &["run.rounds=4"]) else { return };
    let (servers, devices) = start(&lab, 6);
    lab.assert_completed(servers, devices);
}

#[test]
fn programs_read_one_document_of_the_run_at_each_server() {
    // Not over before it was looked at.
    let rounds = 1_000_000;
    let settings = [format!("run.rounds={rounds}"), "data.max-samples=200".to_owned()];
    let Some(lab) = ClusterTestbed::new(2, 2, &settings.each_ref().map(String::as_str)) else { return };
    let (_servers, _devices) = start(&lab, 2);
    let told = |server: usize| -> Option<Value> {
        let text = lab.status_as(server, &["--json"]).text;
        let document: Value = serde_json::from_str(text.trim()).ok()?;
        // What the run waits for is told a moment after it has begun.
        (document["servers"].as_array()?.len() == 2 && document["status"].is_object()).then_some(document)
    };
    let mut documents = None;
    // Another one may come to lead between the two questions.
    until("both say that the same one leads, and it has the rounds", || {
        documents = told(0).zip(told(1));
        documents.as_ref().is_some_and(|(first, second)| {
            let leading = [first, second].iter().filter(|document| document["newest"].is_array()).count();
            first["leads"] == second["leads"] && leading == 1
        })
    });
    let (first, second) = documents.expect("both are there");
    for document in [&first, &second] {
        assert_eq!(document["serving"], true, "{document}");
        assert!(document["status"]["rounds"] == rounds && document["told"].is_i64(), "{document}");
    }
    assert_eq!(first["name"], second["name"]);
}

#[test]
fn whichever_of_the_servers_is_killed_the_run_goes_on() {
    let Some(mut lab) = ClusterTestbed::new(3, 6, &["run.rounds=40", "data.max-samples=600"]) else { return };
    let (mut servers, devices) = start(&lab, 6);
    kill_in_turn(&mut lab, &mut servers, 6, ClusterTestbed::serve);
    lab.assert_completed(servers, devices);
}

#[test]
fn a_server_that_is_asked_to_stop_leaves_the_run_to_the_others() {
    let Some(lab) = ClusterTestbed::new(2, 2, &["run.rounds=200", "data.max-samples=200"]) else { return };
    let (mut servers, devices) = start(&lab, 2);
    closes_a_round(&lab);
    let root = lab.root().expect("one leads").server;
    let runs = lab.runs(root).display().to_string();
    let identity = lab.testbed.name(&format!("identity-{root}"));
    let asked = run(&programs().aggregator, &["stop", "--runs", &runs, "--identity", &identity]);
    assert_eq!(asked.code, Some(0), "{}", asked.text);
    let stopped = servers.remove(root).wait();
    assert_eq!(stopped.code, Some(0), "{}", stopped.text);
    assert!(stopped.text.contains("the same command continues the run"), "{}", stopped.text);
    assert!(!lab.is_over());
    until("another server leads", || lab.root().is_some_and(|now| now.server != root));
    servers.insert(root, lab.serve(root));
    lab.assert_completed(servers, devices);
}

#[test]
fn a_run_whose_model_cannot_be_written_is_over_at_another_server() {
    let Some(lab) = ClusterTestbed::new(2, 2, &["run.rounds=3"]) else { return };
    let mut servers: Vec<_> = (0..2).map(|server| lab.serve(server)).collect();
    until("a server leads", || lab.root().is_some());
    let root = lab.root().expect("it does").server;
    let place = RunDirectory::new(lab.run(root));
    until("it has begun the run", || place.identity().exists());
    // No file takes the place of a folder.
    fs::create_dir(place.model()).expect("there is no model before the end");
    let devices: Vec<_> = (0..2).map(|device| lab.join(device)).collect();
    let failed = servers.remove(root).wait();
    assert_eq!(failed.code, Some(3), "{}", failed.text);
    servers.insert(root, lab.serve(root));
    lab.assert_completed(servers, devices);
}

#[test]
fn a_server_begins_no_run_beside_another_one_of_its_name() {
    let Some(lab) = ClusterTestbed::new(1, 1, &[]) else { return };
    let former = Process::start("another run", lab.serve_command(0).args(["--set", "run.seed=77"]));
    let place = RunDirectory::new(lab.run(0));
    until("it has begun the run", || place.identity().exists());
    former.interrupt();
    let ended = former.wait();
    assert_eq!(ended.code, Some(INTERRUPTED), "{}", ended.text);
    let refused = Process::start("this run", &mut lab.serve_command(0)).wait();
    assert_eq!(refused.code, Some(2), "{}", refused.text);
    assert!(
        refused.text.contains("holds something else than the run that the store has"),
        "{}",
        refused.text
    );
    assert!(!lab.runs(0).join(format!("{}-2", place.name())).exists());
}

/// The secret of a private run, once a server has begun it.
fn secret(lab: &ClusterTestbed) -> [u8; 32] {
    let read = || (0..lab.servers()).find_map(|server| fs::read(lab.run(server).join("state/secret")).ok());
    until("a server has begun the run", || read().is_some());
    read().expect("it has").try_into().expect("32 bytes")
}

#[test]
fn the_noise_of_a_private_run_is_the_same_whichever_server_leads() {
    let private = ["privacy.clip=0.5", "privacy.noise=0.7", "privacy.delta=1e-3", "privacy.adaptive-clip={}"];
    let more = ["aggregation.weights=uniform", "run.rounds=20", "data.max-samples=600"];
    let Some(mut lab) = ClusterTestbed::new(3, 6, &[&private[..], &more].concat()) else { return };
    let (mut servers, devices) = start(&lab, 6);
    let name = lab.run(0).file_name().expect("it has a name").to_string_lossy().into_owned();
    plant_secret(&lab.testbed.path("simulated"), &name, secret(&lab));
    kill_in_turn(&mut lab, &mut servers, 3, ClusterTestbed::serve);
    lab.assert_completed(servers, devices);
}

/// A run with these settings makes the simulation's model while each server is killed once.
fn each_is_killed(settings: &[&str]) {
    let settings = [settings, &["run.rounds=30", "data.max-samples=600"]].concat();
    let Some(mut lab) = ClusterTestbed::new(3, 6, &settings) else { return };
    let (mut servers, devices) = start(&lab, 6);
    kill_in_turn(&mut lab, &mut servers, 3, ClusterTestbed::serve);
    lab.assert_completed(servers, devices);
}

#[test]
fn frozen_parameters_reach_devices_at_all_servers() {
    each_is_killed(&["model.name=mlp-2nn", "model.freeze=['extractor.*']"]);
}

#[test]
fn models_as_differences_reach_devices_at_all_servers() {
    each_is_killed(&["update.broadcast=int8"]);
}

#[test]
fn a_simulation_on_several_machines_is_that_of_one_whichever_is_killed() {
    let settings =
        [&HIDDEN[..], &["algorithm.scaffold={}", "run.rounds=20", "data.max-samples=600"]].concat();
    let Some(mut lab) = ClusterTestbed::new(3, 6, &settings) else { return };
    let first: Vec<_> = (0..2).map(|server| lab.simulate(server)).collect();
    until("both are there", || (0..2).all(|server| lab.status(0).text.contains(&lab.address(server))));
    let same = lab.simulate_part(2, 2).wait();
    assert_eq!(same.code, Some(3), "{}", same.text);
    assert!(same.text.contains("simulates part 2/3 of the clients as well"), "{}", same.text);
    let mut servers: Vec<_> = first.into_iter().chain([lab.simulate(2)]).collect();
    kill_in_turn(&mut lab, &mut servers, 4, ClusterTestbed::simulate);
    lab.assert_completed(servers, Vec::new());
}

/// What a run takes whose updates are hidden.
const HIDDEN: [&str; 2] = ["secure-aggregation.enabled=true", "secure-aggregation.min-devices=3"];

#[test]
fn hidden_updates_add_up_over_all_servers_whichever_is_killed() {
    let settings = [&HIDDEN[..], &["run.rounds=30", "data.max-samples=600"]].concat();
    let Some(mut lab) = ClusterTestbed::new(3, 6, &settings) else { return };
    let (mut servers, devices) = start(&lab, 6);
    kill_in_turn(&mut lab, &mut servers, 6, ClusterTestbed::serve);
    lab.assert_completed(servers, devices);
}

#[test]
fn devices_noise_adds_up_over_all_servers_whichever_is_killed() {
    let noise =
        ["privacy.clip=0.5", "privacy.noise=0.7", "privacy.delta=1e-3", "aggregation.weights=uniform"];
    let more =
        ["secure-aggregation.integers=i32", "update.precision=int8", "run.rounds=20", "data.max-samples=600"];
    let Some(mut lab) = ClusterTestbed::new(3, 6, &[&HIDDEN[..], &noise, &more].concat()) else { return };
    let mut servers: Vec<_> = (0..3).map(|server| lab.serve(server)).collect();
    let begun =
        || (0..3).find_map(|server| RunManifest::read(&Disk, &RunDirectory::new(lab.run(server))).ok()?);
    until("a server has begun the run", || begun().is_some());
    let run = begun().expect("it has").run;
    // Devices draw their noise from secrets of their own, and the simulation from one.
    let (name, secret) =
        (lab.run(0).file_name().expect("it has a name").to_string_lossy().into_owned(), [9; 32]);
    plant_secret(&lab.testbed.path("simulated"), &name, secret);
    (0..6).for_each(|device| plant_noise(&lab.testbed, device, run, &secret));
    let devices = (0..6).map(|device| lab.join(device)).collect();
    kill_in_turn(&mut lab, &mut servers, 3, ClusterTestbed::serve);
    lab.assert_completed(servers, devices);
}

/// Stops the root for longer than its lease, until another server has closed a round. Gives its number.
fn freeze_the_root(lab: &ClusterTestbed, servers: &[Process]) -> Root {
    until("a server leads", || lab.root().is_some());
    let former = lab.root().expect("it does");
    servers[former.server].freeze();
    until("another server leads", || lab.root().is_some_and(|root| root.epoch > former.epoch));
    closes_a_round(lab);
    servers[former.server].go_on();
    former
}

#[test]
fn a_root_that_stood_still_writes_nothing_when_it_goes_on() {
    let rounds = 60;
    let Some(lab) = ClusterTestbed::new(3, 6, &[&format!("run.rounds={rounds}")]) else { return };
    let servers: Vec<_> = (0..3).map(|server| lab.serve(server)).collect();
    until("a server leads", || lab.root().is_some());
    lab.note_closings();
    let devices: Vec<_> = (0..6).map(|device| lab.join(device)).collect();
    closes_a_round(&lab);
    let first = freeze_the_root(&lab, &servers);
    closes_a_round(&lab);
    let second = freeze_the_root(&lab, &servers);
    assert_ne!(first.server, second.server);
    lab.assert_completed(servers, devices);
    assert_eq!(lab.closings(), (1..=rounds).collect::<Vec<_>>(), "each round closes once");
}

#[test]
fn a_server_with_another_configuration_is_refused_while_others_serve_the_run() {
    let Some(lab) = ClusterTestbed::new(2, 2, &["run.rounds=1"]) else { return };
    let first = lab.serve(0);
    until("it leads", || lab.root().is_some());
    let other = Process::start("another", lab.serve_command(1).args(["--set", "run.rounds=2"])).wait();
    assert_eq!(other.code, Some(2), "{}", other.text);
    assert!(other.text.contains("other servers serve a run named"), "{}", other.text);
    let devices = (0..2).map(|device| lab.join(device)).collect();
    lab.assert_completed(vec![first], devices);
}

/// Whether the server has an accepted update of the first round on its disk.
fn has_accepted(lab: &ClusterTestbed, server: usize) -> bool {
    let files = fs::read_dir(lab.leaf(server).join("state/accepted-000001")).into_iter().flatten().flatten();
    files.into_iter().any(|file| file.file_name().to_string_lossy().ends_with(".update"))
}

/// Removes the folder of a server that does not lead, in a round that stays open until then.
fn without_its_folder(killed: bool) {
    let rounds = 2;
    let Some(lab) = ClusterTestbed::new(3, 6, &[&format!("run.rounds={rounds}")]) else { return };
    let mut servers: Vec<_> = (0..3).map(|server| lab.serve(server)).collect();
    until("a server leads", || lab.root().is_some());
    let root = lab.root().expect("it does").server;
    let others = || (0..3).filter(|server| *server != root);
    // Its training waits at the root, so that the round stays open.
    let gate = lab.gate(0, root);
    let devices: Vec<_> = (1..6).map(|device| lab.join(device)).collect();
    let held = gate.held();
    until("another server has accepted an update", || others().any(|server| has_accepted(&lab, server)));
    let leaf = others().find(|server| has_accepted(&lab, *server)).expect("one has");
    until("every server shows the round and all servers", || {
        (0..3).all(|server| {
            let shown = lab.status(server);
            let has = |part: &str| shown.text.contains(part);
            shown.code == Some(0) && has("round 1: ") && (0..3).all(|other| has(&lab.address(other)))
        })
    });
    let remove = || {
        // In one step: the server may add to a folder that is being emptied.
        let elsewhere = lab.testbed.path("removed");
        fs::rename(lab.runs(leaf), &elsewhere).expect("it was there");
        fs::remove_dir_all(elsewhere).expect("it is there now");
    };
    if killed {
        kill_and_restart(&lab, &mut servers, leaf, remove);
    } else {
        remove();
    }
    held.open();
    if !killed {
        // It has the sum in memory, and says of what was removed that it was.
        let ended = servers.remove(leaf).wait();
        assert_eq!(ended.code, Some(3), "{}", ended.text);
        assert!(ended.text.contains("start this server again"), "{}", ended.text);
        servers.insert(leaf, lab.serve(leaf));
    }
    for _ in 1..rounds {
        gate.held().open();
    }
    assert_eq!(gate.outcome(), SessionEnd::Completed { rounds });
    lab.assert_completed(servers, devices);
}

#[test]
fn a_server_that_comes_back_without_its_folder_costs_a_second_delivery() {
    without_its_folder(true);
}

#[test]
fn a_server_whose_folder_is_removed_says_so_and_the_round_closes() {
    without_its_folder(false);
}

#[test]
fn a_transaction_in_which_a_process_stands_still_does_not_stop_the_others() {
    let Some(postgres) = Postgres::start() else { return };
    let address = StoreAddress::from_environment(&postgres.address()).expect("it is one");
    let mut one = Connection::new(address);
    postgres
        .client()
        .batch_execute("CREATE TABLE leases (epoch integer); INSERT INTO leases VALUES (1)")
        .expect("new");
    let stood_still = one.once(&mut |client| {
        let mut transaction = client.transaction()?;
        transaction.execute("UPDATE leases SET epoch = 2", &[])?;
        // Waits until the database has ended the transaction, and with it the lock.
        postgres.client().execute("UPDATE leases SET epoch = epoch + 10", &[])?;
        transaction.execute("UPDATE leases SET epoch = 3", &[])?;
        transaction.commit()
    });
    assert!(stood_still.is_err_and(|error| error.is_outage()), "it is tried again");
    let epoch =
        one.once(&mut |client| Ok(client.query_one("SELECT epoch FROM leases", &[])?.get::<_, i32>(0)));
    assert_eq!(epoch.expect("there is a new connection"), 11);
}
