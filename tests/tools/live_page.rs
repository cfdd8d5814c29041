//! What the live page costs, and how fast it is.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use aggregator::database::Database;
use aggregator::page::Found;
use aggregator::round::{RoundRecord, jsonl};
use aggregator::run::directory::RunDirectory;
use aggregator::storage::Disk;
use clap::Args;
use federation_tests::open_pages::OpenPages;
use federation_tests::proc::processor_time;
use federation_tests::programs::simulate;
use federation_tests::serving::median;
use federation_tests::visitor::Visitor;

/// What the live page costs, and how fast it is: a history of many rounds and devices, and pages that are open while rounds close.
///
/// Two runs of many rounds and a run of 1,000 rounds with 1,000 devices each are made. Every page is asked for six times: first by a
/// page that knows nothing, then again. Then pages of the run are open as in browsers, a round closes each second, and each of them fetches
/// what has changed.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Rounds of the long history.
    #[arg(long, default_value_t = 100_000)]
    rounds: u32,
    /// Pages that are open.
    #[arg(long, default_value_t = 20)]
    pages: usize,
    /// For how many seconds they are.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
}

const DEVICES: u32 = 1000;
const ROUNDS: u32 = 1000;

pub(crate) fn run(Arguments { rounds, pages, seconds }: &Arguments) {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let runs = folder.path().join("runs");
    for (name, seed, rounds) in [("long", 1, *rounds), ("longer", 2, *rounds), ("many", 3, ROUNDS)] {
        let (name_of, seed) = (format!("run.name={name}"), format!("run.seed={seed}"));
        let sets =
            [&*name_of, &seed, "model.name=linear", "data.clients=2", "data.max-samples=40", "run.rounds=1"];
        simulate(&runs, &sets);
        let records: Vec<_> = (1..=rounds).map(record).collect();
        std::fs::write(runs.join(name).join("rounds.jsonl"), jsonl::write(&records)).expect("written");
    }
    let identity = folder.path().join("identity");
    remember(&identity, &runs.join("many"));
    let [place, identity] = [&runs, &identity].map(|path| path.display().to_string());
    let visitor = Visitor::of_page(&["--runs", &place, "--identity", &identity]);
    println!(
        "{rounds} rounds of history twice, {ROUNDS} rounds with {DEVICES} devices; an answer as a whole:"
    );
    println!("  {:<32} {:>10} {:>10} {:>10}", "page", "first", "median", "size");
    for page in [
        "/",
        "/runs/long",
        "/runs/many",
        "/runs/many/rounds/700",
        "/compare?run=long&run=longer",
        "/devices",
        "/metrics",
    ] {
        let mut times = Vec::new();
        let mut size = 0;
        for _ in 0..6 {
            let begun = Instant::now();
            size = visitor.sees(page).body.len();
            times.push(begun.elapsed().as_secs_f64());
        }
        let first = times.remove(0);
        println!(
            "  {page:<32} {:>7.0} ms {:>7.0} ms {:>7.0} kB",
            1e3 * first,
            1e3 * median(times),
            size as f64 / 1e3
        );
    }
    watched(visitor, &runs.join("many"), *pages, Duration::from_secs(*seconds));
}

/// A round such as a run of a thousand devices has.
fn record(round: u32) -> RoundRecord {
    let loss = 2.0 / f64::from(round).sqrt();
    RoundRecord {
        round,
        accuracy: Some(1.0 / (1.0 + loss)),
        loss: Some(loss),
        train_loss: Some(loss),
        sampled: DEVICES as usize,
        accepted: DEVICES as usize,
        bytes_down: 6_000_000,
        bytes_up: 6_000_000,
        seconds: 0.9,
        closed: Some("2026-01-01T00:00:00Z".to_owned()),
        ..RoundRecord::default()
    }
}

/// Enters the run and the answers of all its devices into the database.
fn remember(identity: &Path, directory: &Path) {
    let found = Found::read(&Disk, &RunDirectory::new(directory), false).expect("it is a run");
    let run = found.config.spec.run.to_string();
    let database = Database::open(identity).expect("made");
    let written = database.write("make a history in", |transaction| {
        transaction.execute(
            "INSERT INTO runs (run, directory, rounds, begun, served, process, told, status) VALUES (?1, ?2, ?3, 0, 0, 1, 0, 'null')",
            (&run, directory.display().to_string(), ROUNDS),
        )?;
        let mut round = transaction.prepare("INSERT INTO rounds (run, round, opened, closed, cohort) VALUES (?1, ?2, ?3, ?4, ?5)")?;
        let mut arrival = transaction.prepare(
            "INSERT INTO arrivals (run, round, device, verdict, at, times) VALUES (?1, ?2, ?3, 'accepted', ?4, 1)",
        )?;
        let mut known = transaction.prepare(
            "INSERT OR IGNORE INTO devices (client, key, standing, since, seen, address, software, samples)
             VALUES (?1, ?2, 'in', 0, 0, '192.0.2.1:4433', '0.1.0', 600)",
        )?;
        for device in 0..DEVICES {
            known.execute((u128::from(device).to_be_bytes(), [device.to_le_bytes(); 8].concat()))?;
        }
        for number in 1..=ROUNDS {
            let opened = 1000 * i64::from(number);
            round.execute((&run, number, opened, opened + 900, DEVICES))?;
            for device in 0..DEVICES {
                arrival.execute((&run, number, format!("{device:032x}"), opened + i64::from(device % 900)))?;
            }
        }
        Ok(())
    });
    written.expect("written");
}

/// Pages that are open while a round closes each second.
fn watched(visitor: Visitor, directory: &Path, pages: usize, time: Duration) {
    let open = OpenPages::of(visitor, directory, pages);
    let processor = || processor_time(open.process()).expect("this bench needs /proc");
    let mut file = OpenOptions::new().append(true).open(directory.join("rounds.jsonl")).expect("it is there");
    let (begun, before) = (Instant::now(), processor());
    let mut closed = Vec::new();
    while begun.elapsed() < time {
        let round = ROUNDS + 1 + closed.len() as u32;
        closed.push(Instant::now());
        file.write_all(jsonl::line(&record(round)).as_bytes()).expect("written");
        file.sync_data().expect("written");
        std::thread::sleep(Duration::from_secs(1));
    }
    let share = (processor() - before) / begun.elapsed().as_secs_f64();
    let last_before = |seen: Instant| closed.iter().rev().find(|closed| **closed <= seen);
    let delay = |seen: Instant| Some((seen - *last_before(seen)?).as_secs_f64());
    let delays: Vec<f64> = open.seen().into_iter().filter_map(delay).collect();
    let seen = delays.len();
    println!("{pages} pages open, a round a second for {} s:", time.as_secs());
    println!("  {:.1} % of a core in the page's process", 100.0 * share);
    println!(
        "  from a round on disk to its part of the page: median {:.0} ms of {seen}",
        1e3 * median(delays)
    );
}
