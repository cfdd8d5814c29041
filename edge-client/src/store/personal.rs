//! Personal models, one file per run.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use models::Limits;
use shared::id::RunId;
use shared::personalisation::{Personal, PersonalError};

use super::RUNS_KEPT;
use super::durable;
use super::error::StoreError;

/// The suffix of the files.
const SUFFIX: &str = "safetensors";

/// The `personal/` directory.
///
/// Files are replaced whole, so they may be read while another process of this device takes part in a run.
#[derive(Clone, Debug)]
pub struct PersonalModels {
    directory: PathBuf,
}

impl PersonalModels {
    /// Those in a state directory, which may be absent.
    #[must_use]
    pub fn of(state: &Path) -> Self {
        Self { directory: state.join("personal") }
    }

    /// The file of a run's model.
    #[must_use]
    pub fn path(&self, run: RunId) -> PathBuf {
        self.directory.join(format!("{run}.{SUFFIX}"))
    }

    /// Saves the bytes of a personal model durably, replaces an earlier one of the same run, and removes the oldest runs beyond
    /// the limit.
    ///
    /// # Errors
    /// [`StoreError`] if the disk fails; the earlier model is then kept.
    pub fn save(&self, run: RunId, bytes: &[u8]) -> Result<(), StoreError> {
        let path = self.path(run);
        let new = !durable::exists(&path)?;
        let mut others = self.by_age()?;
        others.retain(|&(_, of)| of != run);
        durable::create_dir(&self.directory)?;
        durable::replace_after(&path, bytes, others.first().map(|&(newest, _)| newest))?;
        if new {
            durable::sync_dir(durable::parent(&self.directory))?;
            for (_, old) in others.into_iter().skip(RUNS_KEPT - 1) {
                tracing::info!(run = %old, "removing the personal model of a run that was not used for long");
                durable::remove_file(&self.path(old))?;
            }
        }
        Ok(())
    }

    /// The model of a run or, without `run`, the model written last, even on a device whose clock was set back.
    ///
    /// # Errors
    /// [`StoreError`] if there is none, or it cannot be read or is damaged.
    pub fn open(&self, run: Option<RunId>) -> Result<Personal, StoreError> {
        let none = || StoreError::NoPersonal { directory: self.directory.clone() };
        let run = match run {
            Some(run) => run,
            None => self.by_age()?.first().map(|&(_, run)| run).ok_or_else(none)?,
        };
        let path = self.path(run);
        if !durable::exists(&path)? {
            return Err(none());
        }
        let length = fs::metadata(&path).map_err(StoreError::io("read", &path))?.len();
        let damaged =
            |problem: PersonalError| StoreError::Personal { path: path.clone(), problem: Box::new(problem) };
        if length > Limits::default().max_bytes {
            return Err(damaged(PersonalError::NotPersonal));
        }
        let bytes = fs::read(&path).map_err(StoreError::io("read", &path))?;
        Personal::from_bytes(&bytes).map_err(damaged)
    }

    /// The run whose model was written last.
    #[must_use]
    pub fn latest(&self) -> Option<RunId> {
        self.by_age().ok()?.first().map(|&(_, run)| run)
    }

    /// The runs with a model, the last written first.
    fn by_age(&self) -> Result<Vec<(SystemTime, RunId)>, StoreError> {
        if !durable::exists(&self.directory)? {
            return Ok(Vec::new());
        }
        let is_model = |path: &&Path| path.extension().is_some_and(|suffix| suffix == SUFFIX);
        let run_of = |path: &Path| Some(path).filter(is_model)?.file_stem()?.to_str()?.parse().ok();
        durable::runs_by_age(&self.directory, run_of, |run| self.path(run))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use shared::personalisation::Method;

    use super::*;

    fn run(number: u8) -> RunId {
        RunId::from_bytes([number; 8])
    }

    fn of(number: u8) -> Personal {
        Personal { run: run(number), round: number.into(), ..Personal::example(Method::Mfe) }
    }

    fn age(models: &PersonalModels, number: u8, seconds: u64) {
        let file = fs::File::options().write(true).open(models.path(run(number))).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 - seconds)).unwrap();
    }

    #[test]
    fn the_model_written_last_is_the_one_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let models = PersonalModels::of(&folder.path().join("state"));
        assert!(matches!(models.open(None), Err(StoreError::NoPersonal { .. })));
        for (number, seconds) in [(1, 20), (2, 5), (3, 10)] {
            models.save(run(number), &of(number).to_bytes()).unwrap();
            age(&models, number, seconds);
        }
        assert_eq!(models.open(None).unwrap(), of(2));
        assert_eq!(models.open(Some(run(1))).unwrap(), of(1));
        assert!(matches!(models.open(Some(run(9))), Err(StoreError::NoPersonal { .. })));
        // In its place, and nothing beside it.
        models.save(run(1), &Personal { round: 8, ..of(1) }.to_bytes()).unwrap();
        assert_eq!(models.open(None).unwrap().round, 8);
        assert_eq!(fs::read_dir(&models.directory).unwrap().count(), 3);
    }

    #[test]
    fn the_order_is_that_of_writing_on_a_device_whose_clock_has_gone_back() {
        let folder = tempfile::tempdir().unwrap();
        let models = PersonalModels::of(folder.path());
        models.save(run(1), &of(1).to_bytes()).unwrap();
        // What was written so far was written by a clock that was ahead.
        let ahead = SystemTime::now() + Duration::from_secs(1_000_000);
        let file = fs::File::options().write(true).open(models.path(run(1))).unwrap();
        file.set_modified(ahead).unwrap();
        for number in [3, 2, 1, 3] {
            models.save(run(number), &of(number).to_bytes()).unwrap();
            assert_eq!(models.open(None).unwrap(), of(number));
        }
        assert!(
            models.by_age().unwrap().iter().all(|&(written, _)| written < ahead + Duration::from_mins(1))
        );
    }

    #[test]
    fn the_runs_written_last_are_kept_and_nothing_else_is_touched() {
        let folder = tempfile::tempdir().unwrap();
        let models = PersonalModels::of(folder.path());
        models.save(run(0), b"not looked at").unwrap();
        fs::write(models.directory.join("notes"), "mine").unwrap();
        for number in 1..=RUNS_KEPT as u8 {
            age(&models, number - 1, 100 - u64::from(number));
            models.save(run(number), &of(number).to_bytes()).unwrap();
        }
        assert!(!models.path(run(0)).exists() && models.path(run(1)).exists());
        assert!(models.directory.join("notes").exists());
    }

    #[test]
    fn damage_names_the_file_and_the_way_out() {
        let folder = tempfile::tempdir().unwrap();
        let models = PersonalModels::of(folder.path());
        let bytes = of(1).to_bytes();
        models.save(run(1), &bytes[..bytes.len() - 3]).unwrap();
        let error = models.open(None).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, StoreError::Personal { path, .. } if path == models.path(run(1))));
        assert!(text.contains("restore it from a backup"), "{text}");
        assert_eq!(fs::read(models.path(run(1))).unwrap().len(), bytes.len() - 3, "it is left as it is");
    }
}
