//! Client state: what the algorithm keeps between rounds, one directory per run.

use std::path::{Path, PathBuf};

use shared::id::RunId;
use shared::message::{CountedUpdate, TaskId, TrainReport};

use super::durable;
use super::error::StoreError;
use super::file_format::{self, Kind, OpenError, StateHead};
use super::{RUNS_KEPT, Standing};

/// The `runs/` directory.
#[derive(Debug)]
pub(super) struct ClientStates {
    directory: PathBuf,
}

impl ClientStates {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Reads the client state of a run.
    pub(super) fn read(&self, run: RunId) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(read_state(&self.path(run), run)?.map(|found| found.state))
    }

    /// Which client state of a run is committed.
    pub(super) fn standing(&self, run: RunId) -> Result<Standing, StoreError> {
        Ok(match read_state(&self.path(run), run)? {
            None => Standing::Absent,
            Some(StoredState { after: None, .. }) => Standing::Unknown,
            Some(StoredState { after: Some(update), .. }) => Standing::After(update),
        })
    }

    /// Moves a run's client state here from `file`, durably, and removes the oldest runs beyond the limit.
    pub(super) fn adopt(&self, run: RunId, file: &Path) -> Result<(), StoreError> {
        let path = self.path(run);
        let of_run = durable::parent(&path);
        let new = !durable::exists(of_run)?;
        durable::create_dir(of_run)?;
        // The file replaces a durable one, so it must be durable first.
        durable::sync_file(file)?;
        durable::rename(file, &path)?;
        durable::sync_dir(of_run)?;
        if new {
            durable::sync_dir(&self.directory)?;
            durable::sync_dir(durable::parent(&self.directory))?;
            self.remove_oldest(run)?;
        }
        Ok(())
    }

    fn path(&self, run: RunId) -> PathBuf {
        self.directory.join(run.to_string()).join("local")
    }

    /// Keeps `current` and the runs written last, [`RUNS_KEPT`] in all. Entries that are not named like a run are not touched. A
    /// clock that jumps can make the choice among the others wrong, but never removes `current`.
    pub(super) fn remove_oldest(&self, current: RunId) -> Result<(), StoreError> {
        let run_of = |path: &Path| path.file_name()?.to_str()?.parse().ok();
        // A run may have the one, or the other, or both.
        let written = |run| {
            let local = self.path(run);
            if local.exists() { local } else { masking_of(&self.directory, run) }
        };
        let mut others = durable::runs_by_age(&self.directory, run_of, written)?;
        others.retain(|&(_, run)| run != current);
        for (_, run) in others.into_iter().skip(RUNS_KEPT - 1) {
            tracing::info!(%run, "removing the state of a run that was not used for long");
            durable::remove_dir(&self.directory.join(run.to_string()))?;
        }
        Ok(())
    }
}

/// Where the state of secure aggregation of a run lies, beside its client state.
pub(super) fn masking_of(runs: &Path, run: RunId) -> PathBuf {
    runs.join(run.to_string()).join("masking")
}

/// Writes client state to a file, with the update that it stands after; not synced.
///
/// # Errors
/// [`StoreError::Io`] if the disk fails.
pub fn write_state(path: &Path, id: TaskId, report: &TrainReport, state: &[u8]) -> Result<(), StoreError> {
    let after = Some(CountedUpdate::of(id.round, report));
    file_format::write(path, Kind::Local, &StateHead { run: id.run, after }, state)
}

/// Client state in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredState {
    /// The update that it stands after. Files of earlier programs do not say.
    pub after: Option<CountedUpdate>,
    /// The algorithm's own bytes.
    pub state: Vec<u8>,
}

/// Reads client state of `run` from a file; `None` if there is none.
///
/// # Errors
/// [`StoreError::Damaged`] if it is not as it was written, or of another run.
pub fn read_state(path: &Path, run: RunId) -> Result<Option<StoredState>, StoreError> {
    // Starting afresh changes what is learned.
    let remedy = "remove it to start afresh in this run, or restore it from a backup";
    let damaged = |problem| StoreError::Damaged { path: path.to_path_buf(), problem, remedy };
    match file_format::read::<StateHead>(path, Kind::Local) {
        Ok(None) => Ok(None),
        Ok(Some((found, local))) if found.run == run => {
            Ok(Some(StoredState { after: found.after, state: local.into() }))
        }
        Ok(Some((found, _))) => Err(damaged(format!("it is of run {}", found.run))),
        Err(OpenError::Damaged(problem)) => Err(damaged(format!("it {problem}"))),
        Err(OpenError::Store(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, SystemTime};

    use super::*;

    fn run(number: u8) -> RunId {
        RunId::from_bytes([number; 8])
    }

    fn adopt(locals: &ClientStates, folder: &Path, run: RunId, content: &[u8]) {
        let file = folder.join("local");
        write_state(&file, TaskId { run, round: 3 }, &TrainReport::default(), content).unwrap();
        locals.adopt(run, &file).unwrap();
    }

    #[test]
    fn the_runs_written_last_are_kept_and_nothing_else_is_touched() {
        let folder = tempfile::tempdir().unwrap();
        let locals = ClientStates::new(folder.path().join("runs"));
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let foreign = folder.path().join("runs/notes");
        std::fs::create_dir_all(&foreign).unwrap();
        let runs = RUNS_KEPT as u8 + 2;
        for number in 0..runs {
            adopt(&locals, folder.path(), run(number), &[number]);
            // Written in an order that is not that of the names: the highest number is the oldest.
            let file = fs::File::options().write(true).open(locals.path(run(number))).unwrap();
            file.set_modified(start - Duration::from_secs(number.into())).unwrap();
        }
        // The newest comes in last although it is the oldest by the clock; of the others, the old ones go.
        for number in 0..runs {
            let kept = usize::from(number) < RUNS_KEPT - 1 || number == runs - 1;
            let expected = kept.then(|| vec![number]);
            assert_eq!(locals.read(run(number)).unwrap(), expected, "{number}");
        }
        assert!(foreign.is_dir());
    }

    #[test]
    fn damage_and_another_runs_state_are_errors_that_name_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let locals = ClientStates::new(folder.path().join("runs"));
        adopt(&locals, folder.path(), run(1), b"state");
        assert_eq!(locals.read(run(2)).unwrap(), None);
        std::fs::create_dir(folder.path().join("runs").join(run(2).to_string())).unwrap();
        std::fs::copy(locals.path(run(1)), locals.path(run(2))).unwrap();
        std::fs::write(locals.path(run(1)), b"FLL").unwrap();
        for number in [1, 2] {
            match locals.read(run(number)) {
                Err(StoreError::Damaged { path, .. }) => assert_eq!(path, locals.path(run(number))),
                other => panic!("{other:?}"),
            }
        }
    }
}
