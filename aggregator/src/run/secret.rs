//! The secret of a private run: what its noise and its cohorts are drawn from.
//!
//! It lies in `state/secret`, for its owner alone, and is nowhere else: not in the configuration, a record, a report, a broadcast, or
//! what a run is packed into. If it is lost, another is drawn: noise hides a sum with either
//! ([`shared::aggregation::Private`]).

use std::path::Path;

use shared::secret::Secret;

use super::directory::RunDirectory;
use super::error::{damaged, disk};
use super::{Run, RunError};
use crate::storage::retry_full::retry_while_full;
use crate::storage::{FileLayer, parent, partial, read_if_there};

/// Bytes of it.
const BYTES: usize = 32;

/// Reads the secret of the run, or draws it and makes it durable.
pub(super) fn secret(files: &dyn FileLayer, directory: &RunDirectory) -> Result<Secret, RunError> {
    let path = directory.secret();
    if let Some(bytes) = read_if_there(files, &path).map_err(disk("read", &path))? {
        let found = <[u8; BYTES]>::try_from(bytes.as_slice());
        let found = found.map_err(|_| format!("it has {} bytes and not {BYTES}", bytes.len()));
        return Ok(Secret::new(&found.map_err(damaged(&path))?));
    }
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(RunError::Random)?;
    write(files, &path, &bytes)?;
    Ok(Secret::new(&bytes))
}

fn write(files: &dyn FileLayer, path: &Path, bytes: &[u8]) -> Result<(), RunError> {
    let state = parent(path);
    files.create_dir(state).map_err(disk("create", state))?;
    let partial = partial(path);
    retry_while_full(files, path, || {
        let mut file = files.create_private(&partial)?;
        file.write_all(bytes)?;
        file.sync()
    })
    .map_err(disk("write", path))?;
    files.rename(&partial, path).map_err(disk("rename", path))?;
    files.sync_dir(state).map_err(disk("sync", state))
}

impl Run {
    /// How the run's sums are made private, if they are.
    pub(super) fn private(&self) -> Option<shared::aggregation::Private<'_>> {
        private(&self.config, self.secret.as_ref())
    }

    /// What the finished rounds promise, with what that rests on, if the run is private.
    #[must_use]
    pub fn privacy(&self) -> Option<String> {
        self.config.privacy_after(self.last_trained().saturating_sub(self.failed), self.simulated)
    }

    /// The same of all rounds that are planned.
    #[must_use]
    pub fn planned_privacy(&self) -> Option<String> {
        let rounds = self.config.spec.rounds;
        let said = self.config.privacy_after(rounds, self.simulated)?;
        let asked = self.config.effective.run.rounds.unwrap_or(rounds);
        let budget = self.config.promise?.budget.filter(|_| self.spent());
        let budget =
            budget.map(|budget| format!("; the budget of {budget} allows {rounds} of {asked} rounds"));
        Some(said + &budget.unwrap_or_default())
    }

    /// Whether the budget has cut the run short.
    #[must_use]
    pub fn spent(&self) -> bool {
        self.config.effective.run.rounds.is_some_and(|asked| asked > self.config.spec.rounds)
    }

    /// epsilon after the `round` that is being closed, if the run is private.
    pub(super) fn epsilon_after(&self, round: u32, void: bool) -> Option<f64> {
        let promise = self.config.promise.as_ref()?;
        Some(promise.epsilon(round.saturating_sub(self.failed + u32::from(void))))
    }
}

/// The same of the parts of a run.
pub(super) fn private<'a>(
    config: &crate::config::Config,
    secret: Option<&'a Secret>,
) -> Option<shared::aggregation::Private<'a>> {
    let mechanism = config.promise.as_ref()?.mechanism;
    Some(shared::aggregation::Private { mechanism, secret: secret? })
}
