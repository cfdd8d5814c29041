//! The runs of an experiment while they run, as a person sees them.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use edge_client::system::System;
use edge_client::system::memory::memory;
use indicatif::ProgressBar;
use shared::cli::{Processor, cores};

use super::super::exit::Failure;
use super::super::run::runtime;
use super::super::terminal;
use super::CompareArgs;
use crate::compare::choice::Race;
use crate::compare::live::LivePage;
use crate::compare::plan::{Plan, Planned, Standing};
use crate::compare::progress::Progress;
use crate::compare::results::Rounds;
use crate::compare::runs::{Spread, Step, work};
use crate::events::sinks::terminal::progress_bar;
use crate::report::units::{counted, percent, seconds};

/// What a person sees of the runs.
struct Display<'a> {
    plan: &'a Plan,
    bar: ProgressBar,
    progress: Progress,
    failures: Vec<String>,
    stopped: bool,
}

impl Display<'_> {
    fn show(&mut self, position: usize, step: &Step<'_>) {
        let run = &self.plan.runs[position];
        let mut said = None;
        match step {
            Step::Begun(_) => {}
            Step::Round(record, took) => {
                self.progress.closed(position, record.round, *took);
                let accuracy =
                    record.accuracy.map_or_else(String::new, |accuracy| format!(" {}", percent(accuracy)));
                // The figures first, since a narrow terminal cuts the end.
                self.bar.set_message(format!(
                    "round {}/{}{accuracy}: {}",
                    record.round,
                    run.config.spec.rounds,
                    run.title(self.plan)
                ));
            }
            Step::Done => {
                self.progress.over(position);
                let (over, all) = self.progress.runs();
                said = Some(format!(
                    "{over}/{all} {} is complete{}",
                    run.title(self.plan),
                    self.remaining(", ")
                ));
            }
            Step::Outrun => {
                self.progress.over(position);
                said =
                    Some(format!("{} needs more rounds than another value, and stops", run.title(self.plan)));
            }
            Step::Alarm(text) => said = Some(format!("WARNING: {}: {text}", run.title(self.plan))),
            Step::Stopped => self.stopped = true,
            Step::Failed(error) => {
                self.progress.over(position);
                let text = format!("{} did not complete: {error}", run.title(self.plan));
                said = Some(format!("WARNING: {text}"));
                self.failures.push(text);
            }
        }
        if let Some(text) = said {
            self.bar.suspend(|| terminal::tell(&text));
        }
        let (over, all) = self.progress.runs();
        self.bar.set_position(self.progress.rounds().0);
        self.bar.set_prefix(format!("{over}/{all} runs{}", self.remaining(", ")));
    }

    fn remaining(&self, before: &str) -> String {
        let left = self.progress.remaining().filter(|left| !left.is_zero());
        left.map_or_else(String::new, |left| format!("{before}about {} left", seconds(left.as_secs_f64())))
    }
}

/// How the work on all runs ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// Every run has ended.
    Over,
    /// It was stopped, and nothing is wrong with that.
    Stopped,
}

/// Executes the runs `left`, several at a time.
pub(super) fn run_all(
    plan: &Plan,
    (standing, rounds): (&[Standing], &Rounds),
    left: &[usize],
    runs: &Path,
    arguments: &CompareArgs,
) -> Result<Ended, Failure> {
    let backend = Processor::backend(arguments.device)?;
    let planned: Vec<&Planned> = left.iter().map(|&run| &plan.runs[run]).collect();
    let spread = match arguments.jobs {
        Some(jobs) => {
            let jobs = usize::from(jobs).min(left.len());
            Spread { jobs, threads: cores().get().div_ceil(jobs) }
        }
        None => Spread::over(cores().get(), available_memory(), &planned),
    };
    terminal::tell(&format!(
        "{} of {} to do, {} at a time",
        left.len(),
        counted(plan.runs.len(), "run"),
        spread.jobs
    ));
    let progress = Progress::new(plan, standing, left, spread.jobs);
    let bar = progress_bar(progress.rounds().1, "{bar:8} {prefix}  {wide_msg}");
    let display = Mutex::new(Display { plan, bar, progress, failures: Vec::new(), stopped: false });
    let live = LivePage::new(plan, standing, runs, runs.with_file_name("report.html"));
    let runtime = runtime()?;
    let stop = {
        let _inside = runtime.enter();
        terminal::stop_on_signal()
    };
    let race = Race::after(plan, rounds);
    work(plan, left, runs, (spread, &backend), &race, &stop.stopped, &|position, step| {
        display.lock().unwrap_or_else(PoisonError::into_inner).show(position, step);
        live.note(step);
    });
    let display = display.into_inner().unwrap_or_else(PoisonError::into_inner);
    display.bar.finish_and_clear();
    let stopped = display.stopped || *stop.stopped.borrow();
    if stopped {
        terminal::tell("stopped: the same command continues the experiment");
    }
    match display.failures.len() {
        0 if stopped => stop.failure().map_or(Ok(Ended::Stopped), Err),
        0 => Ok(Ended::Over),
        failed => {
            let mut text = format!("{} did not complete:", counted(failed, "run"));
            display.failures.iter().for_each(|failure| _ = write!(text, "\n  {failure}"));
            Err(Failure::NoProgress(text))
        }
    }
}

/// Bytes that programs can have without others losing theirs, where the system says so.
fn available_memory() -> Option<u64> {
    // The rest is for what was estimated too low.
    Some(memory(&System::this())?.available / 10 * 8)
}
