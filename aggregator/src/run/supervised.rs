//! The server's own training: from the model that a round begins with, on labelled samples of its own, while clients train.
//!
//! It begins when the round opens and is joined when the round closes. What it gives depends on the model, the round and the
//! run's seed alone, so that a process that finds the round open trains it again and gets the same bits; nothing of it is
//! ever written down.
//!
//! The server trains as a client does: `E_s` epochs of minibatch SGD with the run's batches, rate, schedule and momentum, on
//! `lambda_s` times the cross-entropy. A loss times a factor is a rate times it, as long as weight decay and the bound of the
//! gradient's length are divided by it.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use models::{Backend, ParamSet};
use shared::algorithm::{Client, TrainError};
use shared::data::View;
use shared::message::Progress;
use shared::spec::{LabelsAt, Measures, RunSpec, Training};

use super::{Run, RunError};
use crate::config::ServerPlan;

/// How far the server's own training is, for whoever watches.
#[derive(Debug, Default)]
pub struct OwnProgress {
    done: AtomicU64,
    total: AtomicU64,
}

impl OwnProgress {
    /// Steps done and to do; `None` if nothing is trained at the moment.
    #[must_use]
    pub fn of(&self) -> Option<(u64, u64)> {
        let (done, total) = (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed));
        (done < total).then_some((done, total))
    }

    fn set(&self, done: u64, total: u64) {
        self.done.store(done, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
    }
}

/// What the server's own training gave.
pub(super) struct OwnModel {
    /// sigma.
    pub(super) params: ParamSet,
    /// Its mean loss.
    pub(super) loss: f64,
}

/// A training in progress. Whoever drops it ends it.
pub(super) struct OwnTraining {
    thread: Option<JoinHandle<Result<OwnModel, TrainError>>>,
    cancelled: Arc<AtomicBool>,
}

impl OwnTraining {
    /// Waits for its end.
    pub(super) fn finish(mut self) -> Result<OwnModel, RunError> {
        let thread = self.thread.take().expect("a training is finished once");
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map_err(RunError::Supervised)
    }
}

impl Drop for OwnTraining {
    fn drop(&mut self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }
}

impl Run {
    /// Begins the server's own training of `round`, if it has one, from the model of the round before.
    pub(super) fn train_own(&self, round: u32) -> Result<Option<OwnTraining>, RunError> {
        let plan = self.config.server;
        let Some(data) = self.labelled.clone().filter(|_| plan.mixture.beta > 0.0) else { return Ok(None) };
        let (omega, spec) = (self.published()?, supervised(&self.config.spec, &plan));
        let (progress, cancelled) = (self.own_progress.clone(), Arc::new(AtomicBool::new(false)));
        progress.set(0, spec.training.steps(data.len() as u64));
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(self.own_threads)
            .thread_name(|thread| format!("server-{thread}"))
            .build()
            .map_err(|error| RunError::Threads(error.to_string()))?;
        let told = cancelled.clone();
        let thread = std::thread::Builder::new()
            .name("server".to_owned())
            .spawn(move || {
                let trained = pool.install(|| train(&spec, round, &data, &omega, &progress, &told));
                progress.set(0, 0);
                trained
            })
            .map_err(|error| RunError::Threads(error.to_string()))?;
        Ok(Some(OwnTraining { thread: Some(thread), cancelled }))
    }
}

/// The specification under which the server is its own client.
fn supervised(spec: &RunSpec, plan: &ServerPlan) -> RunSpec {
    let mut own = spec.clone();
    let Training { sgd, clip, .. } = spec.training;
    own.data.labels = LabelsAt::Device;
    own.training = Training {
        epochs: plan.epochs,
        sgd: models::Sgd { rate: sgd.rate * plan.weight, decay: sgd.decay / plan.weight, ..sgd },
        clip: clip.map(|bound| bound / plan.weight),
        measure: Measures::default(),
        slices: 1,
        ..spec.training
    };
    own
}

fn train(
    spec: &RunSpec,
    round: u32,
    data: &View,
    omega: &ParamSet,
    progress: &OwnProgress,
    cancelled: &AtomicBool,
) -> Result<OwnModel, TrainError> {
    let seed = spec.root_seed().derive_numbered("round", u64::from(round)).derive("server");
    let mut monitor = |step: Progress| {
        progress.set(step.done, step.total);
        if cancelled.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let backend = Backend::cpu();
    let mut server = Client::new(spec, round, seed, data, &backend, &mut monitor);
    let params = server.sgd(omega)?;
    Ok(OwnModel { params, loss: server.loss() })
}
