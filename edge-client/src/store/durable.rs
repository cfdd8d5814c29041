//! The store's disk operations, each with an error that names its path.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::string::FromUtf8Error;
use std::time::{Duration, SystemTime};

use shared::chown::chown_like_parent;
use shared::durable::{self, absent_is_ok};
pub(super) use shared::durable::{parent, partial, private};
use shared::id::RunId;

use super::error::StoreError;

/// An operation is about to be made: the place where tests let it fail.
macro_rules! step {
    ($kind:ident($($path:expr),+)) => {{
        #[cfg(feature = "faults")]
        let allowed = super::faults::before(super::faults::Operation::$kind($($path),+));
        #[cfg(not(feature = "faults"))]
        let allowed = io::Result::Ok(());
        allowed
    }};
}

/// Limit for a text file, larger than any that belongs here.
const MAX_TEXT: u64 = 64 << 10;

/// The coarsest resolution of a file's time: that of FAT.
const TIME_RESOLUTION: Duration = Duration::from_secs(2);

/// Creates a directory and its parents, readable for this user alone. Returns those that were missing, the innermost first.
pub(super) fn create_dir(path: &Path) -> Result<Vec<&Path>, StoreError> {
    step!(CreateDir(path))
        .and_then(|()| durable::create_dir(path, durable::private_dir()))
        .map_err(StoreError::io("create the directory", path))
}

/// Creates a directory like [`create_dir`], and makes it durable.
pub(super) fn create_dir_durably(path: &Path) -> Result<(), StoreError> {
    create_dir(path)?.into_iter().rev().try_for_each(|folder| sync_dir(parent(folder)))
}

/// Writes a new file from pieces; not synced.
pub(super) fn write(path: &Path, pieces: &[&[u8]]) -> Result<(), StoreError> {
    step!(Write(path)).map_err(StoreError::io("create", path))?;
    let mut file = private().truncate(true).open(path).map_err(StoreError::io("create", path))?;
    chown_like_parent(&file, path);
    pieces.iter().try_for_each(|piece| file.write_all(piece)).map_err(StoreError::io("write", path))
}

/// Replaces a small file atomically and durably: after a crash it has the old bytes or the new ones.
pub(super) fn replace(path: &Path, content: &[u8]) -> Result<(), StoreError> {
    replace_after(path, content, None)
}

/// Replaces a file like [`replace`], and dates it after `moment` even if the clock was set back since: not every device has a
/// battery-backed clock.
pub(super) fn replace_after(
    path: &Path,
    content: &[u8],
    moment: Option<SystemTime>,
) -> Result<(), StoreError> {
    let partial = partial(path);
    let finished = write(&partial, &[content])
        .and_then(|()| date_after(&partial, moment))
        .and_then(|()| sync_file(&partial))
        .and_then(|()| rename(&partial, path));
    finished_or_removed(&partial, finished)?;
    sync_dir(parent(path))
}

/// Dates a file after `moment`, unless it is.
fn date_after(path: &Path, moment: Option<SystemTime>) -> Result<(), StoreError> {
    match moment.and_then(|moment| moment.checked_add(TIME_RESOLUTION)) {
        Some(moment) if moment > SystemTime::now() => {
            let file = private().open(path).map_err(StoreError::io("open", path))?;
            file.set_modified(moment).map_err(StoreError::io("date", path))
        }
        _ => Ok(()),
    }
}

/// Removes the unfinished file `partial` if it could not be finished: it may have taken the room that what comes next needs.
pub(super) fn finished_or_removed(
    partial: &Path,
    finished: Result<(), StoreError>,
) -> Result<(), StoreError> {
    finished.inspect_err(|_| {
        // The first error is reported. If removing it fails too, the next start removes it.
        let _ = remove_file(partial);
    })
}

/// Removes the unfinished files of an earlier process from a directory, which may be absent.
pub(super) fn remove_unfinished(directory: &Path) -> Result<(), StoreError> {
    for path in entries(directory)? {
        if path.extension().is_some_and(|suffix| suffix == "partial") && path.is_file() {
            remove_file(&path)?;
        }
    }
    Ok(())
}

/// The paths in a directory; none if it is absent.
pub(super) fn entries(directory: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let listed = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed.and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect()),
    };
    listed.map_err(StoreError::io("list", directory))
}

/// The start of a small text file; `None` if there is no such file. The inner error is for content that is not text.
pub(super) fn read_text(path: &Path) -> Result<Option<Result<String, FromUtf8Error>>, StoreError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StoreError::io("read", path)(error)),
    };
    let mut bytes = Vec::new();
    file.take(MAX_TEXT).read_to_end(&mut bytes).map_err(StoreError::io("read", path))?;
    Ok(Some(String::from_utf8(bytes)))
}

/// Renames atomically.
pub(super) fn rename(from: &Path, to: &Path) -> Result<(), StoreError> {
    step!(Rename(from, to))
        .and_then(|()| fs::rename(from, to))
        .map_err(StoreError::io("move a finished file to", to))
}

/// Removes a file; an absent one is no error.
pub(super) fn remove_file(path: &Path) -> Result<(), StoreError> {
    step!(RemoveFile(path))
        .and_then(|()| absent_is_ok(fs::remove_file(path)))
        .map_err(StoreError::io("remove", path))
}

/// Removes a directory and everything in it; an absent one is no error.
pub(super) fn remove_dir(path: &Path) -> Result<(), StoreError> {
    step!(RemoveDir(path))
        .and_then(|()| absent_is_ok(fs::remove_dir_all(path)))
        .map_err(StoreError::io("remove the directory", path))
}

/// Syncs the bytes of a file; one that was removed meanwhile needs no sync.
pub(super) fn sync_file(path: &Path) -> Result<(), StoreError> {
    #[cfg(test)]
    tests::SYNCED.with_borrow_mut(|synced| synced.push(path.to_path_buf()));
    step!(Sync(path)).map_err(StoreError::io("sync", path))?;
    #[cfg(feature = "faults")]
    if super::faults::are_played() {
        return Ok(());
    }
    absent_is_ok(durable::sync_file(path)).map_err(StoreError::io("sync", path))
}

/// Syncs the entries of a directory, on systems that let a directory be opened for that.
pub(super) fn sync_dir(path: &Path) -> Result<(), StoreError> {
    if cfg!(unix) { sync_file(path) } else { Ok(()) }
}

/// Whether a path exists. A path that cannot be looked at is an error.
pub(super) fn exists(path: &Path) -> Result<bool, StoreError> {
    path.try_exists().map_err(StoreError::io("look for", path))
}

/// The runs that have an entry in `directory`, the last written first. `run_of` reads the run from an entry's path, and the time
/// of `file_of` counts; a run without that file is the oldest.
pub(super) fn runs_by_age(
    directory: &Path,
    run_of: impl Fn(&Path) -> Option<RunId>,
    file_of: impl Fn(RunId) -> PathBuf,
) -> Result<Vec<(SystemTime, RunId)>, StoreError> {
    let failed = |error| StoreError::io("list", directory)(error);
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        if let Some(run) = run_of(&entry.map_err(failed)?.path()) {
            let written = fs::metadata(file_of(run)).and_then(|data| data.modified());
            found.push((written.unwrap_or(SystemTime::UNIX_EPOCH), run));
        }
    }
    found.sort_unstable_by(|a, b| b.cmp(a));
    Ok(found)
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::RefCell;

    use super::*;

    thread_local! {
        /// The paths that this test has synced, in order.
        pub(crate) static SYNCED: RefCell<Vec<PathBuf>> = const { RefCell::new(Vec::new()) };
    }

    #[test]
    fn new_directories_are_durable_in_their_parents() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/c");
        fs::create_dir(folder.path().join("a")).unwrap();
        for synced in [vec![folder.path().join("a"), folder.path().join("a/b")], Vec::new()] {
            create_dir_durably(&path).unwrap();
            assert_eq!(SYNCED.take(), synced);
        }
        assert!(path.is_dir());
        // Relative to where the program was started.
        assert_eq!(parent(Path::new("state")), Path::new("."));
    }

    #[test]
    fn a_replaced_file_is_complete_and_leaves_no_partial_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("identity");
        replace(&path, b"first, longer").unwrap();
        replace(&path, b"second").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_cannot_be_finished_takes_no_room() {
        let folder = tempfile::tempdir().unwrap();
        // Its place is taken by a directory: it is written, and cannot be renamed.
        let path = folder.path().join("model");
        fs::create_dir(&path).unwrap();
        let error = replace(&path, b"large").unwrap_err();
        assert!(error.to_string().contains("move a finished file"), "{error}");
        assert_eq!(entries(folder.path()).unwrap(), [path]);
    }

    #[test]
    fn unfinished_files_are_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("one.safetensors.partial"), "half").unwrap();
        fs::write(path("two.safetensors"), "whole").unwrap();
        fs::create_dir(path("outbox.partial")).unwrap();
        remove_unfinished(folder.path()).unwrap();
        let mut left = entries(folder.path()).unwrap();
        left.sort_unstable();
        assert_eq!(left, [path("outbox.partial"), path("two.safetensors")]);
        remove_unfinished(&path("absent")).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn created_files_are_readable_for_this_user_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("a/b");
        create_dir(&directory).unwrap();
        replace(&directory.join("file"), b"x").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&directory), mode(&directory.join("file"))), (0o700, 0o600));
    }

    #[test]
    fn only_removing_and_syncing_accept_an_absent_file() {
        let folder = tempfile::tempdir().unwrap();
        let absent = folder.path().join("absent");
        remove_file(&absent).unwrap();
        remove_dir(&absent).unwrap();
        sync_file(&absent).unwrap();
        assert!(matches!(rename(&absent, &folder.path().join("x")), Err(StoreError::Io { .. })));
    }
}
