//! The event file in a run's folder.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use shared::calendar::{moment, moment_in};
use toml::Value;

use super::event_file::EventFile;
use super::summary::{of_round, of_settings};
use crate::config::{Changed, Config};
use crate::events::{Notice, Sink};
use crate::round::RoundRecord;
use crate::run::directory::RunDirectory;

/// How the names of event files begin.
const PREFIX: &str = "events.out.tfevents.";

/// Writes the rounds of a run for TensorBoard, into `RUN/tensorboard`.
#[derive(Debug)]
pub struct TensorBoard {
    path: PathBuf,
    file: EventFile<File>,
    failed: bool,
}

impl TensorBoard {
    /// Writes the settings and the closed rounds of the run in `directory`, in place of event files that are there; rounds that
    /// are closed later are added by [`Sink::receive`].
    ///
    /// # Errors
    /// The path, and what the system says.
    pub fn begin(
        directory: &RunDirectory,
        config: &Config,
        rounds: &[RoundRecord],
    ) -> Result<Self, (PathBuf, io::Error)> {
        let folder = directory.root().join("tensorboard");
        let failed = |error| (folder.clone(), error);
        fs::create_dir_all(&folder).map_err(failed)?;
        let began = rounds.first().and_then(closed_at).unwrap_or_else(now);
        // TensorBoard reads the files of a folder in the order of their names.
        let path = folder.join(format!("{PREFIX}{:010}.{}", began as u64, config.spec.run));
        let written = write(&path, config, rounds, began).and_then(|file| {
            remove_others(&folder, &path)?;
            Ok(file)
        });
        let file = written.map_err(|error| (path.clone(), error))?;
        Ok(Self { path, file, failed: false })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Sink for TensorBoard {
    fn receive(&mut self, notice: &Notice<'_>) {
        let Notice::Round(record) = notice else { return };
        let written = self.file.add(closed_at(record).unwrap_or_else(now), record.round, &of_round(record));
        if let Err(error) = &written
            && !self.failed
        {
            tracing::warn!("rounds cannot be written to {}: {error}", self.path.display());
        }
        self.failed = written.is_err();
    }
}

fn write(path: &Path, config: &Config, rounds: &[RoundRecord], began: f64) -> io::Result<EventFile<File>> {
    let mut file = EventFile::begin(File::create(path)?, began)?;
    file.add(began, 0, &of_settings(&settings(config), &config.spec.name, began))?;
    for record in rounds {
        file.add(closed_at(record).unwrap_or(began), record.round, &of_round(record))?;
    }
    file.flush()?;
    Ok(file)
}

/// What tells this run from others: the algorithm, and all that is not the default.
fn settings(config: &Config) -> Vec<(String, Value)> {
    let algorithm = ("algorithm".to_owned(), Value::String(config.spec.algorithm.name.clone()));
    let changed = Changed::of(&config.effective).into_iter().map(|changed| (changed.key, changed.value));
    std::iter::once(algorithm).chain(changed).collect()
}

/// Removes event files of earlier writers: their rounds are in this one.
fn remove_others(folder: &Path, kept: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let is_ours = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX));
        if is_ours && path != kept {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// When a round was closed, seconds since 1970.
fn closed_at(record: &RoundRecord) -> Option<f64> {
    Some(moment_in(record.closed.as_deref()?)? as f64 / 1e3)
}

fn now() -> f64 {
    moment(SystemTime::now()) as f64 / 1e3
}
