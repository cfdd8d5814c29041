//! Dispatch of what peers and the disk worker report: to the operator, and to the coordinator as events.

use std::time::Instant;

use shared::id::ClientId;
use shared::message::ToServer;
use tracing::debug;

use super::disk_worker::Done;
use super::{Driver, Known};
use crate::coordinator::{Arrival, Event, MAX_SAMPLES, PeerId, UploadId};
use crate::events::{Notice, TaskResult};
use crate::peer::{FromPeer, Request};
use crate::run::RunError;
use crate::storage::retry_full::free_bytes;

impl Driver<'_> {
    pub(super) fn handle_peer(&mut self, event: FromPeer) -> Option<Event> {
        match event {
            FromPeer::Connected { peer, commands } => {
                self.commands.insert(peer, commands);
            }
            FromPeer::Message { peer, message, bytes, place: _ } => {
                self.traffic.up(&message, bytes);
                if let ToServer::Base { digest } = message {
                    // Nothing follows from it but what the device is sent, which it can check.
                    self.bases.insert(peer, digest);
                    return None;
                }
                self.report_message(peer, &message);
                if let ToServer::WantsFrozen { digest } = &message {
                    self.send_frozen(peer, digest);
                }
                return Some(Event::Message { peer, message });
            }
            FromPeer::Uploaded { peer, header, upload, turn: _, bytes } => {
                self.traffic.update(bytes);
                let id = UploadId(self.next_upload);
                self.next_upload += 1;
                self.uploads.insert(id, upload);
                self.disk_space.received();
                return Some(Event::Uploaded(Arrival { peer, header, upload: id }));
            }
            FromPeer::Waits { peer } => return Some(Event::Alive { peer }),
            FromPeer::SpoolFailed { peer, path, error } => {
                let told = self.disk_space.failed(&error, Instant::now());
                if !told {
                    let folder = path.parent().unwrap_or(&path);
                    let free = free_bytes(folder);
                    self.events.tell(&Notice::SpoolFailed { folder, error: &error, free });
                }
                if let Some(known) = self.known.get_mut(&peer) {
                    known.unspooled = told;
                }
            }
            FromPeer::Refused { peer: _, client, refusal } => {
                self.events.tell(&Notice::NotAdmitted { client, refusal: &refusal });
            }
            FromPeer::LookupFailed { error } => {
                self.events.tell(&Notice::LookupFailed { error: &error.to_string() });
            }
            FromPeer::CutOff { client } => self.report_cut_off(client),
            FromPeer::Revoked { client } => return Some(Event::Revoked { client }),
            FromPeer::ServerLeft => return Some(Event::ServerLeft),
            FromPeer::Asked(Request::Stop) => {
                self.events.tell(&Notice::Asked { what: Request::Stop.name() });
                return Some(Event::Stop);
            }
            FromPeer::Asked(request) => {
                self.events.tell(&Notice::Asked { what: request.name() });
                return Some(Event::Held(request == Request::Pause));
            }
            FromPeer::Full { places } => {
                self.events.tell(&Notice::Full { connections: places });
            }
            FromPeer::Outdated { peer, protocol, refused } => {
                if let Some(&Known { client, told: true, .. }) = self.known.get(&peer) {
                    let protocol = &String::from_utf8_lossy(protocol.name());
                    let notice = if refused {
                        Notice::Outdated { client, protocol }
                    } else {
                        Notice::NoEligibility { client, protocol }
                    };
                    self.events.tell(&notice);
                }
            }
            FromPeer::ForeignProtocol { address } => {
                self.events.tell(&Notice::ForeignProtocol { address });
            }
            FromPeer::Disconnected { peer, reason, parted: _ } => {
                self.commands.remove(&peer);
                self.bases.remove(&peer);
                if let Some(frozen) = &mut self.frozen {
                    frozen.forget(peer);
                }
                match self.known.remove(&peer) {
                    Some(Known { client, told: true, unspooled: false, .. }) => {
                        self.events.tell(&Notice::Disconnected { client, reason: &reason });
                    }
                    Some(_) => {}
                    None => {
                        debug!(peer = peer.0, reason, "the connection ended before a hello");
                        self.events.unidentified(reason, Instant::now());
                    }
                }
                return Some(Event::Disconnected { peer });
            }
        }
        None
    }

    /// Reports in place of the disconnection that follows that the operator has revoked a connected device.
    fn report_cut_off(&mut self, client: ClientId) {
        let connections = self.known.values_mut().filter(|known| known.client == client && known.told);
        let told = connections.map(|known| known.told = false).count();
        if told > 0 {
            self.events.tell(&Notice::Revoked { client });
        }
    }

    fn report_message(&mut self, peer: PeerId, message: &ToServer) {
        let client = self.known.get(&peer).map(|known| known.client);
        match (message, client) {
            (ToServer::Hello(hello), _) => {
                let client = hello.client;
                let (samples, software) = (hello.samples, &hello.software[..]);
                // A device that asks how to read its samples is here in a moment.
                let told =
                    !hello.asks() && self.events.tell(&Notice::Connected { client, samples, software });
                let known = Known { client, told, skipped: false, unspooled: false };
                self.known.entry(peer).or_insert(known);
            }
            (&ToServer::SkippedSamples { samples }, _) => self.report_skipped(peer, samples),
            // Members alone are believed.
            (ToServer::Untested { reason }, Some(client))
                if self.coordinator.connections().get(&peer) == Some(&client) =>
            {
                self.events.tell(&Notice::Untested { client, reason });
            }
            (ToServer::Ineligible { round, reason }, Some(client)) => {
                self.report_result(client, *round, TaskResult::NotNow(&reason.to_string()));
            }
            (ToServer::Failed { round, reason }, Some(client)) => {
                self.report_result(client, *round, TaskResult::Failed(reason));
            }
            (ToServer::Declined { reason }, Some(client)) => {
                // It takes the place of the disconnection that follows, and is as often told as connections are.
                if let Some(known) = self.known.get_mut(&peer)
                    && std::mem::replace(&mut known.told, false)
                {
                    self.events.tell(&Notice::Declined { client, reason });
                }
            }
            _ => {}
        }
    }

    /// Reports how many samples a client skips. Members alone are believed, once a connection.
    fn report_skipped(&mut self, peer: PeerId, samples: u64) {
        let Some(client) = self.coordinator.connections().get(&peer).copied() else { return };
        let Some(known) = self.known.get_mut(&peer) else { return };
        let again = std::mem::replace(&mut known.skipped, true);
        if !again && samples <= MAX_SAMPLES {
            let shown = known.told && samples > 0;
            self.events.tell(&Notice::SkippedSamples { client, samples, shown });
        }
    }

    pub(super) fn handle_done(&mut self, done: Done) -> Result<Option<Event>, RunError> {
        self.watchdog.note(&done);
        Ok(match done {
            Done::Opened(broadcast) => {
                let round = broadcast.round;
                self.broadcast = Some(Box::new(broadcast));
                self.events.tell(&Notice::Opened { round, cohort: self.cohort });
                Some(Event::Opened { round })
            }
            Done::Folded { round, client, outcome } => {
                let rejection = outcome.as_ref().err().map(ToString::to_string);
                let result = rejection.as_deref().map_or(TaskResult::Accepted, TaskResult::Rejected);
                self.folded = Some(client);
                self.events.tell(&Notice::Result { round, client, result, shown: false, recorded: true });
                Some(Event::Folded { round, client, outcome })
            }
            Done::Lost { round, client } => Some(Event::Lost { round, client }),
            Done::RosterSaved => Some(Event::RosterSaved),
            Done::Agreed { round } => Some(Event::Agreed { round }),
            Done::Decided { round } => Some(Event::Decided { round }),
            Done::Closed { round, void, enough } => {
                self.events.round_closed(round);
                Some(Event::Closed { round, void, enough })
            }
            Done::Settled(record) => {
                self.events.record(&record);
                None
            }
            Done::Failed(error) => return Err(error),
        })
    }
}
