//! The run specification: the one source of truth for hyper-parameters.
//!
//! The aggregator reads a TOML configuration, validates it once into a [`RunSpec`] and sends that to every client at joining. A
//! client has no hyper-parameters of its own. The sections are those of the configuration, each declared once, in a file of its own:
//!
//! | module | section |
//! |---|---|
//! | [`data`] | what samples are, and who has the labels |
//! | [`training`] | `[training]` |
//! | [`update`] | `[update]` |
//! | [`evaluation`] | `[evaluate]` |
//! | [`personalisation`] | `[personalisation]` |
//! | [`crate::aggregation`] | `[aggregation]` |
//! | [`secure`] | `[secure-aggregation]` |
//! | [`reading`] | how a device reads its samples, before it has the specification |
//! | [`text`] | how a specification travels |

pub mod data;
pub mod evaluation;
pub mod personalisation;
pub mod reading;
pub mod secure;
pub mod text;
pub mod training;
pub mod update;

use std::time::Duration;

use models::{Architecture, Initialisation, Norm, Sgd};
use serde::{Deserialize, Serialize};

use crate::aggregation::{Aggregation, DeviceNoise};
use crate::data::partition::{shuffled, stream};
use crate::data::{Preparation, View};
use crate::id::{ClientId, RunId};
use crate::seed::Seed;
use crate::task::TaskKind;

pub use data::{DataSpec, ENSEMBLE_KEY, LabelsAt, SAMPLES_KEY};
pub use evaluation::Evaluation;
pub use personalisation::Personalisation;
pub use reading::Reading;
pub use secure::SecureAggregation;
pub use text::{SpecError, SpecText};
pub use training::{Measures, Optimizer, Training};
pub use update::Update;
pub use update::{ModelFormat, UpdateFormat};

crate::named!(Norm, Initialisation);

/// Everything a client must know to take part in a run.
#[derive(Clone, Debug, PartialEq)]
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
    /// What happens to the updates.
    pub aggregation: Aggregation,
    /// What travels.
    pub update: Update,
    /// What is tested, and where.
    pub evaluate: Evaluation,
    /// How clients make models of their own, if they do.
    pub personalisation: Box<Personalisation>,
    /// Whether the server learns sums alone.
    pub secure: SecureAggregation,
    /// The noise that clients add to their updates, if they do.
    pub device_noise: Option<DeviceNoise>,
    /// How often a client says that it is alive.
    pub heartbeat: Duration,
}

/// A registered algorithm and its hyper-parameters, opaque to everything but that algorithm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AlgorithmSpec {
    /// Its name in the registry.
    pub name: String,
    /// Its hyper-parameters; those that are left out have the algorithm's defaults.
    pub parameters: toml::Table,
}

impl RunSpec {
    /// How clients make models of their own; `None` if they do not, and test none.
    #[must_use]
    pub fn personalised(&self) -> Option<&Personalisation> {
        Some(&*self.personalisation).filter(|settings| settings.method.is_some())
    }

    /// The local optimiser in this round, counted from 1 without those that have failed. What is trained after the last one that is
    /// [planned](Self::rounds) is trained at its rate.
    #[must_use]
    pub fn optimizer_in(&self, round: u32) -> models::Optimizer {
        let optimizer = self.training.optimizer.to_engine();
        optimizer.at_rate(optimizer.rate() * self.training.rate_share(round.min(self.rounds), self.rounds))
    }

    /// The learning rate in step `step`, counted from 0, of the `steps` that a client takes in this round, counted likewise.
    #[must_use]
    pub fn rate_in_step(&self, round: u32, (step, steps): (u64, u64)) -> f64 {
        let share = self.training.rate_share_in_step(round.min(self.rounds), self.rounds, (step, steps));
        self.training.optimizer.to_engine().rate() * share
    }

    /// Whether any round asks clients to test models on samples of their own.
    #[must_use]
    pub fn is_tested_by_clients(&self) -> bool {
        self.closing_work().is_some()
    }

    /// What clients are asked for in this round of training, counted from 1. The model that they are sent is that of the
    /// round before.
    #[must_use]
    pub fn work_in(&self, round: u32) -> TaskKind {
        let due = |every: u32| every > 0 && round > 1 && (round - 1).is_multiple_of(every);
        let personalise = self.personalised().is_some_and(|settings| due(settings.every));
        TaskKind { train: true, evaluate: due(self.evaluate.on_clients_every), personalise }
    }

    /// What all clients are asked for with the last model, after the training; `None` if for nothing.
    #[must_use]
    pub fn closing_work(&self) -> Option<TaskKind> {
        let (evaluate, personalise) = (self.evaluate.on_clients_every > 0, self.personalised().is_some());
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

    /// Number of samples that a client with `samples` in all trains on in this round, counted from 1.
    #[must_use]
    pub fn samples_in(&self, round: u32, samples: u64) -> u64 {
        let held_out = usize::try_from(samples).map_or(0, |samples| self.evaluate.held_out(samples) as u64);
        stream::length(samples - held_out, self.training.chunks, round)
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
        if self.training.chunks <= 1 {
            return data;
        }
        let seed = self.root_seed().derive_bytes("client", client.as_bytes());
        data.part(&stream::slice(data.len(), self.training.chunks, round, &seed))
    }

    /// What of a client's data it trains on in any round: all that it does not hold out.
    #[must_use]
    pub fn trained_on(&self, client: ClientId, data: &View) -> View {
        match self.evaluate.held_out(data.len()) {
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
        let held_out = self.evaluate.held_out(data.len());
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
                column: data::label_column(),
                text: None,
                features: Vec::new(),
            },
            architecture: Architecture::by_name("linear", &[1, 2, 2], 2).expect("linear fits every input"),
            training: Training { batch: 0, optimizer: Sgd::plain(0.1).into(), ..Training::default() },
            algorithm: AlgorithmSpec { name: algorithm.to_owned(), parameters: toml::Table::new() },
            aggregation: Aggregation::default(),
            update: Update::default(),
            evaluate: Evaluation::default(),
            personalisation: Box::default(),
            secure: SecureAggregation::default(),
            device_noise: None,
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
            spec.evaluate.hold_out = hold_out;
            spec.training.chunks = slices;
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
