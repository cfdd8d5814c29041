//! `state/run.json`: which run a directory holds.

use serde::{Deserialize, Serialize};
use shared::id::RunId;

use super::directory::RunDirectory;
use super::error::{damaged, disk};
use super::{Run, RunError};
use crate::config::{Config, Raw};
use crate::storage::checksum::{read_checked, write_checked};
use crate::storage::{FileLayer, write_durably};

/// Which run a directory holds. It is written last when a run begins, so its presence makes the directory a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunManifest {
    /// The run's identity.
    pub run: RunId,
    /// The version of the aggregator that began the run.
    #[serde(default)]
    version: String,
    /// The effective configuration of the run: that which it began with, or goes on under since. `config.toml` is a copy for people; runs of earlier versions have nothing
    /// else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    config: Option<String>,
}

impl RunManifest {
    /// The manifest of a run that begins now.
    pub(super) fn new(run: &Run) -> Self {
        let config = Some(run.config.effective.to_toml());
        Self { run: run.config.spec.run, version: env!("CARGO_PKG_VERSION").to_owned(), config }
    }

    /// The manifest of the same run under another configuration.
    pub(super) fn with(self, config: &Config) -> Self {
        Self { config: Some(config.effective.to_toml()), ..self }
    }

    pub(super) fn write(&self, files: &dyn FileLayer, directory: &RunDirectory) -> Result<(), RunError> {
        let path = directory.identity();
        let json = serde_json::to_vec(self).expect("texts are JSON");
        write_checked(files, &path, |out| out.write_all(&json)).map_err(disk("write", &path))
    }

    /// The manifest in a directory; `None` if it holds no run.
    pub fn read(files: &dyn FileLayer, directory: &RunDirectory) -> Result<Option<Self>, RunError> {
        let path = directory.identity();
        // A file may stand in place of a folder above it.
        if files.length(&path).map_err(disk("look at", &path))?.is_none() {
            return Ok(None);
        }
        let Some(json) = read_checked(files, &path).map_err(disk("read", &path))? else { return Ok(None) };
        serde_json::from_slice(&json).map(Some).map_err(damaged(&path))
    }

    /// Whether the run was begun by a version that noted no configuration here.
    #[must_use]
    pub fn is_of_earlier_version(&self) -> bool {
        self.config.is_none()
    }

    /// The configuration that the run began with.
    pub fn config(&self, directory: &RunDirectory) -> Result<Raw, RunError> {
        let path = directory.config();
        let read = match &self.config {
            Some(text) => Raw::of_text(text, &path),
            None => Raw::layered(Some(&path), &[]),
        };
        read.map_err(damaged(&path))
    }
}

impl Run {
    /// Writes `config.toml` again if it does not say what the run began with.
    pub fn restore_config(&mut self, manifest: &RunManifest) -> Result<(), RunError> {
        let path = self.directory.config();
        let Some(text) = &manifest.config else { return Ok(()) };
        let as_begun = manifest.config(&self.directory)?;
        // Where the data lie may change.
        let same = |found: Raw| found.without_local_paths() == as_begun.without_local_paths();
        if Raw::layered(Some(&path), &[]).is_ok_and(same) {
            return Ok(());
        }
        write_durably(&*self.files, &path, |out| out.write_all(text.as_bytes()))
            .map_err(disk("write", &path))?;
        self.warnings.push(format!(
            "{} did not say any more what the run began with, and is written again: a run keeps its configuration",
            path.display()
        ));
        Ok(())
    }
}
