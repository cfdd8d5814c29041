//! What the network brings: connections, messages, tasks, and their end.

use shared::message::ToClient;

use super::{Driver, DriverError, Notice, Received};
use crate::session::Event;
use crate::store::Store;
use crate::transport::{Channel, ConnectError, Connector, Incoming};

impl<C: Connector, S: Store> Driver<'_, C, S> {
    pub(super) fn connected(
        &mut self,
        result: Result<Channel, ConnectError>,
    ) -> Result<Option<Event>, DriverError> {
        match result {
            Ok(channel) => {
                (self.notice)(Notice::Connected { server: channel.server.clone() });
                self.channel = Some(channel);
                self.task = None;
                self.forget_asked();
                Ok(Some(Event::Connected))
            }
            Err(error) => {
                // After a change of networks another server may answer for a while at the trusted server's address.
                let passes = self.welcomed || !matches!(error, ConnectError::Untrusted { .. });
                let Some(server) = error.server().filter(|_| passes) else {
                    return Err(DriverError::Connect(error));
                };
                let reason = error.to_string();
                self.lost = Some((server.to_owned(), reason.clone()));
                Ok(Some(Event::Disconnected { reason, elsewhere: false }))
            }
        }
    }

    pub(super) fn incoming(&mut self, incoming: Incoming) -> Option<Event> {
        Some(match incoming {
            Incoming::Message(ToClient::Secure { round, attempt, step }) => {
                return self.secure_step(round, attempt, *step);
            }
            Incoming::Message(message) => {
                match &message {
                    ToClient::Refused(refusal) if refusal.may_pass() => {
                        (self.notice)(Notice::TurnedBack { refusal: refusal.clone() });
                    }
                    ToClient::ServerKey { key } => (self.notice)(Notice::ServerKey { key: *key }),
                    ToClient::Servers { addresses } => {
                        (self.notice)(Notice::Servers { addresses: addresses.clone() });
                    }
                    _ => {}
                }
                Event::Message(message)
            }
            Incoming::Arriving { round, received, total } => {
                (self.notice)(Notice::Receiving { round, received, total });
                return None;
            }
            Incoming::Task { round, work, failed, payload } => {
                // Each task comes on a stream of its own, so a newer one may arrive first.
                if self.task.as_ref().is_none_or(|newest| newest.round <= round) {
                    self.task = Some(Received { round, failed, payload });
                }
                Event::Message(ToClient::Task { round, work })
            }
            Incoming::Frozen { digest: _, payload } => return self.frozen_received(&payload),
            Incoming::Closed { reason } => {
                let (server, elsewhere) = self
                    .channel
                    .take()
                    .map(|channel| (channel.server, channel.elsewhere))
                    .unwrap_or_default();
                if let Some(failed) = self.left_without_frozen() {
                    return Some(failed);
                }
                self.lost = Some((server, reason.clone()));
                Event::Disconnected { reason, elsewhere }
            }
        })
    }
}
