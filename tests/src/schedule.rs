//! Random schedules: a federation and its faults, drawn from one seed, and what must hold in the end.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use aggregator::coordinator::Outcome;
use models::ParamSet;
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use shared::seed::Seed;

use crate::faults::Faults;
use crate::planted::{SECRET, plant_secret};
use crate::scenario::{Scenario, draw};
use crate::simulator::{Simulator, Troubles};

/// Virtual time in which every run has to end.
const LIMIT: Duration = Duration::from_hours(168);

/// What is known of the end of a run, beside that it comes and that every round was closed once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Check {
    /// The model is that of a run without faults: rounds wait for all devices. Receipts too.
    Bits,
    /// No round has fewer updates than devices were told.
    Receipts,
    /// Receipts do not say in which round an update counts.
    End,
}

/// Federations of four devices. Of those that wait for all devices, the model must be that of a run without faults.
const FEDERATIONS: [(&str, Check, &[&str]); 18] = [
    ("fedavg", Check::Bits, &["round.min-updates=4"]),
    ("scaffold, local state", Check::Bits, &["round.min-updates=4", "algorithm.scaffold={}"]),
    (
        "median, updates kept on disk",
        Check::Bits,
        &["round.min-updates=4", "aggregation.weights=uniform", "aggregation.rule.median={}"],
    ),
    ("updates in 16 bits", Check::Bits, &["round.min-updates=4", "update.precision=f16"]),
    ("updates in 4 bits", Check::Bits, &["round.min-updates=4", "update.precision=int4"]),
    (
        "updates in 8 bits, kept on disk as they are read",
        Check::Bits,
        &[
            "round.min-updates=4",
            "update.precision=int8",
            "aggregation.weights=uniform",
            "aggregation.rule.median={}",
        ],
    ),
    (
        "closing round of tests",
        Check::Bits,
        &["round.min-updates=4", "evaluate.on-clients-every=1", "evaluate.hold-out=0.25"],
    ),
    ("rounds closed by time", Check::Receipts, &["round.min-updates=2", "round.timeout=20"]),
    (
        "half of the devices a round",
        Check::Receipts,
        &["round.fraction=0.5", "round.min-updates=2", "round.max-updates=2"],
    ),
    (
        "any one device will do",
        Check::Receipts,
        &["round.min-updates=1", "round.max-updates=3", "round.min-wait=2"],
    ),
    (
        "late updates count",
        Check::End,
        &[
            "round.min-updates=1",
            "round.max-updates=2",
            "round.staleness.enabled=true",
            "round.staleness.max=3",
        ],
    ),
    ("hidden updates", Check::Bits, &["round.min-updates=4"]),
    ("hidden updates, local state", Check::Bits, &["round.min-updates=4", "algorithm.scaffold={}"]),
    (
        "hidden updates, rounds closed by time",
        Check::End,
        &["round.min-updates=3", "round.timeout=300", "secure-aggregation.patience=20"],
    ),
    (
        "hidden updates, noise of the devices",
        Check::Bits,
        &[
            "round.min-updates=4",
            "secure-aggregation.integers=i32",
            "privacy.clip=0.5",
            "privacy.noise=0.7",
            "privacy.delta=1e-3",
            "aggregation.weights=uniform",
            "update.precision=int8",
        ],
    ),
    (
        "private, noise of the server",
        // Its rounds do without devices that are cut off.
        Check::Receipts,
        &[
            "round.min-updates=4",
            "privacy.clip=0.5",
            "privacy.noise=0.7",
            "privacy.delta=1e-3",
            "aggregation.weights=uniform",
        ],
    ),
    (
        "models as differences",
        Check::Bits,
        &["round.min-updates=4", "update.broadcast=int8", "model.name=mlp-2nn"],
    ),
    (
        "a few values of an update, the others kept on devices",
        Check::Bits,
        &["round.min-updates=4", "update.top-k=0.02", "update.precision=f16"],
    ),
];

/// What hides updates, and waits for all devices.
const HIDDEN: [&str; 5] = [
    "secure-aggregation.enabled=true",
    "secure-aggregation.min-devices=3",
    "secure-aggregation.threshold=0.5",
    "secure-aggregation.patience=86400",
    "round.timeout=86400",
];

/// One federation under one fault profile.
#[derive(Clone, Debug)]
pub struct Schedule {
    seed: u64,
    federation: usize,
    /// What may go wrong.
    pub faults: Faults,
}

/// How it went.
#[derive(Clone, Copy, Debug)]
pub struct Played {
    /// Virtual time.
    pub took: Duration,
    /// Deaths of the aggregator.
    pub server_deaths: u32,
    /// Waits for room on its disk.
    pub waits: usize,
    /// What else went wrong.
    pub troubles: Troubles,
}

impl Schedule {
    /// The schedule of this number, always the same.
    #[must_use]
    pub fn drawn(seed: u64) -> Self {
        Self::drawn_among(seed, "").expect("there are federations")
    }

    /// The same in the federation of this name, or among those whose names begin so; `None` if none does.
    #[must_use]
    pub fn drawn_among(seed: u64, prefix: &str) -> Option<Self> {
        let mut rng = Seed::root(seed).derive("schedule").rng();
        let federation = draw(&FEDERATIONS.map(|(name, ..)| name), prefix, &mut rng)?;
        Some(Self { seed, federation, faults: faults(&mut rng) })
    }

    /// What it is, in a few words.
    #[must_use]
    pub fn name(&self) -> &'static str {
        FEDERATIONS[self.federation].0
    }

    fn scenario(&self) -> Scenario {
        static ALL: OnceLock<Vec<Scenario>> = OnceLock::new();
        let all = ALL.get_or_init(|| {
            FEDERATIONS.iter().map(|(name, _, keys)| Scenario::named(name, &HIDDEN, keys)).collect()
        });
        all[self.federation].clone()
    }

    /// Gives a private run its secret.
    fn plant(&self, runs: &Path) {
        let config = self.scenario().config;
        if config.promise.is_some() {
            plant_secret(runs, &config.spec.name, SECRET);
        }
    }

    /// The model of the same federation without faults.
    fn reference(&self) -> ParamSet {
        static MODELS: Mutex<BTreeMap<usize, ParamSet>> = Mutex::new(BTreeMap::new());
        let mut models = MODELS.lock().unwrap_or_else(PoisonError::into_inner);
        let reference = || {
            let runs = tempfile::tempdir().expect("the system has a place for temporary files");
            self.plant(runs.path());
            let mut simulator = Simulator::new(self.scenario(), Faults::NONE, 0, runs.path());
            assert_eq!(simulator.run_until_end(LIMIT), Some(Outcome::Completed), "without faults");
            simulator.model()
        };
        models.entry(self.federation).or_insert_with(reference).clone()
    }

    /// Plays it in an empty directory. `trace` prints every happening.
    ///
    /// # Panics
    /// If the run does not end, an accepted update is lost, one is folded twice, or the sums are not exact.
    #[must_use]
    pub fn play(&self, runs: &Path, trace: bool) -> Played {
        let check = FEDERATIONS[self.federation].1;
        let reference = (check == Check::Bits).then(|| self.reference());
        let scenario = self.scenario();
        let rounds = scenario.config.spec.rounds;
        // Rounds with noise of the server's count with any number of updates, so that their model does not tell how many came.
        let any_number = scenario.config.promise.is_some() && !scenario.config.spec.secure.enabled;
        let min = if any_number { 0 } else { scenario.config.policy.min };
        self.plant(runs);
        let mut simulator = Simulator::new(scenario, self.faults, self.seed, runs);
        simulator.trace = trace;
        let outcome = simulator.run_until_end(LIMIT);
        assert_eq!(outcome, Some(Outcome::Completed), "every run ends; at {:?}", simulator.now());
        let records = simulator.records();
        let numbers: Vec<u32> =
            records.iter().filter(|record| !record.closing).map(|record| record.round).collect();
        // A round without a result is one more; where rounds wait for all devices there is none.
        let void = records.iter().filter(|record| record.void && !record.closing).count() as u32;
        assert!(void == 0 || check == Check::End, "{records:?}");
        assert_eq!(numbers, (1..=rounds + void).collect::<Vec<_>>(), "every round is closed once");
        for record in records.iter().filter(|record| !record.closing) {
            let promised = if check == Check::End { 0 } else { simulator.promised(record.round) };
            assert!(promised <= record.accepted, "round {}: {promised} receipts, {record:?}", record.round);
            assert!(record.void || record.accepted >= min || record.accepted == 0, "{record:?}");
        }
        if let Some(reference) = reference {
            assert!(simulator.model() == reference, "the model is not that of a run without faults");
        }
        Played {
            took: simulator.now(),
            server_deaths: simulator.server_deaths,
            waits: simulator.disk().waits(),
            troubles: simulator.troubles,
        }
    }
}

/// Any fault profile: of each kind of fault there may be none, some or much.
fn faults(rng: &mut ChaCha8Rng) -> Faults {
    let mut up_to = |most: f64| match rng.random_range(0..3) {
        0 => 0.0,
        1 => most / 10.0 * rng.random_range(0.0..1.0),
        _ => most * rng.random_range(0.0..1.0),
    };
    let mut seconds = |most: f64, least: f64| Duration::from_secs_f64(up_to(most).max(least));
    let (delay, training) = (seconds(5.0, 0.001), seconds(30.0, 0.001));
    let (downtime, disk, farthest) = (seconds(60.0, 0.001), seconds(10.0, 0.0), seconds(600.0, 1.0));
    Faults {
        delay,
        training,
        cut: up_to(0.1),
        silence: up_to(0.03),
        twice: up_to(0.5),
        device_crash: up_to(0.05),
        server_crash: up_to(0.05),
        downtime,
        disk,
        disk_death: up_to(0.6),
        full: up_to(1.0),
        jump: up_to(0.05),
        farthest,
    }
}
