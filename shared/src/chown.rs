//! Whom files belong to that root makes among another user's, and what to do where a file is not for this one.
//!
//! A service keeps its files as a user of its own, and could not read what root makes beside them (`sudo aggregator ticket
//! --runs /var/lib/aggregator`, or `sudo edge-client join --state /var/lib/edge-client`). So what root makes goes to the owner
//! of the directory that it lies in.

use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};

#[cfg(unix)]
use std::os::unix::fs::{MetadataExt as _, fchown, lchown};

/// What root has made could not be given away. It is of use to root all the same.
#[derive(Debug, thiserror::Error)]
#[error("{} stays root's, although its directory is another one's, who may need it: {error}", path.display())]
pub struct NotChowned {
    /// The file or directory.
    pub path: PathBuf,
    /// What the system says.
    pub error: io::Error,
}

/// Gives an empty file that was just made, or is for all who work in its directory, to the directory's owner if it is root's.
///
/// The owner may have put a link there to a file of root's somewhere else: that one is not given away.
#[cfg(unix)]
pub fn chown_like_parent(file: &File, path: &Path) -> Result<(), NotChowned> {
    let handed = || {
        let (made, named) = (file.metadata()?, fs::symlink_metadata(path)?);
        let is_there = (made.dev(), made.ino(), made.nlink()) == (named.dev(), named.ino(), 1);
        match heir(&made, &fs::metadata(parent(path))?) {
            Some((user, group)) if is_there && made.len() == 0 => fchown(file, Some(user), Some(group)),
            _ => Ok(()),
        }
    };
    handed().map_err(|error| NotChowned { path: path.to_owned(), error })
}

/// The same for a directory that was just made.
#[cfg(unix)]
pub fn chown_directory_like_parent(path: &Path) -> Result<(), NotChowned> {
    let handed = || match heir(&fs::symlink_metadata(path)?, &fs::metadata(parent(path))?) {
        Some((user, group)) => lchown(path, Some(user), Some(group)),
        None => Ok(()),
    };
    handed().map_err(|error| NotChowned { path: path.to_owned(), error })
}

/// The directory that something lies in.
#[must_use]
pub fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Who gets what root has made in this directory: its user and group, unless that is root as well.
#[cfg(unix)]
fn heir(made: &Metadata, directory: &Metadata) -> Option<(u32, u32)> {
    (made.uid() == 0 && directory.uid() != 0).then(|| (directory.uid(), directory.gid()))
}

/// Where files have no such owners, there is nothing to do.
#[cfg(not(unix))]
pub fn chown_like_parent(_: &File, _: &Path) -> Result<(), NotChowned> {
    Ok(())
}

/// The same.
#[cfg(not(unix))]
pub fn chown_directory_like_parent(_: &Path) -> Result<(), NotChowned> {
    Ok(())
}

/// What to do about an error with `path`, to stand behind it: if the system says that the file is not for this user.
#[must_use]
pub fn advice(path: &Path, error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::PermissionDenied { owner_advice(path) } else { String::new() }
}

#[cfg(not(unix))]
fn owner_advice(_: &Path) -> String {
    String::new()
}

#[cfg(unix)]
fn owner_advice(path: &Path) -> String {
    // What lies deeper may not be seen.
    let seen = path.ancestors().find_map(|place| Some((place, fs::metadata(place).ok()?.uid())));
    let Some((place, owner)) = seen else { return String::new() };
    let directory = fs::metadata(parent(place)).map_or(owner, |directory| directory.uid());
    let (what, name) = (place.display(), name(owner));
    if owner == 0 && directory != 0 {
        let heir = self::name(directory);
        return format!(
            "; {what} belongs to {name} among the files of {heir}: give it to that one, `sudo chown {heir}: {what}`"
        );
    }
    if me() == Some(owner) {
        // Its mode is in the way, and whoever asks knows better what for.
        return String::new();
    }
    format!("; {what} belongs to {name}: work on it as that one, with `sudo -u {name}` before the command")
}

/// Who this process is, where the system says so.
#[cfg(unix)]
fn me() -> Option<u32> {
    Some(fs::metadata("/proc/self").ok()?.uid())
}

/// What `sudo -u` knows a user by.
#[cfg(unix)]
fn name(user: u32) -> String {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let named = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, id) = (fields.next()?, fields.nth(1)?);
        (id.parse() == Ok(user)).then(|| name.to_owned())
    });
    named.unwrap_or_else(|| format!("'#{user}'"))
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::chown;

    use super::*;

    /// Some user that is not root.
    const OTHER: u32 = 4242;

    #[test]
    fn whoever_may_not_is_told_who_may() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let refused = io::Error::from(io::ErrorKind::PermissionDenied);
        let path = folder.path().join("identity/server.key");
        assert_eq!(advice(&path, &io::ErrorKind::NotFound.into()), "");
        if me().is_some() {
            assert_eq!(advice(&path, &refused), "", "it is this user's");
        }
        assert_eq!(name(OTHER), format!("'#{OTHER}'"));
        if chown(folder.path(), Some(OTHER), None).is_ok() {
            assert!(advice(&path, &refused).contains(&format!("`sudo -u '#{OTHER}'`")));
            if fs::create_dir(folder.path().join("identity")).is_err() {
                eprintln!("skipped in part: this root may not write among what is another's");
                return;
            }
            let told = advice(&path, &refused);
            assert!(
                told.contains("belongs to root") && told.contains(&format!("`sudo chown '#{OTHER}'")),
                "{told}"
            );
        }
    }
}
