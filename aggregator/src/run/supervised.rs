//! The server's own training on its labelled samples, from the model that a round begins with, while clients train.
//!
//! It begins when the round opens and is joined when the round closes. The result depends on the model, the round, the run's seed and
//! where `server.plateau` stands alone, so that a process that resumes the round trains again and gets the same bits. It is never
//! written to disk.
//!
//! Where it is a step of the algorithm ([`Supervised`](shared::algorithm::Supervised)) and not something to mix in, clients
//! start from its result: it runs before the first round and while each round closes, and everything waits.
//!
//! If it diverges, it would diverge again: the round closes without it and says so.
//!
//! The server trains as a client does: `E_s` epochs of minibatch SGD in batches of `server.batch`, with the run's rate, schedule and
//! momentum, on `lambda_s` times the cross-entropy. A loss times a factor is a rate times it, as long as weight decay and the bound of the
//! gradient's length are divided by it. With `server.plateau` the rate falls once the server learns no more.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use models::ModelError;
use models::{Backend, ParamSet};
use shared::algorithm::{Client, Global, TrainError};
use shared::data::View;
use shared::message::Progress;
use shared::spec::{LabelsAt, Measures, RunSpec, Training};

use super::{Run, RunError};
use crate::config::ServerPlan;

/// Progress of the server's own training, shared with the driver.
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

/// The result of the server's own training.
pub(super) struct OwnModel {
    /// The parameters, sigma.
    pub(super) params: ParamSet,
    /// Its mean loss.
    pub(super) loss: f64,
}

/// The message for the operator when it diverges.
pub(super) const DIVERGED: &str = "the server's own training has diverged and counts for nothing: lower \
                                   training.optimizer.sgd.learning-rate or server.weight, and start a new run";

/// The outcome of the server's own training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum OwnLoss {
    /// Its mean loss.
    Mean(f64),
    /// The loss or the model is not finite.
    Diverged,
}

/// A training in progress; dropping it cancels it.
pub(super) struct OwnTraining {
    thread: Option<JoinHandle<Result<OwnModel, TrainError>>>,
    cancelled: Arc<AtomicBool>,
}

impl OwnTraining {
    /// Waits for its end; `None` if it has diverged.
    pub(super) fn finish(mut self) -> Result<Option<OwnModel>, RunError> {
        let thread = self.thread.take().expect("a training is finished once");
        match thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
            Ok(own) if own.params.first_non_finite().is_some() => Ok(None),
            Ok(own) => Ok(Some(own)),
            Err(TrainError::Model(ModelError::Diverged { .. })) => Ok(None),
            Err(error) => Err(RunError::Supervised(error)),
        }
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
        if plan.mixture.beta == 0.0 {
            return Ok(None);
        }
        let Some(data) = self.labelled.clone() else { return Ok(None) };
        self.train_own_from(self.current_model()?, data, round).map(Some)
    }

    /// The server's part of a model whose algorithm has one, trained in time for this round: gives its mean loss if there is
    /// such a part, or that it has diverged and the part is what it was.
    pub(super) fn supervise(&self, global: &mut Global, round: u32) -> Result<Option<OwnLoss>, RunError> {
        let Some(data) = self.labelled.clone() else { return Ok(None) };
        let Some(take_in) = self.algorithm.supervised() else { return Ok(None) };
        let theta = self.algorithm.current_model(global).clone();
        let Some(own) = self.train_own_from(theta, data, round)?.finish()? else {
            return Ok(Some(OwnLoss::Diverged));
        };
        take_in(global, own.params)?;
        Ok(Some(OwnLoss::Mean(own.loss)))
    }

    fn train_own_from(&self, omega: ParamSet, data: View, round: u32) -> Result<OwnTraining, RunError> {
        let spec = supervised(&self.config.spec, &self.config.server, self.server_rate_share());
        let (progress, cancelled) = (self.own_progress.clone(), Arc::new(AtomicBool::new(false)));
        progress.set(0, spec.training.steps(data.len() as u64));
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(self.own_threads)
            .thread_name(|thread| format!("server-{thread}"))
            .build()
            .map_err(|error| RunError::Threads(error.to_string()))?;
        let (told, backend, failed) = (cancelled.clone(), self.backend.clone(), self.failed);
        let thread = std::thread::Builder::new()
            .name("server".to_owned())
            .spawn(move || {
                let device = Device { backend: &backend, progress: &progress, cancelled: &told };
                let trained = pool.install(|| train(&spec, (round, failed), &data, &omega, &device));
                progress.set(0, 0);
                trained
            })
            .map_err(|error| RunError::Threads(error.to_string()))?;
        Ok(OwnTraining { thread: Some(thread), cancelled })
    }
}

/// The specification under which the server is its own client, at this share of the rate.
fn supervised(spec: &RunSpec, plan: &ServerPlan, share: f64) -> RunSpec {
    let mut own = spec.clone();
    let optimizer = spec.training.optimizer.to_engine().with_loss_scaled(plan.weight);
    own.data.labels = LabelsAt::Device;
    own.training = Training {
        epochs: plan.epochs,
        batch: plan.batch,
        optimizer: optimizer.at_rate(optimizer.rate() * share).into(),
        clip_norm: spec.training.clip_norm.map(|bound| bound / plan.weight),
        measure: Measures::default(),
        chunks: 1,
        // The server is no client: nothing keeps its state from round to round.
        keep_optimizer: false,
        ..spec.training
    };
    own
}

/// Where the server trains, its progress, and its cancellation.
struct Device<'a> {
    backend: &'a Backend,
    progress: &'a OwnProgress,
    cancelled: &'a AtomicBool,
}

fn train(
    spec: &RunSpec,
    (round, failed): (u32, u32),
    data: &View,
    omega: &ParamSet,
    device: &Device<'_>,
) -> Result<OwnModel, TrainError> {
    let seed = spec.root_seed().derive_numbered("round", u64::from(round)).derive("server");
    let mut monitor = |step: Progress| {
        device.progress.set(step.done, step.total);
        if device.cancelled.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let mut server =
        Client::new(spec, round, seed, data, device.backend, &mut monitor).after_failures(failed);
    let params = server.sgd(omega)?;
    Ok(OwnModel { params, loss: server.loss() })
}

#[cfg(test)]
mod tests {
    use shared::data::Dataset;
    use shared::schedule::Schedule;

    use super::*;

    /// `FedMatch`'s server trains once more than there are rounds.
    #[test]
    fn what_is_trained_after_the_last_round_is_trained_at_its_rate() {
        let mut spec = RunSpec::example("fedmatch");
        spec.training.schedule = Schedule::Cosine { min_factor: 0.0 };
        let omega =
            spec.architecture.initialise(|tensor| spec.root_seed().derive(tensor).rng()).expect("valid");
        let data = Dataset::new(vec![1, 2, 2], vec![200; 16], vec![0_u8, 1, 1, 0], 2).expect("four samples");
        let data = View::whole(Arc::new(data));
        let moved = |round: u32| {
            let (progress, cancelled) = (OwnProgress::default(), AtomicBool::new(false));
            let device = Device { backend: &Backend::cpu(), progress: &progress, cancelled: &cancelled };
            let own = train(&spec, (round, 0), &data, &omega, &device).expect("it trains");
            own.params.distance(&omega).expect("the same network")
        };
        let (last, after) = (moved(spec.rounds), moved(spec.rounds + 1));
        assert!(last > 0.0 && (after / last - 1.0).abs() < 0.1, "{last} in the last round, {after} after it");
    }
}
