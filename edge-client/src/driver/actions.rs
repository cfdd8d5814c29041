//! What the session asks for: carried out.

use std::sync::Arc;
use std::time::Duration;

use shared::message::{TaskId, TaskKind};
use shared::spec::RunSpec;
use tracing::{debug, warn};

use super::frozen::Waiting;
use super::persist::Unsaved;
use super::{Driver, DriverError, Notice, Received};
use crate::session::{Action, Event};
use crate::store::{Standing, Store};
use crate::task::Task;
use crate::transport::{Connector, Outgoing};

/// Quiet time after a round until the client counts as idle.
const IDLE_AFTER: Duration = Duration::from_secs(1);

impl<C: Connector, S: Store> Driver<'_, C, S> {
    /// Carries out the session's actions.
    pub(super) fn act(&mut self, now: Duration) -> Result<(), DriverError> {
        while let Some(action) = self.session.poll() {
            debug!(?action);
            match action {
                Action::Connect(pass) => {
                    let mut connector = self.connector.clone();
                    self.connecting = Some(tokio::spawn(async move { connector.connect(pass).await }));
                }
                Action::Send(message) => self.send(Outgoing::Message(Box::new(message))),
                Action::HangUp => self.channel = None,
                Action::Read(reading) => self.read(reading),
                Action::Sync { round } => {
                    if let Some(event) = self.sync(round) {
                        self.session.handle(now, event);
                    }
                }
                Action::LookUpState { run } => {
                    let after = match self.store.standing(run) {
                        Ok(Standing::After(update)) => Some(update),
                        Ok(Standing::Absent) => None,
                        Ok(Standing::Unknown) => continue,
                        // Both sides hear of it when it is needed: the task fails.
                        Err(error) => {
                            warn!("client state cannot be read: {error}");
                            continue;
                        }
                    };
                    self.session.handle(now, Event::State { after });
                }
                Action::NotifyState { server, device } => (self.notice)(Notice::State { server, device }),
                Action::LookForTests { spec } => self.look_for_tests(spec),
                Action::Upload(header) => match self.store.payload() {
                    Ok(payload) => self.send(Outgoing::Update(Box::new(header), payload)),
                    Err(error) => {
                        warn!("the finished update of round {} cannot be read: {error}", header.round);
                        self.session
                            .handle(now, Event::Lost { round: header.round, reason: error.to_string() });
                    }
                },
                Action::Train { round, work, spec } => {
                    if let Err(reason) = self.participant.sensors.check(self.session.conditions()) {
                        self.task = None;
                        (self.notice)(Notice::Ineligible { round, reason });
                        self.session.handle(now, Event::Ineligible { round, reason });
                        continue;
                    }
                    self.idle_at = None;
                    (self.notice)(Notice::Training { round, work });
                    if let Some(event) = self.train(round, work, spec) {
                        self.session.handle(now, event);
                    }
                }
                Action::Cancel => {
                    self.training.cancel();
                    self.masking.cancel();
                    self.forget_waiting();
                    let unsaved = self.unsaved.take().filter(|unsaved| unsaved.output.personal.is_some());
                    if let Some(Unsaved { output, .. }) = unsaved {
                        let round = output.update.id.round;
                        warn!("the personal model of round {round} is lost: the disk stayed full");
                    }
                }
                Action::Forget { round, verdict } => {
                    self.idle_at = Some(tokio::time::Instant::now() + IDLE_AFTER);
                    self.forget(round, verdict.clone())?;
                    if verdict.is_some() {
                        self.round_over(round);
                    }
                    if let Some(verdict) = verdict {
                        (self.notice)(Notice::Receipt { round, verdict });
                    }
                }
                Action::NotifyVerdict { round, verdict } => (self.notice)(Notice::Receipt { round, verdict }),
                // The session's end follows, and shutting down closes the connection.
                Action::Disconnect => {}
                Action::Finish(end) => self.end = Some(end),
            }
        }
        Ok(())
    }

    /// Sends, unless the connection is lost: the session learns of that next.
    pub(super) fn send(&mut self, outgoing: Outgoing) {
        if let Some(channel) = &self.channel {
            let _ = channel.outgoing.send(outgoing);
        }
    }

    /// Begins a task.
    fn train(&mut self, round: u32, work: TaskKind, spec: Arc<RunSpec>) -> Option<Event> {
        let Received { failed, payload: broadcast, .. } =
            self.task.take().filter(|task| task.round == round)?;
        self.begin(Waiting { round, failed, work, spec, broadcast })
    }

    /// Starts to train. Client state that cannot be read fails the task, not the process: it concerns only its run.
    pub(super) fn start(&mut self, task: Waiting) -> Option<Event> {
        let Waiting { round, failed, work, spec, broadcast } = task;
        if let Some(failure) = self.cannot_hide(&spec, round, work) {
            return Some(self.failed(round, failure));
        }
        let local = match self.store.client_state(spec.run) {
            Ok(local) => local,
            Err(error) => return Some(self.failed(round, error.failure())),
        };
        // A task comes after the welcome, and that after a hello with what was read.
        let samples = self.samples.clone()?;
        let id = TaskId { run: spec.run, round };
        let task = Task {
            local,
            spec,
            round,
            failed,
            work,
            client: self.participant.client,
            data: samples.data,
            tests: samples.tests,
            trainer: samples.trainer,
            backend: self.participant.backend.clone(),
            broadcast,
        };
        self.training.begin(&self.participant.pool, id, task);
        None
    }
}
