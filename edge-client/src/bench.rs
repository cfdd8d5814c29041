//! The speed of training on this device.

use std::time::{Duration, Instant};

use bytes::Bytes;
use models::architecture::encode_frozen;
use models::{
    Architecture, Backend, Batch, BatchError, Frozen, Learner, ModelError, ParamSet, Sgd, Targets, Use,
    peak_gemm_rate,
};
use shared::seed::{Seed, below, uniform_f32};

use crate::allowance::in_use;
use crate::memory;

/// The least number of measured steps, however long they take.
const MIN_STEPS: usize = 5;
/// The fraction of the time that warms up.
const WARM_UP_SHARE: f64 = 0.3;
/// The fraction of the time that measures matrix products.
const PEAK_SHARE: f64 = 0.2;

/// The subject of a measurement.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The network.
    pub architecture: Architecture,
    /// Samples in a batch.
    pub batch: usize,
    /// About how long to measure.
    pub duration: Duration,
}

/// The speed of one network in batches of one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    /// The median duration of a step: forward, backward and update.
    pub step: Duration,
    /// Steps that were measured.
    pub steps: usize,
    /// Floating-point operations in a second: two for each multiply-add of convolutions, linear and recurrent layers,
    /// three times, for outputs, gradients of weights and gradients of inputs.
    pub flops: f64,
    /// The rate of large matrix products, measured right after, in floating-point operations per second.
    pub peak_flops: f64,
    /// The estimate of that peak: what the process had before, and what the network takes. In bytes, if the system says.
    pub estimated_memory: Option<u64>,
    /// The most memory that this process has had resident, in bytes, if the system says; before matrix products were
    /// measured.
    pub peak_memory: Option<u64>,
}

/// Why there is no speed to report.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The network cannot be run: out of memory, or our bug.
    #[error("the network cannot be trained")]
    Model(#[from] ModelError),
    /// The samples cannot be made into a batch: our bug.
    #[error("internal error: a batch cannot be made; please report this")]
    Batch(#[from] BatchError),
}

/// Trains the network on one batch of noise, on the calling thread and its rayon pool. Calls `after_first` as soon as the
/// first step is done.
pub fn measure(
    subject: &Subject,
    backend: &Backend,
    after_first: impl FnOnce(),
) -> Result<Speed, BenchError> {
    let Subject { ref architecture, batch, duration } = *subject;
    let before = in_use();
    let sgd = Sgd::plain(1e-3);
    let what = Use::Training { optimizer: sgd.into(), whole_gradient: false };
    let need = architecture.memory(batch, what).map_err(ModelError::from)?.total();
    let seed = Seed::root(0);
    let (network, params) = drawn(architecture, &seed)?;
    let batch = noise(architecture, batch, &seed)?;
    // Small, so that noise never diverges.
    let learner = Learner::new(&network, &params, sgd, backend)?;
    let mut learner = learner.with_seed(*seed.derive("dropout").as_bytes());
    drop(params);
    learner.step(&batch)?;
    after_first();

    // Fills the caches and lets the processor find its frequency.
    let start = Instant::now();
    while start.elapsed() < duration.mul_f64(WARM_UP_SHARE) {
        learner.step(&batch)?;
    }
    let start = Instant::now();
    let mut steps = Vec::new();
    while steps.len() < MIN_STEPS || start.elapsed() < duration {
        let step = Instant::now();
        learner.step(&batch)?;
        steps.push(step.elapsed());
    }
    let peak_memory = memory::peak();
    steps.sort_unstable();
    let step = steps[steps.len() / 2];
    let multiply_adds = architecture.multiply_adds().map_err(ModelError::from)? as f64;
    Ok(Speed {
        step,
        steps: steps.len(),
        flops: 3.0 * 2.0 * multiply_adds * batch.len() as f64 / step.as_secs_f64(),
        peak_flops: peak_gemm_rate(duration.mul_f64(PEAK_SHARE)),
        estimated_memory: before.map(|before| before.saturating_add(need)),
        peak_memory,
    })
}

/// How long a network takes for a sample, in seconds, on the calling thread and its rayon pool.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// In a step of training.
    pub trained: f64,
    /// In a test.
    pub tested: f64,
}

impl Pace {
    /// Measures it in about this time, but for networks of which one step takes longer. Batches that are long to compute are measured
    /// by shorter ones.
    pub fn measure(architecture: &Architecture, batch: usize, about: Duration) -> Result<Self, BenchError> {
        /// Multiply-adds of a batch: a tenth of a second on a slow core.
        const MOST: u64 = 1 << 30;
        let backend = Backend::cpu();
        let each = architecture.multiply_adds().map_err(ModelError::from)?.max(1);
        let samples = batch.min((MOST / each) as usize).max(1);
        let seed = Seed::root(0);
        let (network, params) = drawn(architecture, &seed)?;
        let batch = noise(architecture, samples, &seed)?;
        let learner = Learner::new(&network, &params, Sgd::plain(1e-3), &backend)?;
        let mut learner = learner.with_seed(*seed.derive("dropout").as_bytes());
        let per_sample = |step: &mut dyn FnMut() -> Result<(), ModelError>| -> Result<f64, ModelError> {
            // The first allocates.
            step()?;
            let (begun, mut steps) = (Instant::now(), 0.0);
            while steps == 0.0 || begun.elapsed() < about / 2 {
                step()?;
                steps += 1.0;
            }
            Ok(begun.elapsed().as_secs_f64() / steps / samples as f64)
        };
        let trained = per_sample(&mut || learner.step(&batch).map(drop))?;
        let tested = per_sample(&mut || learner.predict(&batch).map(drop))?;
        Ok(Self { trained, tested })
    }
}

/// The network with parameters that are drawn: those that it learns, and in it those that are frozen.
fn drawn(architecture: &Architecture, seed: &Seed) -> Result<(Architecture, ParamSet), BenchError> {
    let whole = architecture
        .initialise(|name| seed.derive_bytes("init", name.as_bytes()).rng())
        .map_err(ModelError::from)?;
    let (learned, frozen) = architecture.divide(whole);
    let Some(Frozen { names, .. }) = &architecture.frozen else { return Ok((architecture.clone(), learned)) };
    // Without the digest of those that its run has.
    let network = Architecture { frozen: Some(Frozen::named(names.clone())), ..architecture.clone() };
    let network = network.with_frozen(&Bytes::from(encode_frozen(&frozen)));
    Ok((network.expect("what was drawn for a network fits it"), learned))
}

/// Samples without meaning: pixels, or tokens; and targets of the network's task.
fn noise(architecture: &Architecture, samples: usize, seed: &Seed) -> Result<Batch, BenchError> {
    let mut rng = seed.derive("bench").rng();
    let count = samples * architecture.input.iter().product::<usize>();
    let mut value = || match architecture.vocabulary() {
        Some(vocabulary) => below(vocabulary, &mut rng) as f32,
        None => uniform_f32(&mut rng),
    };
    let x = (0..count).map(|_| value()).collect();
    let predictions = samples * architecture.predictions().map_err(ModelError::from)?;
    let (classes, task) = (architecture.classes, architecture.task);
    let each = 0..predictions * task.targets_each(classes);
    let y = if task.is_classification() {
        Targets::Classes(each.map(|label| (label % classes) as u32).collect())
    } else {
        // What several labels are, and numbers may be.
        Targets::Values(each.map(|target| (target % 2) as f32).collect())
    };
    Ok(Batch::with_targets(x, [&[samples], &architecture.input[..]].concat(), y)?)
}

#[cfg(test)]
mod tests {
    use models::Task;

    use super::*;

    #[test]
    fn networks_of_every_task_are_measured() {
        let regression = |huber| Task::Regression { huber };
        for task in [Task::Classification, Task::MultiLabel, regression(None), regression(Some(1.0))] {
            let architecture = Architecture { task, ..Architecture::by_name("linear", &[5], 3).unwrap() };
            let pace = Pace::measure(&architecture, 4, Duration::from_millis(1)).unwrap();
            assert!(pace.trained > 0.0 && pace.tested > 0.0, "{task:?}: {pace:?}");
        }
    }

    #[test]
    fn networks_are_measured_of_which_a_part_is_frozen() {
        let mut frozen = Frozen::named(vec!["extractor.*".to_owned()]);
        frozen.digest = Some("that of a run".to_owned());
        let architecture = Architecture::by_name("mlp-2nn", &[1, 4, 4], 3).unwrap();
        let architecture = Architecture { frozen: Some(frozen), ..architecture };
        let pace = Pace::measure(&architecture, 4, Duration::from_millis(1)).unwrap();
        assert!(pace.trained > 0.0 && pace.tested > 0.0, "{pace:?}");
    }
}
