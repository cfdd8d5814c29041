//! Whole runs of real processes over bad networks.

use std::process::ExitCode;

use clap::Args;
use federation_tests::bad_network::{self, BadNetwork};
use federation_tests::namespaces::{again_inside, inside};
use federation_tests::programs::programs;
use shared::congestion::Congestion;

/// Runs over bad networks: three devices, each in a network namespace of its own, 400 kB each way in every round.
///
/// The networks: packet loss, delay, one megabit per second, address changes and a partition during uploads, kill -9 of a
/// device and of the aggregator. Every run must end with the bytes of the undisturbed run; its time is compared with the first
/// line's. The column `again` is what was sent beyond the updates themselves; headers, acknowledgements and heartbeats (about
/// 3 %) are part of it.
///
/// Namespaces are made with `unshare --map-root-user --net` and `ip` (iproute2). Where that is not permitted, the program says
/// so and ends with code 77.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Only networks whose name contains this; the calm one is always run.
    name: Option<String>,
    /// What both sides send by.
    #[arg(long, value_enum, default_value_t)]
    congestion: Congestion,
}

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
        "{:>8} {:>8} {:>8} {:>9} {:>9} {:>6}  network",
        "rounds", "s/round", "times", "MB up", "again", "moves"
    );
    let mut reference = None;
    let chosen =
        |network: &&BadNetwork| network.name == BadNetwork::PERFECT.name || network.name.contains(part);
    for network in BadNetwork::EVERY.iter().filter(chosen) {
        let outcome = bad_network::run(network, ROUNDS, arguments.congestion);
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
            network.name
        );
    }
    ExitCode::SUCCESS
}
