//! The overhead of simulating a thousand clients in one process.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use clap::Args;
use federation_tests::proc::{memory, processor_time};
use federation_tests::programs::programs;
use federation_tests::serving::median;
use models::{Architecture, Backend, Batch, Learner, Sgd};
use shared::seed::Seed;

/// A thousand virtual clients in one process: how much longer a round takes than its training steps alone, start-up, and
/// memory against the number of clients. The environment variable `FEDERATION_DATA` names a folder with `mnist/`.
///
/// `mlp-2nn` on MNIST, IID, a cohort of 100, B = 10, without tests but in one line, whose model is tested on all of the test
/// split every tenth round. The steps alone are measured in this process, on as many threads as `simulate` trains with: as many
/// steps on batches of the same size, already in memory. On a machine that others use as well, times vary. The ratio of
/// processor times hardly does, but does not include time that a processor waits.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Rounds of each run.
    #[arg(long, default_value_t = 20)]
    rounds: u32,
}

const BATCH: usize = 10;
const COHORT: usize = 100;
const SAMPLES: usize = 60_000;
const ATTEMPTS: u32 = 5;

pub(crate) fn run(&Arguments { rounds }: &Arguments) {
    if std::env::var_os(aggregator::config::DATA_VARIABLE).is_none() {
        println!("skipped: {} does not name a folder with mnist/", aggregator::config::DATA_VARIABLE);
        return;
    }
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    println!("mlp-2nn, MNIST, cohort of {COHORT}, B = {BATCH}, {rounds} rounds, {threads} threads");
    println!(
        "                                        a round  steps alone  ratio  CPU of a round  of steps  ratio  start-up  at most"
    );
    let mut peaks = Vec::new();
    for (clients, epochs, every) in [(1000, 1, 0), (1000, 5, 0), (1000, 5, 10), (5000, 1, 0)] {
        let run = simulate(clients, rounds, epochs, every);
        let steps = COHORT * epochs * (SAMPLES / clients).div_ceil(BATCH);
        let alone = steps_alone(steps, threads);
        println!(
            "{clients} clients, E = {epochs}{:12} {:14.1} ms {:9.1} ms {:6.2} {:12.1} ms {:6.1} ms {:6.2} {:7.2} s {:5.1} MB",
            if every > 0 { ", tested" } else { "" },
            1e3 * run.round,
            1e3 * alone.seconds,
            run.round / alone.seconds,
            1e3 * run.processors,
            1e3 * alone.processors,
            run.processors / alone.processors,
            run.start_up,
            run.memory as f64 / 1e6
        );
        peaks.push((clients, run.memory));
    }
    println!("aims: ratios of at most 1.10, start-up below 2 s");
    let [(few, least), .., (many, most)] = peaks[..] else { return };
    let idle = (most as f64 - least as f64) / (many - few) as f64;
    println!("a client that is not training: {:.1} kB", idle / 1e3);
}

/// What the steps alone take.
#[derive(Clone, Copy)]
struct Alone {
    seconds: f64,
    /// Seconds that the threads were running, all together.
    processors: f64,
}

struct Simulated {
    /// Median seconds from one closed round to the next.
    round: f64,
    /// Seconds that the program's threads were running in a round, all together, on average.
    processors: f64,
    /// Seconds until the first round opened.
    start_up: f64,
    /// Bytes resident at most.
    memory: u64,
}

fn simulate(clients: usize, rounds: u32, epochs: usize, every: u32) -> Simulated {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let started = Instant::now();
    let mut command = simulation(directory.path(), clients, rounds, epochs, every);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the program starts");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let (mut times, mut busy, mut start_up, mut peak) = (Vec::new(), Vec::new(), None, 0);
    for line in lines {
        let line = line.expect("lines are text");
        let record: serde_json::Value = serde_json::from_str(&line).expect("a round as JSON");
        let now = started.elapsed().as_secs_f64();
        start_up.get_or_insert(now - record["seconds"].as_f64().expect("every round has its seconds"));
        peak = memory(child.id(), "VmHWM").unwrap_or(0).max(peak);
        times.push(now);
        busy.extend(processor_time(child.id()));
    }
    child.wait().expect("the program ends");
    let span = busy.last().zip(busy.first()).map_or(f64::NAN, |(last, first)| last - first);
    Simulated {
        round: median(times.windows(2).map(|pair| pair[1] - pair[0]).collect()),
        processors: span / (busy.len().max(2) - 1) as f64,
        start_up: start_up.expect("a round"),
        memory: peak,
    }
}

fn simulation(runs: &Path, clients: usize, rounds: u32, epochs: usize, every: u32) -> Command {
    let mut command = Command::new(&programs().aggregator);
    command.args(["simulate", "--json", "--fresh", "--runs"]).arg(runs);
    for change in [
        "data.set=mnist".to_owned(),
        "model.name=mlp-2nn".to_owned(),
        format!("data.clients={clients}"),
        format!("round.fraction={}", COHORT as f64 / clients as f64),
        format!("run.rounds={rounds}"),
        format!("training.epochs={epochs}"),
        format!("training.batch={BATCH}"),
        format!("evaluate.every={every}"),
    ] {
        command.args(["--set", &change]);
    }
    command
}

/// The time of `steps` steps on `threads` threads, one learner each; the shortest of several attempts.
fn steps_alone(steps: usize, threads: usize) -> Alone {
    let architecture = Architecture::by_name("mlp-2nn", &[1, 28, 28], 10).expect("built in");
    let seed = Seed::root(1);
    let params = architecture.initialise(|tensor| seed.derive(tensor).rng()).expect("built in");
    let batches: Vec<Batch> = (0..64_u32)
        .map(|number| {
            let pixel = |index: usize| ((index + 31 * number as usize) % 255) as f32 / 255.0;
            let x = (0..BATCH * 784).map(pixel).collect();
            let y = (0..BATCH as u32).map(|sample| (sample + number) % 10).collect();
            Batch::new(x, vec![BATCH, 1, 28, 28], y).expect("shapes fit")
        })
        .collect();
    let here = std::process::id();
    let attempt = || {
        let started = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let sgd = Sgd { rate: 0.01, momentum: 0.0, decay: 0.0 };
                    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a thread");
                    let mut learner =
                        Learner::new(&architecture, &params, sgd, &Backend::cpu()).expect("built in");
                    pool.install(|| {
                        for step in 0..steps.div_ceil(threads) {
                            learner.step(&batches[step % batches.len()]).expect("a step");
                        }
                    });
                });
            }
        });
        started.elapsed().as_secs_f64()
    };
    let ran = processor_time(here).unwrap_or(f64::NAN);
    let seconds = (0..ATTEMPTS).map(|_| attempt()).fold(f64::INFINITY, f64::min);
    let ran = processor_time(here).unwrap_or(f64::NAN) - ran;
    Alone { seconds, processors: ran / f64::from(ATTEMPTS) }
}
