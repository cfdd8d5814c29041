//! The connections of devices that were let in, for when one has to be cut, or when one device has too many.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use shared::id::ClientId;
use shared::message::{Refusal, ToClient};
use tokio::sync::mpsc::WeakUnboundedSender;
use tokio::sync::oneshot;

use crate::coordinator::PeerId;
use crate::peer::ToPeer;

/// Connections of one device at a time: the one that it uses, and the one before, which may not know yet that it is gone.
const MOST: usize = 2;

/// Who is connected, and where commands for them go. A connection that is over has dropped its end.
#[derive(Debug, Default)]
pub(super) struct Live(Mutex<Devices>);

#[derive(Debug, Default)]
struct Devices {
    here: BTreeMap<ClientId, Vec<Connection>>,
    /// Those that came since somebody asked.
    entered: BTreeSet<ClientId>,
}

/// One of a device's connections.
#[derive(Debug)]
struct Connection {
    peer: PeerId,
    commands: WeakUnboundedSender<ToPeer>,
    /// Says that it is one too many.
    crowded: oneshot::Sender<()>,
}

impl Connection {
    fn is_there(&self) -> bool {
        self.commands.strong_count() > 0
    }
}

impl Live {
    /// What it gives says that the connection is one too many: it is the oldest of more than [`MOST`].
    pub(super) fn enter(
        &self,
        client: ClientId,
        peer: PeerId,
        commands: WeakUnboundedSender<ToPeer>,
    ) -> oneshot::Receiver<()> {
        let (crowded, is_crowded) = oneshot::channel();
        let mut live = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all = live.here.entry(client).or_default();
        all.retain(Connection::is_there);
        all.push(Connection { peer, commands, crowded });
        if all.len() > MOST
            && let Some(oldest) = (0..all.len()).min_by_key(|index| all[*index].peer)
        {
            // Whoever does not listen any more is about to end.
            let _ = all.swap_remove(oldest).crowded.send(());
        }
        live.entered.insert(client);
        is_crowded
    }

    /// The devices that have come since this was asked last. Those that have gone are forgotten.
    pub(super) fn entered(&self) -> Vec<ClientId> {
        let mut live = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        live.here.retain(|_, all| all.iter().any(Connection::is_there));
        std::mem::take(&mut live.entered).into_iter().collect()
    }

    /// The devices that were connected when those that [`entered`](Self::entered) were asked for.
    pub(super) fn clients(&self) -> Vec<ClientId> {
        let live = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        live.here.keys().copied().collect()
    }

    /// Tells a device why, and hangs up.
    pub(super) fn cut(&self, client: ClientId, refusal: &Refusal) {
        let live = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all = live.here.get(&client).into_iter().flatten();
        for commands in all.filter_map(|connection| connection.commands.upgrade()) {
            let _ = commands.send(ToPeer::Message(ToClient::Refused(refusal.clone())));
            let _ = commands.send(ToPeer::Disconnect);
        }
    }

    /// Tells everybody.
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
        let went: Vec<_> = of_one.iter_mut().map(|crowded| crowded.try_recv().is_ok()).collect();
        // Also when it is the one that came in last.
        assert_eq!(went, [true, false, false, true]);
        assert!(other.try_recv().is_err(), "others have theirs");
    }
}
