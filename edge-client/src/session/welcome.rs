//! What a device does that is welcomed to a run: declines it, or goes on with what it holds.

use std::sync::Arc;
use std::time::Duration;

use shared::client_state::{Difference, Stands};
use shared::message::{self, CountedUpdate, TaskId, ToServer};
use shared::spec::{RunSpec, SpecError};

use super::{Action, Activity, ConnState, Session, SessionEnd};
use crate::task::{fits, hides, private_rounds};

impl Session {
    /// A welcome to this run, which wants the update of the round `wants` if the device has it.
    pub(super) fn welcome(&mut self, now: Duration, spec: Result<RunSpec, SpecError>, wants: Option<u32>) {
        let spec = match spec {
            Ok(spec) => Arc::new(spec),
            Err(error) => {
                self.decline(&error.to_string(), SessionEnd::Outdated(error));
                return;
            }
        };
        // Before it has said what it has, there is nothing to be welcomed with.
        if self.device.asks || self.reading.as_ref().is_some_and(|reading| !reading.fits(&spec)) {
            // What trains is of another run, and the memory that it takes is another one's once the samples are read.
            if matches!(self.activity, Activity::Training(_)) {
                self.abandon();
            }
            self.ask_again(now);
            return;
        }
        self.turned_down = None;
        // The shape of the hello is the one that the server has compared.
        let fit = fits(&spec, &spec.data.shape, &self.device.class_names);
        let hidden = fit.and_then(|()| hides(&spec, self.device.secure_only));
        match hidden.and_then(|()| private_rounds(&spec, self.device.private_only)) {
            Ok(last) => self.last_private = last,
            Err(error) => {
                let failure = error.failure();
                self.decline(&failure.to_string(), SessionEnd::Unfit(failure));
                return;
            }
        }
        // Before the task: the rest of it is not received.
        if let Some(Err(error)) = self.device.memory.map(|memory| memory.check(&spec, self.device.samples)) {
            self.decline(&error.to_string(), SessionEnd::TooLarge(error));
            return;
        }
        self.backoff.welcomed(now);
        self.connection = ConnState::Joined(now);
        self.actions.push_back(Action::Send(ToServer::SkippedSamples { samples: self.device.skipped }));
        let wanted = |id: &TaskId| id.run == spec.run && Some(id.round) == wants;
        match &self.activity {
            Activity::Holding(id) if wanted(id) => self.upload(id.round),
            Activity::Training(id) if wanted(id) => {}
            _ => self.abandon(),
        }
        if let Some((id, reason)) = self.failed.take().filter(|(id, _)| wanted(id)) {
            self.send_failed(id, &reason);
        }
        if self.counted.is_some() {
            // After what was forgotten above, which the state goes by.
            self.actions.push_back(Action::LookUpState { run: spec.run });
        }
        if spec.is_tested_by_clients() {
            self.actions.push_back(Action::LookForTests { spec: spec.clone() });
        }
        self.spec = Some(spec);
        self.begin_early();
    }

    /// Says which client state there is, and reports one that is not what it must be; the same one once.
    pub(super) fn state_found(&mut self, device: Option<CountedUpdate>) {
        let Some(Stands(server)) =
            self.counted.take().filter(|_| matches!(self.connection, ConnState::Joined(_)))
        else {
            return;
        };
        self.actions.push_back(Action::Send(ToServer::ClientState { after: device }));
        let differs = Difference::between(server, device).map(|_| (server, device));
        if let Some((server, device)) = differs.filter(|_| self.differed != differs) {
            self.actions.push_back(Action::NotifyState { server, device });
        }
        self.differed = differs;
    }

    /// Leaves a run that this device cannot take part in.
    pub(super) fn decline(&mut self, reason: &str, end: SessionEnd) {
        self.actions.push_back(Action::Send(ToServer::Declined { reason: message::reason(&reason) }));
        self.end(end);
    }
}
