//! Connections that the coordinator has done with, until it hears that they are gone.
//!
//! A connection that is sent away lives on for a moment, and so does one that has said goodbye. It was a device's; whatever is
//! said on it now, also a hello, is nobody's any more.

use std::collections::BTreeSet;

use shared::message::{Refusal, ToClient};

use super::{Action, Coordinator, PeerId};

/// So many are remembered. There are no more connections at a time in a federation of up to half as many clients; of more the oldest
/// are forgotten, which have had most time to end.
const MOST: usize = 8192;

/// The connections.
#[derive(Clone, Debug, Default)]
pub(super) struct Dismissed(BTreeSet<PeerId>);

impl Dismissed {
    pub(super) fn contains(&self, peer: PeerId) -> bool {
        self.0.contains(&peer)
    }

    /// The coordinator has done with it.
    pub(super) fn insert(&mut self, peer: PeerId) {
        self.0.insert(peer);
        if self.0.len() > MOST {
            self.0.pop_first();
        }
    }

    /// It is gone.
    pub(super) fn remove(&mut self, peer: PeerId) {
        self.0.remove(&peer);
    }
}

impl Coordinator {
    /// Sends a connection away. The client that it was may come again on another one.
    pub(super) fn send_away(&mut self, peer: PeerId) {
        self.dismissed.insert(peer);
        self.actions.push_back(Action::Disconnect { peer });
    }

    /// The same, for a reason that it is told, and for good.
    pub(super) fn refuse(&mut self, peer: PeerId, refusal: Refusal) {
        self.send(peer, ToClient::Refused(refusal));
        self.send_away(peer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_are_remembered_those_of_late() {
        let mut dismissed = Dismissed::default();
        (0..=MOST as u64).for_each(|n| dismissed.insert(PeerId(n)));
        assert_eq!(dismissed.0.len(), MOST);
        assert!(!dismissed.contains(PeerId(0)) && dismissed.contains(PeerId(1)));
        dismissed.remove(PeerId(1));
        assert!(!dismissed.contains(PeerId(1)), "it is gone");
    }
}
