//! Dismissed connections: those that the coordinator has closed, until the driver reports that they have ended.
//!
//! Messages still arrive on a connection for a moment after it was closed or has said goodbye. They are ignored, even a hello.

use std::collections::BTreeSet;

use shared::message::{Refusal, ToClient};

use super::{Action, Coordinator, PeerId};

/// Connections that are remembered: more than can be open in a federation of up to half as many clients. Of more, the oldest
/// are forgotten, which have had most time to end.
const MAX_DISMISSED: usize = 8192;

/// The dismissed connections.
#[derive(Clone, Debug, Default)]
pub(super) struct Dismissed(BTreeSet<PeerId>);

impl Dismissed {
    pub(super) fn contains(&self, peer: PeerId) -> bool {
        self.0.contains(&peer)
    }

    /// Adds a connection.
    pub(super) fn insert(&mut self, peer: PeerId) {
        self.0.insert(peer);
        if self.0.len() > MAX_DISMISSED {
            self.0.pop_first();
        }
    }

    /// It has ended.
    pub(super) fn remove(&mut self, peer: PeerId) {
        self.0.remove(&peer);
    }
}

impl Coordinator {
    /// Closes a connection. Its client may connect again.
    pub(super) fn disconnect(&mut self, peer: PeerId) {
        self.dismissed.insert(peer);
        self.actions.push_back(Action::Disconnect { peer });
    }

    /// Tells the client a reason that is final, and closes the connection.
    pub(super) fn refuse(&mut self, peer: PeerId, refusal: Refusal) {
        self.send(peer, ToClient::Refused(refusal));
        self.disconnect(peer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_are_remembered_those_of_late() {
        let mut dismissed = Dismissed::default();
        (0..=MAX_DISMISSED as u64).for_each(|n| dismissed.insert(PeerId(n)));
        assert_eq!(dismissed.0.len(), MAX_DISMISSED);
        assert!(!dismissed.contains(PeerId(0)) && dismissed.contains(PeerId(1)));
        dismissed.remove(PeerId(1));
        assert!(!dismissed.contains(PeerId(1)), "it was removed");
    }
}
