//! One flipped bit in what is read back beside a stopped run: a device's state, the server's identity, a simulation
//! that is asked for more rounds, models, and what the page knows. What counts stays the same, or a person is told.
//!
//! Each test is a row of a table: a folder of files, and what a reader of it sees.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aggregator::coordinator::Outcome;
use aggregator::database::Database;
use aggregator::enrolment::{Device, IssuedTicket, Policy, Standing};
use aggregator::ensemble::Bundle;
use aggregator::events::Notice;
use aggregator::run::Run;
use aggregator::simulate::{Transport, simulate};
use aggregator::start::start_on;
use aggregator::storage::Disk;
use aggregator::storage::unsynced::Unsynced;
use aggregator::transport::identity::ServerIdentity;
use edge_client::store::{
    DiskStore, KnownServer, PersonalModels, ServerFile, Store as _, StoreError, Update,
};
use federation_tests::copy_folder::copy_folder;
use federation_tests::faults::Faults;
use federation_tests::flips::{Flips, Seen, flip_bits};
use federation_tests::fuzz::device_state;
use federation_tests::keys::device_key;
use federation_tests::process::run;
use federation_tests::programs::programs;
use federation_tests::scenario::Scenario;
use federation_tests::simulator::Simulator;
use federation_tests::testbed::Testbed;
use models::model_file::{read_model, write_model};
use models::{Architecture, ParamSet};
use rusqlite::Connection;
use rusqlite::types::Value;
use shared::id::RunId;
use shared::message::{TaskId, TrainReport, Verdict};
use shared::seed::Seed;
use shared::ticket::{Ticket, TicketSecret};
use tokio::sync::watch;

/// A kind of files, and what its flips come to.
type Row = (&'static str, fn(usize) -> Flips);

const ROWS: [Row; 7] = [
    ("a device's state", device),
    ("the server's identity", identity),
    ("a simulation that goes on", simulation),
    ("a model", model),
    ("an ensemble", ensemble),
    ("personal models", personal),
    ("what the page knows", page),
];

#[test]
fn a_flipped_bit_in_any_other_file_is_told_or_changes_nothing() {
    for (name, flip) in ROWS {
        let Flips { all, told } = flip(12);
        assert!(told > all / 8, "{name}: {told} of {all} were told");
    }
}

#[test]
#[ignore = "a longer experiment: a thousand flips in every file take half an hour"]
fn a_thousand_flips_in_every_other_file() {
    for (name, flip) in ROWS {
        let Flips { all, told } = flip(1000);
        println!("{name}: {told} of {all} flips were told, and the others changed nothing");
    }
}

/// The round of the update that the device holds.
const ROUND: u32 = 2;
const RUN: RunId = RunId::from_bytes([3; 8]);

/// Bytes of a download that have arrived: three blocks.
const DOWNLOAD: usize = 3 * (64 << 10);

/// A state directory with everything in it: identity, server, an update without a receipt, client state, a secret, a personal model
/// and the beginning of a download.
fn device(each: usize) -> Flips {
    let folder = tempfile::tempdir().unwrap();
    let mut store = DiskStore::open(folder.path()).unwrap();
    let ticket = Ticket {
        server: device_key(0).public(),
        secret: TicketSecret::from_bytes([7; 16]),
        addresses: vec!["lab:4433".to_owned()],
    };
    store.server().save(&KnownServer::from(ticket).redeemed().renewed(device_key(1).public())).unwrap();
    for round in [1, ROUND] {
        let update = Update {
            id: TaskId { run: RUN, round },
            report: TrainReport::default(),
            payload: vec![round as u8; 300].into(),
            local: Some(vec![round as u8; 200]),
        };
        store.save(&update).unwrap();
        if round < ROUND {
            store.forget(Some(&Verdict::Accepted)).unwrap();
        }
    }
    store.keep_masking(RUN, &[5; 100]).unwrap();
    store.save_personal(RUN, &device_state::personals()[0]).unwrap();
    let payload: Vec<u8> = (0..DOWNLOAD).map(|byte| (byte / 7) as u8).collect();
    store.download().unwrap().lock().unwrap().keep(3, DOWNLOAD as u64 + 1, &payload);
    drop(store);
    let whole = held(folder.path()).unwrap();
    assert!(whole.payload.is_some() && whole.state.is_some() && whole.masking.is_some());
    let look = |trial: &Path| {
        let seen = match held(trial) {
            // A damaged update is removed with a warning, and trained again; client state is then that of before.
            Ok(found) if found.payload.is_none() && whole.payload.is_some() => {
                let before = Held { payload: None, state: Some(vec![1; 200]), ..whole.clone() };
                if found == before {
                    Seen::Told
                } else {
                    Seen::Silent("an update is lost, and something else differs".to_owned())
                }
            }
            // A damaged secret is left out with a warning, and the next exchange of keys has a new one.
            Ok(found) if found.masking.is_none() && found == Held { masking: None, ..whole.clone() } => {
                Seen::Told
            }
            read => Seen::of(read, &whole, "a device's state"),
        };
        // Of a download that is damaged a part is left, or none: the rest is received again.
        let beginning =
            DiskStore::open(trial).ok().and_then(|store| store.download()?.lock().unwrap().load());
        seen.and(match beginning {
            Some(begun) if begun.round != 3 || !payload.starts_with(&begun.payload) => {
                Seen::Silent("another download".to_owned())
            }
            _ => Seen::Same,
        })
    };
    flip_bits("a device's state", folder.path(), each, |path| !path.ends_with("lock"), look)
}

/// What a device keeps, but for downloads.
#[derive(Clone, PartialEq)]
struct Held {
    key: [u8; 32],
    server: Option<KnownServer>,
    payload: Option<(TaskId, TrainReport, shared::payload::Payload)>,
    state: Option<Vec<u8>>,
    masking: Option<Vec<u8>>,
    personal: shared::personalisation::Personal,
}

fn held(directory: &Path) -> Result<Held, StoreError> {
    let mut store = DiskStore::open(directory)?;
    let pending = store.pending()?;
    let payload =
        pending.map(|(id, report)| Ok::<_, StoreError>((id, report, store.payload()?))).transpose()?;
    // Both the committed client state and that of the update are read.
    store.standing(RUN)?;
    Ok(Held {
        key: *store.key.expose(),
        server: ServerFile::of(directory).load()?,
        payload,
        state: store.client_state(RUN)?,
        masking: store.masking(RUN)?,
        personal: PersonalModels::of(directory).open(Some(RUN))?,
    })
}

/// A run in the database, with what happened in it.
const HISTORY: &str = "
    INSERT INTO runs (run, directory, rounds, begun, served, process, told, status)
        VALUES ('0707070707070707', 'runs/x', 20, 100, 100, 1, 100, 'null');
    WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 20)
        INSERT INTO rounds (run, round, opened, closed, cohort, record)
        SELECT '0707070707070707', n, n, n + 1, 4, '{\"round\":' || n || ',\"accuracy\":0.5}' FROM n;
    INSERT INTO metrics (run, round, device, name, value)
        SELECT run, round, '', 'accuracy', round / 20.0 FROM rounds;
    INSERT INTO arrivals (run, round, device, verdict, at, times)
        SELECT run, round, hex(randomblob(16)), 'accepted', closed, 1 FROM rounds;
    INSERT INTO events (run, at, alarm, text) SELECT run, closed, 0, 'round ' || round FROM rounds;
    INSERT INTO changes (at, who, what) VALUES (1, 'page', 'approved 0707');
    INSERT INTO listening (one, address) VALUES (1, '192.0.2.1:4433');
";

/// Every row of every table.
fn rows(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut names =
        connection.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")?;
    let names: Vec<String> = names.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let mut rows = Vec::new();
    for name in names {
        let mut all = connection.prepare(&format!("SELECT * FROM {name}"))?;
        let columns = all.column_count();
        let row = |row: &rusqlite::Row<'_>| {
            let values: Result<Vec<Value>, _> = (0..columns).map(|column| row.get(column)).collect();
            Ok(format!("{name} {:?}", values?))
        };
        rows.extend(all.query_map([], row)?.collect::<Result<Vec<_>, _>>()?);
    }
    Ok(rows)
}

/// A server's directory: its key, the former one, and its database.
fn identity(each: usize) -> Flips {
    let folder = tempfile::tempdir().unwrap();
    let now = SystemTime::now();
    ServerIdentity::load_or_create(&Unsynced, folder.path()).unwrap();
    ServerIdentity::rotate(&Unsynced, folder.path(), Duration::from_hours(1), false, now).unwrap();
    let database = Database::open(folder.path()).unwrap();
    for index in 0..40 {
        let key = device_key(index).public();
        let address = IpAddr::from(Ipv4Addr::LOCALHOST);
        Device::admit(&database, key, None, Policy::Anyone, address, now).unwrap();
        if index % 4 == 0 {
            assert!(Device::stand(&database, key.client(), Standing::Revoked).unwrap());
        }
    }
    for byte in 0..10 {
        let secret = TicketSecret::from_bytes([byte; 16]);
        IssuedTicket::make(&database, secret, 3, Duration::from_hours(1), now).unwrap();
    }
    database.write("fill", |transaction| transaction.execute_batch(HISTORY)).unwrap();
    drop(database);
    let read = |directory: &Path| -> Result<_, Box<dyn std::error::Error>> {
        let keys = ServerIdentity::load(&Unsynced, directory)?;
        let database = Database::open(directory)?;
        Device::verify(&database)?;
        Ok(((keys, database.read("read", rows)?), !database.removed().is_empty()))
    };
    let (whole, told) = read(folder.path()).unwrap();
    assert!(!told && whole.1.len() > 40 + 10 + 60, "{} rows", whole.1.len());
    // Each read closes the database, and leaves no log beside it.
    let look = |trial: &Path| match read(trial) {
        Ok((_, true)) => Seen::Told,
        read => Seen::of(read.map(|(read, _)| read), &whole, "the server's identity"),
    };
    flip_bits("the server's identity", folder.path(), each, |path| !path.ends_with("lock"), look)
}

/// A complete simulation that is asked for another round: what it keeps of its clients, and all else that it has left.
fn simulation(each: usize) -> Flips {
    let folder = tempfile::tempdir().unwrap();
    let (two, three) = (scaffold(2), scaffold(3));
    go_on(&two, folder.path()).unwrap();
    let undamaged = tempfile::tempdir().unwrap();
    copy_folder(folder.path(), undamaged.path());
    let (whole, told) = go_on(&three, undamaged.path()).unwrap();
    assert!(!told);
    let of_clients = |path: &Path| path.parent().is_some_and(|folder| folder.ends_with("clients"));
    let look = |trial: &Path| match go_on(&three, trial) {
        Ok((_, true)) => Seen::Told,
        read => Seen::of(read.map(|(model, _)| model), &whole, "a simulation"),
    };
    let name = "a simulation that goes on";
    let clients = flip_bits(name, folder.path(), each, of_clients, look);
    let others = flip_bits(name, folder.path(), each.div_ceil(4), |path| !of_clients(path), look);
    Flips { all: clients.all + others.all, told: clients.told + others.told }
}

fn scaffold(rounds: u32) -> Scenario {
    Scenario::small(&["algorithm.scaffold={}", &format!("run.rounds={rounds}")])
}

/// Takes a run to its end. Gives its model, and whether the operator is told that something is not what it must be, or that
/// another run has begun.
fn go_on(scenario: &Scenario, runs: &Path) -> Result<(ParamSet, bool), String> {
    let config = scenario.config.clone();
    let (started, ()) =
        start_on(Arc::new(Unsynced), config, runs, false, |_| Ok(())).map_err(|error| error.to_string())?;
    let mut told = !started.passed.is_empty();
    let (run, resume, _lock) = started.into_parts();
    told |= !run.warnings().is_empty();
    let (_stop, stopped) = watch::channel(false);
    let mut sink = |notice: &Notice<'_>| told |= matches!(notice, Notice::ClientState { .. });
    let shares = scenario.shares.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let done = simulate(run, resume, shares, Transport::Memory, 1, stopped, &mut sink);
    let (run, outcome): (Run, Outcome) = runtime.block_on(done).map_err(|error| error.to_string())?;
    match outcome {
        Outcome::Completed => Ok((run.current_model().map_err(|error| error.to_string())?, told)),
        other => Err(format!("{other:?}")),
    }
}

/// What `evaluate`, `predict` and a run that starts from a model read.
fn model(each: usize) -> Flips {
    let folder = tempfile::tempdir().unwrap();
    let architecture = Architecture::by_name("linear", &[1, 4, 4], 3).unwrap();
    let params = architecture.initialise(|tensor| Seed::root(4).derive(tensor).rng()).unwrap();
    let named = [("class_names".to_owned(), "[\"cat\",\"dog\",\"fox\"]".to_owned())].into();
    let mut bytes = Vec::new();
    write_model(&architecture, &params, &named, &mut bytes).unwrap();
    fs::write(folder.path().join("model.safetensors"), bytes).unwrap();
    let read = |folder: &Path| {
        let bytes = fs::read(folder.join("model.safetensors")).unwrap();
        read_model(&mut bytes.as_slice())
    };
    let whole = read(folder.path()).unwrap();
    let look = |trial: &Path| Seen::of(read(trial), &whole, "a model");
    flip_bits("a model", folder.path(), each, |_| true, look)
}

/// What one-shot learning leaves.
fn ensemble(each: usize) -> Flips {
    let one_shot = ["algorithm.fafi={}", "model.name=mlp-2nn", "run.rounds=1", "round.min-updates=4"];
    let more = ["training.batch=0", "augment.random-shift=1"];
    let scenario = Scenario::small(&[&one_shot[..], &more].concat());
    let (runs, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let simulator = Simulator::completed(&scenario, Faults::NONE, 0, runs.path());
    fs::copy(simulator.run_directory().ensemble(), folder.path().join("ensemble.safetensors")).unwrap();
    let read = |folder: &Path| -> Result<_, Box<dyn std::error::Error>> {
        let bundle = Bundle::open_verified(Arc::new(Disk), &folder.join("ensemble.safetensors"))?;
        Ok((bundle.manifest.clone(), bundle.prototypes.clone(), bundle.member(0)?, bundle.member(3)?))
    };
    let whole = read(folder.path()).unwrap();
    let look = |trial: &Path| Seen::of(read(trial), &whole, "an ensemble");
    flip_bits("an ensemble", folder.path(), each, |_| true, look)
}

/// One of each method.
fn personal(each: usize) -> Flips {
    let mut flips = Flips::default();
    for bytes in device_state::personals() {
        let folder = tempfile::tempdir().unwrap();
        let models = PersonalModels::of(folder.path());
        models.save(RUN, &bytes).unwrap();
        let whole = models.open(Some(RUN)).unwrap();
        let look =
            |trial: &Path| Seen::of(PersonalModels::of(trial).open(Some(RUN)), &whole, "a personal model");
        let of_method = flip_bits("a personal model", folder.path(), each, |_| true, look);
        flips = Flips { all: flips.all + of_method.all, told: flips.told + of_method.told };
    }
    flips
}

/// What the page of a run is made of, beside its rounds.
const KNOWN: [&str; 4] = ["about.json", "ended.json", "by-class.json", "devices.json"];

/// What `aggregator report` reads beside configuration and rounds, by the program itself: its warnings are what the operator is
/// told.
fn page(each: usize) -> Flips {
    let testbed = Testbed::new(2, &["run.rounds=1", "evaluate.every=1"]);
    let server = testbed.serve();
    let devices = vec![testbed.join(0), testbed.join(1)];
    testbed.assert_completed(server, devices);
    let folder = testbed.path("runs");
    let kept: BTreeSet<String> = fs::read_dir(testbed.run().join("state"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    assert!(KNOWN.iter().all(|name| kept.contains(*name)), "{kept:?}");
    let name = testbed.run().file_name().unwrap().to_owned();
    let report = |runs: &Path| {
        let run_directory = runs.join(&name);
        let ended = run(&programs().aggregator, &["report", &run_directory.display().to_string()]);
        match ended.code {
            Some(0) => Ok((fs::read(run_directory.join("report.html")).unwrap(), ended.text)),
            _ => Err(ended.text),
        }
    };
    let (whole, _) = report(&folder).unwrap();
    let look = |trial: &Path| match report(trial) {
        Ok((_, text)) if KNOWN.iter().any(|name| text.contains(name)) => Seen::Told,
        read => Seen::of(read.map(|(page, _)| page), &whole, "the page"),
    };
    // A program is started for each.
    let each = each.min(200);
    flip_bits(
        "what the page knows",
        &folder,
        each,
        |path| KNOWN.iter().any(|name| path.ends_with(name)),
        look,
    )
}
