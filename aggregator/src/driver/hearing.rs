//! What peers and the ledger say: who is told of it, and what the coordinator makes of it.

use std::time::Instant;

use shared::message::ToServer;
use tracing::debug;

use super::channels::{Arrived, Notice};
use super::ledger::Done;
use super::said::Worth;
use super::{Driver, Known, name, printable};
use crate::coordinator::{Event, MAX_SAMPLES, PeerId, UploadId};
use crate::peer::FromPeer;
use crate::report::units::training_samples;
use crate::run::RunError;

impl Driver {
    pub(super) fn hear_peer(
        &mut self,
        event: FromPeer,
        notice: &mut (dyn FnMut(Notice<'_>) + Send),
    ) -> Option<Event> {
        match event {
            FromPeer::Connected { peer, commands } => {
                self.commands.insert(peer, commands);
                None
            }
            FromPeer::Message { peer, message, bytes, place: _ } => {
                self.traffic.up += bytes;
                self.hear_message(peer, &message, notice);
                Some(Event::Message { peer, message })
            }
            FromPeer::Uploaded { peer, header, upload, turn: _, bytes } => {
                self.traffic.up += bytes;
                let id = UploadId(self.next_upload);
                self.next_upload += 1;
                self.uploads.insert(id, upload);
                self.room.received();
                Some(Event::Uploaded { peer, round: header.round, report: header.report, upload: id })
            }
            FromPeer::Waits { peer } => Some(Event::Alive { peer }),
            FromPeer::SpoolFailed { peer, path, error } => {
                let said = self.room.failed(&path, &error, Instant::now(), notice);
                if let Some(known) = self.known.get_mut(&peer) {
                    known.unspooled = said;
                }
                None
            }
            FromPeer::Refused { peer: _, client, refusal } => {
                if let Some(remark) = self.turned_away.remark(client, &refusal) {
                    notice(Notice::Remark(remark));
                }
                None
            }
            FromPeer::Unknowable { error } => {
                if let Some(remark) = self.strangers.unknowable(&error.to_string()) {
                    notice(Notice::Remark(remark));
                }
                None
            }
            FromPeer::Revoked { client } => Some(Event::Revoked { client }),
            FromPeer::TurnedAway { places } => {
                notice(Notice::Remark(format!(
                    "turned a connection away: all of {places} places, or all of those for whoever was not welcomed \
                     yet, are taken; clients try again by themselves (this is said once)"
                )));
                None
            }
            FromPeer::Unconditional { peer, protocol } => {
                if self.known.get(&peer).is_some_and(|known| known.told) {
                    let version = String::from_utf8_lossy(protocol.name());
                    notice(Notice::Remark(format!(
                        "{} speaks {version}, which knows nothing of [eligibility]: it trains whatever state it is in, until \
                         its edge-client is updated",
                        self.name(peer)
                    )));
                }
                None
            }
            FromPeer::Foreign { address } => {
                if let Some(remark) = self.strangers.foreign(address) {
                    notice(Notice::Remark(remark));
                }
                None
            }
            FromPeer::Disconnected { peer, reason, parted: _ } => {
                self.commands.remove(&peer);
                let reason = printable(&reason);
                match self.known.remove(&peer) {
                    Some(known) if known.told && !known.unspooled => {
                        let name = name(peer, Some(&known));
                        notice(Notice::Remark(format!("{name} disconnected: {reason}")));
                    }
                    Some(_) => {}
                    None => {
                        debug!(peer = peer.0, "it was never let in, and is gone: {reason}");
                        self.strangers.ended(reason);
                        if let Some(text) = self.strangers.due(Instant::now()) {
                            notice(Notice::Aside(text));
                        }
                    }
                }
                Some(Event::Disconnected { peer })
            }
        }
    }

    /// What a message is to whoever watches.
    fn hear_message(
        &mut self,
        peer: PeerId,
        message: &ToServer,
        notice: &mut (dyn FnMut(Notice<'_>) + Send),
    ) {
        match message {
            ToServer::Hello(hello) => {
                self.strangers.let_in();
                let client = hello.client;
                let told = self.said.comes(client);
                self.known.entry(peer).or_insert(Known { client, told, left_out: false, unspooled: false });
                if told {
                    let (name, software) = (self.name(peer), printable(&hello.software));
                    let samples = hello.samples;
                    notice(Notice::Remark(format!("{name} says hello with {samples} samples ({software})")));
                }
            }
            &ToServer::SkippedSamples { samples } => self.hear_left_out(peer, samples, notice),
            ToServer::Ineligible { round, reason } => {
                let reason = reason.to_string();
                let said = format!("does not train in round {round} now: {reason}");
                self.hear_why(peer, *round, &said, Arrived::NotNow(&reason), notice);
            }
            ToServer::Failed { round, reason } => {
                let reason = printable(reason);
                let said = format!("could not train in round {round}: {reason}");
                self.hear_why(peer, *round, &said, Arrived::Failed(&reason), notice);
            }
            _ => {}
        }
    }

    /// A peer says what it leaves out. It matters of one that takes part, and is told once.
    fn hear_left_out(&mut self, peer: PeerId, samples: u64, notice: &mut (dyn FnMut(Notice<'_>) + Send)) {
        let Some(client) = self.coordinator.connections().get(&peer).copied() else { return };
        let Some(known) = self.known.get_mut(&peer) else { return };
        // It is said of the data that the device was started with.
        let (again, told) = (std::mem::replace(&mut known.left_out, true), known.told);
        if again || samples > MAX_SAMPLES || !self.left_out.says(client, samples) {
            return;
        }
        notice(Notice::LeftOut { client, samples });
        if told && samples > 0 {
            let (name, samples) = (self.name(peer), training_samples(samples));
            notice(Notice::Remark(format!(
                "{name} leaves out {samples} that it cannot use: what it says at its start names the first ones"
            )));
        }
    }

    /// A peer says that it does not train in a round.
    fn hear_why(
        &mut self,
        peer: PeerId,
        round: u32,
        said: &str,
        what: Arrived<'_>,
        notice: &mut (dyn FnMut(Notice<'_>) + Send),
    ) {
        let Some(client) = self.known.get(&peer).map(|known| known.client) else { return };
        let worth = self.worth(client, round, what);
        if worth != Worth::Counted {
            notice(Notice::Remark(format!("{} {said}", self.name(peer))));
        }
        if worth == Worth::Written {
            notice(Notice::Arrival { round, client, what });
        }
    }

    pub(super) fn hear_ledger(
        &mut self,
        done: Done,
        notice: &mut (dyn FnMut(Notice<'_>) + Send),
    ) -> Result<Option<Event>, RunError> {
        self.ledger.hear(&done);
        Ok(match done {
            Done::Opened(broadcast) => {
                let round = broadcast.round;
                self.broadcast = Some(broadcast);
                notice(Notice::Opened { round, cohort: self.cohort });
                Some(Event::Opened { round })
            }
            Done::Folded { round, client, outcome } => {
                let rejection = outcome.as_ref().err().map(ToString::to_string);
                let what = rejection.as_deref().map_or(Arrived::Accepted, Arrived::Rejected);
                self.judged = Some(client);
                notice(Notice::Arrival { round, client, what });
                Some(Event::Folded { round, client, outcome })
            }
            Done::Remembered => Some(Event::Remembered),
            Done::Closed { round, enough } => {
                if let Some(remark) = self.said.close(round) {
                    notice(Notice::Remark(remark));
                }
                Some(Event::Closed { round, enough })
            }
            Done::Settled(record) => {
                notice(Notice::Round(&record));
                if record.collapsed {
                    notice(Notice::Alarm(format!(
                        "the global model names few classes after round {}, whatever it is shown: it learns from its own \
                         mistakes. A smaller lambda-2, a higher gate, a larger share of the server's model or a lower rate \
                         may help",
                        record.round
                    )));
                }
                if record.diverged {
                    notice(Notice::Alarm(format!(
                        "the server's own training in round {} has diverged, and the round ended without it: start a new run \
                         with a lower training.optimizer.sgd.rate or server.weight",
                        record.round
                    )));
                }
                None
            }
            Done::Failed(error) => return Err(error),
        })
    }
}
