//! The run specification: the one source of truth for hyper-parameters.
//!
//! The aggregator reads a TOML configuration, validates it once into a [`RunSpec`] and sends that to
//! every client at joining. A client has no hyper-parameters of its own.

use std::time::Duration;

use models::{Architecture, Precision, Sgd};
use serde::{Deserialize, Serialize};

use crate::aggregation::Aggregation;
use crate::data::partition::stream;
use crate::data::{Labels, Preparation, Reading, View};
use crate::id::{ClientId, RunId};
use crate::schedule::Schedule;
use crate::seed::Seed;

/// Everything a client must know to take part in a run. It crosses the network as postcard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunSpec {
    /// The run's identity; client state is keyed by it.
    pub run: RunId,
    /// The run's name, for people.
    pub name: String,
    /// Root of every random choice.
    pub seed: u64,
    /// Number of communication rounds, T.
    pub rounds: u32,
    /// What every client's samples are, and what is done to them.
    pub data: DataSpec,
    /// The network that is learned. Its input is a prepared sample, and its classes are those of a client's labels.
    pub architecture: Architecture,
    /// Local training, one setting for all clients.
    pub training: Training,
    /// Which federated algorithm, with its hyper-parameters.
    pub algorithm: AlgorithmSpec,
    /// What becomes of the updates.
    pub aggregation: Aggregation,
    /// Number format of broadcasts and updates on the wire.
    pub precision: WirePrecision,
    /// How often a client says that it is alive.
    pub heartbeat: Duration,
}

/// The key of a model file's metadata that holds the run's [`DataSpec`] as JSON.
pub const SAMPLES_KEY: &str = "samples";

/// What the samples of all clients have in common.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DataSpec {
    /// Shape of one sample before it is prepared.
    pub shape: Vec<usize>,
    /// The classes' names in the order of their numbers, where labels are names; empty where they are numbers.
    pub class_names: Vec<String>,
    /// How samples are augmented and normalised.
    pub preparation: Preparation,
}

impl DataSpec {
    /// How samples for a model of so many classes are read, whose file may say what they are.
    #[must_use]
    pub fn reading(spec: Option<&Self>, classes: usize) -> Reading {
        let names = spec.map(|spec| spec.class_names.clone()).filter(|names| !names.is_empty());
        Reading {
            shape: spec.map(|spec| spec.shape.clone()),
            labels: names.map_or(Labels::Numbers(classes), Labels::Names),
            ..Reading::default()
        }
    }
}

/// Local training: E epochs over shuffled data in batches of B with SGD.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Training {
    /// Local epochs, E; 0 trains nothing, to measure the system alone.
    pub epochs: u32,
    /// Batch size B; `0` means the client's whole data set in one batch (B = infinity in the paper).
    pub batch: u32,
    /// Whether the last batch of an epoch is left out if it is smaller than the others. A client with fewer samples than a
    /// batch still trains: on all of them at once.
    pub drop_last: bool,
    /// The local optimiser, with the rate of the first round.
    pub sgd: Sgd,
    /// How the rate falls from round to round.
    pub schedule: Schedule,
    /// The greatest length of a batch's gradient, all parameters together: one that is longer is shortened to it, before
    /// corrections and weight decay. `None` for no bound.
    pub clip: Option<f64>,
    /// What clients measure of it beside the loss.
    pub measure: Measures,
    /// In so many slices a client's data arrives, one of which it trains on in each round; 1: on all of it.
    pub slices: u32,
}

/// What clients measure of their training beside the loss, whatever the algorithm: each is a
/// [`Metric`](crate::message::Metric) of the report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Measures {
    /// [`Metric::Alignment`](crate::message::Metric::Alignment): two forward passes over a few samples.
    pub alignment: bool,
    /// [`Metric::Drift`](crate::message::Metric::Drift): one pass over the parameters.
    pub drift: bool,
}

impl Training {
    /// Samples in a batch of a client that has so many in all.
    #[must_use]
    pub fn batch_of(&self, samples: u64) -> u64 {
        if self.batch == 0 { samples } else { u64::from(self.batch).min(samples) }
    }

    /// Steps that a client with so many samples takes in a round, `tau_k`.
    #[must_use]
    pub fn steps(&self, samples: u64) -> u64 {
        let size = self.batch_of(samples).max(1);
        let batches = if self.drop_last { samples / size } else { samples.div_ceil(size) };
        u64::from(self.epochs) * batches
    }
}

/// A registered algorithm and its hyper-parameters, opaque to everything but that algorithm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlgorithmSpec {
    /// Its name in the registry.
    pub name: String,
    /// Its fields, as postcard.
    pub parameters: Vec<u8>,
}

/// Number formats on the wire. The model itself stays f32 on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WirePrecision {
    /// Server to client.
    pub broadcast: Precision,
    /// Client to server.
    pub update: Precision,
}

impl RunSpec {
    /// The local optimiser in this round, counted from 1.
    #[must_use]
    pub fn sgd_in(&self, round: u32) -> Sgd {
        let Training { sgd, schedule, .. } = self.training;
        Sgd { rate: sgd.rate * schedule.share(round, self.rounds), ..sgd }
    }

    /// Samples that a client with so many in all trains on in this round, counted from 1.
    #[must_use]
    pub fn samples_in(&self, round: u32, samples: u64) -> u64 {
        stream::length(samples, self.training.slices, round)
    }

    /// What of a client's data it trains on in this round, counted from 1.
    #[must_use]
    pub fn data_in(&self, round: u32, client: ClientId, data: &View) -> View {
        if self.training.slices <= 1 {
            return data.clone();
        }
        let seed = self.root_seed().derive_bytes("client", client.as_bytes());
        data.part(&stream::slice(data.len(), self.training.slices, round, &seed))
    }

    /// Seed of everything random in this run.
    #[must_use]
    pub fn root_seed(&self) -> Seed {
        Seed::root(self.seed)
    }
}

impl RunSpec {
    /// A small valid specification, for documentation and tests: three rounds of softmax regression on
    /// 1x2x2 samples of two classes.
    ///
    /// # Panics
    /// Never: the built-in `linear` model fits this shape.
    #[must_use]
    pub fn example(algorithm: &str) -> Self {
        Self {
            run: RunId::from_bytes([7; 8]),
            name: "example".to_owned(),
            seed: 1,
            rounds: 3,
            data: DataSpec {
                shape: vec![1, 2, 2],
                class_names: Vec::new(),
                preparation: Preparation::default(),
            },
            architecture: Architecture::by_name("linear", &[1, 2, 2], 2).expect("linear fits every input"),
            training: Training {
                epochs: 1,
                batch: 0,
                drop_last: false,
                sgd: Sgd { rate: 0.1, momentum: 0.0, decay: 0.0 },
                schedule: Schedule::Constant {},
                clip: None,
                measure: Measures::default(),
                slices: 1,
            },
            algorithm: AlgorithmSpec { name: algorithm.to_owned(), parameters: Vec::new() },
            aggregation: Aggregation::default(),
            precision: WirePrecision { broadcast: Precision::F32, update: Precision::F32 },
            heartbeat: Duration::from_secs(5),
        }
    }
}
