use aggregator::storage::write_durably;

use super::*;

/// Does `work` on a disk where `old` lies durably, lets the power fail, and gives what is left.
fn after(loss: Loss, work: impl Fn(&FaultyDisk, &Path)) -> BTreeMap<String, String> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("old"), "old").unwrap();
    let disk = FaultyDisk::dying_at(usize::MAX, loss);
    work(&disk, folder.path());
    disk.cut_power(loss);
    let names = Disk.list(folder.path()).unwrap();
    let content = |name: String| {
        let text = fs::read_to_string(folder.path().join(&name)).unwrap_or_else(|_| "a folder".to_owned());
        (name, text)
    };
    names.into_iter().map(content).collect()
}

fn files(expected: &[(&str, &str)]) -> BTreeMap<String, String> {
    expected.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

fn write(disk: &FaultyDisk, path: &Path, text: &str, sync: bool) {
    let mut file = disk.create(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
    if sync {
        file.sync().unwrap();
    }
}

#[test]
fn bytes_and_names_are_lost_until_they_are_synced() {
    let work = |disk: &FaultyDisk, folder: &Path| write(disk, &folder.join("new"), "new", false);
    assert_eq!(after(Loss::Nothing, work), files(&[("new", "new"), ("old", "old")]));
    assert_eq!(after(Loss::Names, work), files(&[("old", "old")]));
    assert_eq!(after(Loss::Bytes, work), files(&[("new", ""), ("old", "old")]));
    assert_eq!(after(Loss::Everything, work), files(&[("old", "old")]));
    let synced = |disk: &FaultyDisk, folder: &Path| {
        write(disk, &folder.join("new"), "new", true);
        disk.sync_dir(folder).unwrap();
    };
    assert_eq!(after(Loss::Everything, synced), files(&[("new", "new"), ("old", "old")]));
}

#[test]
fn a_rename_that_is_not_synced_brings_back_what_it_replaced() {
    let work = |disk: &FaultyDisk, folder: &Path| {
        write(disk, &folder.join("new"), "new", true);
        disk.sync_dir(folder).unwrap();
        disk.rename(&folder.join("new"), &folder.join("old")).unwrap();
    };
    assert_eq!(after(Loss::Nothing, work), files(&[("old", "new")]));
    assert_eq!(after(Loss::Names, work), files(&[("new", "new"), ("old", "old")]));
    let unsynced = |disk: &FaultyDisk, folder: &Path| {
        write(disk, &folder.join("new"), "new", false);
        disk.rename(&folder.join("new"), &folder.join("old")).unwrap();
    };
    assert_eq!(after(Loss::Bytes, unsynced), files(&[("old", "")]), "the trap of renaming before syncing");
}

#[test]
fn what_is_removed_or_appended_or_truncated_comes_back_until_it_is_synced() {
    let removed = |disk: &FaultyDisk, folder: &Path| disk.remove(&folder.join("old")).unwrap();
    assert_eq!(after(Loss::Nothing, removed), files(&[]));
    assert_eq!(after(Loss::Everything, removed), files(&[("old", "old")]));
    let truncated = |disk: &FaultyDisk, folder: &Path| write(disk, &folder.join("old"), "new", false);
    assert_eq!(after(Loss::Nothing, truncated), files(&[("old", "new")]));
    assert_eq!(after(Loss::Everything, truncated), files(&[("old", "old")]));
    let appended = |disk: &FaultyDisk, folder: &Path| disk.append(&folder.join("log"), b"line").unwrap();
    assert_eq!(after(Loss::Bytes, appended), files(&[("log", "line"), ("old", "old")]), "it syncs bytes");
    assert_eq!(after(Loss::Names, appended), files(&[("old", "old")]), "it does not sync the name");
}

#[test]
fn directories_and_what_is_in_them_come_and_go_together() {
    let made = |disk: &FaultyDisk, folder: &Path| {
        disk.create_dir(&folder.join("a/b")).unwrap();
        write(disk, &folder.join("a/b/c"), "c", true);
        disk.rename(&folder.join("a/b/c"), &folder.join("c")).unwrap();
    };
    assert_eq!(after(Loss::Everything, made), files(&[("old", "old")]));
    let synced = |disk: &FaultyDisk, folder: &Path| {
        made(disk, folder);
        disk.sync_dir(folder).unwrap();
    };
    let all = files(&[("a", "a folder"), ("c", "c"), ("old", "old")]);
    assert_eq!(after(Loss::Everything, synced), all, "what a durable entry came from is durable");
    let removed = |disk: &FaultyDisk, folder: &Path| {
        synced(disk, folder);
        disk.remove_dir(&folder.join("a")).unwrap();
    };
    assert_eq!(after(Loss::Nothing, removed), files(&[("c", "c"), ("old", "old")]));
    assert_eq!(after(Loss::Everything, removed), all);
}

#[test]
fn a_durable_write_is_all_or_nothing_wherever_it_dies() {
    let write = |disk: &FaultyDisk, path: &Path| {
        write_durably(disk, path, |out| out.write_all(b"a longer new text")).is_ok()
    };
    for seed in 0..20 {
        for fatal in 0.. {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("old");
            fs::write(&path, "old").unwrap();
            let disk = FaultyDisk::dying_at(fatal, Loss::Some(seed));
            let done = write(&disk, &path);
            let text = fs::read_to_string(&path).unwrap();
            assert!(text == "a longer new text" || text == "old" && !done, "{text:?} at {fatal}");
            if done {
                break;
            }
        }
    }
}

#[test]
fn the_next_process_may_still_lose_what_the_last_one_did_not_sync() {
    let folder = tempfile::tempdir().unwrap();
    let first = FaultyDisk::dying_at(3, Loss::Nothing);
    write(&first, &folder.path().join("new"), "new", false);
    assert!(first.sync_dir(folder.path()).is_err() && first.dead());
    assert!(folder.path().join("new").exists(), "only the process died");
    let second = first.next_life(0, Loss::Everything);
    assert!(second.list(folder.path()).is_err() && second.dead());
    assert!(!folder.path().join("new").exists());
}
