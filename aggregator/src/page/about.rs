//! What a page says beside configuration and rounds: written down when a run begins, since another process cannot know it.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use shared::calendar::{moment, utc};
use tracing::warn;

use crate::data;
use crate::report::standing::{Origin, Process};
use crate::run::directory::RunDirectory;
use crate::run::{RunError, disk};
use crate::storage::FileLayer;
use crate::storage::checksum::write_checked;

/// What a page says beside configuration and rounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct About {
    /// Where the run comes from.
    #[serde(flatten)]
    pub origin: Origin,
    /// Each simulated client's name and its number of samples of every class; `None` of devices, which keep that to themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub histograms: Option<Vec<(String, Vec<usize>)>>,
    /// What was left out when samples were read, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

impl About {
    /// What is known when this process begins to work on a run: what was written down by an earlier one, and this machine.
    #[must_use]
    pub fn begin(
        files: &dyn FileLayer,
        directory: &RunDirectory,
        histograms: Option<Vec<(String, Vec<usize>)>>,
        left_out: Vec<String>,
    ) -> Self {
        let mut origin = Self::read(files, directory).map(|about| about.origin).unwrap_or_default();
        if origin.begun.is_empty() {
            origin.begun = utc(moment(SystemTime::now()));
        }
        let this = Process::this();
        if !origin.processes.contains(&this) {
            origin.processes.push(this);
        }
        Self { origin, histograms, left_out }
    }

    /// As it was written down. Of older runs nothing is; what is damaged is reported, and does without.
    #[must_use]
    pub fn read(files: &dyn FileLayer, directory: &RunDirectory) -> Option<Self> {
        super::read_json(files, &directory.about()).unwrap_or_else(|error| {
            warn!("the report does without what is known of the run's origin: {error}");
            None
        })
    }

    /// Writes it down.
    pub fn write(&self, files: &dyn FileLayer, directory: &RunDirectory) -> Result<(), RunError> {
        let path = directory.about();
        let json = serde_json::to_vec(self).expect("names and numbers are JSON");
        write_checked(files, &path, |out| out.write_all(&json)).map_err(disk("write", &path))
    }

    /// Takes the digests of the data that were read, by split.
    pub fn digest(&mut self, data: &[(&str, &shared::data::Dataset)]) {
        self.origin.data =
            data.iter().map(|(split, data)| ((*split).to_owned(), data::digest::of(data))).collect();
    }
}
