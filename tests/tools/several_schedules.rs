//! Many random schedules of several servers.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use federation_tests::several::Planted;
use federation_tests::several::checks::Wrong;
use federation_tests::several::schedule::{SeveralPlayed, SeveralSchedule};

use super::seeds;

fn play(schedule: &SeveralSchedule, planted: Planted, trace: bool) -> Result<SeveralPlayed, String> {
    seeds::played(|folder| schedule.play(folder, planted, trace))
}

#[derive(Default)]
struct Sum {
    played: BTreeMap<&'static str, usize>,
    failed: Vec<u64>,
    hours: f64,
    troubles: BTreeMap<usize, (&'static str, usize)>,
    wrong: BTreeMap<Wrong, usize>,
}

impl Sum {
    fn add(&mut self, seed: u64, name: &'static str, played: Result<SeveralPlayed, String>) {
        *self.played.entry(name).or_default() += 1;
        let problem = match played {
            Ok(SeveralPlayed { took, troubles, wrong }) => {
                self.hours += took.as_secs_f64() / 3600.0;
                for (place, (what, count)) in troubles.named().into_iter().enumerate() {
                    self.troubles.entry(place).or_insert((what, 0)).1 += count;
                }
                let kinds: std::collections::BTreeSet<Wrong> = wrong.iter().map(|(kind, _)| *kind).collect();
                for kind in kinds {
                    *self.wrong.entry(kind).or_default() += 1;
                }
                (!wrong.is_empty()).then(|| format!("{wrong:?}"))
            }
            Err(panic) => Some(panic),
        };
        if let Some(problem) = problem {
            println!("seed {seed} FAILED ({name}): {problem:.600}");
            self.failed.push(seed);
        }
    }
}

pub(crate) fn run(
    (servers, planted): (usize, Planted),
    drawn: impl Fn(u64) -> SeveralSchedule + Sync,
    (count, first): (u64, u64),
    replay: Option<u64>,
) -> ExitCode {
    // Nothing here has to outlive the machine.
    let _ = tempfile::env::override_temp_dir("/dev/shm".as_ref());
    if let Some(seed) = replay {
        let schedule = drawn(seed);
        println!("seed {seed}: {}; {:#?}", schedule.name(), schedule.faults);
        let played = play(&schedule, planted, true);
        println!("{played:?}");
        return ExitCode::from(u8::from(!played.is_ok_and(|played| played.wrong.is_empty())));
    }
    let begun = Instant::now();
    let sum = Mutex::new(Sum::default());
    seeds::each(first..first + count, |seed| {
        let schedule = drawn(seed);
        let played = play(&schedule, planted, false);
        sum.lock().unwrap_or_else(PoisonError::into_inner).add(seed, schedule.name(), played);
    });
    let sum = sum.into_inner().unwrap_or_else(PoisonError::into_inner);
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "{count} schedules of {servers} servers from seed {first}: {seconds:.0} s, {:.0} per second",
        count as f64 / seconds
    );
    for (name, played) in &sum.played {
        println!("  {played:6} {name}");
    }
    println!("  {:.1} hours of virtual time", sum.hours);
    for (what, count) in sum.troubles.values() {
        println!("  {count:6} {what}");
    }
    for (kind, count) in &sum.wrong {
        println!("  {count:6} schedules found: {kind:?}");
    }
    println!("{} failed", sum.failed.len());
    ExitCode::from(u8::from(!sum.failed.is_empty()))
}
