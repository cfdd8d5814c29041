//! The session's work: tasks, updates and receipts.

use shared::eligibility::Ineligible;
use shared::message::{self, Progress, TaskId, TaskKind, ToServer, TrainReport, UpdateHeader, Verdict};

use super::{Action, Activity, ConnState, Session, SessionEnd};
use crate::failure::Failure;
use crate::task::is_private_round;

impl Session {
    /// Begins the task that waited for a welcome or a receipt.
    pub(super) fn begin_early(&mut self) {
        if matches!(self.connection, ConnState::Joined(_))
            && let Some((round, work)) = self.early.take()
        {
            self.task(round, work);
        }
    }

    fn defer(&mut self, round: u32, work: TaskKind) {
        if self.early.is_none_or(|(newest, _)| newest < round) {
            self.early = Some((round, work));
        }
    }

    pub(super) fn task(&mut self, round: u32, work: TaskKind) {
        let (ConnState::Joined(_), Some(spec)) = (self.connection, &self.spec) else {
            self.defer(round, work);
            return;
        };
        let id = TaskId { run: spec.run, round };
        // Each task has a stream of its own, so an older one may arrive later.
        if let Activity::Training(current) | Activity::Holding(current) = self.activity
            && current.run == id.run
            && current.round >= round
        {
            return;
        }
        if self.keeps && matches!(self.activity, Activity::Holding(current) if current.run == id.run) {
            self.defer(round, work);
            return;
        }
        let spec = spec.clone();
        if work.train
            && let Err(error) = is_private_round(&spec, self.device.private_only, round, self.last_private)
        {
            let failure = error.failure();
            self.send_failed(id, &failure.reason);
            self.goodbye();
            self.end(SessionEnd::Unfit(failure));
            return;
        }
        // The receipt has another stream, and may come later.
        self.overtaken = match self.activity {
            Activity::Holding(current) if current.run == id.run => Some(current.round),
            _ => None,
        };
        self.abandon();
        self.activity = Activity::Training(id);
        self.personal = work.personalise && !work.train;
        self.progress = Progress { round: Some(round), done: 0, total: 0 };
        self.actions.push_back(Action::Train { round, work, spec });
    }

    pub(super) fn trained(&mut self, round: u32, outcome: Result<TrainReport, Failure>, keeps: bool) {
        let Activity::Training(id) = self.activity else { return };
        if id.round != round {
            return;
        }
        self.progress = Progress::default();
        if let Some(leaving) = self.leaving.take() {
            self.activity = Activity::Idle;
            if outcome.is_ok() {
                // The update was saved for the server, which no longer wants it.
                self.actions.push_back(Action::Forget { round, verdict: None });
            }
            self.end(leaving);
            return;
        }
        match outcome {
            Ok(report) => {
                self.activity = Activity::Holding(id);
                (self.report, self.keeps, self.syncing) = (report, keeps, keeps);
                if keeps {
                    self.actions.push_back(Action::Sync { round });
                } else if matches!(self.connection, ConnState::Joined(_)) {
                    self.upload(round);
                }
            }
            Err(failure) => {
                self.activity = Activity::Idle;
                self.send_failed(id, &failure.reason);
                if failure.permanent {
                    self.goodbye();
                    self.end(SessionEnd::Unfit(failure));
                }
            }
        }
    }

    /// Sends that a task failed. Without a connection the next hello shows it, since nothing is held then.
    pub(super) fn send_failed(&mut self, id: TaskId, reason: &str) {
        let reason = message::reason(&reason);
        match self.connection {
            ConnState::Joined(_) => {
                self.actions.push_back(Action::Send(ToServer::Failed { round: id.round, reason }));
            }
            ConnState::Greeting => self.failed = Some((id, reason)),
            ConnState::Waiting(_)
            | ConnState::Connecting
            | ConnState::Reading
            | ConnState::Leaving(_)
            | ConnState::Over => {}
        }
    }

    /// The held update is durable.
    pub(super) fn synced(&mut self, round: u32) {
        if let Activity::Holding(id) = self.activity
            && id.round == round
            && std::mem::take(&mut self.syncing)
            && matches!(self.connection, ConnState::Joined(_))
        {
            self.upload(round);
        }
    }

    /// Sends the held update, unless that waits for it to be durable.
    pub(super) fn upload(&mut self, round: u32) {
        if self.syncing {
            return;
        }
        self.actions.push_back(Action::Upload(UpdateHeader { round, report: self.report }));
    }

    /// The device does not meet the run's conditions for the task.
    pub(super) fn ineligible(&mut self, round: u32, reason: Ineligible) {
        if let Activity::Training(id) = self.activity
            && id.round == round
        {
            self.activity = Activity::Idle;
            self.progress = Progress::default();
            if matches!(self.connection, ConnState::Joined(_)) {
                self.actions.push_back(Action::Send(ToServer::Ineligible { round, reason }));
            }
        }
    }

    /// The held update cannot be made durable, or not be read back.
    pub(super) fn lost(&mut self, round: u32, reason: &str) {
        if let Activity::Holding(id) = self.activity
            && id.round == round
        {
            self.forget(None);
            self.send_failed(id, reason);
            self.begin_early();
        }
    }

    pub(super) fn receipt(&mut self, round: u32, verdict: Verdict) {
        if let Activity::Holding(id) = self.activity
            && id.round == round
        {
            self.backoff.reset();
            self.forget(Some(verdict));
            self.begin_early();
        } else if self.overtaken.take_if(|overtaken| *overtaken == round).is_some() {
            self.actions.push_back(Action::NotifyVerdict { round, verdict });
        }
    }

    /// Cancels the task in training, or forgets the held update.
    pub(super) fn abandon(&mut self) {
        match self.activity {
            Activity::Idle => {}
            Activity::Training(_) => {
                self.activity = Activity::Idle;
                self.progress = Progress::default();
                self.actions.push_back(Action::Cancel);
            }
            Activity::Holding(_) => self.forget(None),
        }
    }

    fn forget(&mut self, verdict: Option<Verdict>) {
        if let Activity::Holding(id) = self.activity {
            self.activity = Activity::Idle;
            self.syncing = false;
            self.actions.push_back(Action::Forget { round: id.round, verdict });
        }
    }
}
