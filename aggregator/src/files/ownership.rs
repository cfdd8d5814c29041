//! Whom files belong to that root makes among another user's, and what to do where a file is not for this one.
//!
//! A service keeps its files as a user of its own, and could not read what root makes beside them (`sudo aggregator ticket
//! --runs /var/lib/aggregator`, say). So what root makes goes to the owner of the directory that it lies in.

use std::fs::{self, File, Metadata};
use std::io;
use std::path::Path;

#[cfg(unix)]
use std::os::unix::fs::{MetadataExt as _, fchown, lchown};

#[cfg(unix)]
use tracing::warn;

#[cfg(unix)]
use super::parent;

/// Gives an empty file that was just made, or is for all who work in its directory, to the directory's owner if it is root's.
/// Where that cannot be done, it is said.
///
/// The owner may have put a link there to a file of root's somewhere else: that one is not given away.
#[cfg(unix)]
pub(crate) fn hand_over(file: &File, path: &Path) {
    let handed = || {
        let (made, named) = (file.metadata()?, fs::symlink_metadata(path)?);
        let is_there = (made.dev(), made.ino(), made.nlink()) == (named.dev(), named.ino(), 1);
        match heir(&made, &fs::metadata(parent(path))?) {
            Some((user, group)) if is_there && made.len() == 0 => fchown(file, Some(user), Some(group)),
            _ => Ok(()),
        }
    };
    tell(path, handed());
}

/// The same for a directory that was just made.
#[cfg(unix)]
pub(super) fn hand_over_directory(path: &Path) {
    let handed = || match heir(&fs::symlink_metadata(path)?, &fs::metadata(parent(path))?) {
        Some((user, group)) => lchown(path, Some(user), Some(group)),
        None => Ok(()),
    };
    tell(path, handed());
}

#[cfg(unix)]
fn tell(path: &Path, handed: io::Result<()>) {
    if let Err(error) = handed {
        let path = path.display();
        warn!("{path} stays root's, although its directory is another one's, who may need it: {error}");
    }
}

/// Who gets what root has made in this directory: its user and group, unless that is root as well.
#[cfg(unix)]
fn heir(made: &Metadata, directory: &Metadata) -> Option<(u32, u32)> {
    (made.uid() == 0 && directory.uid() != 0).then(|| (directory.uid(), directory.gid()))
}

/// Where files have no such owners, there is nothing to do.
#[cfg(not(unix))]
pub(crate) fn hand_over(_: &File, _: &Path) {}

/// The same.
#[cfg(not(unix))]
pub(super) fn hand_over_directory(_: &Path) {}

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
    format!("; {what} belongs to {name}: work on it as that one, with `sudo -u {name}` before the command")
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
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::database::Database;
    use crate::quic::identity::ServerIdentity;

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
        ServerIdentity::load_or_create(&directory).expect("made");
        ServerIdentity::rotate(&directory, Duration::from_secs(60), false, SystemTime::now())
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
        hand_over(&File::open(&link).expect("there"), &link);
        let hard = runs.join("hard");
        fs::hard_link(&roots, &hard).expect("made");
        hand_over(&File::open(&hard).expect("there"), &hard);
        assert_eq!(fs::metadata(&roots).expect("there").uid(), 0);
        let own = folder.path().join("identity");
        ServerIdentity::load_or_create(&own).expect("made");
        assert_eq!(fs::metadata(own).expect("there").uid(), 0, "in its own directory it stays root's");
    }

    #[test]
    fn whoever_may_not_is_told_who_may() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let refused = io::Error::from(io::ErrorKind::PermissionDenied);
        let path = folder.path().join("identity/server.key");
        assert_eq!(advice(&path, &io::ErrorKind::NotFound.into()), "");
        let me = name(fs::metadata(folder.path()).expect("there").uid());
        let told = advice(&path, &refused);
        assert!(told.contains(&format!("`sudo -u {me}`")), "{told}");
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
