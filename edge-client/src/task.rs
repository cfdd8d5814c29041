//! One task: from the broadcast's bytes to the update's.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use models::{Backend, Limits, ParamSet};
use shared::algorithm::registry::{self, RegistryError};
use shared::algorithm::{Client, TrainError, Workbench};
use shared::data::{DataError, View};
use shared::evaluation;
use shared::id::ClientId;
use shared::message::{Metric, Progress, TaskKind, TrainReport};
use shared::payload::Payload;
use shared::personalisation::{self, Device, PersonaliseError};
use shared::record::{Record, RecordError};
use shared::spec::{LabelsAt, RunSpec};
use tracing::warn;

use crate::personal::Personal;

/// A device's test samples: read when a run asks for tests, so that they cost nothing where none does, and kept from then on, like
/// training samples, since the next round asks again: files that change meanwhile are seen by the next process.
#[derive(Clone)]
pub struct TestSamples {
    read: Arc<ReadTests>,
    kept: Arc<Mutex<Option<View>>>,
}

type ReadTests = dyn Fn() -> Result<Option<View>, DataError> + Send + Sync;

impl TestSamples {
    /// Those that `read` gives; `None` if the device has none, and then it is asked again.
    pub fn new(read: impl Fn() -> Result<Option<View>, DataError> + Send + Sync + 'static) -> Self {
        Self { read: Arc::new(read), kept: Arc::default() }
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

    /// The samples, if the device has any.
    fn get(&self) -> Result<Option<View>, DataError> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.is_none() {
            *kept = (self.read)()?;
        }
        Ok(kept.clone())
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
    pub work: TaskKind,
    /// Who trains.
    pub client: ClientId,
    /// The device's data, of which the round may use a slice.
    pub data: View,
    /// The device's test samples.
    pub tests: TestSamples,
    /// Where it trains.
    pub backend: Backend,
    /// What the server sent, an encoded record.
    pub broadcast: Bytes,
    /// What this client's previous round in the run left, an encoded record.
    pub local: Option<Vec<u8>>,
}

/// What a task leaves.
#[derive(Clone, Debug)]
pub struct TaskOutput {
    /// What was done.
    pub work: TaskKind,
    /// How it went.
    pub report: TrainReport,
    /// For the server, an encoded record.
    pub update: Payload,
    /// For this client's next round, an encoded record.
    pub local: Option<Vec<u8>>,
    /// For this device alone: its personal model, if it has made one, as a [`Personal`] file.
    pub personal: Option<Vec<u8>>,
}

/// Why a task gave no update.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// The server runs an algorithm that this build does not have.
    #[error(transparent)]
    Algorithm(#[from] RegistryError),
    /// The broadcast does not decode.
    #[error("the server's broadcast cannot be read: {0}")]
    Broadcast(RecordError),
    /// The client's own state does not decode.
    #[error("the client's stored state cannot be read: {0}; remove it to start afresh")]
    Local(RecordError),
    /// The device's labels do not mean what the run's mean.
    #[error("the device's classes are {device}, and the run's {run}: give --classes as the run has them")]
    ClassNames {
        /// The names of the device's classes.
        device: String,
        /// Those of the run.
        run: String,
    },
    /// The run is about other samples, whatever its server has said before.
    #[error("the device's samples have the shape {device:?}, and the run's {run:?}")]
    Shape {
        /// The shape of the device's samples.
        device: Vec<usize>,
        /// That of the run's.
        run: Vec<usize>,
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
pub struct TaskHandle {
    done: AtomicU64,
    total: AtomicU64,
    cancelled: AtomicBool,
    /// Steps of any kind.
    beats: AtomicU64,
}

impl TaskHandle {
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

    /// A number that changes with every step of the task, and with every batch of its tests.
    #[must_use]
    pub fn beats(&self) -> u64 {
        self.beats.load(Ordering::Relaxed)
    }

    fn step(&self, progress: Progress) -> ControlFlow<()> {
        self.done.store(progress.done, Ordering::Relaxed);
        self.total.store(progress.total, Ordering::Relaxed);
        self.go_on()
    }

    fn go_on(&self) -> ControlFlow<()> {
        self.beats.fetch_add(1, Ordering::Relaxed);
        if self.cancelled.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

/// Carries a task out on the calling thread, at its workbench if it has one.
pub fn run_task(
    task: &Task,
    handle: &TaskHandle,
    workbench: Option<&mut Workbench>,
) -> Result<TaskOutput, TaskError> {
    let started = Instant::now();
    let algorithm = registry::build(&task.spec.algorithm)?;
    // A server is not believed that this is so. Where the labels are the server's, those here mean nothing.
    let (run, device) = (&task.spec.data.class_names, task.data.dataset().class_names());
    let used = task.spec.data.labels == LabelsAt::Device;
    if used && !run.is_empty() && !device.is_empty() && run != device {
        return Err(TaskError::ClassNames { device: device.join(", "), run: run.join(", ") });
    }
    if task.spec.data.shape != task.data.shape() {
        let (device, run) = (task.data.shape().to_vec(), task.spec.data.shape.clone());
        return Err(TaskError::Shape { device, run });
    }
    let preparation = &task.spec.data.preparation;
    preparation.shape(task.data.shape()).map_err(TrainError::from)?;
    if task.work.train && used {
        preparation.check(&task.data).map_err(TrainError::from)?;
    }
    let limits = |length: usize| Limits { max_bytes: length as u64, ..Limits::default() };
    // Where it lies: all clients of a simulation read the same memory.
    let received = || {
        let broadcast = &task.broadcast;
        Record::from_shared(broadcast, limits(broadcast.len())).map_err(TaskError::Broadcast)
    };
    let decode = |mut local: &[u8]| {
        let limits = limits(local.len());
        Record::read_from(&mut local, limits)
    };
    let local = || task.local.as_deref().map(decode).transpose().map_err(TaskError::Local);
    let seed = task.spec.root_seed().derive_numbered("round", u64::from(task.round));
    let seed = seed.derive_bytes("client", task.client.as_bytes());
    let mut monitor = |progress| handle.step(progress);
    let data = task.spec.data_in(task.round, task.client, &task.data);
    let mut client =
        Client::new(&task.spec, task.round, seed, &data, &task.backend, &mut monitor).with_id(task.client);
    client = client.with_workbench(workbench);
    let used = || -> Result<_, TaskError> { Ok(algorithm.eval_model(received()?, local()?)?) };
    let mut personal = None;
    if task.work.personalise {
        let mut monitor = |progress| handle.step(progress);
        personal = personalise(task, &used()?, &mut monitor, &mut |metric| client.report(metric))?;
    }
    if task.work.evaluate {
        match tests(task) {
            Ok(tests) => {
                let params = used()?;
                let go_on = &mut || handle.go_on();
                match evaluation::test(&task.spec, &params, &tests, &task.backend, go_on) {
                    Ok(found) => {
                        client.report(Metric::OwnAccuracy(found.accuracy));
                        client.report(Metric::OwnLoss(found.loss));
                    }
                    Err(TrainError::Cancelled) => return Err(TrainError::Cancelled.into()),
                    Err(error) => warn!("round {}: the model cannot be tested here: {error}", task.round),
                }
            }
            // What it learns counts all the same.
            Err(error) => warn!("round {}: the model is not tested here: {error}", task.round),
        }
    }
    let (update, local) = if task.work.train {
        let trained = algorithm.train(&mut client, received()?, local()?)?;
        (trained.update, trained.local.map(|record| record.to_bytes(models::Precision::F32)))
    } else {
        // What the algorithm keeps stays as it is.
        (Record::default(), task.local.clone())
    };
    let report = TrainReport {
        samples: client.samples(),
        steps: client.steps(),
        loss: client.loss(),
        duration: started.elapsed(),
        metrics: client.metrics(),
    };
    let update = update.to_payload(task.spec.precision.update);
    Ok(TaskOutput { work: task.work, report, update, local, personal })
}

/// Makes the device's personal models from the one that it uses, and measures what the run allows to be told. If that fails,
/// what it learns for the others counts all the same.
fn personalise(
    task: &Task,
    used: &ParamSet,
    monitor: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    report: &mut dyn FnMut(Metric),
) -> Result<Option<Vec<u8>>, TaskError> {
    let Some(settings) = &task.spec.personalisation else {
        warn!("round {}: the run says nothing of personal models; nothing is done about them", task.round);
        return Ok(None);
    };
    if task.spec.data.labels == LabelsAt::Server {
        warn!(
            "round {}: personal models are learned from labels, and this run is for devices without",
            task.round
        );
        return Ok(None);
    }
    let tests = match tests_of_personal(task) {
        Ok(tests) => Some(tests),
        Err(error) => {
            warn!("round {}: personal models are not tested here: {error}", task.round);
            None
        }
    };
    let (trained, mut held_out) = task.spec.divided(task.client, &task.data);
    held_out.sort_unstable();
    let data = task.data.part(&trained);
    let device = Device {
        spec: &task.spec,
        settings,
        round: task.round,
        client: task.client,
        data: &data,
        test: tests.as_ref(),
        backend: &task.backend,
    };
    let outcome = match personalisation::personalise(&device, used, monitor) {
        Ok(outcome) => outcome,
        Err(PersonaliseError::Cancelled) => return Err(TrainError::Cancelled.into()),
        Err(error) => {
            warn!("round {}: no personal model was made, and one from before stays: {error}", task.round);
            return Ok(None);
        }
    };
    outcome.measured(&settings.report).for_each(report);
    let personal = outcome.model.map(|model| Personal {
        model,
        samples: task.spec.data.clone(),
        run: task.spec.run,
        name: task.spec.name.clone(),
        round: task.round,
        split: outcome.split.among(&trained),
        held_out: held_out.clone(),
    });
    Ok(personal.map(|personal| personal.to_bytes()))
}

/// What the device tests on: what the run holds out of its samples, or its test split.
fn tests(task: &Task) -> Result<View, Untested> {
    let tests = if task.spec.evaluation.hold_out > 0.0 {
        Some(task.spec.held_out(task.client, &task.data))
    } else {
        task.tests.get()?
    };
    tests.filter(|tests| !tests.is_empty()).ok_or(Untested::NoSamples)
}

/// What personal models are tested on: the test split, whose classes are those of all clients, where the device has one.
fn tests_of_personal(task: &Task) -> Result<View, Untested> {
    match task.tests.get() {
        Ok(Some(split)) if !split.is_empty() => Ok(split),
        _ => tests(task),
    }
}

#[cfg(test)]
pub(crate) mod tests;
