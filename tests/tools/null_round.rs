//! The cost of a round before any training.

use std::path::Path;
use std::time::Instant;

use clap::Args;
use federation_tests::open_pages::OpenPages;
#[cfg(unix)]
use federation_tests::postgres::Postgres;
use federation_tests::proc::processor_time;
use federation_tests::serving::{Serving, median, split_data};
use federation_tests::visitor::Visitor;

/// The cost of a round before any training: real processes, encrypted QUIC on loopback, durable on disk.
///
/// Four `edge-client` processes and one `aggregator`, `cnn-mnist` (1,663,370 parameters), no local epochs, no evaluation. A
/// round is the time from one closed round to the next: broadcast, update, check, sync, fold, close, checkpoint. The
/// precisions run alternately; medians are printed. `int8-both` has the model travel in 8 bits as well, as a difference. With `--pages` f32 runs without and with open pages of the run, alternately. With
/// `--store` every client trains on one sample, since a store takes no model again that it has.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Rounds of each run.
    #[arg(long, default_value_t = 40)]
    rounds: usize,
    /// The algorithm; one that keeps something on the device costs a sync there as well.
    #[arg(long, default_value = "fedavg")]
    algorithm: String,
    /// Ways in which updates travel, without which all are compared: the others are given as a part of the first in the list.
    #[arg(long, value_delimiter = ',', value_parser = WAYS.map(|(name, ..)| name), conflicts_with_all = ["pages", "store"])]
    only: Vec<String>,
    /// Live pages of the run that are open in the second half of the runs.
    #[arg(long)]
    pages: Option<usize>,
    /// Run f32 without and with a store on this machine, alternately.
    #[arg(long, conflicts_with = "pages")]
    store: bool,
}

const CLIENTS: usize = 4;
const REPEATS: usize = 3;

/// A way in which updates and models travel: its name, its keys, and what a round is to take.
type Way = (&'static str, &'static [&'static str], &'static str);

const WAYS: [Way; 5] = [
    ("f32", &["update.precision=f32"], "below 100 ms"),
    ("f16", &["update.precision=f16"], "below 70 ms"),
    ("int8", &["update.precision=int8"], "at most 0.6 of f32"),
    ("int8-both", &["update.precision=int8", "update.broadcast=int8"], "none"),
    ("int4", &["update.precision=int4"], "none"),
];

pub(crate) fn run(Arguments { rounds, algorithm, only, pages, store }: &Arguments) {
    let rounds = *rounds;
    #[cfg(unix)]
    if *store {
        return over_a_store(rounds, algorithm);
    }
    if let Some(pages) = *pages {
        return beside_pages(rounds, algorithm, pages);
    }
    let ways: Vec<Way> = WAYS
        .into_iter()
        .filter(|(name, ..)| only.is_empty() || only.iter().any(|only| only == name))
        .collect();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut periods = vec![Vec::new(); ways.len()];
    let mut peak = 0;
    split_data(directory.path(), &overrides(algorithm, rounds));
    for _ in 0..REPEATS {
        for ((_, keys, _), periods) in ways.iter().zip(&mut periods) {
            let overrides: Vec<String> = overrides(algorithm, rounds)
                .into_iter()
                .chain(keys.iter().map(ToString::to_string))
                .collect();
            let found = rounds_of(directory.path(), &overrides, 0);
            periods.extend(found.periods);
            peak = peak.max(found.peak);
        }
    }
    println!(
        "null round, {algorithm}, {CLIENTS} client processes, 1,663,370 parameters, encrypted QUIC on loopback, fsync on"
    );
    println!("{REPEATS} x {rounds} rounds each, alternately, state under {}", directory.path().display());
    let medians: Vec<f64> = periods.into_iter().map(median).collect();
    let (full, first) = (medians[0], ways[0].0);
    for ((name, _, aim), median) in ways.iter().zip(medians) {
        println!(
            "  {name:<9} median {:6.1} ms, {:.2} of {first}   (aim: {aim})",
            1e3 * median,
            median / full
        );
    }
    println!("  aggregator's peak memory {:.1} MB", peak as f64 / 1e6);
    println!("for reference, measured on a machine of this size:");
    println!("  Flower 1.41, its current engine            9400 ms   ({:.0}x our {first})", 9.4 / full);
    println!("  Flower 1.8, its fastest (unencrypted gRPC)  142 ms   ({:.1}x our {first})", 0.142 / full);
}

fn overrides(algorithm: &str, rounds: usize) -> Vec<String> {
    [
        "model.name=cnn-mnist",
        &format!("algorithm.{algorithm}={{}}"),
        "training.epochs=0",
        "evaluate.every=0",
        "data.clients=4",
        "data.max-samples=40",
        "round.min-updates=4",
        &format!("run.rounds={rounds}"),
    ]
    .map(str::to_owned)
    .to_vec()
}

/// What a store costs a round: the run is one of several servers', of which there is one.
#[cfg(unix)]
fn over_a_store(rounds: usize, algorithm: &str) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut overrides = overrides(algorithm, rounds);
    overrides.extend(["training.epochs=1", "data.max-samples=4"].map(str::to_owned));
    split_data(directory.path(), &overrides);
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for _ in 0..REPEATS {
        let place = directory.path();
        without.extend(rounds_of(place, &overrides, 0).periods);
        let Some(postgres) = Postgres::start() else { return };
        let serving = Serving::start_sharing(place, &overrides, &postgres.address());
        with.extend(rounds_served(serving, place, 0).periods);
    }
    let [without, with] = [without, with].map(median);
    println!(
        "null round, {algorithm}, f32, {REPEATS} x {rounds} rounds without and with PostgreSQL, alternately"
    );
    println!("  without   median {:6.1} ms", 1e3 * without);
    println!("  with      median {:6.1} ms, {:.2} of it   (aim: at most 2.5)", 1e3 * with, with / without);
}

/// What pages that are open cost a round.
fn beside_pages(rounds: usize, algorithm: &str, pages: usize) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let overrides = overrides(algorithm, rounds);
    split_data(directory.path(), &overrides);
    let mut found = [(Vec::new(), Vec::new()), (Vec::new(), Vec::new())];
    for _ in 0..REPEATS {
        for (pages, (periods, processor)) in [0, pages].into_iter().zip(&mut found) {
            let run = rounds_of(directory.path(), &overrides, pages);
            periods.extend(run.periods);
            processor.push(run.processor);
        }
    }
    let [without, with] = found.map(|(periods, processor)| (median(periods), median(processor)));
    println!(
        "null round, {algorithm}, {REPEATS} x {rounds} rounds without and with {pages} open pages, alternately"
    );
    println!(
        "  without   median {:6.1} ms, {:5.1} ms of the server's processor time",
        1e3 * without.0,
        1e3 * without.1
    );
    println!("  with      median {:6.1} ms, {:5.1} ms", 1e3 * with.0, 1e3 * with.1);
    println!("  ratio            {:6.3}   , {:5.3}", with.0 / without.0, with.1 / without.1);
}

/// What the rounds of a run took.
struct Found {
    /// Seconds between closed rounds.
    periods: Vec<f64>,
    /// The aggregator's peak memory.
    peak: u64,
    /// Its processor time for a round, in seconds.
    processor: f64,
}

/// A run, with as many pages of it open.
fn rounds_of(directory: &Path, overrides: &[String], pages: usize) -> Found {
    rounds_served(Serving::start(directory, overrides), directory, pages)
}

fn rounds_served(mut serving: Serving, directory: &Path, pages: usize) -> Found {
    let open = (pages > 0).then(|| {
        let runs = directory.join("runs");
        let all = std::fs::read_dir(&runs).expect("the server has made it").flatten();
        let run = all.map(|entry| entry.path()).find(|path| path.join("config.toml").is_file());
        let visitor = Visitor::of_page(&["--runs", &runs.display().to_string()]);
        OpenPages::of(visitor, &run.expect("the run that is served"), pages)
    });
    let clients: Vec<_> = (0..CLIENTS).map(|index| serving.join(directory, index)).collect();
    let mut closed: Vec<Instant> = Vec::new();
    let (mut peak, mut processor) = (0, 0.0);
    while let Some((moment, _)) = serving.next_round() {
        closed.push(moment);
        peak = serving.process.memory("VmHWM").unwrap_or(0).max(peak);
        processor = processor_time(serving.process.id()).unwrap_or(processor);
    }
    drop((clients, open));
    let _ = std::fs::remove_dir_all(directory.join("runs"));
    for index in 0..CLIENTS {
        // The next aggregator has the same identity only if its directory is kept; a fresh client trusts afresh.
        let _ = std::fs::remove_dir_all(directory.join(format!("state-{index}")));
    }
    // The first rounds wait for clients and warm caches.
    let periods = closed.windows(2).skip(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
    Found { periods, peak, processor: processor / closed.len().max(1) as f64 }
}
