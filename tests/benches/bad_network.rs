//! Real processes over bad networks: three devices, each in a network namespace of its own, 400 kB each way in every round.
//!
//! `cargo bench -p federation-tests --bench bad_network -- [PART OF A NAME]`
//!
//! Losses, delay, one megabit per second, address changes and a partition in the middle of uploads, kill -9 of a device and
//! of the aggregator. Each run has to end, with the bytes of the undisturbed run; what it took is compared with the first
//! line. Namespaces are made with `unshare --map-root-user --net` and `ip` (iproute2); where that is not permitted, the
//! program says so and ends with code 77. What is printed as sent again is what was sent beyond the updates themselves:
//! headers, acknowledgements and signs of life (about 3 %) are in it.

use std::process::ExitCode;

use federation_tests::bad_network::{BadNetwork, run};
use federation_tests::namespaces::{again_inside, inside};
use federation_tests::programs::programs;

const ROUNDS: usize = 5;
/// Bytes of an update: 199,210 values in 16 bits.
const UPDATE: u64 = 2 * 199_210;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    // Built where there is a network.
    let _ = programs();
    if !inside() {
        return match again_inside(&arguments) {
            Ok(code) => ExitCode::from(code as u8),
            Err(why) => {
                println!("skipped: network namespaces are not permitted here ({})", why.0);
                ExitCode::from(77)
            }
        };
    }
    let part = arguments.first().map_or("", String::as_str);
    println!(
        "{:>8} {:>8} {:>8} {:>9} {:>9} {:>6}  network",
        "rounds", "s/round", "times", "MB up", "again", "moves"
    );
    let mut calm = None;
    let chosen = |network: &&BadNetwork| network.name == BadNetwork::CALM.name || network.name.contains(part);
    for network in BadNetwork::EVERY.iter().filter(chosen) {
        let outcome = run(network, ROUNDS);
        let each = outcome.took.as_secs_f64() / outcome.rounds as f64;
        let calm = *calm.get_or_insert(each);
        let needed = (outcome.rounds as u64 * 3 * UPDATE) as f64;
        println!(
            "{:>8} {each:>8.1} {:>8.1} {:>9.2} {:>7.0} % {:>6}  {}",
            outcome.rounds,
            each / calm,
            outcome.sent as f64 / 1e6,
            100.0 * (outcome.sent as f64 / needed - 1.0),
            outcome.moves,
            network.name
        );
    }
    ExitCode::SUCCESS
}
