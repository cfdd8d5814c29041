//! The run specification: the one source of truth for hyper-parameters.
//!
//! The aggregator reads a TOML configuration, validates it once into a [`RunSpec`] and sends that to
//! every client at joining. A client has no hyper-parameters of its own.

use std::time::Duration;

use models::{Architecture, Precision, Sgd};
use serde::{Deserialize, Serialize};

use crate::aggregation::Aggregation;
use crate::data::partition::{shuffled, stream};
use crate::data::{Labels, Preparation, ReadOptions, View};
use crate::id::{ClientId, RunId};
use crate::message::TaskKind;
use crate::personalisation::Personalisation;
use crate::schedule::Schedule;
use crate::seed::Seed;
use crate::share;

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
    /// What clients test.
    pub evaluation: ClientEvaluation,
    /// How clients make models of their own, if they do.
    pub personalisation: Option<Box<Personalisation>>,
    /// How often a client says that it is alive.
    pub heartbeat: Duration,
}

/// The key of a model file's metadata that holds the run's [`DataSpec`] as JSON.
pub const SAMPLES_KEY: &str = "samples";

/// The key of the metadata of an ensemble's file, which holds many models, that describes the ensemble. No model has it.
pub const ENSEMBLE_KEY: &str = "ensemble";

/// What the samples of all clients have in common.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DataSpec {
    /// Shape of one sample before it is prepared.
    pub shape: Vec<usize>,
    /// The classes' names in the order of their numbers, where labels are names; empty where they are numbers.
    pub class_names: Vec<String>,
    /// How samples are augmented and normalised.
    pub preparation: Preparation,
    /// Who has the labels.
    #[serde(default)]
    pub labels: LabelsAt,
}

/// Who has the labels of the samples that are learned from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LabelsAt {
    /// Every device those of its own.
    #[default]
    Device,
    /// The server alone, of samples of its own: devices need no labels, and those that have some do not use them.
    Server,
}

impl DataSpec {
    /// How samples for a model of so many classes are read, whose file may say what they are.
    #[must_use]
    pub fn reading(spec: Option<&Self>, classes: usize) -> ReadOptions {
        let names = spec.map(|spec| spec.class_names.clone()).filter(|names| !names.is_empty());
        ReadOptions {
            shape: spec.map(|spec| spec.shape.clone()),
            labels: Some(names.map_or(Labels::Numbers(classes), Labels::Names)),
            ..ReadOptions::default()
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

/// Federated evaluation: clients test the model that they are sent on samples of their own.
///
/// It costs no broadcast: whoever is asked to train in a round tests the model that it starts from, that of the round before.
/// The last model is sent to all clients for it, in a closing round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientEvaluation {
    /// Rounds between models that are tested; 0 for none.
    pub every: u32,
    /// The share of a client's samples that it never trains on, and tests on; in `[0, 1)`. 0: it tests on the test split
    /// that lies beside its training samples.
    pub hold_out: f64,
}

impl ClientEvaluation {
    /// How many of so many samples are held out: at least one is left to train on.
    #[must_use]
    pub fn held_out(&self, samples: usize) -> usize {
        share::of(self.hold_out, samples).min(samples.saturating_sub(1))
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

    /// What clients are asked for in this round of training, counted from 1. The model that they are sent is that of the
    /// round before.
    #[must_use]
    pub fn work_in(&self, round: u32) -> TaskKind {
        let due = |every: u32| every > 0 && round > 1 && (round - 1).is_multiple_of(every);
        let personalise = self.personalisation.as_ref().is_some_and(|settings| due(settings.every));
        TaskKind { train: true, evaluate: due(self.evaluation.every), personalise }
    }

    /// What all clients are asked for with the last model, after the training; `None` if for nothing.
    #[must_use]
    pub fn closing_work(&self) -> Option<TaskKind> {
        let (evaluate, personalise) = (self.evaluation.every > 0, self.personalisation.is_some());
        Some(TaskKind { train: false, evaluate, personalise }).filter(|work| work.tests())
    }

    /// What the round after `closed` is for, if training ends with round `last`; `None` if there is none.
    #[must_use]
    pub fn work_after(&self, closed: u32, last: u32) -> Option<TaskKind> {
        if closed < last {
            Some(self.work_in(closed + 1))
        } else {
            self.closing_work().filter(|_| closed == last)
        }
    }

    /// Samples that a client with so many in all trains on in this round, counted from 1.
    #[must_use]
    pub fn samples_in(&self, round: u32, samples: u64) -> u64 {
        let held_out = usize::try_from(samples).map_or(0, |samples| self.evaluation.held_out(samples) as u64);
        stream::length(samples - held_out, self.training.slices, round)
    }

    /// What of a client's data it trains on in this round, counted from 1, and sees of it: if labels are at the server, the
    /// samples alone.
    #[must_use]
    pub fn data_in(&self, round: u32, client: ClientId, data: &View) -> View {
        let data = self.trained_on(client, data);
        let data = match self.data.labels {
            LabelsAt::Device => data,
            LabelsAt::Server => data.without_labels(),
        };
        if self.training.slices <= 1 {
            return data;
        }
        let seed = self.root_seed().derive_bytes("client", client.as_bytes());
        data.part(&stream::slice(data.len(), self.training.slices, round, &seed))
    }

    /// What of a client's data it trains on in any round: all that it does not hold out.
    #[must_use]
    pub fn trained_on(&self, client: ClientId, data: &View) -> View {
        match self.evaluation.held_out(data.len()) {
            0 => data.clone(),
            _ => data.part(&self.divided(client, data).0),
        }
    }

    /// What of a client's data it holds out to test on: empty if nothing.
    #[must_use]
    pub fn held_out(&self, client: ClientId, data: &View) -> View {
        data.part(&self.divided(client, data).1)
    }

    /// The positions among a client's samples of those that it trains on, and of those that it holds out. Without any of these
    /// the samples stay in their order.
    #[must_use]
    pub fn divided(&self, client: ClientId, data: &View) -> (Vec<u32>, Vec<u32>) {
        let held_out = self.evaluation.held_out(data.len());
        if held_out == 0 {
            return ((0..data.len() as u32).collect(), Vec::new());
        }
        let seed = self.root_seed().derive_bytes("client", client.as_bytes()).derive("hold-out");
        let mut order = shuffled(data.len(), &seed);
        let trained = order.split_off(held_out);
        (trained, order)
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
                labels: LabelsAt::default(),
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
            evaluation: ClientEvaluation::default(),
            personalisation: None,
            heartbeat: Duration::from_secs(5),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::data::Dataset;

    #[test]
    fn what_is_held_out_is_never_trained_on() {
        let client = ClientId::from_bytes([3; 16]);
        for (samples, hold_out, slices, expected) in
            [(40, 0.25, 1, 10), (41, 0.25, 4, 10), (1, 0.9, 1, 0), (3, 0.99, 1, 2), (40, 0.0, 3, 0)]
        {
            let mut spec = RunSpec::example("fedavg");
            spec.evaluation.hold_out = hold_out;
            spec.training.slices = slices;
            let dataset = Dataset::new(vec![1, 2, 2], vec![7; 4 * samples], vec![1_u8; samples], 2);
            let data = View::whole(Arc::new(dataset.expect("samples of two classes")));
            let held_out = spec.held_out(client, &data);
            assert_eq!(held_out.len(), expected);
            let mut all: Vec<u32> = held_out.indices().to_vec();
            for round in 1..=slices {
                let trained = spec.data_in(round, client, &data);
                assert_eq!(trained.len() as u64, spec.samples_in(round, samples as u64));
                all.extend(trained.indices());
            }
            all.sort_unstable();
            assert_eq!(all, (0..samples as u32).collect::<Vec<_>>(), "{samples} {hold_out} {slices}");
        }
    }
}
