//! The frozen parameters of a run: devices that do not have them ask for them.

use std::collections::BTreeSet;

use bytes::Bytes;
use shared::frame;
use shared::message::ToClient;

use super::Driver;
use crate::coordinator::PeerId;
use crate::peer::ToPeer;
use crate::run::Run;

/// What devices may ask for, and who has.
pub(super) struct Frozen {
    digest: String,
    encoded: Bytes,
    /// Connections over which they were sent.
    sent: BTreeSet<PeerId>,
}

impl Frozen {
    /// `None` if the run learns all parameters.
    pub(super) fn of(run: &Run) -> Option<Self> {
        let frozen = run.spec().architecture.frozen.as_ref()?;
        Some(Self {
            digest: frozen.digest.clone()?,
            encoded: frozen.encoded()?.clone(),
            sent: BTreeSet::new(),
        })
    }

    /// The connection is over.
    pub(super) fn forget(&mut self, peer: PeerId) {
        self.sent.remove(&peer);
    }
}

impl Driver<'_> {
    /// Sends a device the frozen parameters that it wants. Members alone get them, once a connection.
    pub(super) fn send_frozen(&mut self, peer: PeerId, wanted: &str) {
        let Some(frozen) = self.frozen.as_mut().filter(|frozen| frozen.digest == wanted) else { return };
        if self.coordinator.connections().contains_key(&peer) && frozen.sent.insert(peer) {
            let (digest, encoded) = (frozen.digest.clone(), frozen.encoded.clone());
            let message = ToClient::Frozen { digest: digest.clone() };
            let length = encoded.len() as u64;
            self.traffic.down(&message, frame::encode(&message, length).len() as u64 + length);
            self.command(peer, ToPeer::Frozen(digest, encoded));
        }
    }
}
