//! What a run consists of, on any machine.
//!
//! Left out is what one machine's processes need: locks, requests to stop, uploads under way, files that are unfinished, and anything that is
//! neither a file nor a folder.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::RunsError;
use super::error::disk;
use crate::run::directory::{RunDirectory, round_in};
use crate::storage::{Disk, FileLayer as _};

/// A file or a folder of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it is.
    pub path: PathBuf,
    /// Where it lies in the run's directory, with `/` between folders.
    pub name: String,
    /// Whether it is a folder.
    pub folder: bool,
    /// Its bytes, if it is a file.
    pub bytes: u64,
}

/// The files and folders of the run in the directory `root`, each folder before its contents, in the order of names.
///
/// # Errors
/// One of them cannot be looked at.
pub fn contents(root: &Path) -> Result<Vec<Entry>, RunsError> {
    let mut entries = Vec::new();
    collect(root, "", &mut entries)?;
    Ok(entries)
}

fn collect(folder: &Path, within: &str, into: &mut Vec<Entry>) -> Result<(), RunsError> {
    for name in Disk.list(folder).map_err(disk("list", folder))? {
        let path = folder.join(&name);
        let name = if within.is_empty() { name } else { format!("{within}/{name}") };
        // Not even looked at: where the run goes on, an unfinished file may be finished meanwhile, and have another name.
        if stays(&name) {
            continue;
        }
        let metadata = match path.symlink_metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound && may_go(&name) => continue,
            found => found.map_err(|_| RunsError::Name { path: path.clone() })?,
        };
        let is_folder = metadata.is_dir();
        if !(is_folder || metadata.is_file()) {
            continue;
        }
        into.push(Entry { path: path.clone(), name: name.clone(), folder: is_folder, bytes: metadata.len() });
        if is_folder {
            collect(&path, &name, into)?;
        }
    }
    Ok(())
}

/// Whether another process may remove this part of a run while it is looked at: the operator's wish that the run pauses. It is of the run,
/// and goes with it to other machines.
#[must_use]
pub fn may_go(name: &str) -> bool {
    RunDirectory::new("").paused() == Path::new(name)
}

/// Whether this part of a run stays on its machine. So does the secret of a private one, without which it does not go on elsewhere.
fn stays(name: &str) -> bool {
    ["state/lock", "state/served", "state/stop", "state/spool", "state/secret"].contains(&name)
        || name.ends_with(".partial")
        // Made again when it is not there.
        || name.strip_prefix("state/").is_some_and(|name| round_in(name, "broadcast-", ".safetensors").is_some())
}

#[cfg(all(test, unix))]
mod tests {
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    #[test]
    fn an_unfinished_file_is_not_looked_at() {
        let run = tempfile::tempdir().unwrap();
        fs::write(run.path().join("model.safetensors"), "model").unwrap();
        // Under the name that is listed there is none, as when it was finished in the meantime.
        fs::write(run.path().join(OsStr::from_bytes(b"devices-\xff.partial")), "unfinished").unwrap();
        let names: Vec<_> = contents(run.path()).unwrap().into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, ["model.safetensors"]);
        fs::write(run.path().join(OsStr::from_bytes(b"\xff")), "finished").unwrap();
        assert!(matches!(contents(run.path()), Err(RunsError::Name { .. })));
    }

    #[test]
    fn a_pause_goes_with_the_run_and_may_be_taken_back() {
        let run = tempfile::tempdir().unwrap();
        let directory = RunDirectory::new(run.path());
        fs::create_dir(directory.state()).unwrap();
        fs::write(directory.paused(), "").unwrap();
        fs::write(directory.identity(), "").unwrap();
        let names: Vec<_> = contents(run.path()).unwrap().into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, ["state", "state/paused", "state/run.json"]);
        assert_eq!(names.iter().map(|name| may_go(name)).collect::<Vec<_>>(), [false, true, false]);
    }
}
