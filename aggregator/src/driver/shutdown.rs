//! Graceful shutdown.
//!
//! After the last round, the server notifies every known device that the run is over: connected devices at once, the others
//! when they connect. A device that is never notified would try to reconnect for ever.
//!
//! A device counts as notified when it has confirmed the message or has closed the connection itself, as devices do on that
//! message. An open connection proves nothing: a device that has just lost its network looks the same until [`connection_timeout`](crate::round::RoundPolicy::connection_timeout).

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

/// The known devices that have not been notified yet. Connections are accepted until this is dropped.
pub struct Drain {
    peers: mpsc::UnboundedReceiver<FromPeer>,
    commands: BTreeMap<PeerId, mpsc::UnboundedSender<ToPeer>>,
    /// The clients of the connections, once they have sent their hello.
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
        Self { peers, commands, names: run.said_hello().collect(), pending: run.known().collect(), rounds }
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
            // The device leaves for another reason and may reconnect.
            Some(FromPeer::Message { peer, message, .. }) if message.is_last() => {
                self.names.remove(&peer);
            }
            Some(FromPeer::Disconnected { peer, parted, .. }) => {
                self.commands.remove(&peer);
                if let Some(client) = self.names.remove(&peer).filter(|_| parted) {
                    self.pending.remove(&client);
                }
            }
            // The server does not wait for devices that are not admitted.
            Some(
                FromPeer::Revoked { client }
                | FromPeer::Refused { client, refusal: Refusal::Unknown | Refusal::Revoked, .. },
            ) => {
                self.pending.remove(&client);
            }
            // The update is not needed, and nothing else would delete it from the spool.
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
