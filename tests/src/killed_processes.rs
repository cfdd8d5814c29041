//! Four device processes and a server of which a random one is killed again and again: to the bytes of the simulation.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use aggregator::run::RunManifest;
use aggregator::run::directory::{RunDirectory, client_in};
use aggregator::storage::Disk;
use rand::RngExt as _;
use shared::seed::{Seed, below};

use crate::planted::{plant_noise, plant_secret};
use crate::process::Process;
use crate::testbed::Testbed;

/// Sums of at least three updates, which the server does not see.
const SECURE: [&str; 3] = [
    "secure-aggregation.enabled=true",
    "secure-aggregation.min-devices=3",
    "secure-aggregation.threshold=0.5",
];
/// Differential privacy of devices.
const PRIVATE: [&str; 4] =
    ["privacy.clip=0.5", "privacy.noise=0.7", "privacy.delta=1e-3", "aggregation.weights=uniform"];
/// The secret that private runs and their simulations begin with.
const SECRET: [u8; 32] = [9; 32];
/// Devices.
const DEVICES: u32 = 4;
/// The longest that a run may take.
const LIMIT: Duration = Duration::from_mins(5);
/// How often is looked whether the run is over.
const LOOK: Duration = Duration::from_millis(10);
/// How often is looked whether a round has all updates: it closes within milliseconds.
const LOOK_CLOSELY: Duration = Duration::from_micros(100);
/// The longest that is waited for that.
const ALL_UPDATES: Duration = Duration::from_secs(3);
/// How long devices may take to learn that it is.
const FAREWELL: Duration = Duration::from_secs(5);

/// What hides or shortens updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Updates in 8 bits.
    Int8,
    /// Updates in 4 bits.
    Int4,
    /// Noise of the server's.
    Central,
    /// Hidden updates.
    Secure,
    /// Hidden updates in 8 bits, with noise of the devices' own.
    Skellam,
}

/// How a run went.
#[derive(Clone, Copy, Debug)]
pub struct Killed {
    /// Rounds that closed.
    pub rounds: usize,
    /// Kills of the server.
    pub server: usize,
    /// Kills of devices.
    pub devices: usize,
    /// Those of both once the server had all updates of the round: while it closes, and secrets are revealed.
    pub closing: usize,
    /// Whether every round has all updates, and the model is the simulation's.
    pub same_bytes: bool,
    /// Time.
    pub took: Duration,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Int8, Self::Int4, Self::Central, Self::Secure, Self::Skellam];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Int8 => "int8",
            Self::Int4 => "int4",
            Self::Central => "central DP",
            Self::Secure => "secure",
            Self::Skellam => "secure + Skellam + int8",
        }
    }

    fn settings(self) -> Vec<&'static str> {
        match self {
            Self::Int8 => vec!["update.precision=int8", "model.name=mlp-2nn"],
            Self::Int4 => vec!["update.precision=int4", "model.name=mlp-2nn"],
            Self::Central => PRIVATE.to_vec(),
            Self::Secure => SECURE.to_vec(),
            Self::Skellam => {
                [&SECURE[..], &PRIVATE, &["secure-aggregation.integers=i32", "update.precision=int8"]]
                    .concat()
            }
        }
    }
}

/// Runs this many rounds, kills one of the five processes at random all the while, on average every `every` seconds.
///
/// # Panics
/// If a process does not start, or ends with an error.
#[must_use]
pub fn with_kills(format: Format, rounds: u32, every: f64, seed: u64) -> Killed {
    let length = format!("run.rounds={rounds}");
    let testbed = Testbed::new(DEVICES, &[&format.settings()[..], &[&length]].concat());
    let name = testbed.run().file_name().expect("the run has a name").to_string_lossy().into_owned();
    if format == Format::Central {
        plant_secret(&testbed.path("runs"), &name, SECRET);
    }
    plant_secret(&testbed.path("simulated"), &name, SECRET);
    let mut server = testbed.serve();
    if format == Format::Skellam {
        let manifest = RunManifest::read(&Disk, &RunDirectory::new(testbed.run()));
        let run = manifest.expect("the run can be read").expect("the run has begun").run;
        (0..DEVICES).for_each(|index| plant_noise(&testbed, index, run, &SECRET));
    }
    let mut devices: Vec<Process> = (0..DEVICES).map(|index| testbed.join(index)).collect();
    let mut chance = Seed::root(seed).derive("kills").rng();
    let (began, mut kills) = (Instant::now(), [0, 0, 0]);
    let (finished, mut killed_at_the_end) = (RunDirectory::new(testbed.run()).finished(), false);
    while server.alive() {
        assert!(began.elapsed() < LIMIT, "{}, seed {seed}: the run does not end", format.name());
        let next = Instant::now() + Duration::from_secs_f64(2.0 * every * chance.random_range(0.0..1.0));
        while server.alive() && Instant::now() < next {
            thread::sleep(LOOK);
        }
        // That is a small part of a round, which few random moments fall in.
        if below(3, &mut chance) == 0 {
            let given_up = Instant::now() + ALL_UPDATES;
            while server.alive() && Instant::now() < given_up && !has_all_updates(&testbed) {
                thread::sleep(LOOK_CLOSELY);
            }
        }
        let closing = has_all_updates(&testbed);
        let victim = below(DEVICES as usize + 1, &mut chance);
        let dies = if victim == 0 { &mut server } else { &mut devices[victim - 1] };
        if !dies.kill_if_alive() {
            continue;
        }
        kills[usize::from(victim > 0)] += 1;
        kills[2] += usize::from(closing);
        if victim == 0 && finished.exists() {
            // A server that is started now would begin another run.
            killed_at_the_end = true;
            break;
        }
        *dies = if victim == 0 { testbed.serve() } else { testbed.join(victim as u32 - 1) };
    }
    if !killed_at_the_end {
        let ended = server.wait_within(LIMIT);
        assert_eq!(ended.code, Some(0), "{}, seed {seed}: {}", format.name(), ended.text);
    }
    let took = began.elapsed();
    let patience = Instant::now() + FAREWELL;
    // One that was started again after the run waits for a server that has ended.
    while Instant::now() < patience && devices.iter_mut().any(Process::alive) {
        thread::sleep(LOOK);
    }
    let records = testbed.rounds();
    let all = records.iter().all(|record| record.accepted == DEVICES as usize && !record.void);
    let same_bytes = all && records.len() == rounds as usize && testbed.model() == testbed.simulated();
    Killed { rounds: records.len(), server: kills[0], devices: kills[1], closing: kills[2], same_bytes, took }
}

/// Whether the server has the updates of all devices for the open round.
fn has_all_updates(testbed: &Testbed) -> bool {
    let accepted = RunDirectory::new(testbed.run()).accepted(testbed.closed() as u32 + 1);
    let Ok(files) = fs::read_dir(accepted) else { return false };
    let updates = files.filter(|file| {
        file.as_ref().is_ok_and(|file| file.file_name().to_str().and_then(client_in).is_some())
    });
    updates.count() == DEVICES as usize
}
