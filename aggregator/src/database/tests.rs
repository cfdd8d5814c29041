use std::fs;
use std::path::Path;
use std::time::SystemTime;

use super::*;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// Changes the file in `directory` as a program of its own would.
fn meddle(directory: &Path, sql: &str) {
    let connection = Connection::open(directory.join(FILE)).expect("opened");
    connection.execute_batch(sql).expect("changed");
}

fn version(directory: &Path) -> i64 {
    let connection = Connection::open(directory.join(FILE)).expect("opened");
    connection.pragma_query_value(None, "user_version", |row| row.get(0)).expect("it has one")
}

const RUN: &str = "INSERT INTO runs (run, directory, rounds, begun, served, process, ended, outcome, told, status) \
     VALUES ('00', 'runs/x', 5, 0, 0, 1, NULL, NULL, 0, '{}')";

fn runs(database: &Database) -> i64 {
    let count =
        |connection: &Connection| connection.query_row("SELECT count(*) FROM runs", [], |row| row.get(0));
    database.read("count runs in", count).expect("read")
}

#[test]
fn it_is_made_once_for_its_owner_alone_and_kept() {
    let folder = folder();
    let directory = folder.path().join("lab/identity");
    assert!(Database::open_existing(&directory).expect("nothing is no mistake").is_none());
    let database = Database::open(&directory).expect("made");
    database.write("begin a run in", |transaction| transaction.execute(RUN, [])).expect("written");
    // While it is open, others read.
    let other = Database::open_existing(&directory).expect("opened").expect("it is there");
    assert_eq!(runs(&other), 1);
    #[cfg(unix)]
    for file in fs::read_dir(&directory).expect("listed") {
        use std::os::unix::fs::PermissionsExt as _;
        let file = file.expect("listed");
        assert_eq!(file.metadata().expect("there").permissions().mode() & 0o777, 0o600, "{file:?}");
    }
    drop((database, other));
    assert_eq!(runs(&Database::open(&directory).expect("opened again")), 1);
    let settings = |connection: &Connection| {
        let number = |pragma| connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
        Ok((number("synchronous")?, number("foreign_keys")?, number("busy_timeout")?))
    };
    let database = Database::open(&directory).expect("opened");
    assert_eq!(database.read("ask", settings).expect("answered"), (2, 1, 10_000));
}

#[test]
fn what_a_transaction_cannot_finish_it_has_not_begun() {
    let folder = folder();
    let database = Database::open(folder.path()).expect("made");
    let failed = database.write("begin runs in", |transaction| {
        transaction.execute(RUN, [])?;
        transaction.execute(RUN, [])
    });
    assert!(matches!(failed, Err(DatabaseError::Query { action: "begin runs in", .. })), "{failed:?}");
    assert_eq!(runs(&database), 0);
    let orphan = database.write("note an event in", |transaction| {
        transaction.execute("INSERT INTO events (run, at, alarm, text) VALUES ('01', 0, 0, 'x')", [])
    });
    assert!(orphan.is_err(), "it belongs to no run");
}

#[test]
fn a_file_that_is_not_ours_or_not_whole_is_refused_and_left_alone() {
    let refused = |prepare: &dyn Fn(&Path)| {
        let folder = folder();
        prepare(folder.path());
        let before = fs::read(folder.path().join(FILE)).expect("there");
        let errors = [Database::open(folder.path()).err(), Database::open_existing(folder.path()).err()];
        assert_eq!(fs::read(folder.path().join(FILE)).expect("there"), before);
        errors.map(|error| error.expect("refused"))
    };
    let made = |directory: &Path| {
        let database = Database::open(directory).expect("made");
        database.write("begin a run in", |transaction| transaction.execute(RUN, [])).expect("written");
    };
    for error in refused(&|directory| {
        made(directory);
        meddle(directory, "PRAGMA user_version = 99");
    }) {
        assert!(matches!(error, DatabaseError::Newer { found: 99, known: schema::VERSION, .. }), "{error}");
        assert!(error.to_string().contains("newer aggregator"), "{error}");
    }
    for error in refused(&|directory| meddle(directory, "CREATE TABLE songs (title TEXT)")) {
        assert!(matches!(error, DatabaseError::Foreign { .. }), "{error}");
    }
    for error in
        refused(&|directory| fs::write(directory.join(FILE), "no database".repeat(500)).expect("written"))
    {
        assert!(matches!(error, DatabaseError::Damaged { .. }), "{error}");
    }
    // Tables of other programs, as `ANALYZE` makes them, are left alone.
    let beside = folder();
    made(beside.path());
    meddle(beside.path(), "ANALYZE; CREATE TABLE songs (title TEXT)");
    drop(Database::open(beside.path()).expect("opened"));
    // A page in the middle is lost: `open` looks, a command that only reads meets it when it gets there.
    let folder = folder();
    made(folder.path());
    let path = folder.path().join(FILE);
    let mut bytes = fs::read(&path).expect("there");
    let page = 4096;
    assert!(bytes.len() > 3 * page, "{} bytes", bytes.len());
    bytes[page..2 * page].fill(0xa5);
    fs::write(&path, bytes).expect("written");
    let error = Database::open(folder.path()).expect_err("damaged");
    assert!(matches!(error, DatabaseError::Damaged { .. }), "{error}");
}

#[test]
fn a_file_that_was_begun_is_finished() {
    let folder = folder();
    fs::write(folder.path().join(FILE), b"").expect("written");
    assert!(Database::open_existing(folder.path()).expect("not a mistake").is_none());
    drop(Database::open(folder.path()).expect("finished"));
    assert_eq!(version(folder.path()), schema::VERSION);
}

#[test]
fn a_file_that_somebody_locks_is_said_to_be_locked() {
    let folder = folder();
    let database = Database::open(folder.path()).expect("made");
    let other = Connection::open(folder.path().join(FILE)).expect("opened");
    other.execute_batch("BEGIN IMMEDIATE").expect("locked");
    database.lock().busy_timeout(Duration::ZERO).expect("set");
    let error =
        database.write("begin a run in", |transaction| transaction.execute(RUN, [])).expect_err("locked");
    assert!(matches!(error, DatabaseError::Locked { .. }), "{error}");
    other.execute_batch("ROLLBACK").expect("unlocked");
    database.write("begin a run in", |transaction| transaction.execute(RUN, [])).expect("written");
}

#[test]
fn a_file_of_an_older_program_keeps_what_is_in_it() {
    for older in 1..schema::STEPS.len() {
        let folder = folder();
        let directory = folder.path();
        let old = Connection::open(directory.join(FILE)).expect("made");
        checksums::register(&old).expect("a function of ours");
        for step in &schema::STEPS[..older] {
            old.execute_batch(step).expect("it was one once");
        }
        old.execute_batch(RUN).expect("a run");
        old.pragma_update(None, "user_version", older as u16).expect("set");
        old.pragma_update(None, "application_id", schema::APPLICATION).expect("set");
        drop(old);
        // A server and a command that only looks, both of this program.
        std::thread::scope(|scope| {
            let server = scope.spawn(|| Database::open(directory).expect("opened"));
            let command = scope.spawn(|| Database::open_existing(directory).expect("opened").expect("there"));
            for opened in [server, command] {
                let database = opened.join().expect("no panic");
                assert_eq!(runs(&database), 1);
                assert_eq!(database.left_out("00").expect("the table is there"), []);
            }
        });
        assert_eq!(version(directory), schema::VERSION);
    }
}

#[test]
fn two_that_make_it_at_once_make_one() {
    let folder = folder();
    let directory = folder.path();
    std::thread::scope(|scope| {
        let open = || scope.spawn(|| Database::open(directory).map(|database| runs(&database)));
        let opened: Vec<_> = (0..4).map(|_| open()).collect();
        for opened in opened {
            assert_eq!(opened.join().expect("no panic").expect("opened"), 0);
        }
    });
    assert_eq!(version(directory), schema::VERSION);
}

#[test]
fn moments_are_milliseconds_on_either_side_of_1970() {
    let at = |millis| SystemTime::UNIX_EPOCH + Duration::from_millis(millis);
    assert_eq!(moment(at(1500)), 1500);
    assert_eq!(moment(SystemTime::UNIX_EPOCH - Duration::from_secs(1)), -1000);
}

/// Half an hour of a page: the server writes its status as fast as it can, and others read.
#[test]
fn the_log_stays_small_while_others_read() {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    let folder = folder();
    let database = Database::open(folder.path()).expect("made");
    database.write("begin a run in", |transaction| transaction.execute(RUN, [])).expect("written");
    let (over, reads) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut largest = 0;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let database = Database::open_to_read(folder.path()).expect("opened");
                while !over.load(Ordering::Relaxed) {
                    assert_eq!(database.run("00").expect("read").expect("it is there").rounds, 5);
                    reads.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
            });
        }
        // As long as one that names 200 devices.
        let status = format!("\"{}\"", "0".repeat(40_000));
        let write =
            |transaction: &Transaction<'_>| transaction.execute("UPDATE runs SET status = ?1", [&status]);
        for _ in 0..900 {
            database.write("write a status in", write).expect("written");
            let log = fs::metadata(folder.path().join(format!("{FILE}-wal"))).expect("it is there").len();
            largest = largest.max(log);
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!(reads.into_inner() > 0);
    assert!(largest < 16 << 20, "the log had {largest} bytes");
}
