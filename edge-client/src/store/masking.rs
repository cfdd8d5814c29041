//! The state of secure aggregation: the secret of a run's newest exchange of keys, and what it was used for.
//!
//! It lies beside the client state of its run, and is removed with it. What is damaged is of no use: without the secret, what was given
//! away of it cannot be given a second time, and the next exchange has a new one.

use std::path::PathBuf;

use shared::id::RunId;

use super::client_state::{ClientStates, masking_of};
use super::durable;
use super::error::StoreError;
use super::file_format::{self, Kind, OpenError};

/// The state of each run, in the `runs/` directory.
#[derive(Debug)]
pub(super) struct MaskingStates {
    runs: PathBuf,
}

impl MaskingStates {
    pub(super) fn new(runs: PathBuf) -> Self {
        Self { runs }
    }

    /// Reads the state of a run; `None` if there is none, or it is damaged.
    pub(super) fn read(&self, run: RunId) -> Result<Option<Vec<u8>>, StoreError> {
        let path = masking_of(&self.runs, run);
        let problem = match file_format::read::<RunId>(&path, Kind::Masking) {
            Ok(None) => return Ok(None),
            Ok(Some((found, state))) if found == run => return Ok(Some(state.into())),
            Ok(Some((found, _))) => format!("is of run {found}"),
            Err(OpenError::Damaged(problem)) => problem,
            Err(OpenError::Store(error)) => return Err(error),
        };
        let path = path.display();
        tracing::warn!("{path} is damaged: it {problem}; the next exchange of keys begins afresh");
        Ok(None)
    }

    /// Replaces the state of a run, durably.
    pub(super) fn replace(&self, run: RunId, state: &[u8]) -> Result<(), StoreError> {
        let path = masking_of(&self.runs, run);
        let of_run = durable::parent(&path);
        if !durable::exists(of_run)? {
            durable::create_dir_durably(of_run)?;
            ClientStates::new(self.runs.clone()).remove_oldest(run)?;
        }
        let partial = durable::partial(&path);
        let finished = file_format::write(&partial, Kind::Masking, &run, state)
            .and_then(|()| durable::sync_file(&partial))
            .and_then(|()| durable::rename(&partial, &path));
        durable::finished_or_removed(&partial, finished)?;
        durable::sync_dir(of_run)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::store::RUNS_KEPT;
    use crate::store::durable::tests::SYNCED;

    fn run(number: u8) -> RunId {
        RunId::from_bytes([number; 8])
    }

    #[test]
    fn a_state_is_durable_once_it_is_replaced_and_belongs_to_its_run() {
        let folder = tempfile::tempdir().unwrap();
        let runs = folder.path().join("runs");
        let states = MaskingStates::new(runs.clone());
        assert_eq!(states.read(run(1)).unwrap(), None);
        states.replace(run(1), b"first").unwrap();
        SYNCED.take();
        states.replace(run(1), b"second").unwrap();
        let of_run = runs.join(run(1).to_string());
        assert_eq!(SYNCED.take(), [of_run.join("masking.partial"), of_run.clone()]);
        assert_eq!(states.read(run(1)).unwrap().as_deref(), Some(&b"second"[..]));
        assert_eq!(fs::read_dir(&of_run).unwrap().count(), 1);
        // A copy of another run's is none of this run's.
        fs::create_dir(runs.join(run(2).to_string())).unwrap();
        fs::copy(of_run.join("masking"), masking_of(&runs, run(2))).unwrap();
        assert_eq!(states.read(run(2)).unwrap(), None);
    }

    #[test]
    fn a_state_that_cannot_be_finished_takes_no_room() {
        let folder = tempfile::tempdir().unwrap();
        let states = MaskingStates::new(folder.path().to_path_buf());
        // Its place is taken by a directory: it is written, and cannot be renamed.
        let path = masking_of(folder.path(), run(1));
        fs::create_dir_all(&path).unwrap();
        states.replace(run(1), b"a secret").unwrap_err();
        assert_eq!(durable::entries(durable::parent(&path)).unwrap(), [path]);
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let states = MaskingStates::new(folder.path().to_path_buf());
        states.replace(run(1), b"a secret").unwrap();
        let path = masking_of(folder.path(), run(1));
        let sound = fs::read(&path).unwrap();
        for bit in 0..8 * sound.len() {
            let mut damaged = sound.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, damaged).unwrap();
            let read = states.read(run(1));
            // Another version may be a newer program's.
            let newer = bit / 8 == 3 && matches!(read, Err(StoreError::Newer { .. }));
            assert!(newer || matches!(read, Ok(None)), "bit {bit}");
        }
        fs::write(&path, sound).unwrap();
        assert_eq!(states.read(run(1)).unwrap().as_deref(), Some(&b"a secret"[..]));
    }

    #[test]
    fn the_runs_used_last_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let states = MaskingStates::new(folder.path().to_path_buf());
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let runs = RUNS_KEPT as u8 + 2;
        for number in 0..runs {
            states.replace(run(number), &[number]).unwrap();
            let file = fs::File::options().write(true).open(masking_of(folder.path(), run(number))).unwrap();
            file.set_modified(start + Duration::from_secs(number.into())).unwrap();
        }
        let kept: Vec<bool> = (0..runs).map(|number| states.read(run(number)).unwrap().is_some()).collect();
        assert_eq!(kept, [vec![false; 2], vec![true; RUNS_KEPT]].concat());
    }
}
