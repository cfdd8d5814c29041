//! Files that root makes in another user's directory belong to that user.
#![cfg(unix)]

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, chown};
use std::time::{Duration, SystemTime};

use aggregator::database::Database;
use aggregator::storage::Disk;
use aggregator::transport::identity::ServerIdentity;
use shared::chown::chown_like_parent;

/// Some user that is not root.
const OTHER: u32 = 4242;

#[test]
fn what_root_makes_among_anothers_files_is_that_ones() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let runs = folder.path().join("runs");
    fs::create_dir(&runs).expect("made");
    if let Err(error) = chown(&runs, Some(OTHER), Some(OTHER)) {
        eprintln!("skipped: only root can give files away ({error})");
        return;
    }
    if let Err(error) = fs::write(runs.join("probe"), "") {
        eprintln!("skipped: this root may not write among what is another's ({error})");
        return;
    }
    fs::remove_file(runs.join("probe")).expect("removed");
    let directory = runs.join("deep/identity");
    ServerIdentity::load_or_create(&Disk, &directory).expect("made");
    ServerIdentity::rotate(&Disk, &directory, Duration::from_mins(1), false, SystemTime::now())
        .expect("changed");
    let _database = Database::open(&directory).expect("made");
    let mut all = vec![runs.join("deep"), directory.clone()];
    all.extend(fs::read_dir(&directory).expect("listed").map(|entry| entry.expect("listed").path()));
    assert!(all.len() >= 6, "{all:?}");
    for path in all {
        let metadata = fs::metadata(&path).expect("there");
        assert_eq!((metadata.uid(), metadata.gid()), (OTHER, OTHER), "{}", path.display());
    }
    // The owner may not have root give away what lies elsewhere.
    let (link, roots) = (runs.join("link"), folder.path().join("empty"));
    fs::write(&roots, "").expect("written");
    std::os::unix::fs::symlink(&roots, &link).expect("made");
    chown_like_parent(&File::open(&link).expect("there"), &link);
    let hard = runs.join("hard");
    fs::hard_link(&roots, &hard).expect("made");
    chown_like_parent(&File::open(&hard).expect("there"), &hard);
    assert_eq!(fs::metadata(&roots).expect("there").uid(), 0);
    let own = folder.path().join("identity");
    ServerIdentity::load_or_create(&Disk, &own).expect("made");
    assert_eq!(fs::metadata(own).expect("there").uid(), 0, "in its own directory it stays root's");
}
