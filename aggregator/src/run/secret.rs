//! The secret of a private run: what its noise and its cohorts are drawn from.
//!
//! It lies in `state/secret`, for its owner alone, and is nowhere else: not in the configuration, a record, a report, a broadcast, or
//! what a run is packed into.

use shared::aggregation::Private;
use shared::id::ClientId;
use shared::secret::Secret;
use shared::seed::Seed;

use super::directory::RunDirectory;
use super::error::{damaged, disk};
use super::{Run, RunError};
use crate::config::Config;
use crate::privacy::Promise;
use crate::storage::retry_full::retry_while_full;
use crate::storage::{FileLayer, parent, read_if_there, write_privately};

/// Bytes of it.
const BYTES: usize = 32;

/// The secret of the run: read, or drawn and made durable if the run begins. Where the configuration asks for it, in a simulation, it
/// comes from the run's seed.
pub(super) fn of(
    config: &Config,
    files: &dyn FileLayer,
    directory: &RunDirectory,
) -> Result<Secret, RunError> {
    if config.effective.simulation.reproducible_noise {
        return Ok(Secret::new(Seed::root(config.spec.seed).derive("privacy").as_bytes()));
    }
    let path = directory.secret();
    if let Some(bytes) = read_if_there(files, &path).map_err(disk("read", &path))? {
        let found = <[u8; BYTES]>::try_from(bytes.as_slice());
        let found = found.map_err(|_| format!("it has {} bytes and not {BYTES}", bytes.len()));
        return Ok(Secret::new(&found.map_err(damaged(&path))?));
    }
    let run = directory.identity();
    if files.length(&run).map_err(disk("look at", &run))?.is_some() {
        // With another one the newest round might be published a second time, with other noise.
        return Err(RunError::Removed { action: "read", path });
    }
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(RunError::Random)?;
    let state = parent(&path);
    files.create_dir(state).map_err(disk("create", state))?;
    retry_while_full(files, &path, || write_privately(files, &path, &bytes)).map_err(disk("write", &path))?;
    Ok(Secret::new(&bytes))
}

impl Run {
    /// How the run's sums are made private, if they are.
    pub(super) fn private(&self) -> Option<Private<'_>> {
        private(&self.config, self.secret.as_ref(), self.clip)
    }

    /// What the finished rounds promise, with what that rests on, if the run is private.
    #[must_use]
    pub fn privacy(&self) -> Option<String> {
        self.config.privacy_after(self.last_trained())
    }

    /// The same of all rounds that are planned.
    #[must_use]
    pub fn planned_privacy(&self) -> Option<String> {
        let rounds = self.config.spec.rounds;
        let said = self.config.privacy_after(rounds)?;
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

    /// The newest round, if the budget allows no other one. Rounds without a result count as well, since it may be that their sum was
    /// learned, and others take their place while the budget lasts.
    #[must_use]
    pub fn budget_is_spent(&self) -> Option<u32> {
        let (promise, newest) = (self.config.promise?, self.last_trained());
        let budget = promise.budget.filter(|_| self.failed > 0)?;
        (self.epsilon(&promise, newest + 1) > budget).then_some(newest)
    }

    /// epsilon after this round, if the run is private: every round of training counts, with any number of updates.
    pub(super) fn epsilon_after(&self, round: u32) -> Option<f64> {
        Some(self.epsilon(&self.config.promise?, round))
    }

    /// epsilon of the run's promise, whose account is made once.
    fn epsilon(&self, promise: &Promise, rounds: u32) -> f64 {
        promise.epsilon_by(self.account.get_or_init(|| promise.account()), rounds)
    }
}

/// What a simulated device's noise follows from, in place of a secret that the device has of its own.
pub(super) fn of_device(secret: &Secret, client: ClientId) -> Secret {
    Secret::new(secret.seed("device noise").derive_bytes("client", client.as_bytes()).as_bytes())
}

/// The same of the parts of a run, with the length to which updates are clipped if that adapts.
pub(super) fn private<'a>(
    config: &Config,
    secret: Option<&'a Secret>,
    clip: Option<f64>,
) -> Option<Private<'a>> {
    // Else devices add the noise.
    let promise = config.promise.filter(|promise| promise.device_noise.is_none())?;
    let mechanism = promise.mechanism_with(clip);
    Some(Private { mechanism, secret: secret?, share: None })
}
