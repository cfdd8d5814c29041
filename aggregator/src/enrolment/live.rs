//! The connections of devices that were let in, for when one has to be cut.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use shared::id::ClientId;
use shared::message::{Refusal, ToClient};
use tokio::sync::mpsc::WeakUnboundedSender;

use crate::driver::ToPeer;

/// Who is connected, and where commands for them go. A connection that is over has dropped its end.
#[derive(Debug, Default)]
pub(super) struct Live(Mutex<BTreeMap<ClientId, Vec<WeakUnboundedSender<ToPeer>>>>);

impl Live {
    pub(super) fn enter(&self, client: ClientId, commands: WeakUnboundedSender<ToPeer>) {
        let mut live = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all = live.entry(client).or_default();
        all.retain(|commands| commands.strong_count() > 0);
        all.push(commands);
    }

    /// The devices that are connected.
    pub(super) fn clients(&self) -> Vec<ClientId> {
        let mut live = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        live.retain(|_, all| all.iter().any(|commands| commands.strong_count() > 0));
        live.keys().copied().collect()
    }

    /// Tells a device why, and hangs up.
    pub(super) fn cut(&self, client: ClientId, refusal: &Refusal) {
        let live = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for commands in live.get(&client).into_iter().flatten().filter_map(WeakUnboundedSender::upgrade) {
            let _ = commands.send(ToPeer::Message(ToClient::Refused(refusal.clone())));
            let _ = commands.send(ToPeer::Disconnect);
        }
    }

    /// Tells everybody.
    pub(super) fn tell(&self, message: &ToClient) {
        let live = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for commands in live.values().flatten().filter_map(WeakUnboundedSender::upgrade) {
            let _ = commands.send(ToPeer::Message(message.clone()));
        }
    }
}
