//! Graceful shutdown: after the last round, every known device is told that the run is over, those that are connected at once and
//! the others as they come. A device that is never told would look for its server for ever.
//!
//! A device has been told when it has confirmed that, or has hung up itself, which is what devices do. An open connection says
//! little: a device that lost its network a moment ago looks the same until [`lost_after`](crate::round::RoundPolicy::lost_after).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use shared::id::ClientId;
use shared::message::{Refusal, ToClient, ToServer};
use tokio::sync::{mpsc, watch};

use super::drop_upload;
use crate::coordinator::{Coordinator, PeerId};
use crate::peer::{FromPeer, ToPeer};

/// How long peers may take to receive the last messages of a run.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);

/// Known devices that are still to be told that the run is over. Connections are taken until this is dropped.
pub struct Drain {
    peers: mpsc::UnboundedReceiver<FromPeer>,
    commands: BTreeMap<PeerId, mpsc::UnboundedSender<ToPeer>>,
    /// The clients of these connections, as far as is known.
    names: BTreeMap<PeerId, ClientId>,
    pending: BTreeSet<ClientId>,
    /// Rounds that the run has completed; `None` if it can be continued, and clients should come back.
    rounds: Option<u32>,
}

impl Drain {
    /// No client that `run` knows has been told.
    pub(super) fn new(
        peers: mpsc::UnboundedReceiver<FromPeer>,
        commands: BTreeMap<PeerId, mpsc::UnboundedSender<ToPeer>>,
        run: &Coordinator,
        rounds: Option<u32>,
    ) -> Self {
        Self { peers, commands, names: run.connections().clone(), pending: run.known().collect(), rounds }
    }

    /// How many known clients have not confirmed the end. 0 if the run can be continued: they are to come back.
    #[must_use]
    pub fn pending(&self) -> usize {
        if self.rounds.is_some() { self.pending.len() } else { 0 }
    }

    /// Tells clients as they connect, until all known ones have confirmed, `time` is over, or `stop` changes.
    pub async fn run(&mut self, time: Duration, mut stop: watch::Receiver<bool>) {
        let told = async {
            while self.pending() > 0 && self.handle_next().await {}
            self.disconnected().await;
        };
        tokio::select! {
            () = told => {}
            () = tokio::time::sleep(time) => {}
            Ok(()) = stop.changed() => {}
        }
    }

    /// Tells connected peers, and lets them receive their last messages and hang up. The coordinator has told its members.
    pub(super) async fn dismiss_all(&mut self) {
        self.commands.values().for_each(|commands| self.dismiss(commands));
        let _ = tokio::time::timeout(FLUSH_TIMEOUT, self.disconnected()).await;
    }

    async fn disconnected(&mut self) {
        while (!self.commands.is_empty() || !self.peers.is_empty()) && self.handle_next().await {}
    }

    /// Handles one event; false if there are no more.
    async fn handle_next(&mut self) -> bool {
        match self.peers.recv().await {
            Some(FromPeer::Connected { peer, commands }) => {
                self.dismiss(&commands);
                self.commands.insert(peer, commands);
            }
            Some(FromPeer::Message { peer, message: ToServer::Hello(hello), .. }) => {
                self.names.insert(peer, hello.client);
            }
            // It leaves for reasons of its own, and may come back.
            Some(FromPeer::Message { peer, message: ToServer::Goodbye, .. }) => {
                self.names.remove(&peer);
            }
            Some(FromPeer::Disconnected { peer, parted, .. }) => {
                self.commands.remove(&peer);
                if let Some(client) = self.names.remove(&peer).filter(|_| parted) {
                    self.pending.remove(&client);
                }
            }
            // A device that may not take part is not waited for.
            Some(
                FromPeer::Revoked { client }
                | FromPeer::Refused { client, refusal: Refusal::Unknown | Refusal::Revoked, .. },
            ) => {
                self.pending.remove(&client);
            }
            // It is of no use, and the spool of a complete run is never emptied.
            Some(FromPeer::Uploaded { upload, .. }) => drop_upload(upload),
            Some(_) => {}
            None => return false,
        }
        true
    }

    fn dismiss(&self, commands: &mpsc::UnboundedSender<ToPeer>) {
        let finished = self.rounds.map(|rounds| ToPeer::Message(ToClient::Finished { rounds }));
        for command in finished.into_iter().chain([ToPeer::Disconnect]) {
            let _ = commands.send(command);
        }
    }
}
