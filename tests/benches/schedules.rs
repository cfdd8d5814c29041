//! Random schedules of both state machines in memory: delays, cuts, silence, duplicates, deaths of either side at any step,
//! power failures, slow and full disks, clocks that jump.
//!
//! `cargo bench -p federation-tests --profile dev --bench schedules -- [COUNT] [SEED]`   (default: 10000 from seed 0)
//! `cargo bench -p federation-tests --profile dev --bench schedules -- --replay SEED`
//!
//! Checked of each: the run ends, every round is closed once, nothing accepted is lost, nothing is folded twice, and where
//! rounds wait for everyone the model has the bits of calm weather. Seeds that fail are printed; `--replay` prints every
//! happening of one. Exit code 1 if any failed.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use federation_tests::schedule::{Played, Schedule};

fn main() -> ExitCode {
    let given: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let number = |place: usize, default| given.get(place).map_or(Ok(default), |text| text.parse());
    let parsed = match given.first().map(String::as_str) {
        Some("--replay") => number(1, 0).map(|seed| (None, seed)),
        _ => number(0, 10_000).and_then(|count| Ok((Some(count), number(1, 0)?))),
    };
    match parsed {
        Ok((None, seed)) => replay(seed),
        Ok((Some(count), seed)) => many(count, seed),
        Err(_) => {
            eprintln!("usage: schedules [COUNT] [SEED] | --replay SEED");
            ExitCode::from(2)
        }
    }
}

fn play(seed: u64, trace: bool) -> Result<Played, String> {
    let schedule = Schedule::drawn(seed);
    let runs = tempfile::tempdir().expect("the system has a place for temporary files");
    catch_unwind(AssertUnwindSafe(|| schedule.play(runs.path(), trace))).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned())).unwrap_or_default()
    })
}

fn replay(seed: u64) -> ExitCode {
    let schedule = Schedule::drawn(seed);
    println!("seed {seed}: {}; {:#?}", schedule.name(), schedule.weather);
    match play(seed, true) {
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
    counts: [usize; 8],
}

fn many(count: u64, first: u64) -> ExitCode {
    let begun = Instant::now();
    // What panicked is printed with its seed below.
    std::panic::set_hook(Box::new(|_| {}));
    let (next, sum) = (AtomicU64::new(first), Mutex::new(Sum::default()));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first + count {
                break;
            }
            let played = play(seed, false);
            let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
            *sum.played.entry(Schedule::drawn(seed).name()).or_default() += 1;
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
                        troubles.jumps,
                        waits,
                    ];
                    sum.counts.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
                }
                Err(problem) => {
                    println!("seed {seed} FAILED ({}): {problem}", Schedule::drawn(seed).name());
                    sum.failed.push(seed);
                }
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
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
        "jumps of clocks",
        "waits for room on the disk",
    ];
    what.iter().zip(sum.counts).for_each(|(what, count)| println!("  {count:6} {what}"));
    println!(
        "{} failed{}",
        sum.failed.len(),
        if sum.failed.is_empty() { "" } else { "; play one again with --replay SEED" }
    );
    ExitCode::from(u8::from(!sum.failed.is_empty()))
}
