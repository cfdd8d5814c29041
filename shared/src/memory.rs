//! The memory that a round takes on a client, from the run's specification alone.
//!
//! An estimate, for a device that refuses in time what would end it later. It follows the largest of what is in memory together:
//! the broadcast, and either the training, or the update as it is sent, or the personal model. It counts what training on the CPU
//! takes; the program and its samples come on top.

use models::{Architecture, ArchitectureError, ParameterKind, ParameterSpec, Use};

use crate::algorithm::frozen_features::{CHUNK as FROZEN_CHUNK, kept_bytes};
use crate::algorithm::registry::{self, RegistryError};
use crate::evaluation::BATCH as TEST_BATCH;
use crate::personalisation::features::CHUNK as FEATURES_BATCH;
use crate::spec::personalisation::Tuning;
use crate::spec::{Personalisation, RunSpec, UpdateFormat};

/// Memory of a client in a round, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundMemory {
    /// Models: received, in training with gradients and velocity, kept, sent.
    pub models: u64,
    /// Samples of a batch, what layers make of them, and the memory that they work in.
    pub batches: u64,
}

impl RoundMemory {
    /// All of it.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.models.saturating_add(self.batches)
    }

    fn plus_models(self, more: u64) -> Self {
        Self { models: self.models.saturating_add(more), ..self }
    }
}

/// Why there is no estimate: the specification is of no run.
#[derive(Debug, thiserror::Error)]
pub enum EstimateError {
    /// The network is none.
    #[error(transparent)]
    Architecture(#[from] ArchitectureError),
    /// There is no such algorithm here.
    #[error(transparent)]
    Algorithm(#[from] RegistryError),
}

/// The memory that a round of this run takes on a client with this number of samples.
///
/// # Errors
/// [`EstimateError`], if the specification itself is wrong.
pub fn estimate(spec: &RunSpec, samples: u64) -> Result<RoundMemory, EstimateError> {
    let client = registry::build(&spec.algorithm)?.client_needs();
    let network = &spec.architecture;
    let whole = network.memory(0, Use::Evaluation)?.parameters;
    // What is learned travels; what is frozen is there once.
    let model = network.parameter_specs()?.iter().map(values).sum::<u64>().saturating_mul(4);
    let frozen = whole.saturating_sub(model);
    let times = |count: u32| model.saturating_mul(u64::from(count));
    // In f32 it is used where it lies; other formats are decoded beside it.
    let format = spec.update.broadcast();
    let received = match format.whole().bytes() as u64 {
        4 => times(client.received),
        bytes => times(client.received).saturating_add(times(client.received) / 4 * bytes),
    };
    // What the optimiser has kept is read before the round's training, and again beside its own when that ends.
    let kept =
        if spec.training.keeps_optimizer() { spec.training.optimizer.to_engine().moments() } else { 0 };
    let sent = times(client.sent);
    // What was left out of updates is read with the rest of the client's state, before the round's training.
    // It lies there twice: as it was read, and decoded.
    let memory = if spec.update.top_k.is_some() { sent.saturating_mul(2) } else { 0 };
    let held = received
        .saturating_add(times(client.held))
        .saturating_add(times(kept as u32))
        .saturating_add(memory)
        .saturating_add(frozen);

    // Hidden, every value is a whole number of 8 bytes beside the update, and once more, in its format, while that is encoded.
    let encoded = if spec.secure.enabled {
        sent.saturating_mul(2) + sent / 4 * spec.secure.integers.bytes() as u64
    } else {
        sent / 4 * spec.update.most_bytes()
    };
    // In f32 it is sent from where it lies; other formats are encoded beside it.
    let as_it_lies = spec.update.precision == UpdateFormat::F32 && !spec.update.is_compressed();
    let beside = if spec.secure.enabled || as_it_lies { 0 } else { encoded };
    // Where values are left out: what is left out now, and what the server reads.
    let left_out = memory.saturating_mul(2);
    let mut phases =
        vec![RoundMemory { models: sent.saturating_add(beside).saturating_add(left_out), batches: 0 }];
    // What differences are to stays for those of the next round.
    let base = if format.is_difference() { received } else { 0 };
    if format.is_difference() {
        // Beside it the differences of a round, as they come and in f32, and the model that comes of them.
        let arriving = received.saturating_mul(2).saturating_add(received / 3);
        phases.push(RoundMemory { models: arriving, batches: 0 });
    }
    if spec.training.epochs > 0 {
        // Where samples are normalised by what is beside them, all are beside each other.
        let whole = network.parameter_specs()?.iter().any(|spec| spec.kind == ParameterKind::Buffer);
        let batch = match client.batch {
            None => spec.training.batch_of(samples),
            Some(most) if !whole => samples.min(most),
            Some(_) => samples,
        };
        let batch = size(batch.saturating_mul(u64::from(client.views)));
        let training = network.memory(
            batch,
            Use::Training {
                optimizer: spec.training.optimizer.to_engine(),
                whole_gradient: spec.training.clip_norm.is_some() || client.batch.is_some(),
            },
        )?;
        let compared = network.memory(batch, Use::Evaluation)?.working();
        let compared = compared.saturating_mul(u64::from(client.frozen));
        let features = kept_bytes(spec, samples)?;
        if let Some(features) = features {
            let pass = network.memory(size(samples).min(FROZEN_CHUNK), Use::Evaluation)?.working();
            phases.push(RoundMemory {
                models: model,
                batches: features.saturating_mul(2).saturating_add(pass),
            });
        }
        let working = training.activations.saturating_add(training.scratch).saturating_add(compared);
        phases.push(RoundMemory {
            models: model.saturating_add(training.optimiser),
            batches: working.saturating_add(features.unwrap_or(0)),
        });
    }
    if spec.evaluate.on_clients_every > 0 {
        phases
            .push(RoundMemory { models: 0, batches: network.memory(TEST_BATCH, Use::Evaluation)?.working() });
    }
    if let Some(settings) = spec.personalised() {
        phases.extend(personal(settings, network, samples, (model, frozen))?);
    }
    let largest = phases.into_iter().max_by_key(RoundMemory::total).unwrap_or_default();
    let trained = largest.plus_models(held);
    // The broadcast is dropped before the update is written in one piece.
    let saved = RoundMemory { models: sent.saturating_add(encoded).saturating_add(base), batches: 0 };
    Ok(if saved.total() > trained.total() { saved } else { trained })
}

/// What the personal models take: the learning of all parameters, that of those behind the extractor, and the file of the result. `model`
/// is what is learned, in bytes, and `frozen` what is not.
fn personal(
    settings: &Personalisation,
    network: &Architecture,
    samples: u64,
    (model, frozen): (u64, u64),
) -> Result<Vec<RoundMemory>, EstimateError> {
    let learning = |tuning: &Tuning| -> Result<RoundMemory, EstimateError> {
        let batch = if tuning.batch == 0 { samples } else { u64::from(tuning.batch).min(samples) };
        let what = Use::Training { optimizer: tuning.sgd().into(), whole_gradient: false };
        let memory = network.memory(size(batch), what)?;
        Ok(RoundMemory {
            models: memory.parameters.saturating_add(memory.optimiser),
            batches: memory.activations.saturating_add(memory.scratch),
        })
    };
    // Written in one piece: the global expert, and the local one. What is frozen has no memory in them, and is written with each.
    let written = model.saturating_mul(4).saturating_add(frozen.saturating_mul(2));
    let mut phases = vec![RoundMemory { models: written, batches: 0 }];
    if settings.methods().iter().any(|method| method.is_whole()) {
        phases.push(learning(&settings.whole)?);
    }
    if settings.methods().iter().any(|method| !method.is_whole()) {
        let each = network.feature_shape()?.iter().product::<usize>() as u64;
        let features = samples.saturating_mul(each).saturating_mul(4);
        let chunk = network.memory(FEATURES_BATCH.min(size(samples)), Use::Evaluation)?.working();
        // What stands on the extractor learns with its gradients and its velocity.
        let specs = network.parameter_specs()?;
        let head = specs
            .iter()
            .filter(|spec| spec.kind != ParameterKind::Buffer && !spec.name.starts_with("extractor."));
        let head = head.map(|spec| spec.shape.iter().product::<usize>() as u64).sum::<u64>();
        let head = head.saturating_mul(3 * 4);
        phases.push(RoundMemory { models: head, batches: features.saturating_add(chunk) });
    }
    Ok(phases)
}

/// The values of a tensor.
fn values(spec: &ParameterSpec) -> u64 {
    spec.shape.iter().product::<usize>() as u64
}

fn size(samples: u64) -> usize {
    usize::try_from(samples).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::spec::personalisation::{Method, Methods};

    /// `mlp-2nn` with a model of 796,840 bytes.
    fn spec(algorithm: &str) -> RunSpec {
        let mut spec = RunSpec::example(algorithm);
        spec.architecture = Architecture::by_name("mlp-2nn", &[1, 28, 28], 10).unwrap();
        spec.training.batch = 10;
        spec
    }

    const MODEL: u64 = 4 * 199_210;

    #[test]
    fn federated_averaging_holds_what_it_receives_and_what_it_trains_or_sends() {
        let found = estimate(&spec("fedavg"), 600).unwrap();
        assert_eq!(found.models, 2 * MODEL);
        assert!(found.batches < 600_000, "{found:?}");
        let mut large = spec("fedavg");
        large.training.batch = 0;
        let found = estimate(&large, 600).unwrap();
        assert_eq!(found.models, 2 * MODEL);
        assert!(found.batches > 600 * 4 * (2 * 784 + 3 * 200), "{found:?}");
        // Fewer samples than a batch are no batch.
        large.training.batch = 10_000;
        assert_eq!(estimate(&large, 600).unwrap(), found);
        let mut half = spec("fedavg");
        half.update.precision = UpdateFormat::F16;
        assert_eq!(estimate(&half, 600).unwrap().models, MODEL * 3 / 2 + MODEL * 3 / 2);
    }

    #[test]
    fn what_an_algorithm_adds_is_counted() {
        let of = |name| estimate(&spec(name), 600).unwrap().total();
        for (more, less) in
            [("scaffold", "fedavg"), ("moon", "fedavg"), ("fedmatch", "moon"), ("fedsgd", "fedavg")]
        {
            assert!(of(more) > of(less), "{more} {} {less} {}", of(more), of(less));
        }
    }

    #[test]
    fn every_algorithm_has_an_estimate_and_none_overflows() {
        for entry in registry::ALGORITHMS {
            let mut spec = spec(entry.name);
            let least = 2 * MODEL;
            assert!(estimate(&spec, 600).unwrap().total() >= least, "{}", entry.name);
            spec.training.batch = u32::MAX;
            assert!(estimate(&spec, u64::MAX).unwrap().total() > least, "{}", entry.name);
        }
    }

    #[test]
    fn hidden_updates_take_whole_numbers_beside_what_was_trained() {
        let mut hidden = spec("fedavg");
        hidden.secure.enabled = true;
        assert_eq!(estimate(&hidden, 600).unwrap().models, 5 * MODEL);
        hidden.update.precision = UpdateFormat::F16;
        assert_eq!(estimate(&hidden, 600).unwrap().models, 5 * MODEL);
    }

    #[test]
    fn what_updates_leave_out_is_counted() {
        let mut sparse = spec("fedavg");
        sparse.update.top_k = Some(0.01);
        let (whole, part) = (estimate(&spec("fedavg"), 600).unwrap(), estimate(&sparse, 600).unwrap());
        assert!(part.models >= whole.models + MODEL, "{part:?} {whole:?}");
    }

    #[test]
    fn personal_models_are_counted() {
        let mut with = spec("fedavg");
        with.personalisation.method = Some(Methods(vec![Method::Mfe]));
        let without = estimate(&spec("fedavg"), 60_000).unwrap().total();
        // The activations of all samples.
        assert!(estimate(&with, 60_000).unwrap().total() > without + 60_000 * 200 * 4);
    }

    #[test]
    fn what_is_frozen_is_a_part_of_personal_models() {
        let mut with = spec("fedavg");
        with.architecture.frozen = Some(models::Frozen::named(vec!["extractor.*".to_owned()]));
        with.personalisation.method = Some(Methods(vec![Method::Mfe]));
        let learned = with.architecture.parameter_specs().unwrap().iter().map(values).sum::<u64>() * 4;
        let frozen = MODEL - learned;
        assert!(frozen > 50 * learned, "{frozen} {learned}");
        // Beside what the round holds: the model and what is frozen.
        assert_eq!(estimate(&with, 10).unwrap().models, learned + frozen + 4 * learned + 2 * frozen);
    }
}
