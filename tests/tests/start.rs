//! The choice of a run's directory, and that no crash on the way blocks later starts or loses anything.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, SystemTime};

use aggregator::config::Config;
use aggregator::coordinator::Resume;
use aggregator::start::{StartError, Started, completed, start_on};
use aggregator::storage::{Disk, FileLayer};
use aggregator::transport::identity::ServerIdentity;
use federation_tests::faults::Faults;
use federation_tests::faulty_disk::{FaultyDisk, Loss};
use federation_tests::scenario::Scenario;
use federation_tests::simulator::Simulator;
use federation_tests::watched_disk::WatchedDisk;

const LOSSES: [Loss; 5] = [Loss::Nothing, Loss::Everything, Loss::Bytes, Loss::Some(1), Loss::Some(2)];

fn begin(files: Arc<dyn FileLayer>, runs: &Path, fresh: bool) -> Result<Started, StartError> {
    static CONFIG: LazyLock<Config> = LazyLock::new(|| Scenario::small(&[]).config);
    start_on(files, CONFIG.clone(), runs, fresh, |_| Ok(())).map(|(started, ())| started)
}

fn name(started: &Started) -> String {
    started.run.directory().root().file_name().unwrap().to_string_lossy().into_owned()
}

#[test]
fn a_start_that_died_anywhere_is_begun_again_in_the_same_place() {
    let elsewhere = tempfile::tempdir().unwrap();
    let reference = begin(Arc::new(FaultyDisk::counting()), elsewhere.path(), false).unwrap();
    let reference = reference.run.current_model().unwrap();
    for loss in LOSSES {
        for fatal in 0.. {
            let folder = tempfile::tempdir().unwrap();
            let runs = folder.path().join("deep/runs");
            let disk = FaultyDisk::dying_at(fatal, loss);
            let first = begin(Arc::new(disk.clone()), &runs, false);
            let done = first.is_ok();
            drop(first);
            let again = begin(Arc::new(disk.next_life(usize::MAX, Loss::Nothing)), &runs, false).unwrap();
            assert_eq!((name(&again).as_str(), again.passed.len()), ("glyphs-fedavg", 0), "{loss:?} {fatal}");
            let model = again.run.current_model().unwrap();
            assert_eq!(model, reference, "{loss:?} {fatal}");
            drop(again);
            // A run that was begun is there for good.
            disk.cut_power(Loss::Everything);
            let third = begin(Arc::new(Disk), &runs, false).unwrap();
            assert!(third.continued, "{loss:?} {fatal}");
            if done {
                assert!(fatal > 20, "only {fatal} operations");
                break;
            }
        }
    }
}

#[test]
fn an_identity_that_died_in_the_making_blocks_nothing_and_is_never_half_believed() {
    for loss in LOSSES {
        for fatal in 0.. {
            let folder = tempfile::tempdir().unwrap();
            let directory = folder.path().join("runs/identity");
            let disk = FaultyDisk::dying_at(fatal, loss);
            let first = ServerIdentity::load_or_create(&disk, &directory);
            let next = disk.next_life(usize::MAX, Loss::Nothing);
            let again = ServerIdentity::load_or_create(&next, &directory).unwrap();
            // Clients are always shown the same key.
            disk.cut_power(Loss::Everything);
            let third = ServerIdentity::load_or_create(&Disk, &directory).unwrap();
            assert_eq!(again.key(), third.key(), "{loss:?} {fatal}");
            if let Ok(first) = first {
                assert_eq!(first.key(), third.key(), "{loss:?}");
                assert!(fatal > 10, "only {fatal} operations");
                break;
            }
        }
    }
}

#[test]
fn a_change_of_the_servers_key_that_dies_anywhere_leaves_a_key_that_devices_know() {
    let (now, hour) = (SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 30), Duration::from_hours(1));
    for loss in LOSSES {
        for fatal in 0.. {
            let folder = tempfile::tempdir().unwrap();
            let directory = folder.path().join("identity");
            let first = ServerIdentity::load_or_create(&Disk, &directory).unwrap();
            let disk = FaultyDisk::dying_at(fatal, loss);
            let changed = ServerIdentity::rotate(&disk, &directory, hour, false, now);
            disk.cut_power(Loss::Everything);
            let left = ServerIdentity::load(&Disk, &directory).unwrap().expect("there was one");
            let shown = left.keys(now);
            assert!(
                shown.iter().any(|key| key.public() == first.key()),
                "{loss:?} {fatal}: devices are locked out"
            );
            if let Ok(changed) = changed {
                assert_eq!(left, changed, "{loss:?}");
                assert!(fatal > 10, "only {fatal} operations");
                break;
            }
        }
    }
}

/// Every file under a directory with its content.
fn contents(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(contents(&path));
        } else {
            all.push((path.display().to_string(), fs::read(&path).unwrap()));
        }
    }
    all.sort();
    all
}

#[test]
fn what_is_not_ours_is_left_alone() {
    let foreign: [(&str, &[&str]); 6] = [
        ("a folder of that name for something else", &["state/notes.txt"]),
        ("even with a lock of its own", &["state/lock", "state/notes.txt"]),
        ("or with a file that a run has too", &["state/checkpoint-000000.safetensors"]),
        ("a configuration next to an empty folder", &["config.toml", "state/"]),
        ("a thesis", &["thesis.tex"]),
        ("a thesis next to a beginning", &["thesis.tex", "state/lock"]),
    ];
    for (what, paths) in foreign {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("glyphs-fedavg");
        for path in paths {
            let path = root.join(path);
            if path.display().to_string().ends_with('/') {
                fs::create_dir_all(path).unwrap();
            } else {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, "mine").unwrap();
            }
        }
        let before = contents(&root);
        let started = begin(Arc::new(Disk), folder.path(), false).unwrap();
        assert_eq!(name(&started), "glyphs-fedavg-2", "{what}");
        assert!(started.passed[0].ends_with("holds something else"), "{what}: {:?}", started.passed);
        assert_eq!(contents(&root), before, "{what}");
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("glyphs-fedavg");
    fs::write(&file, "a file").unwrap();
    assert_eq!(name(&begin(Arc::new(Disk), folder.path(), false).unwrap()), "glyphs-fedavg-2");
    let error = begin(Arc::new(Disk), &file, false).err().unwrap();
    assert!(matches!(error, StartError::Run(_)), "there is no place for any run: {error}");
}

#[test]
fn an_empty_directory_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("glyphs-fedavg/state")).unwrap();
    assert_eq!(name(&begin(Arc::new(Disk), folder.path(), false).unwrap()), "glyphs-fedavg");
}

#[test]
fn a_run_in_use_is_not_touched_and_fresh_passes_it() {
    let folder = tempfile::tempdir().unwrap();
    let first = begin(Arc::new(Disk), folder.path(), false).unwrap();
    let second = begin(Arc::new(Disk), folder.path(), false).err().unwrap();
    assert!(matches!(second, StartError::InUse { .. }), "{second}");
    let fresh = begin(Arc::new(Disk), folder.path(), true).unwrap();
    assert_eq!((name(&fresh).as_str(), fresh.continued), ("glyphs-fedavg-2", false));
    drop(first);
    assert!(begin(Arc::new(Disk), folder.path(), false).unwrap().continued);
}

#[test]
fn a_damaged_identity_is_told_and_fresh_gets_by_as_the_message_says() {
    let folder = tempfile::tempdir().unwrap();
    let first = begin(Arc::new(Disk), folder.path(), false).unwrap();
    let identity = first.run.directory().identity();
    drop(first);
    fs::write(identity, "{}").unwrap();
    let error = begin(Arc::new(Disk), folder.path(), false).err().unwrap().to_string();
    assert!(error.contains("--fresh"), "{error}");
    assert_eq!(name(&begin(Arc::new(Disk), folder.path(), true).unwrap()), "glyphs-fedavg-2");
}

#[test]
fn a_run_whose_description_is_lost_never_begins_again_in_silence() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = Scenario::small(&[]);
    let mut simulator = Simulator::new(scenario, Faults::NONE, 0, folder.path());
    simulator.run_until(|server| server.coordinator().status(Duration::ZERO).closed == 2);
    simulator.kill_server();
    let run = simulator.run_directory();
    drop(begin(Arc::new(Disk), folder.path(), false).unwrap());

    // The configuration is written again after any damage.
    let text = fs::read(run.config()).unwrap();
    for damage in [None, Some(&b""[..]), Some(b"[training]\nepochs = 7\n"), Some(b"\xff\xfe")] {
        match damage {
            None => fs::remove_file(run.config()).unwrap(),
            Some(bytes) => fs::write(run.config(), bytes).unwrap(),
        }
        let started = begin(Arc::new(Disk), folder.path(), false).unwrap();
        let told = started.run.warnings().join(" ");
        assert!(started.continued && told.contains("config.toml"), "{damage:?}: {told}");
        assert_eq!(fs::read(run.config()).unwrap(), text, "{damage:?}");
    }

    // A complete run that cannot be read is not in the way of the next one.
    let complete = folder.path().join("complete");
    let state = complete.join("glyphs-fedavg/state");
    fs::create_dir_all(&state).unwrap();
    for file in ["run.json", "finished"] {
        fs::write(state.join(file), "{}").unwrap();
    }
    let started = begin(Arc::new(Disk), &complete, false).unwrap();
    assert_eq!(name(&started), "glyphs-fedavg-2");
    assert!(started.passed[0].contains("is complete"), "{:?}", started.passed);

    // Without the identity the checkpoints belong to no known run.
    fs::remove_file(run.identity()).unwrap();
    let error = begin(Arc::new(Disk), folder.path(), false).err().unwrap().to_string();
    assert!(error.contains("run.json") && error.contains("round 2") && error.contains("--fresh"), "{error}");
    assert_eq!(name(&begin(Arc::new(Disk), folder.path(), true).unwrap()), "glyphs-fedavg-2");
}

/// A disk on which another process is quicker: it does `first` just before the lock is taken.
fn overtaken(first: impl FnOnce() + Send + 'static) -> Arc<dyn FileLayer> {
    let first = Mutex::new(Some(first));
    Arc::new(WatchedDisk(move |operation: &'static str, _: &Path| {
        if operation == "lock"
            && let Some(first) = first.lock().unwrap().take()
        {
            first();
        }
        Ok(())
    }))
}

#[test]
fn a_run_that_another_process_began_meanwhile_is_continued_and_not_begun_over_it() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().to_owned();
    let quicker = {
        let runs = runs.clone();
        move || drop(begin(Arc::new(Disk), &runs, false).unwrap())
    };
    let started = begin(overtaken(quicker), &runs, false).unwrap();
    assert!(started.continued);
    assert_eq!(started.resume.closed, Resume::default().closed);
}

#[test]
fn a_run_that_another_process_completed_meanwhile_is_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().to_owned();
    drop(begin(Arc::new(Disk), &runs, false).unwrap());
    let done = Arc::new(AtomicBool::new(false));
    let quicker = {
        let (runs, done) = (runs.clone(), done.clone());
        move || {
            let started = begin(Arc::new(Disk), &runs, false).unwrap();
            started.run.write_report("a report", true).unwrap();
            done.store(true, Ordering::Relaxed);
        }
    };
    let started = begin(overtaken(quicker), &runs, false).unwrap();
    assert!(done.load(Ordering::Relaxed) && !started.continued);
    assert_eq!(name(&started), "glyphs-fedavg-2");
}

#[test]
fn a_complete_run_counts_as_such_unless_another_one_would_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let config = Scenario::small(&[]).config;
    let complete = || completed(&Disk, &config, folder.path()).unwrap();
    assert_eq!(complete(), None);
    let first = begin(Arc::new(Disk), folder.path(), false).unwrap();
    assert_eq!(complete(), None, "it goes on");
    let finish = |started: Started| {
        let directory = started.run.directory().root().to_owned();
        drop(started);
        fs::write(directory.join("state/finished"), "").unwrap();
        directory
    };
    let first = finish(first);
    assert_eq!(complete(), Some(first));
    let second = begin(Arc::new(Disk), folder.path(), true).unwrap();
    assert_eq!(complete(), None, "that one goes on");
    let second = finish(second);
    assert_eq!(complete(), Some(second));
}

#[test]
fn a_new_run_knows_in_which_keys_it_differs_from_the_one_before() {
    let folder = tempfile::tempdir().unwrap();
    let before = begin(Arc::new(Disk), folder.path(), false).unwrap();
    assert_eq!(before.differs, None);
    drop(before);
    let config = Scenario::small(&["training.epochs=5"]).config;
    let (started, ()) = start_on(Arc::new(Disk), config, folder.path(), false, |_| Ok(())).unwrap();
    let (other, changed) = started.differs.unwrap();
    assert_eq!(other, folder.path().join("glyphs-fedavg"));
    let changed: Vec<_> = changed.iter().map(|(key, _, now)| format!("{key}={now}")).collect();
    assert_eq!(changed, ["training.epochs=5"]);
}
