//! Formats of updates beside the simulation, with processes that are killed at random.

use std::process::ExitCode;

use clap::Args;
use federation_tests::killed_processes::{Format, with_kills};

/// Four device processes and a server over QUIC, of which a random one is killed with `kill -9` again and again, in each of: updates in 8
/// and 4 bits, central differential privacy, secure aggregation, and both together with noise of the devices.
///
/// Kills come at random moments, and every third one when the server next has all updates of a round, while that closes. The run must
/// have every update, and leave the bytes of `aggregator simulate`. Private runs and their simulations begin with one secret. Exit
/// code 1 if any differs.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Runs of each, with kills of their own.
    #[arg(long, default_value_t = 3)]
    seeds: u64,
    /// Rounds of each run.
    #[arg(long, default_value_t = 200)]
    rounds: u32,
    /// Seconds between two kills, on average.
    #[arg(long, default_value_t = 0.25)]
    every: f64,
    /// Only formats whose names begin so, for example `secure`.
    #[arg(long, value_name = "PREFIX", default_value = "", hide_default_value = true)]
    only: String,
    /// Seed of the kills of the first run; the next ones follow it.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let &Arguments { seeds, rounds, every, seed, .. } = arguments;
    let formats: Vec<Format> =
        Format::ALL.into_iter().filter(|format| format.name().starts_with(&arguments.only)).collect();
    if formats.is_empty() {
        eprintln!("no format's name begins with {:?}; without --only all are named", arguments.only);
        return ExitCode::from(2);
    }
    if !(every > 0.0 && every <= 60.0) {
        eprintln!("--every {every}: give seconds, more than 0 and at most 60");
        return ExitCode::from(2);
    }
    println!(
        "{:<23} {:>6} {:>13} {:>13} {:>16} {:>8} {:>11}",
        "", "rounds", "server killed", "device killed", "at a close of it", "seconds", "same bytes"
    );
    let mut differ = 0;
    for format in formats {
        let runs: Vec<_> = (seed..seed + seeds).map(|seed| with_kills(format, rounds, every, seed)).collect();
        let sum = |of: fn(&federation_tests::killed_processes::Killed) -> usize| -> usize {
            runs.iter().map(of).sum()
        };
        let same = sum(|run| usize::from(run.same_bytes));
        println!(
            "{:<23} {:>6} {:>13} {:>13} {:>16} {:>8.0} {:>11}",
            format.name(),
            sum(|run| run.rounds),
            sum(|run| run.server),
            sum(|run| run.devices),
            sum(|run| run.closing),
            runs.iter().map(|run| run.took.as_secs_f64()).sum::<f64>(),
            format!("{same} of {}", runs.len()),
        );
        differ += runs.len() - same;
    }
    ExitCode::from(u8::from(differ > 0))
}
