//! The session of a device that reads its samples as the run says: it asks, reads, and comes again.

use std::time::Duration;

use shared::spec::Reading;

use super::{Action, ConnState, DeviceProfile, Session, SessionEnd};
use crate::failure::Failure;

impl Session {
    /// The server has said how samples are read.
    pub(super) fn told_how(&mut self, text: &str) {
        if !self.device.asks || self.connection != ConnState::Greeting {
            return;
        }
        match Reading::from_text(text) {
            Ok(reading) => {
                self.connection = ConnState::Reading;
                self.reading = Some(reading.clone());
                self.actions.push_back(Action::Read(reading));
            }
            Err(error) => self.end(SessionEnd::Outdated(error)),
        }
    }

    /// The samples are read, or cannot be used.
    pub(super) fn samples_read(&mut self, now: Duration, read: Result<DeviceProfile, Failure>) {
        if self.connection != ConnState::Reading {
            return;
        }
        match read {
            Ok(device) => {
                self.device = device;
                self.connection = ConnState::Waiting(now);
            }
            Err(failure) => self.end(SessionEnd::Unfit(failure)),
        }
    }

    /// Another run is served than the one that said how samples are read.
    pub(super) fn ask_again(&mut self, now: Duration) {
        self.device.asks = true;
        self.reading = None;
        self.connection = ConnState::Waiting(now + self.backoff.next());
        self.actions.push_back(Action::HangUp);
    }
}
