//! One task: from the broadcast's bytes to the update's.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use models::{Backend, Limits};
use shared::algorithm::registry::{self, RegistryError};
use shared::algorithm::{Client, TrainError};
use shared::data::{DataError, View};
use shared::evaluation;
use shared::id::ClientId;
use shared::message::{Metric, Progress, TrainReport, Work};
use shared::parcel::{Parcel, ParcelError};
use shared::spec::RunSpec;
use tracing::warn;

/// A device's test samples: read when a run asks for tests, so that they cost nothing where none does.
#[derive(Clone)]
pub struct TestSamples(Arc<dyn Fn() -> std::result::Result<Option<View>, DataError> + Send + Sync>);

impl TestSamples {
    /// Those that `read` gives, each time they are asked for; `None` if the device has none.
    pub fn new(
        read: impl Fn() -> std::result::Result<Option<View>, DataError> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(read))
    }

    /// Those of a device that has none.
    #[must_use]
    pub fn none() -> Self {
        Self::new(|| Ok(None))
    }

    /// Those in `samples`, in memory.
    #[must_use]
    pub fn of(samples: View) -> Self {
        Self::new(move || Ok(Some(samples.clone())))
    }
}

impl fmt::Debug for TestSamples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TestSamples")
    }
}

/// What a task needs.
#[derive(Clone, Debug)]
pub struct Task {
    /// The run.
    pub spec: Box<RunSpec>,
    /// The round.
    pub round: u32,
    /// What is to be done in it.
    pub work: Work,
    /// Who trains.
    pub client: ClientId,
    /// The device's data, of which the round may use a slice.
    pub data: View,
    /// The device's test samples.
    pub tests: TestSamples,
    /// Where it trains.
    pub backend: Backend,
    /// What the server sent, an encoded parcel.
    pub broadcast: Bytes,
    /// What this client's previous round in the run left, an encoded parcel.
    pub local: Option<Vec<u8>>,
}

/// What a task leaves.
#[derive(Clone, Debug)]
pub struct Result {
    /// What was done.
    pub work: Work,
    /// How it went.
    pub report: TrainReport,
    /// For the server, an encoded parcel.
    pub update: Bytes,
    /// For this client's next round, an encoded parcel.
    pub local: Option<Vec<u8>>,
}

/// Why a task gave no update.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// The server runs an algorithm that this build does not have.
    #[error(transparent)]
    Algorithm(#[from] RegistryError),
    /// The broadcast does not decode.
    #[error("the server's broadcast cannot be read: {0}")]
    Broadcast(ParcelError),
    /// The client's own state does not decode.
    #[error("the client's stored state cannot be read: {0}; remove it to start afresh")]
    Local(ParcelError),
    /// The device's labels do not mean what the run's mean.
    #[error("the device's classes are {device}, and the run's {run}: give --classes as the run has them")]
    ClassNames {
        /// The names of the device's classes.
        device: String,
        /// Those of the run.
        run: String,
    },
    /// Training failed.
    #[error(transparent)]
    Train(#[from] TrainError),
}

/// Why a device does not test.
#[derive(Debug, thiserror::Error)]
enum Untested {
    #[error(
        "there are no test samples: put a test split beside the training samples, or have the run hold some of them out \
         (evaluate.hold-out)"
    )]
    NoSamples,
    #[error("the test samples cannot be read: {0}")]
    Unreadable(#[from] DataError),
}

/// How a running task is watched and stopped from another thread.
#[derive(Debug, Default)]
pub struct Handle {
    done: AtomicU64,
    total: AtomicU64,
    cancelled: AtomicBool,
}

impl Handle {
    /// Asks the task to stop at its next step.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// How far the task is.
    #[must_use]
    pub fn progress(&self, round: u32) -> Progress {
        let (done, total) = (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed));
        Progress { round: Some(round), done, total }
    }

    fn step(&self, progress: Progress) -> ControlFlow<()> {
        self.done.store(progress.done, Ordering::Relaxed);
        self.total.store(progress.total, Ordering::Relaxed);
        self.go_on()
    }

    fn go_on(&self) -> ControlFlow<()> {
        if self.cancelled.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

/// Carries a task out on the calling thread.
pub fn carry_out(task: &Task, handle: &Handle) -> std::result::Result<Result, TaskError> {
    let started = Instant::now();
    let algorithm = registry::build(&task.spec.algorithm)?;
    // A server is not believed that this is so.
    let (run, device) = (&task.spec.data.class_names, task.data.dataset().class_names());
    if !run.is_empty() && !device.is_empty() && run != device {
        return Err(TaskError::ClassNames { device: device.join(", "), run: run.join(", ") });
    }
    task.spec.data.preparation.shape(task.data.shape()).map_err(TrainError::from)?;
    let decode = |mut bytes: &[u8]| {
        let limits = Limits { max_bytes: bytes.len() as u64, ..Limits::default() };
        Parcel::read_from(&mut bytes, limits)
    };
    let received = || decode(&task.broadcast).map_err(TaskError::Broadcast);
    let local = || task.local.as_deref().map(decode).transpose().map_err(TaskError::Local);
    let seed = task.spec.root_seed().derive_numbered("round", u64::from(task.round));
    let seed = seed.derive_bytes("client", task.client.as_bytes());
    let mut monitor = |progress| handle.step(progress);
    let data = task.spec.data_in(task.round, task.client, &task.data);
    let mut client =
        Client::new(&task.spec, task.round, seed, &data, &task.backend, &mut monitor).with_id(task.client);
    if task.work.evaluate {
        match tests(task) {
            Ok(tests) => {
                let params = algorithm.used(received()?, local()?)?;
                let go_on = &mut || handle.go_on();
                let found = evaluation::test(&task.spec, &params, &tests, &task.backend, go_on)?;
                client.report(Metric::OwnAccuracy(found.accuracy));
                client.report(Metric::OwnLoss(found.loss));
            }
            // What it learns counts all the same.
            Err(error) => warn!("round {}: the model is not tested here: {error}", task.round),
        }
    }
    let (update, local) = if task.work.train {
        let trained = algorithm.train(&mut client, received()?, local()?)?;
        (trained.update, trained.local.map(|parcel| parcel.to_bytes(models::Precision::F32)))
    } else {
        // What the algorithm keeps stays as it is.
        (Parcel::default(), task.local.clone())
    };
    let report = TrainReport {
        samples: client.samples(),
        steps: client.steps(),
        loss: client.loss(),
        duration: started.elapsed(),
        metrics: client.metrics(),
    };
    Ok(Result { work: task.work, report, update: update.to_bytes(task.spec.precision.update).into(), local })
}

/// What the device tests on: what the run holds out of its samples, or its test split.
fn tests(task: &Task) -> std::result::Result<View, Untested> {
    let tests = if task.spec.evaluation.hold_out > 0.0 {
        Some(task.spec.held_out(task.client, &task.data))
    } else {
        (task.tests.0)()?
    };
    tests.filter(|tests| !tests.is_empty()).ok_or(Untested::NoSamples)
}

#[cfg(test)]
mod tests {
    use models::{Array, ParamSet, Precision};
    use shared::data::Dataset;

    use super::*;

    #[test]
    fn a_slice_of_the_data_is_trained_on_as_if_there_were_no_more() {
        let mut spec = RunSpec::example("fedavg");
        spec.training.slices = 3;
        let pixels = (0..4 * 11).map(|pixel| (pixel * 37 % 251) as u8).collect();
        let labels: Vec<u8> = (0..11).map(|sample| sample % 2).collect();
        let whole = View::whole(Arc::new(Dataset::new(vec![1, 2, 2], pixels, labels, 2).unwrap()));
        let mut params = ParamSet::new();
        params.insert("head.fc.weight", Array::zeros([2, 4]));
        params.insert("head.fc.bias", Array::zeros([2]));
        let broadcast: Bytes =
            Parcel { tensors: params, scalars: Vec::new() }.to_bytes(Precision::F32).into();
        let client = ClientId::from_bytes([5; 16]);
        let trained = |slices: u32, round: u32, data: View| {
            let mut spec = Box::new(spec.clone());
            spec.training.slices = slices;
            let (backend, broadcast) = (Backend::cpu(), broadcast.clone());
            let (work, tests) = (Work::TRAIN, TestSamples::none());
            let task = Task { spec, round, work, client, data, tests, backend, broadcast, local: None };
            let result = carry_out(&task, &Handle::default()).unwrap();
            (result.report.samples, result.update)
        };
        let mut all = Vec::new();
        for round in 1..=3 {
            let slice = spec.data_in(round, client, &whole);
            let found = trained(3, round, whole.clone());
            assert_eq!(found.0, spec.samples_in(round, 11));
            assert_eq!(found, trained(1, round, slice.clone()));
            assert_ne!(found.1, trained(1, round, whole.clone()).1);
            all.extend_from_slice(slice.indices());
        }
        all.sort_unstable();
        assert_eq!(all, (0..11).collect::<Vec<u32>>());
    }
}
