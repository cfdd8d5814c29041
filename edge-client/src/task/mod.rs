//! Task execution: from the bytes of a broadcast to the bytes of an update.

mod error;
mod fit;
mod handle;
mod private;
mod private_only;
mod test_samples;
mod trainer;
mod untested;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use models::{Backend, Limits, ParamSet};
use sha2::{Digest as _, Sha256};
use shared::aggregation::Mixture;
use shared::algorithm::{Client, Setting, Settings, TrainError, Trainer, Workbench, registry};
use shared::by_class::ByClass;
use shared::data::View;
use shared::evaluation;
use shared::id::ClientId;
use shared::message::{Metric, Progress, TaskId, TaskKind, TrainReport};
use shared::outgoing;
use shared::personalisation::{self, Device, Personal, PersonaliseError};
use shared::record::Record;
use shared::spec::{LabelsAt, RunSpec};
use tracing::warn;

use crate::masking::{Plain, TrainedTask};
use crate::store::Update;

pub use error::TaskError;
use fit::in_order;
pub(crate) use fit::{fits, hides};
pub use handle::TaskHandle;
pub(crate) use private::{is_private_round, private_rounds};
pub use private_only::PrivateOnly;
pub use test_samples::TestSamples;
pub use trainer::OwnTrainer;
pub(crate) use untested::{Untested, untested};

/// The input of a task.
#[derive(Clone, Debug)]
pub struct Task {
    /// The run.
    pub spec: Arc<RunSpec>,
    /// The round.
    pub round: u32,
    /// Rounds of training before it that have failed.
    pub failed: u32,
    /// What the task asks for.
    pub work: TaskKind,
    /// The client that trains.
    pub client: ClientId,
    /// The device's data, of which the round may use a slice.
    pub data: View,
    /// The device's test samples.
    pub tests: TestSamples,
    /// The processor that trains.
    pub backend: Backend,
    /// The owner's own program that trains and tests, where the run's network is one of its framework's.
    pub trainer: Option<OwnTrainer>,
    /// The server's broadcast, an encoded record.
    pub broadcast: Bytes,
    /// The client state after the previous round in this run, an encoded record.
    pub local: Option<Vec<u8>>,
}

/// The output of a task that is ready to be sent.
#[derive(Clone, Debug)]
pub struct TaskOutput {
    /// What the task asked for.
    pub work: TaskKind,
    /// How it went, for the owner of the device. The server is told what is beside the update.
    pub report: TrainReport,
    /// What was trained, and the client state for the next round.
    pub update: Update,
    /// The personal model, if the task made one, as a [`Personal`] file. It never leaves the device.
    pub personal: Option<Vec<u8>>,
}

/// What a task leaves.
#[derive(Debug)]
pub enum Output {
    /// An update to be sent as it is.
    Ready(Box<TaskOutput>),
    /// An update that must be hidden first: the run has secure aggregation.
    Plain {
        /// The update.
        plain: Box<Plain>,
        /// As in [`TaskOutput`].
        personal: Option<Vec<u8>>,
    },
}

impl Output {
    /// An output that is ready to be sent.
    #[must_use]
    pub fn ready(self) -> Option<TaskOutput> {
        match self {
            Self::Ready(output) => Some(*output),
            Self::Plain { .. } => None,
        }
    }
}

/// Runs a task on the calling thread, at its workbench if it has one.
pub fn run_task(
    task: &Task,
    handle: &TaskHandle,
    workbench: Option<&mut Workbench>,
) -> Result<Output, TaskError> {
    let started = Instant::now();
    let algorithm = registry::build(&task.spec.algorithm)?;
    check(task)?;
    let limits = |length: usize| Limits { max_bytes: length as u64, ..Limits::default() };
    // Decoded in place: all clients of a simulation share this memory.
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
    let mut monitor = |progress| handle.train_step(progress);
    let data = task.spec.data_in(task.round, task.client, &task.data);
    let mut client =
        Client::new(&task.spec, task.round, seed, &data, &task.backend, &mut monitor).with_id(task.client);
    let mut trainer = task.trainer.as_ref().map(OwnTrainer::at_work);
    let trainer = trainer.as_mut().map(|trainer| trainer as &mut dyn Trainer);
    client = client.after_failures(task.failed).with_workbench(workbench).with_trainer(trainer);
    let used = || -> Result<_, TaskError> { Ok(algorithm.eval_model(received()?, local()?)?) };
    let mut personal = None;
    if task.work.personalise {
        let mut monitor = |progress| handle.train_step(progress);
        personal = personalise(task, &used()?, &mut monitor, &mut |metric| client.report(metric))?;
    }
    let mut tested = ByClass::default();
    if let Some(trainer) = task.trainer.as_ref().filter(|_| task.work.evaluate) {
        let mut monitor = |progress| handle.train_step(progress);
        trainer.report_test(task, &used()?, &mut monitor, &mut |metric| client.report(metric))?;
    } else if task.work.evaluate {
        match untested::tests(&task.spec, task.client, &task.data, &task.tests) {
            Ok(tests) => {
                let params = used()?;
                let go_on = &mut || handle.step();
                match evaluation::test(&task.spec, &params, &tests, &task.backend, go_on) {
                    Ok((found, by_class)) => {
                        tested = by_class;
                        if let Some(share) = found.accuracy {
                            client.report(Metric::OwnAccuracy(share));
                        }
                        client.report(Metric::OwnLoss(found.loss));
                        for (measure, value) in found.deviation.measures() {
                            client.report(Metric::Own(measure, value));
                        }
                    }
                    Err(TrainError::Cancelled) => return Err(TrainError::Cancelled.into()),
                    Err(error) => warn!("round {}: the model cannot be tested here: {error}", task.round),
                }
            }
            // The task can train without testing.
            Err(error) => warn!("round {}: the model is not tested here: {error}", task.round),
        }
    }
    let (update, local) = if task.work.train {
        let trained = algorithm.train(&mut client, received()?, local()?)?;
        (trained.update, trained.local.map(|record| record.to_bytes(models::Precision::F32)))
    } else {
        // The client state stays as it is, and stands after the round of training that it stands after.
        (Record::default(), None)
    };
    let report = TrainReport {
        samples: client.samples(),
        steps: client.steps(),
        loss: client.loss(),
        duration: started.elapsed(),
        metrics: client.metrics(),
    };
    if task.work.train && task.spec.secure.enabled {
        let update = outgoing::received(update, &task.spec, &seed)
            .map_err(|error| TrainError::Local(error.to_string()))?;
        let Task { round, failed, work, client, .. } = *task;
        let spec = task.spec.clone();
        let broadcast = Sha256::digest(&task.broadcast).into();
        let trained = TrainedTask { spec, round, failed, work, broadcast, client, report, local };
        return Ok(Output::Plain { plain: Box::new(Plain::new(trained, update)), personal });
    }
    let id = TaskId { run: task.spec.run, round: task.round };
    let update = Record { tested, ..update };
    let update = Update { id, report, payload: client.payload(&update), local };
    Ok(Output::Ready(Box::new(TaskOutput { work: task.work, report, update, personal })))
}

/// Whether the device's samples fit the run. The server should have checked this, but is not trusted to.
fn check(task: &Task) -> Result<(), TaskError> {
    if task.spec.architecture.is_opaque() != task.trainer.is_some() {
        return Err(TaskError::Trainer { has_one: task.trainer.is_some() });
    }
    if task.trainer.is_some() {
        return Ok(());
    }
    learns_what_it_can(&task.spec)?;
    fits(&task.spec, task.data.shape(), task.data.dataset().class_names())?;
    in_order(&task.spec, task.data.dataset().columns())?;
    let preparation = &task.spec.data.preparation;
    preparation.shape(task.data.shape()).map_err(TrainError::from)?;
    if task.work.train || task.work.personalise {
        preparation.check(&task.data).map_err(TrainError::from)?;
    }
    Ok(())
}

/// Whether the algorithm goes with what the network learns, and the labels are where that can be learned.
fn learns_what_it_can(spec: &RunSpec) -> Result<(), TaskError> {
    let settings = Settings {
        training: &spec.training,
        aggregation: &spec.aggregation,
        architecture: Some(&spec.architecture),
        mixture: Mixture::CLIENTS,
        private: None,
        secure: false,
        top_k: None,
        late: false,
    };
    if Setting::Numbers.made(&settings).is_none() {
        return Ok(());
    }
    let conflicts = registry::build(&spec.algorithm)?.conflicts(&settings);
    let reason =
        conflicts.into_iter().find(|conflict| conflict.key == "model.task").map(|conflict| conflict.reason);
    let reason = match reason {
        None if spec.data.labels == LabelsAt::Server => {
            Some("devices without labels learn from classes alone")
        }
        reason => reason,
    };
    reason.map_or(Ok(()), |reason| Err(TaskError::OtherTask { reason: reason.to_owned() }))
}

/// Makes the device's personal models from the received one, and measures what the run allows to be reported. A failure here does
/// not fail the task: its update counts all the same.
fn personalise(
    task: &Task,
    used: &ParamSet,
    monitor: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    report: &mut dyn FnMut(Metric),
) -> Result<Option<Vec<u8>>, TaskError> {
    let Some(settings) = task.spec.personalised() else {
        warn!("round {}: the run has no settings for personal models; none is made", task.round);
        return Ok(None);
    };
    if task.spec.data.labels == LabelsAt::Server {
        warn!("round {}: personal models need labels, and this run is for devices without", task.round);
        return Ok(None);
    }
    let tests = match untested::tests_of_personal(&task.spec, task.client, &task.data, &task.tests) {
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
            warn!("round {}: no personal model was made, and an earlier one is kept: {error}", task.round);
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

#[cfg(test)]
pub(crate) mod tests;
