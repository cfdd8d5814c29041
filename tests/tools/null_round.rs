//! The cost of a round before any training.

use std::path::Path;
use std::time::Instant;

use clap::Args;
use federation_tests::serving::{Serving, median, split_data};

/// The cost of a round before any training: real processes, encrypted QUIC on loopback, durable on disk.
///
/// Four `edge-client` processes and one `aggregator`, `cnn-mnist` (1,663,370 parameters), no local epochs, no evaluation. A
/// round is the time from one closed round to the next: broadcast, update, check, sync, fold, close, checkpoint. The two
/// precisions run alternately; medians are printed.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Rounds of each run.
    #[arg(long, default_value_t = 40)]
    rounds: usize,
    /// The algorithm; one that keeps something on the device costs a sync there as well.
    #[arg(long, default_value = "fedavg")]
    algorithm: String,
}

const CLIENTS: usize = 4;
const REPEATS: usize = 3;

pub(crate) fn run(Arguments { rounds, algorithm }: &Arguments) {
    let rounds = *rounds;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut periods = [Vec::new(), Vec::new()];
    let mut peak = 0;
    split_data(directory.path(), &overrides(algorithm, rounds, "f32"));
    for _ in 0..REPEATS {
        for (precision, periods) in ["f32", "f16"].iter().zip(&mut periods) {
            let (times, memory) = rounds_of(directory.path(), &overrides(algorithm, rounds, precision));
            periods.extend(times);
            peak = peak.max(memory);
        }
    }
    println!(
        "null round, {algorithm}, {CLIENTS} client processes, 1,663,370 parameters, encrypted QUIC on loopback, fsync on"
    );
    println!(
        "{REPEATS} x {rounds} rounds per precision, alternately, state under {}",
        directory.path().display()
    );
    let [full, half] = periods.map(median);
    println!("  f32   median {:6.1} ms   (aim: below 100 ms)", 1e3 * full);
    println!("  f16   median {:6.1} ms   (aim: below 70 ms)", 1e3 * half);
    println!("  aggregator's peak memory {:.1} MB", peak as f64 / 1e6);
    println!("for reference, measured on a machine of this size:");
    println!("  Flower 1.41, its current engine            9400 ms   ({:.0}x our f32)", 9.4 / full);
    println!("  Flower 1.8, its fastest (unencrypted gRPC)  142 ms   ({:.1}x our f32)", 0.142 / full);
}

fn overrides(algorithm: &str, rounds: usize, precision: &str) -> Vec<String> {
    [
        "model.name=cnn-mnist",
        &format!("algorithm.{algorithm}={{}}"),
        "training.epochs=0",
        "evaluate.every=0",
        "data.clients=4",
        "data.max-samples=40",
        "round.min-updates=4",
        &format!("run.rounds={rounds}"),
        &format!("update.precision={precision}"),
    ]
    .map(str::to_owned)
    .to_vec()
}

/// Seconds between closed rounds, and the aggregator's peak memory.
fn rounds_of(directory: &Path, overrides: &[String]) -> (Vec<f64>, u64) {
    let mut serving = Serving::start(directory, overrides);
    let clients: Vec<_> = (0..CLIENTS).map(|index| serving.join(directory, index)).collect();
    let mut closed: Vec<Instant> = Vec::new();
    let mut peak = 0;
    while let Some((moment, _)) = serving.next_round() {
        closed.push(moment);
        peak = serving.process.memory("VmHWM").unwrap_or(0).max(peak);
    }
    drop(clients);
    let _ = std::fs::remove_dir_all(directory.join("runs"));
    for index in 0..CLIENTS {
        // The next aggregator has the same identity only if its directory is kept; a fresh client trusts afresh.
        let _ = std::fs::remove_dir_all(directory.join(format!("state-{index}")));
    }
    // The first rounds wait for clients and warm caches.
    let periods = closed.windows(2).skip(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
    (periods, peak)
}
