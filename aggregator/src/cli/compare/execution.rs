//! The runs of an experiment while they run, as a person sees them.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use edge_client::system::System;
use edge_client::system::memory::memory;
use indicatif::ProgressBar;
use shared::cli::{Processor, cores};

use super::super::exit::Failure;
use super::super::terminal::{self, StopRequest};
use super::CompareArgs;
use super::team::Team;
use crate::compare::choice::Race;
use crate::compare::live::LivePage;
use crate::compare::plan::{Plan, Planned};
use crate::compare::progress::Progress;
use crate::compare::results::Rounds;
use crate::compare::runs::{Spread, work};
use crate::compare::step::Step;
use crate::events::sinks::terminal::progress_bar;
use crate::report::units::{counted, percent, seconds};

/// What a person sees of the runs.
struct Display<'a> {
    plan: &'a Plan,
    bar: ProgressBar,
    progress: Progress,
    failures: Vec<(String, String)>,
    stopped: bool,
    begun: usize,
}

impl Display<'_> {
    fn show(&mut self, position: usize, step: &Step<'_>) {
        let run = &self.plan.runs[position];
        let mut said = None;
        match step {
            Step::Begun(_) => self.begun += 1,
            Step::Round(record, took) => {
                self.progress.closed(position, record.round, *took);
                let accuracy =
                    record.accuracy.map_or_else(String::new, |accuracy| format!(" {}", percent(accuracy)));
                // The figures first, since a narrow terminal cuts the end.
                self.bar.set_message(format!(
                    "round {}/{}{accuracy}: {}",
                    record.round,
                    run.config.spec.rounds.max(record.round),
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
            Step::Dropped(why) => {
                self.progress.over(position);
                said = Some(format!("{} stops: {why}", run.title(self.plan)));
            }
            Step::Alarm(text) => said = Some(format!("WARNING: {}: {text}", run.title(self.plan))),
            Step::Stopped => self.stopped = true,
            Step::Shared(text) => said = Some(format!("{} {text}", run.title(self.plan))),
            Step::Elsewhere => {
                self.progress.over(position);
                let (over, all) = self.progress.runs();
                said = Some(format!("{over}/{all} {} was ended by another worker", run.title(self.plan)));
            }
            Step::Failed(error) => {
                self.progress.over(position);
                let text = format!("{} did not complete: {error}", run.title(self.plan));
                said = Some(format!("WARNING: {text}"));
                self.failures.push((run.config.spec.name.clone(), text));
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

/// How the work on some runs ended.
pub(super) struct Worked {
    /// Whether it was stopped before all of them had ended.
    pub(super) stopped: bool,
    /// How often a run was begun or continued here.
    pub(super) begun: usize,
    /// The names of the runs that did not complete, and why.
    pub(super) failures: Vec<(String, String)>,
}

/// Executes the runs `left`, several at a time.
pub(super) fn run_all(
    plan: &Plan,
    rounds: &Rounds,
    left: &[usize],
    runs: &Path,
    arguments: &CompareArgs,
    team: &dyn Team,
    stop: &StopRequest,
) -> Result<Worked, Failure> {
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
    let progress = Progress::new(plan, rounds, left, spread.jobs);
    let bar = progress_bar(progress.rounds().1, "{bar:8} {prefix}  {wide_msg}");
    let display = Mutex::new(Display { plan, bar, progress, failures: Vec::new(), stopped: false, begun: 0 });
    // A shard knows of its own runs alone, and others may work in its folder.
    let live = arguments
        .shard
        .is_none()
        .then(|| LivePage::new(plan, plan.runs.len() - left.len(), runs, runs.with_file_name("report.html")));
    let race = Race::after(plan, rounds);
    let queue = team.queue(plan, left, runs);
    work(plan, &*queue, runs, (spread, &backend), &race, &stop.stopped, &|position, step| {
        display.lock().unwrap_or_else(PoisonError::into_inner).show(position, step);
        if let Some(live) = &live {
            live.note(step);
        }
    });
    let display = display.into_inner().unwrap_or_else(PoisonError::into_inner);
    display.bar.finish_and_clear();
    let stopped = display.stopped || stop.is_made();
    if stopped {
        terminal::tell("stopped: the same command continues the experiment");
    }
    team.trouble().map_or(Ok(Worked { stopped, begun: display.begun, failures: display.failures }), Err)
}

/// Bytes that programs can have without others losing theirs, where the system says so.
fn available_memory() -> Option<u64> {
    // The rest is for what was estimated too low.
    Some(memory(&System::this())?.available / 10 * 8)
}
