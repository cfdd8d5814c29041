//! Files that root creates in another user's directory are given to that user.
//!
//! A service runs as a user of its own and could not read what root creates beside its files (`sudo aggregator ticket --runs
//! /var/lib/aggregator`, or `sudo edge-client join --state /var/lib/edge-client`). A file that cannot be given away is of use to
//! root all the same, so that is logged and no error.

use std::fs::{self, File, Metadata};
use std::io;
use std::path::Path;

#[cfg(unix)]
use std::os::unix::fs::{MetadataExt as _, fchown, lchown};

/// The directory that contains `path`.
#[must_use]
pub fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Gives an empty file to the owner of its directory if it belongs to root.
///
/// The directory's owner may have replaced the file by a link to another file of root's: that one is not given away.
#[cfg(unix)]
pub fn chown_like_parent(file: &File, path: &Path) {
    let give = || {
        let (made, named) = (file.metadata()?, fs::symlink_metadata(path)?);
        let is_there = (made.dev(), made.ino(), made.nlink()) == (named.dev(), named.ino(), 1);
        match heir(&made, &fs::metadata(parent(path))?) {
            Some((user, group)) if is_there && made.len() == 0 => fchown(file, Some(user), Some(group)),
            _ => Ok(()),
        }
    };
    log(path, give());
}

/// Gives a new directory to the owner of its parent if it belongs to root.
#[cfg(unix)]
pub fn chown_directory_like_parent(path: &Path) {
    let give = || match heir(&fs::symlink_metadata(path)?, &fs::metadata(parent(path))?) {
        Some((user, group)) => lchown(path, Some(user), Some(group)),
        None => Ok(()),
    };
    log(path, give());
}

#[cfg(unix)]
fn log(path: &Path, given: io::Result<()>) {
    if let Err(error) = given {
        tracing::warn!(
            "{} stays root's, although its directory belongs to another user, who may need it: {error}",
            path.display()
        );
    }
}

/// The user and group to give root's file to: those of its directory, unless that is root's as well.
#[cfg(unix)]
fn heir(made: &Metadata, directory: &Metadata) -> Option<(u32, u32)> {
    (made.uid() == 0 && directory.uid() != 0).then(|| (directory.uid(), directory.gid()))
}

/// Systems without such owners need nothing.
#[cfg(not(unix))]
pub fn chown_like_parent(_: &File, _: &Path) {}

/// Systems without such owners need nothing.
#[cfg(not(unix))]
pub fn chown_directory_like_parent(_: &Path) {}

/// Advice to append to the message of an error with `path`, if this user may not use that file; empty otherwise.
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
    // This user may not be allowed to look at the path itself.
    let seen = path.ancestors().find_map(|place| Some((place, fs::metadata(place).ok()?.uid())));
    let Some((place, owner)) = seen else { return String::new() };
    let directory = fs::metadata(parent(place)).map_or(owner, |directory| directory.uid());
    let (what, name) = (place.display(), name(owner));
    if owner == 0 && directory != 0 {
        let heir = self::name(directory);
        return format!(
            "; {what} belongs to {name} among the files of {heir}: give it to {heir}, `sudo chown {heir}: {what}`"
        );
    }
    if me() == Some(owner) {
        // The file's mode is the reason, and the caller has better advice.
        return String::new();
    }
    format!("; {what} belongs to {name}: run the command as that user, with `sudo -u {name}` before it")
}

/// The user of this process, if the system tells.
#[cfg(unix)]
fn me() -> Option<u32> {
    Some(fs::metadata("/proc/self").ok()?.uid())
}

/// The name of a user for `sudo -u`.
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
