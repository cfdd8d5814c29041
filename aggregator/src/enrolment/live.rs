//! The connections of devices that were let in, for when one has to be cut.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use shared::id::ClientId;
use shared::message::{Refusal, ToClient};
use tokio::sync::mpsc::WeakUnboundedSender;

use crate::driver::ToPeer;

/// Who is connected, and where commands for them go. A connection that is over has dropped its end.
#[derive(Debug, Default)]
pub(super) struct Live(Mutex<Devices>);

#[derive(Debug, Default)]
struct Devices {
    here: BTreeMap<ClientId, Vec<WeakUnboundedSender<ToPeer>>>,
    /// Those that came since somebody asked.
    entered: BTreeSet<ClientId>,
}

impl Live {
    pub(super) fn enter(&self, client: ClientId, commands: WeakUnboundedSender<ToPeer>) {
        let mut live = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all = live.here.entry(client).or_default();
        all.retain(|commands| commands.strong_count() > 0);
        all.push(commands);
        live.entered.insert(client);
    }

    /// The devices that have come since this was asked last. Those that have gone are forgotten.
    pub(super) fn entered(&self) -> Vec<ClientId> {
        let mut live = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        live.here.retain(|_, all| all.iter().any(|commands| commands.strong_count() > 0));
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
        for commands in live.here.get(&client).into_iter().flatten().filter_map(WeakUnboundedSender::upgrade)
        {
            let _ = commands.send(ToPeer::Message(ToClient::Refused(refusal.clone())));
            let _ = commands.send(ToPeer::Disconnect);
        }
    }

    /// Tells everybody.
    pub(super) fn tell(&self, message: &ToClient) {
        let live = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for commands in live.here.values().flatten().filter_map(WeakUnboundedSender::upgrade) {
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
            live.enter(client, mpsc::unbounded_channel().0.downgrade());
        }
        let client = ClientId::from_bytes([5; 16]);
        live.enter(client, stays.downgrade());
        assert_eq!(live.entered().len(), 9, "each is looked up once");
        assert_eq!(live.clients(), [client]);
        assert_eq!(live.entered(), []);
    }
}
