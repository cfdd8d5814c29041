//! A server's identity that was deleted although devices rely on it.
//!
//! A server makes its key and its database at its first start. If it made them anew in place of lost ones, without a word, every
//! device would end with "the server shows another key" or "not admitted", and stay ended.

use std::path::{Path, PathBuf};

use super::exit::Failure;
use crate::commands::command;
use crate::database::{self, Database};
use crate::enrolment::Device;
use crate::run::directory::{RunDirectory, has_rounds};
use crate::storage::{Disk, FileLayer as _};
use crate::transport::identity;

/// Refuses to make the identity in `directory` anew if devices rely on the one that was there.
pub(super) fn refuse_if_lost(directory: &Path, runs: &Path) -> Result<(), Failure> {
    let missing = |name: &str| {
        let path = directory.join(name);
        match path.try_exists() {
            Ok(exists) => Ok((!exists).then_some(path)),
            Err(error) => Err(Failure::file("look at", &path, error)),
        }
    };
    let (key, devices) = (missing(identity::KEY_FILE)?, missing(database::FILE)?);
    let Some(lost) = key.as_ref().or(devices.as_ref()) else { return Ok(()) };
    let consequence = if key.is_some() {
        "with another key no device trusts this server"
    } else {
        "without it the server knows none of its devices"
    };
    let evidence = match served(runs) {
        Some(run) => format!("{} was served to devices", run.display()),
        None if devices.is_none() && !Device::all(&Database::open(directory)?)?.is_empty() => {
            format!("{} knows devices", directory.join(database::FILE).display())
        }
        None => return Ok(()),
    };
    Err(Failure::Environment(format!(
        "{} is not there, and {evidence}: {consequence}. Restore {} from a backup; or begin with a new identity (`{}`), \
         and give every device a new ticket",
        lost.display(),
        directory.display(),
        command("serve --new-identity")
    )))
}

/// A run under `runs` that was served, and opened a round for devices.
fn served(runs: &Path) -> Option<PathBuf> {
    let names = Disk.list(runs).unwrap_or_default();
    names.into_iter().map(|name| RunDirectory::new(runs.join(name))).find_map(|run| {
        let served = run.presence().exists() && has_rounds(&Disk, &run);
        served.then(|| run.root().to_owned())
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn an_identity_is_made_where_nobody_relies_on_one_and_never_in_place_of_a_lost_one() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (runs, directory) = (folder.path().join("runs"), folder.path().join("runs/identity"));
        let checked = || refuse_if_lost(&directory, &runs).map_err(|error| error.to_string());
        assert_eq!(checked(), Ok(()), "the first start");
        drop(Database::open(&directory).expect("it can be made"));
        assert_eq!(checked(), Ok(()), "a first start that died before the key was made");

        let state = runs.join("x/state");
        fs::create_dir_all(&state).expect("a folder");
        fs::write(state.join("round-000001.json"), "{}").expect("a file");
        assert_eq!(checked(), Ok(()), "a simulation");
        fs::write(state.join("served"), "").expect("a file");
        let error = checked().expect_err("devices trust the lost key");
        assert!(error.contains("server.key is not there") && error.contains("--new-identity"), "{error}");

        fs::write(directory.join(identity::KEY_FILE), "a key").expect("a file");
        assert_eq!(checked(), Ok(()));
        fs::remove_file(directory.join(database::FILE)).expect("it was there");
        let error = checked().expect_err("the devices are forgotten");
        assert!(error.contains("knows none of its devices"), "{error}");
    }
}
