//! Runs of simulated clients from where they stand to their end, with the durable steps, models and reports of the program.

use std::path::Path;
use std::sync::Arc;

use aggregator::coordinator::Outcome;
use aggregator::events::Notice;
use aggregator::run::Run;
use aggregator::simulate::{Transport, simulate};
use aggregator::start::{StartError, Started, start_on};
use aggregator::storage::{Disk, FileLayer};
use tokio::sync::watch;

use crate::scenario::Scenario;

/// Begins or continues the run of this scenario among `runs`.
///
/// # Errors
/// As the program has them.
pub fn start(files: Arc<dyn FileLayer>, runs: &Path, scenario: &Scenario) -> Result<Started, StartError> {
    start_on(files, scenario.config.clone(), runs, false, |_| Ok(())).map(|(started, ())| started)
}

/// Runs the remaining rounds of a run and writes its results, as the program does.
///
/// # Panics
/// If it does not complete, or a client has other client state than it must have.
pub async fn finish(started: Started, scenario: &Scenario) -> Run {
    finish_over(Transport::Memory, started, scenario).await
}

/// [`finish`] with this transport between server and clients.
///
/// # Panics
/// As [`finish`].
pub async fn finish_over(transport: Transport, started: Started, scenario: &Scenario) -> Run {
    let (run, resume, _lock) = started.into_parts();
    let (_stop, stopped) = watch::channel(false);
    let shares = scenario.shares.clone();
    let mut agree = |notice: &Notice<'_>| {
        assert!(
            !matches!(notice, Notice::ClientState { .. }),
            "a device has other client state than it must have"
        );
    };
    let simulating = simulate(run, resume, shares, transport, 1, stopped, &mut agree);
    let simulated = Box::pin(simulating).await;
    let (mut run, outcome) = simulated.expect("the disk works");
    assert_eq!(outcome, Outcome::Completed);
    run.write_model().expect("the disk works");
    run.write_report("", true).expect("the disk works");
    run
}

/// The whole of a run of this scenario, in its folder among `runs`.
///
/// # Panics
/// As [`finish`], or if it cannot begin.
pub async fn whole(runs: &Path, scenario: &Scenario) -> Run {
    let started = start(Arc::new(Disk), runs, scenario).unwrap_or_else(|error| panic!("{error}"));
    finish(started, scenario).await
}
