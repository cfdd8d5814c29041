//! The disk of the state directory: free space, and durable writes.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{Finding, bytes};

const SUBJECT: &str = "disk";
/// Space for an update of a small model, its successor and client state.
const MIN_FREE: u64 = 50_000_000;
/// Enough for models that devices usually train.
const ENOUGH: u64 = 500_000_000;
/// Bytes of the file that is written as a test.
const TEST_SIZE: usize = 1 << 20;
/// A card that takes longer to write it is worn out or busy.
const SLOW: Duration = Duration::from_secs(2);

/// Free space of a file system for this user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    pub(crate) bytes: u64,
    /// `None` if the file system does not limit the number of files.
    files: Option<u64>,
}

/// Checks a state directory, which may not exist yet, by writing a file there and removing it again.
#[must_use]
pub fn look_at(state: &Path) -> Vec<Finding> {
    let existing = existing(state);
    let mut findings: Vec<Finding> =
        room(&existing).map(|room| enough(room, &existing)).into_iter().collect();
    findings.push(lasts(&existing, state, try_out(&existing)));
    findings
}

/// The directory, or its nearest existing ancestor.
fn existing(directory: &Path) -> PathBuf {
    // A relative path without an existing ancestor is below the current directory.
    let above = directory.ancestors().find(|above| above.is_dir());
    above.filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned()
}

/// Free space on the disk of a directory; `None` if the system does not report it.
#[cfg(unix)]
pub(crate) fn room(directory: &Path) -> Option<Room> {
    let of = rustix::fs::statvfs(directory).ok()?;
    let files = (of.f_files > 0).then_some(of.f_favail);
    Some(Room { bytes: of.f_bavail.saturating_mul(of.f_frsize), files })
}

#[cfg(not(unix))]
pub(crate) fn room(_: &Path) -> Option<Room> {
    None
}

fn enough(room: Room, directory: &Path) -> Finding {
    let found = format!("{} are free in {}", bytes(room.bytes), directory.display());
    let advice = "remove what is not needed, or name another state directory with --state DIR: finished updates wait \
                  there until the server has them";
    match room {
        Room { files: Some(0), .. } => Finding::problem(
            SUBJECT,
            format!("{found}, but there is no room for another file (inodes)"),
            advice,
        ),
        Room { bytes: 0..MIN_FREE, .. } => Finding::problem(SUBJECT, found, advice),
        Room { bytes: MIN_FREE..ENOUGH, .. } => {
            Finding::warning(SUBJECT, format!("{found}: enough for small models alone"), advice)
        }
        Room { .. } => Finding::ok(SUBJECT, found),
    }
}

/// Writes a file, syncs it and removes it. Returns how long that took.
fn try_out(directory: &Path) -> io::Result<Duration> {
    let path = directory.join(format!(".edge-client-doctor-{}", std::process::id()));
    let began = Instant::now();
    let mut file = File::options().write(true).create_new(true).open(&path)?;
    // Without a name from here on, so that nothing is left if this process is killed.
    std::fs::remove_file(&path)?;
    file.write_all(&vec![0x5a; TEST_SIZE])?;
    file.sync_all()?;
    Ok(began.elapsed())
}

fn lasts(existing: &Path, state: &Path, tried: io::Result<Duration>) -> Finding {
    let place = existing.display();
    match tried {
        Err(error) => {
            let made = if existing == state { "" } else { ", where the state directory would be created" };
            Finding::problem(
                SUBJECT,
                format!("nothing can be written to {place}{made}: {error}"),
                "let this user write there, or name another state directory with --state DIR; a file system that has turned \
                 read-only (see dmesg) is often a card that is worn out",
            )
        }
        Ok(took) if took > SLOW => Finding::warning(
            SUBJECT,
            format!(
                "writing {} to {place} and syncing it took {:.1} s",
                bytes(TEST_SIZE as u64),
                took.as_secs_f64()
            ),
            "a worn-out or very busy card: rounds end later, and it may fail soon; name another place with --state DIR",
        ),
        Ok(took) => Finding::ok(
            SUBJECT,
            format!(
                "{place} takes {} durably in {:.0} ms",
                bytes(TEST_SIZE as u64),
                1e3 * took.as_secs_f64()
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn little_space_is_reported() {
        let level = |bytes, files| enough(Room { bytes, files }, Path::new("state")).level;
        assert_eq!(level(1_000_000_000, Some(5)), Level::Ok);
        assert_eq!(level(1_000_000_000, None), Level::Ok);
        assert_eq!(level(100_000_000, Some(5)), Level::Warning);
        assert_eq!(level(1_000_000, Some(5)), Level::Problem);
        let finding = enough(Room { bytes: 1_000_000_000, files: Some(0) }, Path::new("state"));
        assert_eq!(finding.level, Level::Problem);
        assert!(finding.found.contains("inodes"), "{}", finding.found);
    }

    #[test]
    fn a_missing_directory_is_tested_where_it_would_be_created() {
        let here = tempfile::tempdir().unwrap();
        let state = here.path().join("not/yet");
        let findings = look_at(&state);
        assert!(findings.iter().all(|finding| finding.level != Level::Problem), "{findings:?}");
        assert!(findings.last().unwrap().found.contains("durably"), "{findings:?}");
        assert_eq!(std::fs::read_dir(here.path()).unwrap().count(), 0, "nothing is left");
    }

    #[test]
    fn an_unwritable_directory_is_a_problem() {
        let here = tempfile::tempdir().unwrap();
        // Even root makes no file where there is no directory.
        let gone = here.path().join("gone");
        let finding = lasts(&gone, &gone, try_out(&gone));
        assert_eq!(finding.level, Level::Problem, "{finding:?}");
        let slow = lasts(here.path(), here.path(), Ok(3 * SLOW / 2));
        assert_eq!(slow.level, Level::Warning);
        assert!(slow.found.contains("took 3.0 s"), "{}", slow.found);
    }
}
