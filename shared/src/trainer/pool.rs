//! The processes of one trainer: one on a device, and in a simulation as many as train at once.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use models::params::foreign::read_foreign;
use models::{ParamSet, codec};

use super::command::TrainerCommand;
use super::line::{Answer, Request, Test, Train, Who};
use super::process::{TrainerProcess, end_group};
use crate::algorithm::trainer::{Trainer, TrainerJob, TrainerResult, TrainerTest};
use crate::algorithm::{TrainError, TrainerError};
use crate::task::Progress;

/// The first wait before a trainer that has failed is started again; it doubles with each failure in a row.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
/// The longest.
const MAX_BACKOFF: Duration = Duration::from_mins(1);
/// Bytes of headers beside those of values, which have at most twice as many as ours.
const SLACK: u64 = 1 << 20;
/// How often the one who waits is asked whether to go on.
const POLL: Duration = Duration::from_millis(100);

/// Which client of a simulation it is, and of how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientNumber {
    /// Counted from 0.
    pub client: u32,
    /// The number of clients.
    pub clients: u32,
}

/// Processes of one command. They are started when they are needed, and kept.
pub struct Trainers {
    command: TrainerCommand,
    processes: Mutex<Processes>,
    requests: AtomicU64,
}

#[derive(Default)]
struct Processes {
    idle: Vec<TrainerProcess>,
    /// Those at work.
    working: BTreeSet<u32>,
    /// No more is started.
    ended: bool,
    /// Failures in a row.
    failures: u32,
    /// The end of the backoff after them.
    not_before: Option<Instant>,
}

/// A process is at work until this is dropped.
struct Working<'a> {
    trainers: &'a Trainers,
    id: u32,
}

/// A trainer for one client.
pub struct TrainerAtWork<'a> {
    /// The processes.
    pub trainers: &'a Trainers,
    /// The client, in a simulation.
    pub number: Option<ClientNumber>,
}

impl Trainers {
    /// No process yet.
    #[must_use]
    pub fn new(command: TrainerCommand) -> Self {
        Self { command, processes: Mutex::default(), requests: AtomicU64::default() }
    }

    /// The command.
    #[must_use]
    pub fn command(&self) -> &TrainerCommand {
        &self.command
    }

    /// The time for which no process is started, since the last ones have failed.
    #[must_use]
    pub fn backoff(&self) -> Option<Duration> {
        let until = self.processes().not_before?;
        until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    }

    /// Ends all processes, also those at work, and starts no more: for a program that ends and does not wait for what it has
    /// cancelled.
    pub fn end(&self) {
        let mut processes = self.processes();
        processes.ended = true;
        processes.working.iter().for_each(|&group| end_group(group));
        let idle = std::mem::take(&mut processes.idle);
        drop(processes);
        TrainerProcess::end_all(idle);
        // It holds the folders of those at work, which remove them.
        let _ = std::fs::remove_dir(&self.command.directory);
    }

    fn processes(&self) -> MutexGuard<'_, Processes> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Numbers of the processes at work.
    #[cfg(test)]
    pub(super) fn working(&self) -> BTreeSet<u32> {
        self.processes().working.clone()
    }

    /// Asks for the number of training samples.
    ///
    /// # Errors
    /// [`TrainError::Trainer`] or [`TrainError::Cancelled`].
    pub fn samples(
        &self,
        number: Option<ClientNumber>,
        monitor: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<u64, TrainError> {
        self.with(monitor, |process, monitor| {
            match process.ask(&Request::Describe(who(number)), None, monitor)? {
                Answer::Described { samples } => Ok(samples),
                other => Err(not_asked(&other, "described")),
            }
        })
    }

    /// Lets a process work. One that is of no use any more is ended, and the next starts after a backoff.
    fn with<T>(
        &self,
        monitor: &mut dyn FnMut(Progress) -> ControlFlow<()>,
        work: impl FnOnce(
            &mut TrainerProcess,
            &mut dyn FnMut(Progress) -> ControlFlow<()>,
        ) -> Result<T, TrainError>,
    ) -> Result<T, TrainError> {
        let (mut process, working) = self.put_to_work(monitor)?;
        let result = work(&mut process, monitor);
        let is_of_use = !matches!(&result, Err(TrainError::Trainer(error)) if error.is_of_process());
        if !is_of_use {
            process.kill();
        }
        // In one step, so that `end` finds it at work or idle.
        let mut processes = self.processes();
        working.end(&mut processes);
        if !is_of_use {
            processes.add_failure();
        } else if process.is_running() && !processes.ended {
            (processes.failures, processes.not_before) = (0, None);
            processes.idle.push(process);
        }
        result
    }

    /// An idle process, or else a new one.
    fn put_to_work(
        &self,
        monitor: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<(TrainerProcess, Working<'_>), TrainError> {
        loop {
            // Held until the process is among those at work, so that `end` misses none.
            let mut processes = self.processes();
            if processes.ended {
                return Err(TrainError::Cancelled);
            }
            // It may have ended meanwhile.
            let idle = processes.idle.pop().and_then(|mut idle| idle.is_running().then_some(idle));
            let process = match idle {
                Some(idle) => idle,
                None if processes.not_before.is_some_and(|moment| Instant::now() < moment) => {
                    drop(processes);
                    if monitor(Progress::default()).is_break() {
                        return Err(TrainError::Cancelled);
                    }
                    std::thread::sleep(POLL);
                    continue;
                }
                None => TrainerProcess::start(&self.command).inspect_err(|_| processes.add_failure())?,
            };
            let working = Working { trainers: self, id: process.id() };
            processes.working.insert(working.id);
            return Ok((process, working));
        }
    }
}

impl Drop for Trainers {
    fn drop(&mut self) {
        self.end();
    }
}

impl Working<'_> {
    fn end(self, processes: &mut Processes) {
        processes.working.remove(&self.id);
        // What a drop does is done, and the lock is held here.
        std::mem::forget(self);
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.trainers.processes().working.remove(&self.id);
    }
}

impl Processes {
    fn add_failure(&mut self) {
        let wait = FIRST_BACKOFF.saturating_mul(1 << self.failures.min(10)).min(MAX_BACKOFF);
        self.failures += 1;
        self.not_before = Some(Instant::now() + wait);
    }
}

fn who(number: Option<ClientNumber>) -> Who {
    number.map_or_else(Who::default, |ClientNumber { client, clients }| Who {
        client: Some(client),
        clients: Some(clients),
    })
}

fn not_asked(answer: &Answer, expected: &str) -> TrainError {
    let given = format!("{answer:?}");
    TrainerError::Answer { given, problem: format!("no `{expected}`, which it was asked for") }.into()
}

impl Trainer for TrainerAtWork<'_> {
    fn train(
        &mut self,
        job: &TrainerJob<'_>,
        monitor: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<TrainerResult, TrainError> {
        self.trainers.with(monitor, |process, monitor| {
            // A name of its own: a late answer to an earlier request finds nothing here.
            let out = format!("trained-{}.safetensors", self.trainers.requests.fetch_add(1, Ordering::Relaxed));
            let (model, out) = (process.file("model.safetensors"), process.file(&out));
            let given = write(&model, job.params)?;
            let request = Request::Train(Train {
                round: job.round,
                who: who(self.number),
                model: &model,
                out: &out,
                learning_rate: job.learning_rate,
                seed: job.seed,
                training: job.training,
            });
            let answer = process.ask(&request, Some(job.round), monitor)?;
            let Answer::Finished { loss, steps, samples, metrics } = answer else {
                return Err(not_asked(&answer, "finished"));
            };
            if let Some(samples) = samples.filter(|samples| *samples != job.samples) {
                let reason = format!(
                    "it has trained on {samples} samples and was asked about {} when the device joined: describe those that it trains on",
                    job.samples
                );
                return Err(TrainerError::Failed { reason }.into());
            }
            let accuracy = share(metrics.get("accuracy").copied())?;
            if !loss.is_finite() {
                return Err(TrainerError::Failed { reason: format!("its loss is {loss}") }.into());
            }
            let params = read(&out, 2 * given + SLACK);
            let _ = std::fs::remove_file(&out);
            let params = params?;
            Ok(TrainerResult { params, steps: steps.max(1), loss, accuracy })
        })
    }

    fn test(
        &mut self,
        round: u32,
        params: &ParamSet,
        monitor: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<TrainerTest, TrainError> {
        self.trainers.with(monitor, |process, monitor| {
            let model = process.file("model.safetensors");
            write(&model, params)?;
            let request = Request::Test(Test { round, who: who(self.number), model: &model });
            let answer = process.ask(&request, Some(round), monitor)?;
            let Answer::Tested { samples, loss, accuracy } = answer else {
                return Err(not_asked(&answer, "tested"));
            };
            Ok(TrainerTest { samples, loss, accuracy: share(accuracy)? })
        })
    }
}

/// An accuracy, which is a share.
fn share(accuracy: Option<f64>) -> Result<Option<f64>, TrainerError> {
    match accuracy {
        Some(share) if !(0.0..=1.0).contains(&share) => {
            let reason = format!("its accuracy is {share}: give a share from 0 to 1");
            Err(TrainerError::Failed { reason })
        }
        accuracy => Ok(accuracy),
    }
}

/// Writes a model, and gives its bytes.
fn write(path: &Path, params: &ParamSet) -> Result<u64, TrainerError> {
    let bytes = codec::plain_bytes(params);
    std::fs::write(path, &bytes)
        .map_err(|error| TrainerError::Files { reason: format!("{}: {error}", path.display()) })?;
    Ok(bytes.len() as u64)
}

/// The model that it has written, of at most `limit` bytes.
fn read(path: &Path, limit: u64) -> Result<ParamSet, TrainerError> {
    let unusable = |reason: String| TrainerError::Model { reason: format!("{}: {reason}", path.display()) };
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(|error| unusable(error.to_string()))?;
    file.take(limit + 1).read_to_end(&mut bytes).map_err(|error| unusable(error.to_string()))?;
    if bytes.len() as u64 > limit {
        return Err(unusable(format!(
            "it has more than {limit} bytes, twice what the model has in single precision"
        )));
    }
    let tensors = read_foreign(&bytes).map_err(|error| unusable(error.to_string()))?;
    Ok(tensors.into_iter().map(|(name, tensor)| (name, tensor.array)).collect())
}
