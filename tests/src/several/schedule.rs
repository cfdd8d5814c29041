//! Random schedules of several servers: a federation and its faults, drawn from one seed, and whether all held.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use aggregator::coordinator::Outcome;
use shared::seed::Seed;

use super::checks::Wrong;
use super::faults::{SeveralFaults, SeveralTroubles};
use super::{Planted, Several};
use crate::faults::Faults;
use crate::planted::{SECRET, plant_secret};
use crate::scenario::{Scenario, draw};
use crate::simulator::Simulator;

/// Virtual time in which every run has to end.
const LIMIT: Duration = Duration::from_hours(4);

/// What hides updates.
const HIDDEN: [&str; 4] = [
    "secure-aggregation.enabled=true",
    "secure-aggregation.min-devices=3",
    "secure-aggregation.threshold=0.5",
    "secure-aggregation.patience=3600",
];

/// A table of 80 samples of four kinds: a model of 36 parameters, so that a schedule takes as long as what passes messages on.
const TABLE: [&str; 6] = [
    "data.set=csv",
    concat!("data.path=", env!("CARGO_MANIFEST_DIR"), "/table"),
    "data.max-samples=80",
    "data.shape=8",
    "data.label=kind",
    "data.class-names=[\"ash\", \"elm\", \"fir\", \"oak\"]",
];

/// What is known of the end of a run, beside that it comes and that every round was closed once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Check {
    /// The model is that of one machine: rounds wait for all devices.
    Model,
    /// Every round has a result.
    Results,
    /// Rounds may have no result.
    End,
}

/// Federations of four devices and their keys.
const FEDERATIONS: [(&str, Check, &[&str]); 15] = [
    ("fedavg", Check::Model, &["round.min-updates=4"]),
    ("scaffold, local state", Check::Model, &["round.min-updates=4", "algorithm.scaffold={}"]),
    ("updates in 16 bits", Check::Model, &["round.min-updates=4", "update.precision=f16"]),
    ("updates in 4 bits", Check::Model, &["round.min-updates=4", "update.precision=int4"]),
    (
        "closing round of tests",
        Check::Model,
        &["round.min-updates=4", "evaluate.on-clients-every=1", "evaluate.hold-out=0.25"],
    ),
    (
        "models of the clients' own",
        Check::Model,
        &["round.min-updates=4", "algorithm.local={}", "evaluate.every=1"],
    ),
    ("hidden updates", Check::Model, &["round.min-updates=4"]),
    ("hidden updates, local state", Check::Model, &["round.min-updates=4", "algorithm.scaffold={}"]),
    (
        "hidden updates, noise of the devices",
        Check::Model,
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
        "hidden updates, rounds closed by time",
        Check::End,
        &["round.min-updates=3", "round.timeout=300", "secure-aggregation.patience=20"],
    ),
    ("rounds closed by time", Check::Results, &["round.min-updates=2", "round.timeout=20"]),
    (
        "half of the devices a round",
        Check::Results,
        &["round.fraction=0.5", "round.min-updates=2", "round.max-updates=2"],
    ),
    ("models as differences", Check::Model, &["round.min-updates=4", "update.broadcast=int8"]),
    (
        "any one device will do",
        Check::Results,
        &["round.min-updates=1", "round.max-updates=3", "round.min-wait=2"],
    ),
    (
        "late updates count",
        Check::Results,
        &[
            "round.min-updates=1",
            "round.max-updates=2",
            "round.staleness.enabled=true",
            "round.staleness.max=3",
        ],
    ),
];

/// One federation of several servers under one fault profile.
#[derive(Clone, Debug)]
pub struct SeveralSchedule {
    seed: u64,
    federation: usize,
    servers: usize,
    /// What may go wrong.
    pub faults: SeveralFaults,
}

/// How it went.
#[derive(Clone, Debug)]
pub struct SeveralPlayed {
    /// Virtual time.
    pub took: Duration,
    /// What went wrong around the run.
    pub troubles: SeveralTroubles,
    /// What is wrong with it.
    pub wrong: Vec<(Wrong, String)>,
}

impl SeveralSchedule {
    /// The schedule of this number with this number of servers, always the same.
    ///
    /// # Panics
    /// Never: there are federations.
    #[must_use]
    pub fn drawn(seed: u64, servers: usize) -> Self {
        Self::drawn_among(seed, servers, "").expect("there are federations")
    }

    /// The same in the federation of this name, or among those whose names begin so; `None` if none does.
    #[must_use]
    pub fn drawn_among(seed: u64, servers: usize, prefix: &str) -> Option<Self> {
        let mut rng = Seed::root(seed).derive("several servers").rng();
        let federation = draw(&FEDERATIONS.map(|(name, ..)| name), prefix, &mut rng)?;
        Some(Self { seed, federation, servers, faults: SeveralFaults::drawn(&mut rng) })
    }

    /// What it is, in a few words.
    #[must_use]
    pub fn name(&self) -> &'static str {
        FEDERATIONS[self.federation].0
    }

    fn scenario(&self) -> Scenario {
        static ALL: OnceLock<Vec<Scenario>> = OnceLock::new();
        let all = ALL.get_or_init(|| {
            let named = |name, keys: &[&str]| Scenario::named(name, &HIDDEN, &[&TABLE, keys].concat());
            FEDERATIONS.iter().map(|(name, _, keys)| named(name, keys)).collect()
        });
        all[self.federation].clone()
    }

    /// The model's file of the same federation on one machine without faults.
    fn reference(&self) -> Vec<u8> {
        static MODELS: Mutex<BTreeMap<usize, Vec<u8>>> = Mutex::new(BTreeMap::new());
        let mut models = MODELS.lock().unwrap_or_else(PoisonError::into_inner);
        let reference = || {
            let runs = tempfile::tempdir().expect("the system has a place for temporary files");
            let scenario = self.scenario();
            if scenario.config.promise.is_some() {
                plant_secret(runs.path(), &scenario.config.spec.name, SECRET);
            }
            let mut simulator = Simulator::new(scenario, Faults::NONE, 0, runs.path());
            assert_eq!(simulator.run_until_end(LIMIT), Some(Outcome::Completed), "without faults");
            std::fs::read(simulator.run_directory().model()).expect("a complete run has a model")
        };
        models.entry(self.federation).or_insert_with(reference).clone()
    }

    /// Plays it in an empty folder, with this bug put in. `trace` prints every happening.
    #[must_use]
    pub fn play(&self, folder: &Path, planted: Planted, trace: bool) -> SeveralPlayed {
        let check = FEDERATIONS[self.federation].1;
        let reference = (check == Check::Model).then(|| self.reference());
        let scenario = self.scenario();
        let rounds = scenario.config.spec.rounds;
        let mut several = Several::new(scenario, self.servers, (self.faults, planted), self.seed, folder);
        several.trace = trace;
        several.run_until_end(LIMIT);
        let wrong = several.wrong(rounds, check == Check::End, reference.as_deref());
        SeveralPlayed { took: several.now(), troubles: several.troubles, wrong }
    }
}
