//! The ledger: which client state each client must have, in runs whose clients keep any ([`client_state`](shared::client_state)).
//!
//! An entry is the last round of training in which the client's update counted. The ledger is part of every opening, and the
//! updates that are accepted after it are durable by themselves, so that a restart has it whole and a backup of the run's folder has that of
//! its moment. It also keeps clients that have left the roster: one that comes back has its state still.
//!
//! On every connection the server says what the ledger has, before the welcome, and the device answers what it has. If they differ,
//! the operator is told, and nothing else follows.

use std::collections::BTreeMap;

use shared::client_state::{self, Difference, Stands};
use shared::id::ClientId;
use shared::message::ToClient;
use shared::spec::RunSpec;

use super::{Action, Coordinator, PeerId, Resume};

/// The last round in which each client's update counted; `None` if it is not kept: clients of the run keep no state, or the run
/// was begun by a program that kept no ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ledger(Option<BTreeMap<ClientId, u32>>);

impl Ledger {
    /// The ledger of a run that begins or continues here.
    pub(super) fn of(spec: &RunSpec, resume: &Resume) -> Self {
        let begins = resume.closed == 0 && resume.open.is_none();
        let known = if begins { Some(BTreeMap::new()) } else { resume.ledger.clone() };
        Self(known.filter(|_| client_state::is_kept(spec)))
    }

    /// What goes into an opening.
    pub(super) fn entries(&self) -> Option<BTreeMap<ClientId, u32>> {
        self.0.clone()
    }

    /// An update counts that was trained in this round.
    pub(super) fn count(&mut self, client: ClientId, round: u32) {
        if let Some(ledger) = &mut self.0 {
            ledger.insert(client, round);
        }
    }

    /// What a client is told; `None` if it is told nothing.
    fn of_client(&self, client: ClientId) -> Option<Stands> {
        Some(Stands(self.0.as_ref()?.get(&client).copied()))
    }
}

impl Coordinator {
    /// Tells a client which state it must have. Returns what it was told.
    pub(super) fn tell_counted(&mut self, peer: PeerId, client: ClientId) -> Option<Stands> {
        let told = self.ledger.of_client(client);
        if let Some(Stands(round)) = told {
            self.send(peer, ToClient::Counted { round });
        }
        told
    }

    /// A client says which state it has: that is compared with what it was told, since its next update may count meanwhile.
    pub(super) fn compare_state(&mut self, client: ClientId, device: Option<u32>) {
        let link = self.members.get_mut(&client).and_then(|member| member.link.as_mut());
        let Some(Stands(server)) = link.and_then(|link| link.told.take()) else { return };
        if Difference::between(server, device).is_some() {
            self.actions.push_back(Action::StateDiffers { client, server, device });
        }
    }
}
