//! Frozen parameters of a run: looked up in the store, or received once, before the first task is trained.

use std::sync::Arc;

use bytes::Bytes;
use models::architecture::FrozenError;
use shared::message::{TaskKind, ToServer};
use shared::spec::RunSpec;
use tokio::task::JoinHandle;
use tracing::warn;

use super::Driver;
use crate::failure::{Blame, Failure};
use crate::session::Event;
use crate::store::Store;
use crate::transport::{Connector, Outgoing};

/// What is known of the frozen parameters.
#[derive(Default)]
pub(super) struct Frozen {
    /// A specification as it was told, and the same with its frozen parameters.
    ready: Option<(Arc<RunSpec>, Arc<RunSpec>)>,
    /// The task that waits for them.
    waiting: Option<Waiting>,
    /// Whether they were asked for on this connection.
    asked: bool,
    /// Writes those that were received last to the disk, beside the driver: there may be many, and a card may be slow.
    pub(super) keeping: Option<JoinHandle<()>>,
}

/// A task whose training is about to begin, as soon as the frozen parameters of its run are here.
pub(super) struct Waiting {
    pub(super) round: u32,
    /// Rounds of training before it that have failed.
    pub(super) failed: u32,
    pub(super) work: TaskKind,
    pub(super) spec: Arc<RunSpec>,
    pub(super) broadcast: Bytes,
}

impl<C: Connector, S: Store> Driver<'_, C, S> {
    /// Begins a task, now or as soon as the frozen parameters of its run are here.
    pub(super) fn begin(&mut self, task: Waiting) -> Option<Event> {
        match self.completed(&task.spec) {
            Ok(Some(spec)) => self.start(Waiting { spec, ..task }),
            Ok(None) => {
                self.frozen.waiting = Some(task);
                self.ask_for_frozen();
                None
            }
            Err(failure) => Some(self.failed(task.round, failure)),
        }
    }

    /// A new connection knows nothing of what was asked before.
    pub(super) fn forget_asked(&mut self) {
        self.frozen.asked = false;
    }

    /// The waiting task is no longer wanted.
    pub(super) fn forget_waiting(&mut self) {
        self.frozen.waiting = None;
    }

    /// Asks for what a task waits for, once a connection, if the server has welcomed the device.
    pub(super) fn ask_for_frozen(&mut self) {
        let Some(waiting) = &self.frozen.waiting else { return };
        let digest = waiting.spec.architecture.frozen.as_ref().and_then(|frozen| frozen.digest.clone());
        if let Some(digest) = digest.filter(|_| !self.frozen.asked && self.session.run().is_some()) {
            self.frozen.asked = true;
            self.send(Outgoing::Message(Box::new(ToServer::WantsFrozen { digest })));
        }
    }

    /// Takes frozen parameters in that the server has sent, and begins the task that waits for them. The one that did may be no
    /// longer wanted: the next one needs them as well.
    pub(super) fn frozen_received(&mut self, encoded: &Bytes) -> Option<Event> {
        let waiting = self.frozen.waiting.take();
        let spec = waiting.as_ref().map(|waiting| &waiting.spec).or(self.session.run())?.clone();
        // Unasked it may come in a run that freezes nothing.
        let digest = spec.architecture.frozen.as_ref()?.digest.clone()?;
        match with(&spec, encoded) {
            Ok(complete) => self.frozen.ready = Some((spec, complete)),
            Err(error) => return Some(self.failed(waiting?.round, of_server(&error))),
        }
        // Without them on the disk the device trains all the same, and receives them again after a restart.
        if let Some(save) = self.store.save_frozen(&digest, encoded) {
            self.frozen.keeping = Some(tokio::task::spawn_blocking(move || {
                if let Err(error) = save() {
                    warn!("the frozen parameters are not kept for the next start: {error}");
                }
            }));
        }
        self.begin(waiting?)
    }

    /// The connection is lost. A run that is over makes no other, which could bring the frozen parameters: the task that waits for them
    /// has failed.
    pub(super) fn left_without_frozen(&mut self) -> Option<Event> {
        if !self.session.is_leaving() {
            return None;
        }
        let Waiting { round, .. } = self.frozen.waiting.take()?;
        let reason = "the run ended before its frozen parameters were received, so this device has no personal model of it: \
                      take part in the next run that personalises";
        Some(self.failed(round, Failure::new(Blame::Server, reason)))
    }

    /// The specification with its frozen parameters; `None` if they are not here.
    fn completed(&mut self, spec: &Arc<RunSpec>) -> Result<Option<Arc<RunSpec>>, Failure> {
        let Some(frozen) = &spec.architecture.frozen else { return Ok(Some(spec.clone())) };
        let Some(digest) = &frozen.digest else {
            return Err(Failure::new(
                Blame::Server,
                "the run freezes parameters and does not say which they are",
            ));
        };
        if let Some((told, complete)) = &self.frozen.ready
            && told == spec
        {
            return Ok(Some(complete.clone()));
        }
        let kept = self.store.frozen(digest).map_err(|error| error.failure())?;
        let Some(encoded) = kept else { return Ok(None) };
        let complete = with(spec, &encoded).map_err(|error| of_server(&error))?;
        self.frozen.ready = Some((spec.clone(), complete.clone()));
        Ok(Some(complete))
    }
}

/// The same run with these frozen parameters.
fn with(spec: &RunSpec, encoded: &Bytes) -> Result<Arc<RunSpec>, FrozenError> {
    let architecture = spec.architecture.clone().with_frozen(encoded)?;
    Ok(Arc::new(RunSpec { architecture, ..spec.clone() }))
}

/// Bytes with the right digest come from who has named it.
fn of_server(error: &FrozenError) -> Failure {
    Failure::new(Blame::Server, format!("{error}: the server has sent what its run does not name"))
}
