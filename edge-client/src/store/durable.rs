//! The disk operations of the store, each with the error that names its path.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::string::FromUtf8Error;
use std::time::{Duration, SystemTime};

pub(super) use shared::chown::parent;
use shared::chown::{self, NotChowned};
use tracing::warn;

use super::error::StoreError;

/// More than any file for people has here, and little enough to read without asking.
const MAX_TEXT: u64 = 16 << 10;

/// The coarsest step in which a file system keeps the time that a file was written: that of FAT.
const TICK: Duration = Duration::from_secs(2);

/// The name under which something is written before it is whole.
pub(super) fn partial(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".partial");
    PathBuf::from(name)
}

/// Creates a directory and its parents, for this user alone where the system knows modes.
pub(super) fn create_dir(path: &Path) -> Result<(), StoreError> {
    create_missing(path).map(|_| ())
}

/// The same, and makes those durable that were not there.
pub(super) fn create_dir_durably(path: &Path) -> Result<(), StoreError> {
    create_missing(path)?.into_iter().rev().try_for_each(|folder| sync_dir(parent(folder)))
}

/// Gives those that were not there, the innermost first.
fn create_missing(path: &Path) -> Result<Vec<&Path>, StoreError> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    let mut missing = Vec::new();
    for folder in path.ancestors().filter(|folder| !folder.as_os_str().is_empty()) {
        if exists(folder)? {
            break;
        }
        missing.push(folder);
    }
    builder.create(path).map_err(StoreError::io("create the directory", path))?;
    missing.iter().rev().for_each(|folder| tell(chown::chown_directory_like_parent(folder)));
    Ok(missing)
}

/// What root makes in a directory of another user's is that one's: a service could not work on it otherwise.
pub(super) fn chown_like_parent(file: &File, path: &Path) {
    tell(chown::chown_like_parent(file, path));
}

fn tell(handed: Result<(), NotChowned>) {
    if let Err(kept) = handed {
        warn!("{kept}");
    }
}

/// Options that create a file for this user alone.
pub(super) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Writes a new file from pieces; not synced.
pub(super) fn write(path: &Path, pieces: &[&[u8]]) -> Result<(), StoreError> {
    let mut file = private().truncate(true).open(path).map_err(StoreError::io("create", path))?;
    chown_like_parent(&file, path);
    pieces.iter().try_for_each(|piece| file.write_all(piece)).map_err(StoreError::io("write", path))
}

/// Writes a small file whole and durably: after a crash there are the old bytes or the new ones.
pub(super) fn replace(path: &Path, content: &[u8]) -> Result<(), StoreError> {
    replace_after(path, content, None)
}

/// The same with a file that counts as written after `moment`, also where the clock has gone back since: not every device
/// has one that runs without power.
pub(super) fn replace_after(
    path: &Path,
    content: &[u8],
    moment: Option<SystemTime>,
) -> Result<(), StoreError> {
    let partial = partial(path);
    write(&partial, &[content])?;
    if let Some(moment) = moment.and_then(|moment| moment.checked_add(TICK))
        && moment > SystemTime::now()
    {
        let file = private().open(&partial).map_err(StoreError::io("open", &partial))?;
        file.set_modified(moment).map_err(StoreError::io("date", &partial))?;
    }
    sync_file(&partial)?;
    rename(&partial, path)?;
    sync_dir(parent(path))
}

/// The start of a small file as text; `None` if there is no such file. The inner error is for what is not text.
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
    fs::rename(from, to).map_err(StoreError::io("move a finished file to", to))
}

/// Removes a file; one that is not there is no error.
pub(super) fn remove_file(path: &Path) -> Result<(), StoreError> {
    absent_is_fine(fs::remove_file(path)).map_err(StoreError::io("remove", path))
}

/// Removes a directory and all in it; one that is not there is no error.
pub(super) fn remove_dir(path: &Path) -> Result<(), StoreError> {
    absent_is_fine(fs::remove_dir_all(path)).map_err(StoreError::io("remove the directory", path))
}

/// Makes a file's bytes durable; a file that is not there any more needs nothing.
pub(super) fn sync_file(path: &Path) -> Result<(), StoreError> {
    #[cfg(test)]
    tests::SYNCED.with_borrow_mut(|synced| synced.push(path.to_path_buf()));
    absent_is_fine(File::open(path).and_then(|file| file.sync_all())).map_err(StoreError::io("sync", path))
}

/// Makes a directory's entries durable, where the system lets a directory be opened for that.
pub(super) fn sync_dir(path: &Path) -> Result<(), StoreError> {
    if cfg!(unix) { sync_file(path) } else { Ok(()) }
}

/// Whether something is there. A path that cannot be looked at is an error, not an absence.
pub(super) fn exists(path: &Path) -> Result<bool, StoreError> {
    path.try_exists().map_err(StoreError::io("look for", path))
}

fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::RefCell;

    use super::*;

    thread_local! {
        /// What this test has synced, in this order.
        pub(crate) static SYNCED: RefCell<Vec<PathBuf>> = const { RefCell::new(Vec::new()) };
    }

    #[test]
    fn directories_that_were_not_there_are_durable_in_their_parents() {
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
    fn a_replaced_file_is_whole_and_leaves_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("identity");
        replace(&path, b"first, longer").unwrap();
        replace(&path, b"second").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn what_is_created_is_for_this_user_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join("a/b");
        create_dir(&directory).unwrap();
        replace(&directory.join("file"), b"x").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&directory), mode(&directory.join("file"))), (0o700, 0o600));
    }

    #[test]
    fn absence_is_only_fine_where_it_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let absent = folder.path().join("absent");
        remove_file(&absent).unwrap();
        remove_dir(&absent).unwrap();
        sync_file(&absent).unwrap();
        assert!(matches!(rename(&absent, &folder.path().join("x")), Err(StoreError::Io { .. })));
    }
}
