use std::path::Path;

use proptest::prelude::*;

use super::super::{DiskStore, Store as _, Update};
use super::*;

const ROUND: u32 = 3;
/// A little more than four blocks.
const TOTAL: usize = 4 * BLOCK + 9;

fn payload() -> Vec<u8> {
    (0..TOTAL).map(|at| (at % 251) as u8).collect()
}

fn file(folder: &Path) -> DownloadFile {
    DownloadFile::new(folder.join("download"))
}

/// Keeps this many bytes, in steps as a network brings them.
fn arrive(kept: &mut impl PartialDownload, bytes: usize) {
    let payload = payload();
    for here in (0..bytes).step_by(10_000).chain([bytes]) {
        kept.keep(ROUND, TOTAL as u64, &payload[..here]);
    }
}

fn found(folder: &Path) -> Option<usize> {
    let found = file(folder).load()?;
    assert_eq!((found.round, found.total), (ROUND, TOTAL as u64));
    assert!(found.payload == payload()[..found.payload.len()], "it is not what was kept");
    Some(found.payload.len() / BLOCK)
}

#[test]
fn the_next_process_finds_whole_blocks_and_never_all() {
    for (bytes, blocks) in
        [(0, None), (BLOCK - 1, None), (BLOCK, Some(1)), (3 * BLOCK + 7, Some(3)), (TOTAL, Some(4))]
    {
        let folder = tempfile::tempdir().unwrap();
        arrive(&mut file(folder.path()), bytes);
        assert_eq!(found(folder.path()), blocks, "{bytes}");
        assert_eq!(folder.path().join("download").exists(), blocks.is_some(), "{bytes}");
    }
    // A payload that ends with a block keeps that one out.
    let folder = tempfile::tempdir().unwrap();
    file(folder.path()).keep(ROUND, 2 * BLOCK as u64, &payload()[..2 * BLOCK]);
    assert_eq!(file(folder.path()).load().unwrap().payload.len(), BLOCK);
}

#[test]
fn the_next_process_goes_on_writing_where_the_sound_part_ends() {
    let folder = tempfile::tempdir().unwrap();
    arrive(&mut file(folder.path()), 2 * BLOCK);
    let path = folder.path().join("download");
    let torn = File::options().write(true).open(&path).unwrap();
    torn.set_len((HEADER + 2 * (BLOCK + SUM) - 5) as u64).unwrap();
    let mut next = file(folder.path());
    assert_eq!(next.load().unwrap().payload.len(), BLOCK);
    arrive(&mut next, TOTAL);
    assert_eq!(found(folder.path()), Some(4));
    assert_eq!(fs::metadata(path).unwrap().len(), (HEADER + 4 * (BLOCK + SUM)) as u64, "its bound");
}

#[test]
fn another_task_replaces_it_and_only_its_own_end_removes_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut kept = file(folder.path());
    arrive(&mut kept, TOTAL);
    assert!(!kept.discard(Some(ROUND + 1)));
    assert_eq!(found(folder.path()), Some(4));
    kept.keep(ROUND + 1, TOTAL as u64, &payload()[..BLOCK]);
    let other = file(folder.path()).load().unwrap();
    assert_eq!((other.round, other.payload.len()), (ROUND + 1, BLOCK));
    assert!(kept.discard(Some(ROUND + 1)));
    assert!(!kept.discard(None), "there is none any more");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_disk_that_refuses_it_is_asked_once_for_each_task() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("none/download");
    let mut kept = DownloadFile::new(path.clone());
    arrive(&mut kept, 2 * BLOCK);
    fs::create_dir(path.parent().unwrap()).unwrap();
    arrive(&mut kept, TOTAL);
    assert!(!path.exists(), "a full disk is left alone until the next task");
    kept.keep(ROUND + 1, TOTAL as u64, &payload());
    assert!(path.exists());
}

fn update(round: u32) -> Update {
    let run = shared::id::RunId::from_bytes([1; 8]);
    let id = shared::message::TaskId { run, round };
    Update { id, report: shared::message::TrainReport::default(), payload: vec![1; 9].into(), local: None }
}

#[test]
fn the_saved_update_of_its_task_removes_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = DiskStore::open(folder.path()).unwrap();
    let download = store.download().unwrap();
    let keep = || download.lock().unwrap().keep(ROUND, TOTAL as u64, &payload());
    keep();
    store.save(&update(ROUND - 1)).unwrap();
    assert_eq!(found(folder.path()), Some(4), "a newer task is arriving");
    store.save(&update(ROUND)).unwrap();
    assert!(!folder.path().join("download").exists());
    keep();
    drop((store, download));
    // A process that ended before: the next one finds it.
    let store = DiskStore::open(folder.path()).unwrap();
    assert!(store.download().unwrap().lock().unwrap().load().is_some());
}

/// A file system of this many bytes; `None` where this user cannot mount one.
#[cfg(target_os = "linux")]
fn small_disk(bytes: usize) -> Option<(tempfile::TempDir, impl Drop)> {
    struct Mounted(std::path::PathBuf);
    impl Drop for Mounted {
        fn drop(&mut self) {
            let _ = std::process::Command::new("umount").arg("--lazy").arg(&self.0).status();
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let options = format!("size={bytes}");
    let mut mount = std::process::Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(folder.path());
    let mounted = mount.output().is_ok_and(|done| done.status.success());
    mounted.then(|| Mounted(folder.path().to_owned())).map(|mounted| (folder, mounted))
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_keeps_the_update_and_not_the_download() {
    let Some((folder, _mounted)) = small_disk(8 * BLOCK) else {
        eprintln!("skipped: mounting is not permitted here");
        return;
    };
    let mut store = DiskStore::open(folder.path()).unwrap();
    let download = store.download().unwrap();
    download.lock().unwrap().keep(ROUND, TOTAL as u64, &payload());
    let large = Update { payload: vec![1; 5 * BLOCK].into(), ..update(ROUND) };
    store.save(&large).unwrap();
    assert!(!folder.path().join("download").exists());
    // And a download that the disk has no room for does not fill it.
    let long = vec![1; 16 * BLOCK];
    download.lock().unwrap().keep(ROUND + 1, long.len() as u64 + 1, &long);
    assert!(!folder.path().join("download").exists());
    assert_eq!(store.payload().unwrap().to_bytes().len(), 5 * BLOCK);
}

proptest! {
    /// After any damage to the file, only bytes that were kept are found.
    #[test]
    fn of_a_damaged_file_the_sound_part_counts(
        at in 0..HEADER + 4 * (BLOCK + SUM),
        flip in 1..=u8::MAX,
        length in prop::option::of(0..HEADER + 5 * (BLOCK + SUM)),
    ) {
        let folder = tempfile::tempdir().unwrap();
        arrive(&mut file(folder.path()), TOTAL);
        let path = folder.path().join("download");
        let mut bytes = fs::read(&path).unwrap();
        bytes[at] ^= flip;
        let length = length.unwrap_or(bytes.len());
        bytes.resize(length, 0);
        fs::write(&path, &bytes).unwrap();
        let whole = |bytes: usize| bytes.checked_sub(HEADER).map_or(0, |blocks| blocks / (BLOCK + SUM));
        let sound = whole(length).min(if at < HEADER { 0 } else { whole(at) }).min(4);
        prop_assert_eq!(found(folder.path()), (sound > 0).then_some(sound));
    }
}
