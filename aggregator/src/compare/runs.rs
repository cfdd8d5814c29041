//! Execution of the remaining runs of an experiment, several at a time. Each has an ordinary run directory, so it can be
//! continued after any interruption.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use models::Backend;
use shared::data::View;
use tokio::sync::watch;
use tracing::warn;

use super::choice::Race;
use super::content::Content;
use super::plan::{Plan, Planned, Standing};
use super::queue::{Ended, Queue, Told};
use super::step::{RunFailure, Step};
use crate::coordinator::Outcome;
use crate::data;
use crate::data::TestSet;
use crate::events::{Level, Notice, printable_reasons, text};
use crate::page::about::About;
use crate::page::{Found, PageError, by_class, ending};
use crate::report::standing;
use crate::round::RoundRecord;
use crate::run::reader;
use crate::simulate::{Clients, SimulateError, Transport, simulate};
use crate::start::start_on;
use crate::storage::unsynced::Unsynced;
use crate::storage::{Disk, FileLayer};

/// How many runs share the cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    /// Runs at a time.
    pub jobs: usize,
    /// Training threads of each run.
    pub threads: usize,
}

impl Spread {
    /// As many runs at a time as there are cores and as fit into `memory` bytes, each with its part of the cores as threads.
    /// If one run with all cores as threads does not fit, one run with as many threads as fit, at least one.
    #[must_use]
    pub fn over(cores: usize, memory: Option<u64>, runs: &[&Planned]) -> Self {
        let fits = |spread: &Self| {
            let largest = runs.iter().map(|run| need(run, spread.threads as u64)).max().unwrap_or(0);
            memory.is_none_or(|memory| (spread.jobs as u64).saturating_mul(largest) <= memory)
        };
        let most = cores.min(runs.len()).max(1);
        let several = (1..=most).rev().map(|jobs| Self { jobs, threads: cores.div_ceil(jobs) });
        let one = (1..cores).rev().map(|threads| Self { jobs: 1, threads });
        several.chain(one).find(fits).unwrap_or(Self { jobs: 1, threads: 1 })
    }
}

/// Estimated bytes of a run: the data, several copies of the model in the aggregator and in every training thread, and
/// activations.
fn need(run: &Planned, threads: u64) -> u64 {
    let config = &run.config;
    let sample: usize = config.spec.architecture.input.iter().product();
    // A text that has no fixed size is small.
    let samples = config.data.set.training_samples.unwrap_or(20_000) as u64;
    let model = 4 * config.spec.architecture.parameters().unwrap_or(0) as u64;
    // A full batch is computed at most a thousand samples at a time.
    let batch = u64::from(match config.spec.training.batch {
        0 => 1000,
        batch => batch.min(1000),
    });
    let activations = 64 * 4 * batch * sample as u64;
    samples * sample as u64 + 12 * model + threads * (6 * model + activations) + (64 << 20)
}

/// Executes the runs of `plan` that `queue` hands out under `runs`, and reports steps with the position of the run. When `stop` turns
/// true, active runs stop as soon as their current round is saved.
pub fn work(
    plan: &Plan,
    queue: &dyn Queue,
    runs: &Path,
    (spread, backend): (Spread, &Backend),
    race: &Race,
    stop: &watch::Receiver<bool>,
    tell: &Told<'_>,
) -> bool {
    let failed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..spread.jobs {
            scope.spawn(|| {
                while let Some(position) = queue.take(stop, tell) {
                    loop {
                        let planned = &plan.runs[position];
                        let (mut lost, mut interrupted) = (false, false);
                        let mut told = |step: &Step<'_>| {
                            tell(position, step);
                            if let Step::Round(round, _) = step {
                                lost |= race.is_lost(plan, planned, round);
                                interrupted |= queue.interrupts(position);
                            }
                            lost || interrupted
                        };
                        let ended = run_or_repeat(planned, runs, (spread.threads, backend), stop, &mut told);
                        let told = |step: &Step<'_>| tell(position, step);
                        let (how, step) = match ended {
                            Ok(true) => (Ended::Over, Some(Step::Done)),
                            Ok(false) if lost => {
                                let why = "it needs more rounds than another value".to_owned();
                                (Ended::Over, Some(Step::Dropped(why)))
                            }
                            Ok(false) => {
                                (Ended::Stopped, (*stop.borrow() || !interrupted).then_some(Step::Stopped))
                            }
                            // A rate at which nothing is learned is among those that are tried to find a good one.
                            Err(error @ RunFailure::NoProgress(..)) if plan.is_open(planned) => {
                                (Ended::Over, Some(Step::Dropped(error.to_string())))
                            }
                            Err(error) => {
                                failed.store(true, Ordering::Relaxed);
                                told(&Step::Failed(&error));
                                // It has used up its rounds, and would elsewhere.
                                let over = matches!(error, RunFailure::NoProgress(..));
                                (if over { Ended::Over } else { Ended::Failed }, None)
                            }
                        };
                        let goes_on = queue.put(position, how, stop, tell);
                        if let Some(step) = step {
                            told(&step);
                        }
                        if !goes_on {
                            break;
                        }
                    }
                }
            });
        }
    });
    !failed.load(Ordering::Relaxed)
}

/// Takes a step of a run. The answer is whether the run need not go on.
type Tell<'a> = dyn FnMut(&Step<'_>) -> bool + Send + 'a;

/// [`run`], started over if its files are damaged: they are never synced, so a power failure can damage them.
fn run_or_repeat(
    planned: &Planned,
    runs: &Path,
    (threads, backend): (usize, &Backend),
    stop: &watch::Receiver<bool>,
    tell: &mut Tell<'_>,
) -> Result<bool, RunFailure> {
    let outcome = run(planned, runs, (threads, backend), stop.clone(), tell);
    let Some(damage) = outcome.as_ref().err().and_then(RunFailure::damage) else { return outcome };
    let kept = planned.set_aside(&Disk, runs).map_err(RunFailure::Aside)?;
    tell(&Step::Alarm(&format!(
        "{damage}; it begins anew, and the former files are kept as {}",
        kept.display()
    )));
    run(planned, runs, (threads, backend), stop.clone(), tell)
}

/// Executes a run; true if it is complete, false if it was stopped.
fn run(
    planned: &Planned,
    runs: &Path,
    (threads, backend): (usize, &Backend),
    mut stop: watch::Receiver<bool>,
    tell: &mut Tell<'_>,
) -> Result<bool, RunFailure> {
    let config = planned.config.clone();
    let (started, clients) = start_on(Arc::new(Unsynced), config, runs, false, Clients::of)?;
    let shares = &clients.shares;
    if !started.passed.is_empty() {
        return Err(RunFailure::Taken(started.passed.join("; ")));
    }
    tell(&Step::Begun(started.run.closed()));
    let histograms: Vec<(String, Vec<usize>)> = (0..)
        .zip(shares)
        .map(|(index, share): (usize, &View)| (format!("client {index}"), share.histogram()))
        .collect();
    let left_out = data::left_out(shares, started.run.tests.as_ref().map(TestSet::skipped));
    let directory = started.run.directory();
    ending::forget(&Unsynced, directory).map_err(SimulateError::Run)?;
    let mut about = About::begin(&Unsynced, directory, Some(histograms), left_out);
    if let Some(share) = shares.first().filter(|_| about.origin.data.is_empty()) {
        let tests = started.run.tests.as_ref().map(|tests| ("test", &**tests.view().dataset()));
        let data = std::iter::once(("training", &**share.dataset())).chain(tests);
        about.digest(&data.collect::<Vec<_>>());
    }
    about.write(&Unsynced, directory).map_err(SimulateError::Run)?;
    let begins = started.run.closed() == 0 && Content::kept(&Unsynced, planned, runs).is_none();
    if let Some(share) = shares.first().filter(|_| begins) {
        let tests = started.run.tests.as_ref().map(|tests| &**tests.view().dataset());
        let kept = Content::of(share.dataset(), tests).keep(&Unsynced, planned, runs);
        kept.map_err(RunFailure::Content)?;
    }
    let (mut run, resume, _lock) = started.into_parts();
    let (enough, ends) = watch::channel(false);
    run.backend = backend.clone();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(RunFailure::Runtime)?;
    // The run stops when all are stopped, or when it need not go on.
    let stopped = enough.clone();
    runtime.spawn(async move {
        if stop.wait_for(|&stop| stop).await.is_ok() {
            stopped.send_replace(true);
        }
    });
    let mut since = Instant::now();
    let mut sink = |notice: &Notice<'_>| match notice {
        Notice::Round(record) => {
            if tell(&Step::Round(record, since.elapsed())) {
                enough.send_replace(true);
            }
            since = Instant::now();
        }
        notice if notice.level() == Level::Alarm => {
            if let Some(text) = text(notice) {
                tell(&Step::Alarm(&text));
            }
        }
        _ => {}
    };
    let simulated = simulate(run, resume, clients, Transport::Memory, threads, ends, &mut sink);
    let (mut run, outcome) = runtime.block_on(simulated)?;
    let left = match &outcome {
        Outcome::Completed => standing::Standing::Complete { early: run.early_end() },
        Outcome::Stopped => standing::Standing::Stopped,
        Outcome::NoProgress { rounds, reasons } => {
            // The page of a private run names no client.
            let reasons = if planned.config.promise.is_some() {
                "too few acceptable updates".to_owned()
            } else {
                printable_reasons(reasons)
            };
            standing::Standing::Failed { reason: RunFailure::NoProgress(*rounds, reasons).to_string() }
        }
    };
    let mut write = || -> Result<(), PageError> {
        run.write_model()?;
        ending::note(&Unsynced, run.directory(), &left)?;
        if outcome == Outcome::Completed
            && let Err(error) = by_class::note(&run)
        {
            warn!("the page of {} has no results by class: {error}", run.directory().name());
        }
        let page = Found::read(&Unsynced, run.directory(), true)?.page();
        // A fruitless run has used up its rounds as well.
        run.write_report(&page, outcome != Outcome::Stopped)?;
        Ok(())
    };
    write()?;
    match outcome {
        Outcome::Completed => Ok(true),
        Outcome::Stopped => Ok(false),
        Outcome::NoProgress { rounds, reasons } => {
            Err(RunFailure::NoProgress(rounds, printable_reasons(&reasons)))
        }
    }
}

/// The rounds of a run on disk, if it has begun. A half-written last line is ignored.
///
/// # Errors
/// A message if the rounds of a run that has begun cannot be read.
pub fn recorded(
    files: &dyn FileLayer,
    planned: &Planned,
    runs: &Path,
) -> Result<Option<Vec<RoundRecord>>, String> {
    if !matches!(planned.standing(files, runs), Standing::Done | Standing::Unfinished(_)) {
        return Ok(None);
    }
    let rounds = reader::rounds(files, &planned.directory(runs)).map_err(|error| error.to_string())?;
    Ok(rounds.map(|rounds| rounds.records))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::plan::tests::plan;

    #[test]
    fn cores_are_shared_by_as_many_runs_as_fit_into_memory() {
        let plan = plan("seeds = 8\n[variants.x]\nmodel.name = 'linear'", "full").expect("a plan");
        let runs: Vec<&Planned> = plan.runs.iter().collect();
        let spread = |cores, memory, runs| {
            let Spread { jobs, threads } = Spread::over(cores, memory, runs);
            (jobs, threads)
        };
        assert_eq!(spread(4, None, &runs), (4, 1));
        assert_eq!(spread(4, None, &runs[..3]), (3, 2), "no core is left out");
        assert_eq!(spread(4, None, &runs[..1]), (1, 4));
        assert_eq!(spread(4, None, &[]), (1, 4), "of nothing to do");
        let need = |threads| need(runs[0], threads);
        assert!(4 * need(1) > 2 * need(2) && need(4) > need(3), "what is shared is more than a thread's own");
        assert_eq!(spread(4, Some(4 * need(1)), &runs), (4, 1));
        assert_eq!(spread(4, Some(2 * need(2)), &runs), (2, 2));
        assert_eq!(spread(4, Some(need(4)), &runs), (1, 4));
        assert_eq!(spread(4, Some(need(3)), &runs), (1, 3));
        assert_eq!(spread(4, Some(0), &runs), (1, 1), "it is tried all the same");
    }

    #[test]
    fn the_largest_run_decides() {
        let text = "seeds = 1\n[variants.x]\nmodel.name = 'linear'\n[variants.y]\nmodel.name = 'lenet-5'";
        let plan = plan(text, "full").expect("a plan");
        let [small, large] = &plan.runs.iter().collect::<Vec<_>>()[..] else { panic!("two runs") };
        let memory = need(small, 1) + need(large, 1);
        assert!(need(small, 1) < need(large, 1));
        assert_eq!(Spread::over(2, Some(memory), &[small, large]).jobs, 1);
        assert_eq!(Spread::over(2, Some(2 * need(large, 1)), &[small, large]).jobs, 2);
    }
}
