//! What every server of a run shows of it: the root tells its leaves, and each has it in a file of its folder.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::coordinator::Status;
use crate::database::moment;
use crate::run::directory::RunDirectory;
use crate::storage::FileLayer;

/// The name of the file in the folder of a leaf.
const FILE: &str = "shown.json";

/// What a server shows of a run that it serves with others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shown {
    /// Where the server that leads is reached, by which the others know it.
    pub leads: String,
    /// When it said so, in milliseconds since 1970: by its clock on its way, and by that of this machine where it is read.
    pub told: i64,
    /// What the run waits for, for people.
    pub text: String,
    /// The same for programs.
    pub status: Status<i64>,
    /// The servers that are here.
    pub servers: Vec<Server>,
}

/// A server of a run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Server {
    /// Where other servers reach it.
    pub address: String,
    /// Devices that are connected to it.
    pub devices: usize,
}

impl Shown {
    /// Writes it into the folder of a leaf. It need not outlive the machine.
    ///
    /// # Errors
    /// Those of the disk.
    pub(super) fn write(text: &str, files: &dyn FileLayer, folder: &Path) -> io::Result<()> {
        let (path, partial) = (folder.join(FILE), folder.join(format!("{FILE}.partial")));
        let mut file = files.create(&partial)?;
        file.write_all(text.as_bytes())?;
        file.flush()?;
        drop(file);
        files.rename(&partial, &path)
    }

    /// Removes it from the folder of a leaf: the run is over.
    pub fn forget(folder: &Path) {
        // It says itself how old it is.
        let _ = std::fs::remove_file(folder.join(FILE));
    }

    /// What the leaves in a folder of runs show, by the names of the runs. One that cannot be read shows nothing.
    fn all(runs: &Path) -> Vec<(String, Self)> {
        let folders = std::fs::read_dir(runs).into_iter().flatten().flatten();
        let mut all: Vec<_> = folders
            .filter_map(|folder| {
                let run = folder.file_name().to_str()?.strip_prefix(PREFIX)?.to_owned();
                let path = folder.path().join(FILE);
                let shown: Self = serde_json::from_slice(&std::fs::read(&path).ok()?).ok()?;
                // The clocks of the two may differ.
                let told = moment(std::fs::metadata(&path).ok()?.modified().ok()?);
                Some((run, Self { told, ..shown }))
            })
            .collect();
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        all
    }
}

/// After this time without a word, in milliseconds, something is in the way: the server that leads tells every second.
const OLD: i64 = 10_000;

/// A run that this server serves with others.
#[derive(Clone, Debug)]
pub struct Together {
    /// The run's name.
    pub run: String,
    /// What is shown of it.
    pub shown: Shown,
}

impl Together {
    /// The runs in this folder that are served with other servers and are not over.
    #[must_use]
    pub fn all(runs: &Path) -> Vec<Self> {
        let goes_on = |run: &str| !RunDirectory::new(runs.join(run)).finished().exists();
        let all = Shown::all(runs).into_iter().filter(|(run, _)| goes_on(run));
        all.map(|(run, shown)| Self { run, shown }).collect()
    }

    /// Those of which something was heard a moment ago, or all if there is none.
    #[must_use]
    pub fn of_now(runs: &Path, now: i64) -> Vec<Self> {
        let mut all = Self::all(runs);
        // What is left of others is not of now.
        if all.iter().any(|together| together.is_new(now)) {
            all.retain(|together| together.is_new(now));
        }
        all
    }

    /// Whether the server that leads was heard a moment ago.
    #[must_use]
    pub fn is_new(&self, now: i64) -> bool {
        now - self.shown.told <= OLD
    }
}

/// What the names of leaves' folders begin with.
const PREFIX: &str = ".leaf-";

/// The folder of this server's part of a run, in the folder of its runs.
#[must_use]
pub fn folder_of(runs: &Path, run: &str) -> PathBuf {
    runs.join(format!("{PREFIX}{run}"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::coordinator::WaitingFor;

    impl Together {
        /// Two servers, which wait for a fourth device.
        pub(crate) fn example() -> Self {
            let status = Status {
                closed: 2,
                rounds: 9,
                failed: 0,
                connected: 3,
                known: 3,
                waiting_for: WaitingFor::Clients { connected: 3, needed: 4 },
                since: Duration::from_secs(1),
                paused: false,
                unconfirmed: false,
                held: false,
                own: None,
                load: None,
            };
            let server = |address: &str, devices| Server { address: address.to_owned(), devices };
            let shown = Shown {
                leads: "a.example:4433".to_owned(),
                told: 1_000_000,
                text: status.to_string(),
                status: status.at(1_000_000),
                servers: vec![server("a.example:4433", 2), server("leaf.example:4433", 1)],
            };
            Self { run: "digits".to_owned(), shown }
        }
    }
}
