//! Workers that share an experiment over a store: what they write together is what one process writes.
#![cfg(unix)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use aggregator::cluster::experiments::{self, Claim, Description, LEASE, Then, advance, renew, take};
use aggregator::cluster::schema;
use federation_tests::postgres::Postgres;
use federation_tests::process::{Ended, Process, until};
use postgres::Client;

use super::experiments::Testbed;

/// A variant that is tuned and one that is not, in two cells.
const TUNED: &str = r#"
seeds = 2
baseline = "slow"
target = 0.3
[base]
data = { clients = 4, max-samples = 400 }
model.name = "linear"
run.rounds = 12
round.fraction = 0.5
[grid]
"training.epochs" = [1, 2]
[variants.slow]
training.optimizer.sgd.learning-rate = 0.02
[variants.tuned]
[tune.variants.tuned]
"training.optimizer.sgd.learning-rate" = [0.1, 0.0001, 0.05]
"#;

/// Three runs with rounds enough to be caught in the middle. Clients remember: there is more to carry over than the model.
const LONG: &str = r#"
seeds = 3
[base]
algorithm.scaffold = {}
data = { clients = 4, max-samples = 400 }
model.name = "linear"
run.rounds = 60
[variants.x]
training.optimizer.sgd.learning-rate = 0.02
"#;

/// What people read of an experiment.
const READ: [&str; 3] = ["report.html", "results.csv", "results.json"];

struct Store(Postgres);

impl Store {
    fn arguments<'a>(address: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        [&["--store", address], more].concat()
    }

    fn start(&self, testbed: &Testbed, out: &str, more: &[&str]) -> Process {
        testbed.start(out, &Self::arguments(&self.0.address(), more))
    }

    fn compare(&self, testbed: &Testbed, out: &str, more: &[&str]) -> Ended {
        self.start(testbed, out, more).wait()
    }

    /// The rounds that the store has of runs which have not ended.
    fn begun(client: &mut Client) -> Vec<(String, i32)> {
        let rows =
            client.query("SELECT name, rounds FROM experiment_runs WHERE NOT ended AND rounds > 0", &[]);
        rows.map_or_else(|_| Vec::new(), |rows| rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }

    /// Lets time pass until the leases of those who are silent are over.
    fn expire(client: &mut Client) {
        client
            .execute(
                "UPDATE experiment_runs SET expires = now() - interval '1 second' WHERE expires IS NOT NULL",
                &[],
            )
            .expect("tables");
    }
}

#[track_caller]
fn well(ended: &Ended) {
    assert_eq!(ended.code, Some(0), "{}", ended.text);
}

/// All that is read of the experiment, and the rounds and models of its runs.
#[track_caller]
fn same(testbed: &Testbed, one: &str, other: &str) {
    assert!(testbed.outcome(one) == testbed.outcome(other), "the runs of {one} and {other}");
    same_tables(testbed, one, other);
}

/// All that is read of the experiment. When candidates stop that cannot win depends on which of them run at the same time.
#[track_caller]
fn same_tables(testbed: &Testbed, one: &str, other: &str) {
    for file in READ {
        let read = |out: &str| fs::read_to_string(testbed.path(out).join(file)).expect("it was written");
        assert!(read(one) == read(other), "{file} of {one} and {other}");
    }
}

#[test]
fn workers_make_the_tables_of_one_process_and_each_has_them() {
    let Some(postgres) = Postgres::start() else { return };
    let store = Store(postgres);
    let testbed = Testbed::of(TUNED);
    well(&testbed.compare("alone", &[]));
    let workers: Vec<Process> =
        ["a", "b", "c"].iter().map(|out| store.start(&testbed, out, &["--jobs", "1"])).collect();
    let ended: Vec<Ended> = workers.into_iter().map(Process::wait).collect();
    ended.iter().for_each(well);
    for out in ["a", "b", "c"] {
        same_tables(&testbed, "alone", out);
    }
    // Nothing is left to do for one who comes late, and nothing but the runs that they ended is copied.
    let late = store.compare(&testbed, "late", &[]);
    well(&late);
    assert!(late.text.contains("12 of 16 runs have ended, others work on 0"), "{}", late.text);
    same_tables(&testbed, "alone", "late");
    let mut client = store.0.client();
    let locks =
        client.query("SELECT path FROM experiment_files WHERE path LIKE '%lock%'", &[]).expect("tables");
    assert!(locks.is_empty(), "what is of a machine stays there");
}

/// Begins the experiment as `a`, and stops that worker in the middle of a run.
fn caught(store: &Store, testbed: &Testbed, signal: &str) -> (Process, BTreeMap<String, i32>) {
    let a = store.start(testbed, "a", &["--jobs", "1", "--keep-every", "0"]);
    let mut client = store.0.client();
    let begun = std::cell::RefCell::new(Vec::new());
    let shared = std::cell::RefCell::new(&mut client);
    until("the store has the beginning of a run", || {
        *begun.borrow_mut() = Store::begun(&mut shared.borrow_mut());
        !begun.borrow().is_empty()
    });
    let sent = std::process::Command::new("kill").args([signal, &a.id().to_string()]).status();
    assert!(sent.expect("there is a program kill").success());
    Store::expire(&mut client);
    (a, begun.into_inner().into_iter().collect())
}

#[test]
fn a_run_of_a_worker_that_was_killed_goes_on_elsewhere() {
    let Some(postgres) = Postgres::start() else { return };
    let store = Store(postgres);
    let testbed = Testbed::of(LONG);
    well(&testbed.compare("alone", &[]));
    let (a, begun) = caught(&store, &testbed, "-KILL");
    drop(a);
    let b = store.compare(&testbed, "b", &["--jobs", "1"]);
    well(&b);
    assert!(b.text.contains("has not been heard of for too long, and had got to round"), "{}", b.text);
    let (run, rounds) = begun.first_key_value().expect("one was begun");
    assert!(*rounds > 0 && *rounds < 60, "{run} {rounds}");
    same(&testbed, "alone", "b");
}

#[test]
fn a_run_is_not_taken_over_by_a_worker_with_other_data() {
    let Some(postgres) = Postgres::start() else { return };
    let store = Store(postgres);
    let own = "data = { set = 'csv', path = 'numbers', shape = [2], classes = 2, clients = 4 }";
    let experiment = LONG
        .replace("data = { clients = 4, max-samples = 400 }", own)
        .replace("seeds = 3", "seeds = 1")
        .replace("run.rounds = 60", "run.rounds = 200");
    let testbed = Testbed::of(&experiment);
    let numbers = |first: i32| {
        let row = |row: i32| format!("{},{},{}\n", if row == 0 { first } else { row }, -row, row % 2);
        let text: String = std::iter::once("a,b,label\n".to_owned()).chain((0..40).map(row)).collect();
        fs::create_dir_all(testbed.path("numbers")).expect("a folder");
        for name in ["train.csv", "test.csv"] {
            fs::write(testbed.path("numbers").join(name), &text).expect("written");
        }
    };
    numbers(0);
    let (a, _) = caught(&store, &testbed, "-KILL");
    drop(a);
    numbers(7);
    let b = store.compare(&testbed, "b", &["--jobs", "1"]);
    assert_eq!(b.code, Some(2), "{}", b.text);
    for part in ["the run x--1", "learns from other data", "the content of the training files is "] {
        assert!(b.text.contains(part), "{part:?} is not in: {}", b.text);
    }
    // It is left to those who have the data.
    numbers(0);
    let c = store.compare(&testbed, "c", &["--jobs", "1"]);
    assert!(c.code != Some(2) && c.text.contains("1 run to do"), "{}", c.text);
}

#[test]
fn a_worker_that_was_away_for_too_long_writes_nothing_any_more() {
    let Some(postgres) = Postgres::start() else { return };
    let store = Store(postgres);
    let testbed = Testbed::of(LONG);
    well(&testbed.compare("alone", &[]));
    let (a, _) = caught(&store, &testbed, "-STOP");
    let b = store.compare(&testbed, "b", &["--jobs", "1"]);
    well(&b);
    same(&testbed, "alone", "b");
    let mut client = store.0.client();
    let written = |client: &mut Client| -> Vec<(String, i64, Option<String>)> {
        let rows = client
            .query("SELECT name, epoch, worker FROM experiment_runs ORDER BY name", &[])
            .expect("tables");
        rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
    };
    let before = written(&mut client);
    let woken = std::process::Command::new("kill").args(["-CONT", &a.id().to_string()]).status();
    assert!(woken.expect("there is a program kill").success());
    well(&a.wait());
    assert_eq!(written(&mut client), before);
    same(&testbed, "alone", "a");
}

#[test]
fn workers_go_on_through_a_death_of_the_database() {
    let Some(postgres) = Postgres::start() else { return };
    let mut store = Store(postgres);
    let testbed = Testbed::of(LONG);
    well(&testbed.compare("alone", &[]));
    let workers: Vec<Process> = ["a", "b"]
        .iter()
        .map(|out| store.start(&testbed, out, &["--jobs", "1", "--keep-every", "0"]))
        .collect();
    // One that has not begun yet would end with what is in the way, as a command that cannot begin does.
    let both = "SELECT count(DISTINCT worker) = 2 OR count(*) > 0 AND bool_and(ended) FROM experiment_runs";
    let mut client = store.0.client();
    until("both work", || {
        client.query_one(both, &[]).is_ok_and(|row| row.get::<_, Option<bool>>(0) == Some(true))
    });
    drop(client);
    for _ in 0..3 {
        let mut client = store.0.client();
        let shared = std::cell::RefCell::new(&mut client);
        let over = || {
            let asked = shared.borrow_mut().query_one(
                "SELECT count(*) > 0 AND count(*) = count(*) FILTER (WHERE ended) FROM experiment_runs",
                &[],
            );
            asked.is_ok_and(|row| row.get(0))
        };
        until("a run goes on", || !Store::begun(&mut shared.borrow_mut()).is_empty() || over());
        drop(client);
        store.0.kill();
        store.0.restart();
    }
    for worker in workers {
        well(&worker.wait());
    }
    same(&testbed, "alone", "a");
    same(&testbed, "alone", "b");
}

#[test]
fn what_was_done_alone_is_shared_and_what_is_stopped_is_free_at_once() {
    let Some(postgres) = Postgres::start() else { return };
    let store = Store(postgres);
    let testbed = Testbed::of(LONG);
    well(&testbed.compare("alone", &[]));
    let mut a = store.start(&testbed, "a", &["--jobs", "1", "--keep-every", "3600"]);
    a.line("a complete run", |line| line.contains("1/3 "));
    a.interrupt();
    let stopped = a.wait();
    assert!(stopped.text.contains("stopped: the same command continues the experiment"), "{}", stopped.text);
    let planned = store.compare(&testbed, "b", &["--plan"]);
    assert!(planned.text.contains("has ended after 60 rounds"), "{}", planned.text);
    assert!(!testbed.path("b").join("runs").exists(), "nothing is written");
    // The lease of the run that was stopped is over with it: there is nothing to wait for.
    let b = store.compare(&testbed, "b", &["--jobs", "1"]);
    well(&b);
    assert!(!b.text.contains("waiting"), "{}", b.text);
    same(&testbed, "alone", "b");

    // A folder that was worked in alone has all to give.
    let forgotten = store.compare(&testbed, "alone", &["--forget"]);
    well(&forgotten);
    assert!(forgotten.text.contains("has nothing of this experiment any more"), "{}", forgotten.text);
    let mut client = store.0.client();
    let parts: i64 = client.query_one("SELECT count(*) FROM experiment_parts", &[]).expect("tables").get(0);
    assert_eq!(parts, 0);
    well(&store.compare(&testbed, "alone", &[]));
    let c = store.compare(&testbed, "c", &[]);
    well(&c);
    assert!(c.text.contains("3 of 3 runs have ended"), "{}", c.text);
    same(&testbed, "alone", "c");
}

#[test]
fn what_is_no_store_or_of_another_program_is_refused() {
    let Some(postgres) = Postgres::start() else { return };
    let store = Store(postgres);
    let testbed = Testbed::of(LONG);
    for (address, code, says) in [
        ("db.lab", 2, "this is no address of a PostgreSQL database"),
        ("postgres://lab@127.0.0.1:1/x", 3, "see whether it runs"),
        ("postgres://lab@127.0.0.1/x?sslmode=require", 2, "PGSSLROOTCERT"),
    ] {
        let refused = testbed.compare("a", &["--store", address]);
        assert_eq!(refused.code, Some(code), "{}", refused.text);
        assert!(refused.text.contains(says), "{}", refused.text);
    }
    let absent = format!("{}x", store.0.address());
    let refused = testbed.compare("a", &["--store", &absent]);
    assert_eq!(refused.code, Some(3), "{}", refused.text);
    assert!(refused.text.contains("make it with `createdb`"), "{}", refused.text);

    let nothing = store.compare(&testbed, "a", &["--plan"]);
    assert!(nothing.text.contains("no worker has begun the experiment there"), "{}", nothing.text);
    well(&store.compare(&testbed, "a", &["--set", "run.rounds=2"]));
    let other = store.compare(&testbed, "b", &["--set", "run.rounds=3"]);
    well(&other);
    assert!(other.text.contains("another experiment of this title and form, 3 of 3 runs"), "{}", other.text);

    let mut client = store.0.client();
    client.execute("UPDATE federation_schema SET version = 1000", &[]).expect("tables");
    let newer = store.compare(&testbed, "a", &[]);
    assert_eq!(newer.code, Some(3), "{}", newer.text);
    assert!(newer.text.contains("its format is 1000"), "{}", newer.text);
}

#[test]
fn what_names_an_epoch_that_is_over_changes_nothing() {
    let Some(postgres) = Postgres::start() else { return };
    let mut client = postgres.client();
    schema::prepare(&mut client).expect("tables");
    let runs = vec!["x--1".to_owned()];
    let experiment = Description { id: [7; 32], name: "x".to_owned(), form: "full".to_owned(), runs };
    let id = experiment.id;
    experiments::enter(&mut client, &experiment).expect("entered");
    let first = take(&mut client, &id, &["x--1"], ("a", LEASE)).expect("asked").expect("it is free");
    assert_eq!(take(&mut client, &id, &["x--1"], ("b", LEASE)).expect("asked"), None, "it is a's");
    Store::expire(&mut client);
    let second = take(&mut client, &id, &["x--1"], ("b", LEASE)).expect("asked").expect("it is free");
    assert_eq!((second.epoch, second.deserted.as_deref()), (first.epoch + 1, Some("a")));

    let advances = |client: &mut Client, claim: &Claim, rounds| {
        let mut transaction = client.transaction().expect("begun");
        let done = advance(&mut transaction, &id, claim, (rounds, Then::GoesOn), "AVX2").expect("asked");
        transaction.commit().expect("committed");
        done
    };
    assert!(!advances(&mut client, &first, 9));
    experiments::give_back(&mut client, &id, &first).expect("asked");
    let renews = |client: &mut Client, claim: &Claim| {
        let held = [(claim.name.clone(), claim.epoch)];
        !renew(client, &id, &held, (&claim.worker, LEASE)).expect("asked").is_empty()
    };
    assert!(!renews(&mut client, &first) && renews(&mut client, &second));
    assert!(advances(&mut client, &second, 5));
    let stands = experiments::standing(&mut client, &id).expect("asked");
    assert_eq!((stands[0].rounds, stands[0].worker.as_deref()), (5, Some("b")));

    // Epochs begin anew where all was removed, and are another worker's then.
    assert!(experiments::remove(&mut client, &id).expect("asked"));
    experiments::enter(&mut client, &experiment).expect("entered");
    let third = take(&mut client, &id, &["x--1"], ("c", LEASE)).expect("asked").expect("it is free");
    assert_eq!(third.epoch, first.epoch);
    assert!(!renews(&mut client, &first) && !advances(&mut client, &first, 9));
    experiments::give_back(&mut client, &id, &first).expect("asked");
    assert!(renews(&mut client, &third) && advances(&mut client, &third, 1));
    // A renewal that is late takes nothing back.
    experiments::give_back(&mut client, &id, &third).expect("asked");
    assert!(!renews(&mut client, &third));
    let stands = experiments::standing(&mut client, &id).expect("asked");
    assert_eq!((stands[0].rounds, stands[0].worker.as_deref()), (1, None));
}

/// A key and a certificate for `name`, and the authority that vouches for it, all in this folder.
fn certify(folder: &Path, name: &str) -> bool {
    let openssl = |arguments: &[&str]| {
        let ran = std::process::Command::new("openssl").args(arguments).current_dir(folder).output();
        ran.is_ok_and(|ran| ran.status.success())
    };
    let new = ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    let own = ["-x509", "-days", "2", "-subj", "/CN=lab", "-keyout", "ca.key", "-out", "ca.pem"];
    let server = ["-subj", "/CN=db", "-keyout", "server.key", "-out", "server.csr"];
    fs::write(folder.join("names"), format!("subjectAltName={name}")).expect("written");
    let sign = ["x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"];
    openssl(&[&new[..], &own].concat())
        && openssl(&[&new[..], &server].concat())
        && openssl(&[&sign[..], &["-days", "2", "-extfile", "names", "-out", "server.crt"]].concat())
}

#[test]
fn the_other_side_of_an_encrypted_connection_is_checked() {
    let testbed = Testbed::of(LONG);
    for (name, code) in [("IP:127.0.0.1", 0), ("DNS:another.lab", 3)] {
        let certificates = tempfile::tempdir().expect("a temporary folder");
        if !certify(certificates.path(), name) {
            eprintln!("SKIPPED: there is no openssl on this machine to make certificates with");
            return;
        }
        let put = |data: &Path| {
            for file in ["server.key", "server.crt"] {
                fs::copy(certificates.path().join(file), data.join(file)).expect("copied");
            }
        };
        let Some(postgres) = Postgres::with(&["ssl=on"], put) else { return };
        let mut command = testbed.command("a", &["--store", &postgres.address(), "--set", "run.rounds=2"]);
        command.env("PGSSLROOTCERT", certificates.path().join("ca.pem"));
        let ended = Process::start("compare", &mut command).wait();
        assert_eq!(ended.code, Some(code), "{}", ended.text);
        if code == 0 {
            let counted =
                postgres.client().query_one("SELECT count(*) FROM experiment_runs WHERE ended", &[]);
            assert_eq!(counted.expect("tables").get::<_, i64>(0), 3);
        } else {
            assert!(ended.text.contains("certificate"), "{}", ended.text);
        }
    }
}
