//! An experiment that several workers share over a store.

use std::path::Path;
use std::time::Duration;

use shared::cli::Processor;
use tokio::sync::watch;

use super::super::exit::Failure;
use super::super::terminal;
use super::CompareArgs;
use super::team::Team;
use crate::cluster::address::StoreAddress;
use crate::cluster::connection::Connection;
use crate::compare::plan::Plan;
use crate::compare::queue::Queue;
use crate::compare::workers::{Workers, WorkersError};
use crate::report::units::counted;

impl From<WorkersError> for Failure {
    fn from(error: WorkersError) -> Self {
        match error {
            WorkersError::Store(error) => error.into(),
            WorkersError::Arrival(error) => error.into(),
            forgotten @ WorkersError::Forgotten(_) => Self::environment(forgotten),
            WorkersError::Stopped => Self::environment(
                "stopped before the store answered: the same command continues the experiment",
            ),
        }
    }
}

/// Joins those who work on `plan`, and says how it stands.
pub(super) fn join(
    plan: &Plan,
    out: &Path,
    store: &str,
    arguments: &CompareArgs,
    stop: &watch::Receiver<bool>,
) -> Result<Workers, Failure> {
    let address = StoreAddress::from_environment(store)?;
    let arithmetic = Processor::backend(arguments.device)?.arithmetic().to_owned();
    let interval = Duration::from_secs(arguments.sharing.keep_every.into());
    let shown = address.to_string();
    let workers = Workers::join(address, plan, out, &arithmetic, interval, stop)?;
    if let Some(text) = workers.namesake()? {
        terminal::tell(&format!("WARNING: {text}"));
    }
    let standing = workers.standing()?;
    let ended = standing.iter().filter(|stands| stands.ended).count();
    terminal::tell(&format!(
        "worker {} of the store at {shown}: {ended} of {} have ended, others work on {}",
        workers.name(),
        counted(standing.len(), "run"),
        standing.iter().filter(|stands| stands.worker.is_some()).count()
    ));
    Ok(workers)
}

/// Says of every run of `plan` how it stands in the store, and who works on it.
pub(super) fn tell_store(plan: &Plan, store: &str) -> Result<(), Failure> {
    let address = StoreAddress::from_environment(store)?;
    terminal::tell(&format!("in the store at {address}:"));
    let found = Workers::look(Connection::new(address), plan)?;
    if found.is_empty() {
        terminal::tell("no worker has begun the experiment there");
    }
    for stands in found {
        let rounds = counted(stands.rounds as usize, "round");
        let how = match stands.worker {
            _ if stands.ended => format!("has ended after {rounds}"),
            Some(worker) => format!("{worker} works on it; the store has {rounds} of it"),
            None if stands.rounds > 0 => format!("free, to be continued after {rounds}"),
            None => "free".to_owned(),
        };
        terminal::tell(&format!("  {}: {how}", stands.name));
    }
    Ok(())
}

/// Removes what the store has of the experiment.
pub(super) fn forget(plan: &Plan, store: &str) -> Result<(), Failure> {
    let address = StoreAddress::from_environment(store)?;
    let shown = address.to_string();
    let text = if Workers::forget(address, plan)? {
        format!("the store at {shown} has nothing of this experiment any more; what is in folders stays")
    } else {
        format!("the store at {shown} has nothing of this experiment")
    };
    terminal::tell(&text);
    Ok(())
}

impl Team for Workers {
    fn meet(&self, plan: &Plan, runs: &Path) -> Result<bool, Failure> {
        Ok(Self::meet(self, plan, runs)?)
    }

    fn queue<'a>(&'a self, plan: &'a Plan, left: &'a [usize], runs: &'a Path) -> Box<dyn Queue + 'a> {
        Self::queue(self, plan, left, runs)
    }

    fn trouble(&self) -> Option<Failure> {
        Self::trouble(self).map(Into::into)
    }

    fn remark(&self) -> Result<Option<String>, Failure> {
        Ok(self.mixed_arithmetic()?)
    }
}
