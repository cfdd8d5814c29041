//! State directories after restarts, crashes between any two steps, and disk damage.

use std::fs;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use edge_client::store::{DiskStore, KnownServer, MemoryStore, Store, StoreError, Update};
use shared::id::RunId;
use shared::message::{Discard, Rejection, TaskId, TrainReport, Verdict};
use shared::payload::Payload;

const RUN: RunId = RunId::from_bytes([7; 8]);

fn held(round: u32) -> TaskId {
    TaskId { run: RUN, round }
}

fn report(samples: u64) -> TrainReport {
    TrainReport { samples, steps: 3, loss: 0.5, duration: Duration::from_millis(1250), metrics: [None; 12] }
}

fn update(round: u32, local: Option<&[u8]>) -> Update {
    let local = local.map(<[u8]>::to_vec);
    Update { id: held(round), report: report(u64::from(round)), payload: payload(round), local }
}

fn save(store: &mut dyn Store, round: u32, local: Option<&[u8]>) {
    store.save(&update(round, local)).unwrap();
}

fn accepted(store: &mut dyn Store) {
    store.forget(Some(&Verdict::Accepted)).unwrap();
}

fn client_state(store: &mut dyn Store) -> Option<Vec<u8>> {
    store.client_state(RUN).unwrap()
}

fn payload(round: u32) -> Payload {
    Bytes::from(format!("payload of round {round}")).into()
}

fn sync(store: &dyn Store) -> Result<(), StoreError> {
    store.sync_handle().map_or(Ok(()), |sync| sync())
}

/// The behaviour of every kind of store.
fn contract(store: &mut dyn Store) {
    let other = RunId::from_bytes([9; 8]);
    assert_eq!(store.pending().unwrap(), None);
    assert!(matches!(store.payload(), Err(StoreError::NothingHeld)));
    assert_eq!(store.client_state(RUN).unwrap(), None);
    accepted(store);
    store.forget(None).unwrap();
    sync(store).unwrap();

    save(store, 1, None);
    assert_eq!(store.pending().unwrap(), Some((held(1), report(1))));
    assert_eq!(store.payload().unwrap(), payload(1));
    assert_eq!(store.client_state(RUN).unwrap(), None);
    let sync = store.sync_handle();

    save(store, 2, Some(b"two"));
    assert_eq!(store.pending().unwrap(), Some((held(2), report(2))));
    assert_eq!(store.payload().unwrap(), payload(2));
    assert_eq!(store.client_state(RUN).unwrap().as_deref(), Some(&b"two"[..]));
    assert_eq!(store.client_state(other).unwrap(), None);

    // Without new client state the old one stays; empty is not the same as none.
    accepted(store);
    save(store, 3, None);
    assert_eq!(client_state(store).as_deref(), Some(&b"two"[..]));
    accepted(store);
    assert_eq!(client_state(store).as_deref(), Some(&b"two"[..]));
    save(store, 4, Some(b""));
    assert_eq!(client_state(store).as_deref(), Some(&b""[..]));
    accepted(store);
    save(store, 5, Some(b"five"));
    accepted(store);
    assert_eq!(store.pending().unwrap(), None);
    assert!(matches!(store.payload(), Err(StoreError::NothingHeld)));
    assert_eq!(client_state(store).as_deref(), Some(&b"five"[..]));
    accepted(store);

    // What goes with an update that does not count goes with it.
    let not_finite = Rejection::NotFinite { tensor: "w".to_owned() };
    let useless = [None, Some(Verdict::Discarded(Discard::Late)), Some(Verdict::Rejected(not_finite))];
    for verdict in useless {
        save(store, 6, Some(b"six"));
        store.forget(verdict.as_ref()).unwrap();
        assert_eq!((store.pending().unwrap(), client_state(store).as_deref()), (None, Some(&b"five"[..])));
    }
    save(store, 7, Some(b"seven"));
    save(store, 8, None);
    assert_eq!(client_state(store).as_deref(), Some(&b"five"[..]), "it was not said to count");
    save(store, 9, Some(b"nine"));
    store.forget(Some(&Verdict::Discarded(Discard::Duplicate))).unwrap();
    assert_eq!(client_state(store).as_deref(), Some(&b"nine"[..]));
    // It was made for state that has been replaced by now.
    if let Some(sync) = sync {
        std::thread::spawn(sync).join().unwrap().unwrap();
    }
}

#[test]
fn both_stores_keep_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    contract(&mut MemoryStore::new());
    contract(&mut DiskStore::open(folder.path()).unwrap());
}

#[test]
fn everything_is_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("a/b");
    let mut store = DiskStore::open(&state).unwrap();
    let client = store.client();
    let server = KnownServer::new(store.key.public(), vec!["lab:4433".to_owned()]);
    store.server().save(&server).unwrap();
    save(&mut store, 1, Some(b"one"));
    accepted(&mut store);
    save(&mut store, 2, Some(b"two"));
    drop(store);

    let mut store = DiskStore::open(&state).unwrap();
    assert_eq!(store.client(), client);
    assert_eq!(store.server().load().unwrap(), Some(server));
    assert_eq!(store.pending().unwrap(), Some((held(2), report(2))));
    assert_eq!(store.payload().unwrap(), payload(2));
    assert_eq!(store.client_state(RUN).unwrap().as_deref(), Some(&b"two"[..]));
    accepted(&mut store);
    drop(store);

    let mut store = DiskStore::open(&state).unwrap();
    assert_eq!(store.pending().unwrap(), None);
    assert_eq!(store.client_state(RUN).unwrap().as_deref(), Some(&b"two"[..]));
    // Nothing is left over that would fill a disk in time.
    let mut names: Vec<_> = fs::read_dir(&state)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["format", "identity", "lock", "runs", "server"]);
}

#[test]
fn two_processes_do_not_share_a_state_directory() {
    let folder = tempfile::tempdir().unwrap();
    let first = DiskStore::open(folder.path()).unwrap();
    let error = DiskStore::open(folder.path()).unwrap_err();
    assert!(matches!(&error, StoreError::Locked { directory } if directory == folder.path()), "{error}");
    assert!(error.to_string().contains("state directory of its own"), "{error}");
    drop(first);
    DiskStore::open(folder.path()).unwrap();
}

/// A state directory with client state "one" of an accepted update and an update of round 2 with client state "two" held.
fn prepared(state: &Path) {
    let mut store = DiskStore::open(state).unwrap();
    save(&mut store, 1, Some(b"one"));
    accepted(&mut store);
    save(&mut store, 2, Some(b"two"));
}

#[test]
fn a_damaged_update_is_trained_again_from_the_state_before_it() {
    for file in ["update", "local"] {
        let folder = tempfile::tempdir().unwrap();
        prepared(folder.path());
        let path = folder.path().join("outbox").join(file);
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();

        let mut store = DiskStore::open(folder.path()).unwrap();
        assert_eq!(store.pending().unwrap(), None, "{file}");
        assert_eq!(store.client_state(RUN).unwrap().as_deref(), Some(&b"one"[..]), "{file}");
        save(&mut store, 2, Some(b"again"));
        assert_eq!(store.client_state(RUN).unwrap().as_deref(), Some(&b"again"[..]), "{file}");
    }
}

#[test]
fn an_update_that_was_being_written_never_was() {
    let folder = tempfile::tempdir().unwrap();
    prepared(folder.path());
    // As if the process had been killed before the last step of keeping.
    fs::rename(folder.path().join("outbox"), folder.path().join("outbox.partial")).unwrap();
    let mut store = DiskStore::open(folder.path()).unwrap();
    assert_eq!(store.pending().unwrap(), None);
    assert_eq!(store.client_state(RUN).unwrap().as_deref(), Some(&b"one"[..]));
    assert!(!folder.path().join("outbox.partial").exists());
}

#[test]
fn forgetting_may_be_interrupted_after_each_step() {
    // The client state has moved and the update is still there: the server says again that it has it.
    let folder = tempfile::tempdir().unwrap();
    prepared(folder.path());
    let (outbox, kept) = (folder.path().join("outbox"), folder.path().join(format!("runs/{RUN}/local")));
    fs::rename(outbox.join("local"), &kept).unwrap();
    let mut store = DiskStore::open(folder.path()).unwrap();
    assert_eq!(store.pending().unwrap(), Some((held(2), report(2))));
    assert_eq!(store.client_state(RUN).unwrap().as_deref(), Some(&b"two"[..]));
    drop(store);

    // The update was deleted, its directory was not.
    fs::remove_file(outbox.join("update")).unwrap();
    let mut store = DiskStore::open(folder.path()).unwrap();
    assert_eq!(store.pending().unwrap(), None);
    assert_eq!(store.client_state(RUN).unwrap().as_deref(), Some(&b"two"[..]));
    drop(store);

    // A power failure has kept the removal of the update and lost the move of the client state before it.
    let folder = tempfile::tempdir().unwrap();
    prepared(folder.path());
    fs::remove_file(folder.path().join("outbox/update")).unwrap();
    let mut store = DiskStore::open(folder.path()).unwrap();
    assert_eq!(store.pending().unwrap(), None);
    assert_eq!(store.client_state(RUN).unwrap().as_deref(), Some(&b"two"[..]));
    drop(store);

    // The same, and the client state is damaged: the one before it counts.
    let folder = tempfile::tempdir().unwrap();
    prepared(folder.path());
    fs::remove_file(folder.path().join("outbox/update")).unwrap();
    fs::write(folder.path().join("outbox/local"), b"FLL").unwrap();
    let mut store = DiskStore::open(folder.path()).unwrap();
    assert_eq!(store.pending().unwrap(), None);
    assert_eq!(store.client_state(RUN).unwrap().as_deref(), Some(&b"one"[..]));
}

#[test]
fn letting_go_of_what_does_not_count_may_be_interrupted_after_each_step() {
    type Step = (&'static str, fn(&Path));
    let steps: [Step; 4] = [
        ("nothing is done", |_| {}),
        ("it has moved out of the outbox", |state| {
            fs::rename(state.join("outbox"), state.join("outbox.partial")).unwrap();
        }),
        ("and the update is removed", |state| {
            fs::rename(state.join("outbox"), state.join("outbox.partial")).unwrap();
            fs::remove_file(state.join("outbox.partial/update")).unwrap();
        }),
        ("all of it is done", |state| fs::remove_dir_all(state.join("outbox")).unwrap()),
    ];
    for (done, step) in steps {
        let folder = tempfile::tempdir().unwrap();
        prepared(folder.path());
        step(folder.path());
        let mut store = DiskStore::open(folder.path()).unwrap();
        // Whether it is still held or not, it is not wanted.
        store.forget(None).unwrap();
        drop(store);
        let mut store = DiskStore::open(folder.path()).unwrap();
        assert_eq!(store.pending().unwrap(), None, "{done}");
        assert_eq!(client_state(&mut store).as_deref(), Some(&b"one"[..]), "{done}");
        assert!(!folder.path().join("outbox.partial").exists(), "{done}");
    }
}

#[test]
fn a_file_of_a_newer_format_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    prepared(folder.path());
    let path = folder.path().join("outbox/update");
    let mut bytes = fs::read(&path).unwrap();
    bytes[3] += 1;
    fs::write(&path, &bytes).unwrap();
    let error = DiskStore::open(folder.path()).unwrap_err();
    assert!(matches!(&error, StoreError::Newer { found: 5, known: 4, .. }), "{error}");
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

#[test]
fn an_update_that_vanishes_while_it_is_held_is_an_error_and_then_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    prepared(folder.path());
    let mut store = DiskStore::open(folder.path()).unwrap();
    fs::write(folder.path().join("outbox/update"), b"").unwrap();
    assert!(matches!(store.payload(), Err(StoreError::Lost { .. })));
    assert_eq!(store.pending().unwrap(), None);
    assert_eq!(store.client_state(RUN).unwrap().as_deref(), Some(&b"one"[..]));
}

#[test]
fn client_state_of_another_run_beside_an_update_is_damage() {
    let folder = tempfile::tempdir().unwrap();
    prepared(folder.path());
    let elsewhere = tempfile::tempdir().unwrap();
    let mut other = DiskStore::open(elsewhere.path()).unwrap();
    let of_other_run = TaskId { run: RunId::from_bytes([9; 8]), round: 2 };
    other.save(&Update { id: of_other_run, ..update(2, Some(b"other")) }).unwrap();
    fs::copy(elsewhere.path().join("outbox/local"), folder.path().join("outbox/local")).unwrap();
    let mut store = DiskStore::open(folder.path()).unwrap();
    assert_eq!(store.pending().unwrap(), None);
    assert_eq!(store.client_state(RUN).unwrap().as_deref(), Some(&b"one"[..]));
}

#[test]
fn the_directory_of_a_newer_program_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    drop(DiskStore::open(folder.path()).unwrap());
    fs::write(folder.path().join("format"), "2\n").unwrap();
    fs::write(folder.path().join("identity"), "of another kind\n").unwrap();
    let error = DiskStore::open(folder.path()).unwrap_err();
    assert!(matches!(error, StoreError::NewerDirectory { .. }), "{error}");
    assert!(error.to_string().contains("update this program"), "{error}");
    assert_eq!(fs::read(folder.path().join("identity")).unwrap(), b"of another kind\n");
    // What a failing power leaves of a new directory is as good as new.
    for half in [&b""[..], b"\0\0"] {
        fs::write(folder.path().join("format"), half).unwrap();
        fs::remove_file(folder.path().join("identity")).unwrap_or_default();
        drop(DiskStore::open(folder.path()).unwrap());
        assert_eq!(fs::read(folder.path().join("format")).unwrap(), b"1\n");
    }
}

#[test]
fn a_damaged_identity_stops_the_client_and_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    drop(DiskStore::open(folder.path()).unwrap());
    fs::write(folder.path().join("identity"), "zz\n").unwrap();
    let error = DiskStore::open(folder.path()).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { ref path, .. } if path.ends_with("identity")), "{error}");
}

#[test]
fn a_state_directory_below_a_file_is_the_users_to_mend() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    for directory in [file.clone(), file.join("state")] {
        let error = DiskStore::open(&directory).unwrap_err();
        assert!(matches!(&error, StoreError::Io { path, .. } if *path == directory), "{error}");
        let text = error.to_string();
        assert!(text.contains(&directory.display().to_string()) && text.contains("in the way"), "{text}");
    }
}

#[test]
fn what_cannot_be_written_is_an_error_and_nothing_kept_before_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = DiskStore::open(folder.path()).unwrap();
    save(&mut store, 1, Some(b"one"));
    accepted(&mut store);
    // A file where the outbox would be written: what a full or read-only disk does, and root is not spared.
    fs::write(folder.path().join("outbox"), "").unwrap();
    let error = store.save(&update(2, None)).unwrap_err();
    assert!(matches!(error, StoreError::Io { .. }), "{error}");
    assert_eq!(store.pending().unwrap(), None);
    assert_eq!(store.client_state(RUN).unwrap().as_deref(), Some(&b"one"[..]));
    fs::remove_file(folder.path().join("outbox")).unwrap();
    save(&mut store, 2, None);
}

#[test]
fn unfinished_files_of_an_earlier_process_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = DiskStore::open(folder.path()).unwrap();
    store.keep_masking(RUN, b"a secret").unwrap();
    drop(store);
    let left = [
        "server.partial".to_owned(),
        "frozen/ab.safetensors.partial".to_owned(),
        format!("personal/{RUN}.safetensors.partial"),
        format!("runs/{RUN}/masking.partial"),
    ];
    let paths = left.map(|name| folder.path().join(name));
    for path in &paths {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "half").unwrap();
    }
    let mut store = DiskStore::open(folder.path()).unwrap();
    for path in paths {
        assert!(!path.exists(), "{}", path.display());
    }
    assert_eq!(store.masking(RUN).unwrap().as_deref(), Some(&b"a secret"[..]));
}

#[cfg(unix)]
#[test]
fn a_read_only_state_directory_is_the_users_to_mend() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    fs::create_dir(&state).unwrap();
    fs::set_permissions(&state, fs::Permissions::from_mode(0o500)).unwrap();
    if fs::write(state.join("probe"), "").is_ok() {
        println!("skipped: this user may write to read-only directories (root)");
        return;
    }
    let error = DiskStore::open(&state).unwrap_err();
    assert!(matches!(error, StoreError::Io { .. }), "{error}");
    assert!(error.to_string().contains("writable"), "{error}");
}

#[cfg(unix)]
#[test]
fn other_users_see_nothing() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    prepared(&state);
    let mode = |name: &str| fs::metadata(state.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(""), mode("identity"), mode("outbox/update")), (0o700, 0o600, 0o600));
}
