//! The configuration as it is written, before any check across keys. What every key means and accepts stands in
//! [`super::keys::KEYS`]; this file gives the keys their types and defaults.

use std::collections::BTreeMap;

use models::params::Precision;
use models::{Initialisation, Norm, Sgd};
use serde::{Deserialize, Serialize};
use shared::aggregation::{Buffers, Rule, ServerOptimizer, Weights};
use shared::eligibility::Eligibility;
use shared::schedule::Schedule;
use shared::spec::Measures;

use super::personal::PersonalisationTable;
use super::{AugmentTable, DataTable};
use crate::attack::Attack;
use crate::round::stopping::Criterion;

/// A configuration file's content with every default filled in. [`Raw::default`] is the default run.
///
/// Counts are `u32` and the seed is an `i64` because TOML integers are signed and have 64 bits: every `Raw` can be
/// written as TOML.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Raw {
    /// The run as a whole.
    pub run: RunTable,
    /// What is learned from, and who has it.
    pub data: DataTable,
    /// What is done to training samples at random.
    pub augment: AugmentTable,
    /// The network.
    pub model: ModelTable,
    /// Local training.
    pub training: TrainingTable,
    /// Exactly one algorithm with its hyper-parameters, by its name in the registry.
    pub algorithm: BTreeMap<String, toml::Table>,
    /// What becomes of the updates.
    pub aggregation: AggregationTable,
    /// What the server trains itself, and what becomes of it.
    pub server: ServerTable,
    /// When a round opens and closes.
    pub round: RoundTable,
    /// What is asked of a device before it trains.
    pub eligibility: Eligibility,
    /// What travels.
    pub update: UpdateTable,
    /// Testing of the global model.
    pub evaluate: EvaluateTable,
    /// When training ends before all rounds are over.
    pub stop: StopTable,
    /// How clients make models of their own.
    pub personalisation: Box<PersonalisationTable>,
    /// Signs of life.
    pub connection: ConnectionTable,
    /// What only a simulation can do.
    pub simulation: SimulationTable,
}

impl Default for Raw {
    fn default() -> Self {
        Self {
            run: RunTable::default(),
            data: DataTable::default(),
            augment: AugmentTable::default(),
            model: ModelTable::default(),
            training: TrainingTable::default(),
            algorithm: BTreeMap::from([("fedavg".to_owned(), toml::Table::new())]),
            aggregation: AggregationTable::default(),
            server: ServerTable::default(),
            round: RoundTable::default(),
            eligibility: Eligibility::default(),
            update: UpdateTable::default(),
            evaluate: EvaluateTable::default(),
            stop: StopTable::default(),
            personalisation: Box::default(),
            connection: ConnectionTable::default(),
            simulation: SimulationTable::default(),
        }
    }
}

/// `[run]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct RunTable {
    /// The run's name, for people; SET-ALGORITHM if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Communication rounds, T.
    pub rounds: u32,
    /// Root of every random choice; not negative.
    pub seed: i64,
}

impl Default for RunTable {
    fn default() -> Self {
        Self { name: None, rounds: 15, seed: 1 }
    }
}

/// `[model]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct ModelTable {
    /// A built-in architecture; absent if there are layers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Seed of the initial parameters; that of the run if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// The layers of a network of one's own, by part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layers: Option<toml::Table>,
    /// What the convolutions of a named model are normalised by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub norm: Option<Norm>,
    /// What weights and biases start as.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initialisation: Option<Initialisation>,
}

impl Default for ModelTable {
    fn default() -> Self {
        let name = Some("cnn-small".to_owned());
        Self { name, seed: None, layers: None, norm: None, initialisation: None }
    }
}

/// `[training]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct TrainingTable {
    /// Local epochs, E.
    pub epochs: u32,
    /// Batch size B; 0 is the full batch.
    pub batch: u32,
    /// Whether a smaller last batch is left out.
    pub drop_last: bool,
    /// The local optimiser.
    pub optimizer: Optimizer,
    /// How its rate falls from round to round.
    pub schedule: Schedule,
    /// Greatest length of a batch's gradient.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip: Option<f64>,
    /// What clients measure beside the loss.
    pub measure: Measures,
}

impl Default for TrainingTable {
    fn default() -> Self {
        Self {
            epochs: 1,
            batch: 16,
            drop_last: false,
            optimizer: Optimizer::default(),
            schedule: Schedule::default(),
            clip: None,
            measure: Measures::default(),
        }
    }
}

/// The local optimiser: exactly one alternative.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Optimizer {
    /// Stochastic gradient descent.
    Sgd(Sgd),
}

impl Default for Optimizer {
    fn default() -> Self {
        Self::Sgd(Sgd { rate: 0.2, momentum: 0.0, decay: 0.0 })
    }
}

/// `[aggregation]`
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct AggregationTable {
    /// How much each update counts.
    pub weights: Weights,
    /// How many updates become one.
    pub rule: Rule,
    /// How the server steps along it.
    pub server: ServerOptimizer,
}

/// `[server]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct ServerTable {
    /// Epochs of the server's own training in a round, `E_s`.
    pub epochs: u32,
    /// The weight of its loss, `lambda_s`.
    pub weight: f64,
    /// Shares of the clients' model, of the server's own and of the one before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mix: Option<Vec<f64>>,
}

impl Default for ServerTable {
    fn default() -> Self {
        Self { epochs: 1, weight: 1.0, mix: None }
    }
}

/// `[round]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct RoundTable {
    /// Fraction of the clients in a cohort, C; 0 means one client.
    pub fraction: f64,
    /// Updates between which a round may close.
    pub count: CountTable,
    /// Seconds between which a round may close.
    pub time: TimeTable,
    /// Clients that must be connected before the first round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<u32>,
    /// Seconds to wait for the known clients after a restart.
    pub regather: f64,
    /// What becomes of updates that come after their round.
    pub late: LateTable,
}

impl Default for RoundTable {
    fn default() -> Self {
        Self {
            fraction: 1.0,
            count: CountTable::default(),
            time: TimeTable::default(),
            start: None,
            regather: 30.0,
            late: LateTable::default(),
        }
    }
}

/// `round.late`
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct LateTable {
    /// Whether they count in the round that is open when they come.
    pub keep: bool,
    /// Rounds after which they do not.
    pub rounds: u32,
    /// How much less they count with each round.
    pub power: f64,
}

impl Default for LateTable {
    fn default() -> Self {
        Self { keep: false, rounds: 10, power: 0.5 }
    }
}

/// `round.count`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct CountTable {
    /// Updates without which a round does not close.
    pub min: u32,
    /// Updates after which a round closes at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
}

impl Default for CountTable {
    fn default() -> Self {
        Self { min: 1, max: None }
    }
}

/// `round.time`
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct TimeTable {
    /// Seconds before which a round does not close.
    pub min: f64,
    /// Seconds after which a round closes with what it has, if that is enough; unset, [`LIMIT`](Self::LIMIT) among devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
}

impl TimeTable {
    /// Seconds after which a round closes where nothing is said.
    pub const LIMIT: f64 = 600.0;
}

impl Default for TimeTable {
    fn default() -> Self {
        Self { min: 0.0, max: None }
    }
}

/// `[update]`
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct UpdateTable {
    /// Number format of updates.
    pub precision: Precision,
    /// Number format of broadcasts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broadcast: Option<Precision>,
    /// Greatest absolute value of an acceptable update.
    pub max_abs: f64,
    /// What becomes of the statistics of normalisation layers.
    pub buffers: Buffers,
}

impl Default for UpdateTable {
    fn default() -> Self {
        Self { precision: Precision::F32, broadcast: None, max_abs: 1000.0, buffers: Buffers::Average }
    }
}

/// `[evaluate]`
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct EvaluateTable {
    /// Rounds between evaluations; 0 is never.
    pub every: u32,
    /// Test samples at once.
    pub batch: u32,
    /// Rounds between tests by the clients, on samples of their own; 0 is never.
    pub clients: u32,
    /// Share of its samples that a client tests on and never trains on; 0: it has a test split.
    pub hold_out: f64,
}

impl Default for EvaluateTable {
    fn default() -> Self {
        Self { every: 1, batch: 64, clients: 0, hold_out: 0.0 }
    }
}

/// `[stop]`
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct StopTable {
    /// What models are compared by.
    pub metric: Criterion,
    /// A value that is good enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<f64>,
    /// So many tests in a row without a better model are enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patience: Option<u32>,
}

/// `[connection]`
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct ConnectionTable {
    /// Seconds between a client's signs of life.
    pub heartbeat: f64,
    /// Seconds without one after which a client counts as lost.
    pub lost_after: f64,
}

impl Default for ConnectionTable {
    fn default() -> Self {
        Self { heartbeat: 5.0, lost_after: 15.0 }
    }
}

/// `[simulation]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct SimulationTable {
    /// What attackers do.
    pub attack: Attack,
    /// Their share of the clients.
    pub attackers: f64,
    /// The ids of the clients; unset, made from the seed.
    pub devices: Option<Vec<String>>,
}

impl Default for SimulationTable {
    fn default() -> Self {
        Self { attack: Attack::default(), attackers: 0.2, devices: None }
    }
}
