//! The command line of the fault simulator: many random schedules of both state machines.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use clap::Args;
use federation_tests::schedule::{Played, Schedule};
use federation_tests::several::Planted;
use federation_tests::several::schedule::SeveralSchedule;

use super::{seeds, several_schedules};

/// Simulates random schedules of faults in memory, with both real state machines: delays, lost connections, silence,
/// duplicates, crashes of either side at any step, power failures, slow and full disks, clocks that jump. With `--servers` several
/// servers serve one run.
///
/// Checked of each: the run ends, every round is closed once, nothing accepted is lost, nothing is folded twice, and where
/// rounds wait for all devices the model has the bits of a run without faults. Seeds that fail are printed. Exit code 1 if any
/// failed.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Schedules to play.
    #[arg(long, default_value_t = 10_000)]
    count: u64,
    /// Seed of the first one; the next ones follow it.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Servers of one run, each of which may die, be stopped or lose its disk, over a store that is slow and away at times.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=9))]
    servers: u64,
    /// Puts a bug in, of several servers, to see how many schedules find it.
    #[arg(long, value_enum, default_value = "none")]
    planted: Bug,
    /// Plays only the federation of this name, or those whose names begin so, for example `hidden`.
    #[arg(long, value_name = "PREFIX", default_value = "", hide_default_value = true)]
    only: String,
    /// Plays one schedule and prints its every event.
    #[arg(long, value_name = "SEED")]
    replay: Option<u64>,
}

/// A bug that is put in.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Bug {
    /// None.
    None,
    /// The store takes a write of an epoch that is over.
    NoEpochCheck,
    /// Devices are told that updates count before their round has closed.
    EarlyReceipts,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    if arguments.servers > 1 {
        let planted = match arguments.planted {
            Bug::None => Planted::None,
            Bug::NoEpochCheck => Planted::NoEpochCheck,
            Bug::EarlyReceipts => Planted::EarlyReceipts,
        };
        let servers = arguments.servers as usize;
        if SeveralSchedule::drawn_among(0, servers, &arguments.only).is_none() {
            return none_is_called(&arguments.only);
        }
        let drawn =
            |seed| SeveralSchedule::drawn_among(seed, servers, &arguments.only).expect("looked at above");
        let seeds = (arguments.count, arguments.seed);
        return several_schedules::run((servers, planted), drawn, seeds, arguments.replay);
    }
    if Schedule::drawn_among(0, &arguments.only).is_none() {
        return none_is_called(&arguments.only);
    }
    let drawn = |seed| Schedule::drawn_among(seed, &arguments.only).expect("looked at above");
    match arguments.replay {
        Some(seed) => replay(seed, &drawn(seed)),
        None => many(arguments.count, arguments.seed, drawn),
    }
}

fn none_is_called(prefix: &str) -> ExitCode {
    eprintln!("no federation's name begins with {prefix:?}; without --only all are named");
    ExitCode::from(2)
}

fn play(schedule: &Schedule, trace: bool) -> Result<Played, String> {
    seeds::played(|runs| schedule.play(runs, trace))
}

fn replay(seed: u64, schedule: &Schedule) -> ExitCode {
    println!("seed {seed}: {}; {:#?}", schedule.name(), schedule.faults);
    match play(schedule, true) {
        Ok(played) => {
            println!("{played:?}");
            ExitCode::SUCCESS
        }
        Err(problem) => {
            println!("{problem}");
            ExitCode::FAILURE
        }
    }
}

#[derive(Default)]
struct Sum {
    played: BTreeMap<&'static str, usize>,
    failed: Vec<u64>,
    hours: f64,
    counts: [usize; 9],
}

fn many(count: u64, first: u64, drawn: impl Fn(u64) -> Schedule + Sync) -> ExitCode {
    let begun = Instant::now();
    let sum = Mutex::new(Sum::default());
    seeds::each(first..first + count, |seed| {
        let schedule = drawn(seed);
        let played = play(&schedule, false);
        let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
        *sum.played.entry(schedule.name()).or_default() += 1;
        match played {
            Ok(Played { took, server_deaths, waits, troubles }) => {
                sum.hours += took.as_secs_f64() / 3600.0;
                let counts = [
                    server_deaths as usize,
                    troubles.device_deaths,
                    troubles.cuts,
                    troubles.silences,
                    troubles.twice,
                    troubles.resumed,
                    troubles.resumed_tasks,
                    troubles.jumps,
                    waits,
                ];
                sum.counts.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            }
            Err(problem) => {
                println!("seed {seed} FAILED ({}): {problem}", schedule.name());
                sum.failed.push(seed);
            }
        }
    });
    let sum = sum.into_inner().unwrap_or_else(PoisonError::into_inner);
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "{count} schedules from seed {first}: {:.0} s, {:.0} per second",
        seconds,
        count as f64 / seconds
    );
    for (name, played) in &sum.played {
        println!("  {played:6} {name}");
    }
    println!("  {:.0} hours of virtual time", sum.hours);
    let what = [
        "deaths of the aggregator",
        "deaths of devices",
        "connections cut",
        "connections that fell silent",
        "updates that arrived twice",
        "updates that went on where they were cut",
        "tasks that did",
        "jumps of clocks",
        "waits for room on the disk",
    ];
    what.iter().zip(sum.counts).for_each(|(what, count)| println!("  {count:6} {what}"));
    println!(
        "{} failed{}",
        sum.failed.len(),
        if sum.failed.is_empty() { "" } else { "; play one again with --replay SEED and the same --only" }
    );
    ExitCode::from(u8::from(!sum.failed.is_empty()))
}
