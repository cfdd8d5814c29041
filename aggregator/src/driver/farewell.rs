//! After the last round: everybody is told that the run is over, those who are here at once, the others as
//! they come. A device that never hears of it would look for its server for ever.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use shared::id::ClientId;
use shared::message::{ToClient, ToServer};
use tokio::sync::{mpsc, watch};

use super::{FromPeer, ToPeer, drop_upload};
use crate::coordinator::PeerId;

/// How long peers may take to hear the last messages of a run.
const FAREWELL: Duration = Duration::from_secs(3);

/// Whoever has not heard yet that the run is over. Connections are still taken while this is there.
pub struct Latecomers {
    peers: mpsc::UnboundedReceiver<FromPeer>,
    commands: BTreeMap<PeerId, mpsc::UnboundedSender<ToPeer>>,
    names: BTreeMap<PeerId, ClientId>,
    away: BTreeSet<ClientId>,
    /// Rounds that the run has completed; `None` if it can be continued, and clients should come back.
    rounds: Option<u32>,
}

impl Latecomers {
    pub(super) fn new(
        peers: mpsc::UnboundedReceiver<FromPeer>,
        commands: BTreeMap<PeerId, mpsc::UnboundedSender<ToPeer>>,
        away: impl IntoIterator<Item = ClientId>,
        rounds: Option<u32>,
    ) -> Self {
        Self { peers, commands, names: BTreeMap::new(), away: away.into_iter().collect(), rounds }
    }

    /// Known clients that were not connected when the run ended, and have not been told since. None if they
    /// are meant to come back to the run.
    #[must_use]
    pub fn away(&self) -> usize {
        if self.rounds.is_some() { self.away.len() } else { 0 }
    }

    /// Tells whoever comes that the run is over, until all known clients have heard it, `time` is over, or
    /// `stop` changes.
    pub async fn answer(&mut self, time: Duration, mut stop: watch::Receiver<bool>) {
        let told = async {
            while self.away() > 0 && self.hear().await {}
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
            Some(FromPeer::Disconnected { peer, .. }) => {
                self.commands.remove(&peer);
                if let Some(client) = self.names.remove(&peer) {
                    self.away.remove(&client);
                }
            }
            // Whoever may not take part is not waited for.
            Some(FromPeer::Revoked { client }) => {
                self.away.remove(&client);
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
