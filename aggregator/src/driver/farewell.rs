//! After the last round: everybody is told that the run is over, those who are here at once, the others as
//! they come. A device that never hears of it would look for its server for ever.
//!
//! A device has been told when it has confirmed that, or has hung up at it, which is what devices do. That its connection is
//! there says little: one whose device lost its network a moment ago looks the same until
//! [`lost_after`](crate::round::RoundPolicy::lost_after) is over.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use shared::id::ClientId;
use shared::message::{Refusal, ToClient, ToServer};
use tokio::sync::{mpsc, watch};

use super::drop_upload;
use crate::coordinator::{Coordinator, PeerId};
use crate::peer::{FromPeer, ToPeer};

/// How long peers may take to hear the last messages of a run.
const FAREWELL: Duration = Duration::from_secs(3);

/// Whoever has not heard yet that the run is over. Connections are still taken while this is there.
pub struct Latecomers {
    peers: mpsc::UnboundedReceiver<FromPeer>,
    commands: BTreeMap<PeerId, mpsc::UnboundedSender<ToPeer>>,
    /// Whose connections these are, as far as is known.
    names: BTreeMap<PeerId, ClientId>,
    untold: BTreeSet<ClientId>,
    /// Rounds that the run has completed; `None` if it can be continued, and clients should come back.
    rounds: Option<u32>,
}

impl Latecomers {
    /// Nobody of those that the run knows has heard it yet.
    pub(super) fn new(
        peers: mpsc::UnboundedReceiver<FromPeer>,
        commands: BTreeMap<PeerId, mpsc::UnboundedSender<ToPeer>>,
        run: &Coordinator,
        rounds: Option<u32>,
    ) -> Self {
        Self { peers, commands, names: run.connections().clone(), untold: run.known().collect(), rounds }
    }

    /// Known clients that have not confirmed that they heard of the end. None if they are meant to come back to the run.
    #[must_use]
    pub fn untold(&self) -> usize {
        if self.rounds.is_some() { self.untold.len() } else { 0 }
    }

    /// Tells whoever comes that the run is over, until all known clients have heard it, `time` is over, or
    /// `stop` changes.
    pub async fn answer(&mut self, time: Duration, mut stop: watch::Receiver<bool>) {
        let told = async {
            while self.untold() > 0 && self.hear().await {}
            self.hung_up().await;
        };
        tokio::select! {
            () = told => {}
            () = tokio::time::sleep(time) => {}
            Ok(()) = stop.changed() => {}
        }
    }

    /// Lets peers deliver the last messages and hang up. The coordinator has dismissed its members; whoever
    /// connected too late to be one is told here.
    pub(super) async fn farewell(&mut self) {
        self.commands.values().for_each(|commands| self.dismiss(commands));
        let _ = tokio::time::timeout(FAREWELL, self.hung_up()).await;
    }

    async fn hung_up(&mut self) {
        while (!self.commands.is_empty() || !self.peers.is_empty()) && self.hear().await {}
    }

    /// Hears one event; false if there are no more.
    async fn hear(&mut self) -> bool {
        match self.peers.recv().await {
            Some(FromPeer::Connected { peer, commands }) => {
                self.dismiss(&commands);
                self.commands.insert(peer, commands);
            }
            Some(FromPeer::Message { peer, message: ToServer::Hello(hello), .. }) => {
                self.names.insert(peer, hello.client);
            }
            // It leaves for reasons of its own, and may come again.
            Some(FromPeer::Message { peer, message: ToServer::Goodbye, .. }) => {
                self.names.remove(&peer);
            }
            Some(FromPeer::Disconnected { peer, parted, .. }) => {
                self.commands.remove(&peer);
                if let Some(client) = self.names.remove(&peer).filter(|_| parted) {
                    self.untold.remove(&client);
                }
            }
            // Whoever may not take part is not waited for.
            Some(
                FromPeer::Revoked { client }
                | FromPeer::Refused { client, refusal: Refusal::Unknown | Refusal::Revoked, .. },
            ) => {
                self.untold.remove(&client);
            }
            // Of no use any more, and nobody would ever empty the spool of a run that is complete.
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
