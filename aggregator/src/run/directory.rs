//! What lies where in a run's directory, and which directory a run gets.
//!
//! ```text
//! runs/NAME/
//!     config.toml              the effective configuration
//!     rounds.jsonl             one line per closed round
//!     model.safetensors        the global model, when the run ends or is stopped
//!     best.safetensors         the best of those that were tested, if that is not the last
//!     ensemble.safetensors     in its place where the clients' models stay side by side; as of the last closed round
//!     model/                   the global model as a folder of the Hugging Face hub: card, description, ONNX
//!     report.html              the same for people, from the first round on
//!     state/
//!         run.json             the run's identity and configuration; written last, so its presence makes the directory a run
//!         rounds.jsonl         a copy of its lines, where no database has the rounds
//!         finished             the run is complete, and its model and report are written
//!         pruned               what continues the run was removed: it stays as it is
//!         paused               the operator wants no new round to be opened
//!         about.json           machines, data and clients, for the report
//!         devices.json         what the devices of a served run have done by the last page
//!         by-class.json        confusion and calibration of the last and the best model, once the run is complete
//!         ended.json           how the last process has left the run: complete, stopped or failed, and why
//!         checkpoint-000007.safetensors    the server's state after round 7; the newest one counts, and the one behind
//!                              the best model stays
//!         frozen-SHA256.safetensors        the parameters that are not learned, named by their digest
//!         round-000008.json    round 8 was opened: its cohort, and the clients known then; later how it closes
//!         roster.json          the clients known by now, if that has changed since the newest round was opened
//!         accepted-000008/CLIENT.update    accepted updates of round 8, as they came
//!         broadcast-000008.safetensors     what round 8 is sent; made again when absent
//!         base-000008.safetensors          in its place where models travel as differences: what the devices of round 8 have
//!         difference-000008.safetensors    what leads there from the base of round 7
//!         served               locked by the process that serves the run, so that others can tell
//!         clients/             what simulated clients keep from round to round
//!         tester/              what the operator's own program is given to test
//!         spool/               payloads under way; after a restart the beginnings of devices' updates go on
//! ```
//!
//! What is read back from `state/` has a [checksum](crate::storage::checksum), or is named by one; so has every line of `rounds.jsonl`.

use std::path::{Path, PathBuf};

use shared::id::ClientId;

use crate::storage::FileLayer;

/// Paths of one run.
#[derive(Clone, Debug)]
pub struct RunDirectory {
    root: PathBuf,
}

/// The paths of what a run has one of.
macro_rules! single {
    ($($(#[$documentation:meta])* $method:ident = $name:literal;)*) => {
        $(
            $(#[$documentation])*
            #[must_use]
            pub fn $method(&self) -> PathBuf {
                self.root.join($name)
            }
        )*
    };
}

impl RunDirectory {
    single! {
        /// The effective configuration.
        config = "config.toml";
        /// One line per closed round.
        rounds = "rounds.jsonl";
        /// A copy of its lines, where no database has the rounds.
        rounds_copy = "state/rounds.jsonl";
        /// The global model.
        model = "model.safetensors";
        /// The best global model, if that is not the last.
        best = "best.safetensors";
        /// The clients' models side by side.
        ensemble = "ensemble.safetensors";
        /// The global model as a folder of the Hugging Face hub.
        folder_of_hub = "model";
        /// The report for people.
        report = "report.html";
        /// What is needed to continue.
        state = "state";
        /// The run's identity and configuration.
        identity = "state/run.json";
        /// There once the model and the report of the completed run are written.
        finished = "state/finished";
        /// There once a run that is over was stripped of what continues it.
        pruned = "state/pruned";
        /// There while the operator wants no new round.
        paused = "state/paused";
        /// Machines, data and clients, for the report.
        about = "state/about.json";
        /// What the devices of a served run have done, for the report.
        devices = "state/devices.json";
        /// Confusion and calibration of the last and the best model, for the report.
        by_class = "state/by-class.json";
        /// How the last process has left the run.
        ending = "state/ended.json";
        /// What noise and cohorts of a private run are drawn from.
        secret = "state/secret";
        /// Held by the process that works on the run.
        lock = "state/lock";
        /// Locked by the process that serves the run.
        presence = "state/served";
        /// What simulated clients keep from round to round.
        clients = "state/clients";
        /// The files of the program that tests models (`evaluate.command`).
        tester = "state/tester";
        /// Payloads under way.
        spool = "state/spool";
        /// Who is known by now, if that has changed since the newest round was opened.
        roster = "state/roster.json";
    }

    /// The directory at `root`.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The directory itself.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Its name for people, without the directories above it.
    #[must_use]
    pub fn name(&self) -> std::borrow::Cow<'_, str> {
        self.root.file_name().unwrap_or(self.root.as_os_str()).to_string_lossy()
    }

    /// The server's state after `round`.
    #[must_use]
    pub fn checkpoint(&self, round: u32) -> PathBuf {
        self.state().join(format!("checkpoint-{round:06}.safetensors"))
    }

    /// The frozen parameters of this digest.
    #[must_use]
    pub fn frozen(&self, digest: &str) -> PathBuf {
        self.state().join(format!("frozen-{digest}.safetensors"))
    }

    /// The opening of `round`.
    #[must_use]
    pub fn opening(&self, round: u32) -> PathBuf {
        self.state().join(format!("round-{round:06}.json"))
    }

    /// What the cohort of `round` is sent.
    #[must_use]
    pub fn broadcast(&self, round: u32) -> PathBuf {
        self.state().join(format!("broadcast-{round:06}.safetensors"))
    }

    /// What devices have of the model of `round`, where models travel as differences.
    #[must_use]
    pub fn base(&self, round: u32) -> PathBuf {
        self.state().join(format!("base-{round:06}.safetensors"))
    }

    /// What leads there from the base of the round before.
    #[must_use]
    pub fn difference(&self, round: u32) -> PathBuf {
        self.state().join(format!("difference-{round:06}.safetensors"))
    }

    /// Accepted updates of `round`.
    #[must_use]
    pub fn accepted(&self, round: u32) -> PathBuf {
        self.state().join(format!("accepted-{round:06}"))
    }

    /// The accepted update of `client` in `round`.
    #[must_use]
    pub fn accepted_update(&self, round: u32, client: ClientId) -> PathBuf {
        self.accepted(round).join(format!("{client}.update"))
    }
}

/// The round in a file name such as `checkpoint-000007.safetensors`.
#[must_use]
pub fn round_in(name: &str, prefix: &str, suffix: &str) -> Option<u32> {
    name.strip_prefix(prefix)?.strip_suffix(suffix)?.parse().ok()
}

/// The digest in the name of the file with the frozen parameters.
#[must_use]
pub fn frozen_in(name: &str) -> Option<&str> {
    name.strip_prefix("frozen-")?.strip_suffix(".safetensors")
}

/// The client in a file name such as `0123456789abcdef0123456789abcdef.update`.
#[must_use]
pub fn client_in(name: &str) -> Option<ClientId> {
    name.strip_suffix(".update")?.parse().ok()
}

/// The name in the spool of a device's upload; `number` tells those of one device apart.
#[must_use]
pub fn upload_of(client: ClientId, number: &str) -> String {
    format!("{client}-{number}.upload")
}

/// The device in such a name.
#[must_use]
pub fn uploader_in(name: &str) -> Option<ClientId> {
    name.strip_suffix(".upload")?.split_once('-')?.0.parse().ok()
}

/// The newest checkpoint's round, if there is a checkpoint.
#[must_use]
pub fn newest_checkpoint(files: &dyn FileLayer, directory: &RunDirectory) -> Option<u32> {
    let names = files.list(&directory.state()).ok()?;
    names.iter().filter_map(|name| round_in(name, "checkpoint-", ".safetensors")).max()
}

/// Whether a round of a run was opened here.
#[must_use]
pub fn has_rounds(files: &dyn FileLayer, directory: &RunDirectory) -> bool {
    let names = files.list(&directory.state()).unwrap_or_default();
    names.iter().any(|name| round_in(name, "round-", ".json").is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_and_clients_are_read_back_from_names() {
        let directory = RunDirectory::new("runs/x");
        let name = |path: PathBuf| path.file_name().expect("a file").to_string_lossy().into_owned();
        assert_eq!(round_in(&name(directory.checkpoint(7)), "checkpoint-", ".safetensors"), Some(7));
        assert_eq!(round_in(&name(directory.opening(1_234_567)), "round-", ".json"), Some(1_234_567));
        assert_eq!(round_in("checkpoint-000007.safetensors.partial", "checkpoint-", ".safetensors"), None);
        let client: ClientId = "0123456789abcdef0123456789abcdef".parse().expect("32 digits");
        assert_eq!(client_in(&name(directory.accepted_update(3, client))), Some(client));
        assert_eq!(client_in("lost+found"), None);
    }
}
