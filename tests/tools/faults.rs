//! The table of faults, run by real processes.

use std::process::ExitCode;

use clap::Args;
use federation_tests::fault_run;
use federation_tests::fault_table::{CALM, Holds, ROWS, Row};
use federation_tests::namespaces::{again_inside, inside};
use federation_tests::programs::programs;
use shared::congestion::Congestion;

/// The table of faults: three devices, each in a network namespace of its own, 400 kB each way in every round.
///
/// Networks that lose, delay and cut, address changes, kill -9 and suspension of either side, full and read-only disks, deleted
/// folders, each amid a download, training, an upload or the end of a round. Every run must end with the bytes of the
/// undisturbed one or, where that is impossible, the operator must be told. Times are compared with the first line's. The
/// column `again` is what was sent beyond the updates themselves; headers, acknowledgements and heartbeats (about 3 %) are part
/// of it.
///
/// Namespaces and file systems are made with `unshare --map-root-user --net --mount`, `mount` and `ip` (iproute2). Where that
/// is not permitted, the program says so and ends with code 77.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Only rows whose name contains this; the calm one is always run.
    name: Option<String>,
    /// How often each row is run.
    #[arg(long, default_value_t = 1)]
    repeat: usize,
    /// What both sides send by.
    #[arg(long, value_enum, default_value_t)]
    congestion: Congestion,
}

/// Rounds of a run, if it has no more faults.
const ROUNDS: usize = 5;
/// Bytes of an update: 199,210 values in 16 bits.
const UPDATE: u64 = 2 * 199_210;

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    // Built where there is a network.
    let _ = programs();
    if !inside() {
        return match again_inside(std::env::args_os().skip(1)) {
            Ok(code) => ExitCode::from(code as u8),
            Err(why) => {
                println!("skipped: network namespaces are not permitted here ({})", why.0);
                ExitCode::from(77)
            }
        };
    }
    let part = arguments.name.as_deref().unwrap_or("");
    println!(
        "{:>8} {:>8} {:>8} {:>9} {:>9} {:>6}  fault",
        "rounds", "s/round", "times", "MB up", "again", "moves"
    );
    let mut reference = None;
    let chosen = |row: &&Row| row.name == CALM.name || row.name.contains(part);
    for row in ROWS.iter().filter(chosen) {
        let times = if row.name == CALM.name { 1 } else { arguments.repeat };
        for _ in 0..times {
            let outcome = fault_run::run(row, ROUNDS.max(row.faults.len() + 1), arguments.congestion);
            if let Holds::Told(says) = row.holds {
                println!(
                    "{:>8} {:>8.1} s until the operator was told: {says}  {}",
                    "-",
                    outcome.took.as_secs_f64(),
                    row.name
                );
                continue;
            }
            let each = outcome.took.as_secs_f64() / outcome.rounds as f64;
            let reference = *reference.get_or_insert(each);
            let needed = (outcome.rounds as u64 * 3 * UPDATE) as f64;
            println!(
                "{:>8} {each:>8.1} {:>8.1} {:>9.2} {:>7.0} % {:>6}  {}",
                outcome.rounds,
                each / reference,
                outcome.sent as f64 / 1e6,
                100.0 * (outcome.sent as f64 / needed - 1.0),
                outcome.moves,
                row.name
            );
        }
    }
    ExitCode::SUCCESS
}
