//! The session of a device that reads its samples as the run says: it asks, reads, and comes again.

use std::time::Duration;

use shared::message::Refusal;
use shared::spec::Reading;

use super::{Action, ConnState, DeviceProfile, Session, SessionEnd};
use crate::failure::{Blame, Failure};

impl Session {
    /// The server has said how samples are read.
    pub(super) fn told_how(&mut self, text: &str) {
        if !self.device.asks || self.connection != ConnState::Greeting {
            return;
        }
        match Reading::from_text(text) {
            Ok(reading) => {
                // Read in the same way they are the same samples.
                if let Some((_, refusal)) = self.turned_down.take_if(|(before, _)| *before == reading) {
                    self.end(SessionEnd::Refused(refusal));
                    return;
                }
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

    /// The server refuses the samples: for good if the user has said how they are read, or the server has already said the same.
    pub(super) fn samples_refused(&mut self, now: Duration, refusal: Refusal) {
        if self.device.asks {
            // A server that knows the question answers it.
            let reason = "this server is older and does not say how samples are read: give --classes, and --shape and --label \
                          where your data need them";
            self.end(SessionEnd::Unfit(Failure::new(Blame::Owner, reason)));
            return;
        }
        match self.reading.take() {
            Some(reading) => {
                self.turned_down = Some((reading, refusal));
                self.ask_again(now);
            }
            None => self.end(SessionEnd::Refused(refusal)),
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
