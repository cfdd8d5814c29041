//! The ledger: which client state each client must have, in runs whose clients keep any ([`client_state`](shared::client_state)).
//!
//! An entry is the client's last update of training that counted. The ledger is part of every opening, and the
//! updates that are accepted after it are durable by themselves, so that a restart has it whole and a backup of the run's folder has that of
//! its moment. It also keeps clients that have left the roster: one that comes back has its state still.
//!
//! On every connection the server says what the ledger has, before the welcome, and the device answers what it has. If they differ,
//! the operator is told, and nothing else follows.

use std::collections::BTreeMap;

use shared::client_state::{self, Difference, Stands};
use shared::id::ClientId;
use shared::message::{CountedUpdate, ToClient};
use shared::spec::RunSpec;

use super::{Action, Coordinator, PeerId, Resume};

/// The last update of each client that counted; `None` if it is not kept: clients of the run keep no state, or the run
/// was begun by a program that kept no ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ledger(Option<BTreeMap<ClientId, CountedUpdate>>);

impl Ledger {
    /// The ledger of a run that begins or continues here.
    pub(super) fn of(spec: &RunSpec, resume: &Resume) -> Self {
        let begins = resume.closed == 0 && resume.open.is_none();
        let known = if begins { Some(BTreeMap::new()) } else { resume.ledger.clone() };
        Self(known.filter(|_| client_state::is_kept(spec)))
    }

    /// What goes into an opening.
    pub(super) fn entries(&self) -> Option<BTreeMap<ClientId, CountedUpdate>> {
        self.0.clone()
    }

    /// This update counts.
    pub(super) fn count(&mut self, client: ClientId, update: CountedUpdate) {
        if let Some(ledger) = &mut self.0 {
            ledger.insert(client, update);
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
        if let Some(Stands(update)) = told {
            self.send(peer, ToClient::Counted { update });
        }
        told
    }

    /// A client says which state it has: that is compared with what it was told, since its next update may count meanwhile.
    pub(super) fn compare_state(&mut self, client: ClientId, device: Option<CountedUpdate>) {
        let link = self.members.get_mut(&client).and_then(|member| member.link.as_mut());
        let Some(Stands(server)) = link.and_then(|link| link.told.take()) else { return };
        if Difference::between(server, device).is_some() {
            self.actions.push_back(Action::StateDiffers { client, server, device });
        }
    }
}
