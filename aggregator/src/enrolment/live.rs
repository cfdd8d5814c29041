//! The open connections of admitted devices: to close those of a revoked device, and surplus ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use shared::id::ClientId;
use shared::message::{Refusal, ToClient};
use tokio::sync::mpsc::WeakUnboundedSender;
use tokio::sync::oneshot;

use crate::coordinator::PeerId;
use crate::peer::ToPeer;

/// Connections of one device at a time: the one in use, and its predecessor, which may not have noticed its end yet.
const MAX_CONNECTIONS: usize = 2;

/// The connections by device, with their command channels. A connection that has ended has dropped its channel.
#[derive(Debug, Default)]
pub(super) struct Live(Mutex<Devices>);

#[derive(Debug, Default)]
struct Devices {
    here: BTreeMap<ClientId, Vec<Connection>>,
    /// Devices that have connected since [`Live::entered`] was called last.
    entered: BTreeSet<ClientId>,
}

/// One of a device's connections.
#[derive(Debug)]
struct Connection {
    peer: PeerId,
    commands: WeakUnboundedSender<ToPeer>,
    /// Tells it that newer connections have replaced it.
    replaced: oneshot::Sender<()>,
}

impl Connection {
    fn is_there(&self) -> bool {
        self.commands.strong_count() > 0
    }
}

impl Live {
    /// Adds a connection. The channel it returns fires when the connection is the oldest of more than [`MAX_CONNECTIONS`].
    pub(super) fn enter(
        &self,
        client: ClientId,
        peer: PeerId,
        commands: WeakUnboundedSender<ToPeer>,
    ) -> oneshot::Receiver<()> {
        let (replaced, is_replaced) = oneshot::channel();
        let mut live = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all = live.here.entry(client).or_default();
        all.retain(Connection::is_there);
        all.push(Connection { peer, commands, replaced });
        if all.len() > MAX_CONNECTIONS
            && let Some(oldest) = (0..all.len()).min_by_key(|index| all[*index].peer)
        {
            // A connection that no longer listens is about to end.
            let _ = all.swap_remove(oldest).replaced.send(());
        }
        live.entered.insert(client);
        is_replaced
    }

    /// The devices that have connected since this was called last. Forgets those that have left.
    pub(super) fn entered(&self) -> Vec<ClientId> {
        let mut live = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        live.here.retain(|_, all| all.iter().any(Connection::is_there));
        std::mem::take(&mut live.entered).into_iter().collect()
    }

    /// The devices that were connected when [`entered`](Self::entered) was called last.
    pub(super) fn clients(&self) -> Vec<ClientId> {
        let live = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        live.here.keys().copied().collect()
    }

    /// Sends a device the refusal and closes its connections.
    pub(super) fn cut(&self, client: ClientId, refusal: &Refusal) {
        let live = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all = live.here.get(&client).into_iter().flatten();
        for commands in all.filter_map(|connection| connection.commands.upgrade()) {
            let _ = commands.send(ToPeer::Message(ToClient::Refused(refusal.clone())));
            let _ = commands.send(ToPeer::Disconnect);
        }
    }

    /// Sends a message to all connections.
    pub(super) fn tell(&self, message: &ToClient) {
        let live = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for commands in live.here.values().flatten().filter_map(|connection| connection.commands.upgrade()) {
            let _ = commands.send(ToPeer::Message(message.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    #[test]
    fn whoever_has_gone_takes_no_memory() {
        let live = Live::default();
        let (stays, _commands) = mpsc::unbounded_channel();
        for n in 1..=9 {
            let client = ClientId::from_bytes([n; 16]);
            live.enter(client, PeerId(u64::from(n)), mpsc::unbounded_channel().0.downgrade());
        }
        let client = ClientId::from_bytes([5; 16]);
        live.enter(client, PeerId(10), stays.downgrade());
        assert_eq!(live.entered().len(), 9, "each is looked up once");
        assert_eq!(live.clients(), [client]);
        assert_eq!(live.entered(), []);
    }

    #[test]
    fn the_oldest_of_too_many_connections_of_a_device_goes() {
        let live = Live::default();
        let (commands, _queue) = mpsc::unbounded_channel();
        let enter =
            |n: u8, peer| live.enter(ClientId::from_bytes([n; 16]), PeerId(peer), commands.downgrade());
        let mut other = enter(2, 1);
        let mut of_one: Vec<_> = [3, 5, 4, 2].map(|peer| enter(1, peer)).into();
        let went: Vec<_> = of_one.iter_mut().map(|replaced| replaced.try_recv().is_ok()).collect();
        // Also when it is the one that came in last.
        assert_eq!(went, [true, false, false, true]);
        assert!(other.try_recv().is_err(), "others have theirs");
    }
}
