//! Decides on every device that comes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use shared::id::ClientId;
use shared::identity::PublicKey;
use shared::message::{Hello, Refusal, ToClient};
use shared::ticket::TicketSecret;
use tokio::sync::mpsc::WeakUnboundedSender;
use tokio::sync::oneshot;
use tracing::warn;

use super::Policy;
use super::live::Live;
use crate::coordinator::PeerId;
use crate::database::{Database, DatabaseError};
use crate::enrolment::{Device, Seen, Standing, Weighed};
use crate::peer::ToPeer;

/// Who is known.
#[derive(Debug)]
pub enum Register {
    /// Nobody: whoever has a key may take part under the id that follows from it.
    Anyone,
    /// Clients of this very process, by the keys that were made for them.
    Insiders(BTreeMap<PublicKey, ClientId>),
    /// The devices of a lab.
    Lab {
        /// Where they are kept.
        database: Database,
        /// What becomes of others.
        policy: Policy,
    },
}

/// Why a device is not let in.
#[derive(Debug)]
pub enum Denied {
    /// For a reason that it is told.
    Refused(Refusal),
    /// Its reason is this machine's: the device may come again.
    Trouble(DatabaseError),
}

/// Decides on every device that comes, and knows those that are here.
#[derive(Debug)]
pub struct Admission {
    register: Register,
    live: Live,
    /// Who was here lately, and how; not written down yet.
    seen: Mutex<BTreeMap<ClientId, Seen>>,
}

impl Admission {
    /// Lets in whom `register` knows.
    #[must_use]
    pub fn new(register: Register) -> Self {
        Self { register, live: Live::default(), seen: Mutex::default() }
    }

    /// May the device that has proved `key` take part? It blocks for the database's disk if something is to be noted.
    pub fn admit(
        &self,
        key: PublicKey,
        hello: &Hello,
        ticket: Option<TicketSecret>,
        address: SocketAddr,
        now: SystemTime,
    ) -> Result<(), Denied> {
        let known = match &self.register {
            Register::Insiders(clients) => {
                clients.get(&key).copied().ok_or(Denied::Refused(Refusal::Unknown))?
            }
            Register::Anyone | Register::Lab { .. } => key.client(),
        };
        if hello.client != known {
            return Err(Denied::Refused(Refusal::Identity { known }));
        }
        let Register::Lab { database, policy } = &self.register else { return Ok(()) };
        let weighed =
            Device::weigh(database, key, ticket, *policy, address.ip(), now).map_err(Denied::Trouble)?;
        match weighed {
            Weighed::In => {
                let seen = Seen {
                    at: now,
                    address: address.ip(),
                    software: hello.software.chars().take(Seen::SOFTWARE).collect(),
                    samples: hello.samples,
                };
                self.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(known, seen);
                Ok(())
            }
            Weighed::Refused(refusal) => Err(Denied::Refused(refusal)),
        }
    }

    /// At most so many addresses at which devices that may take part were here last, the newest one last. Empty if nobody is
    /// known, or if they cannot be read, which is said. It blocks.
    pub(crate) fn addresses(&self, most: usize) -> Vec<IpAddr> {
        let Register::Lab { database, .. } = &self.register else { return Vec::new() };
        Device::addresses(database, most).unwrap_or_else(|error| {
            warn!(
                "from where devices come cannot be seen, so that none has a place reserved at first: {error}"
            );
            Vec::new()
        })
    }

    /// The device is here, and commands for it go there. What this gives says that newer connections of the device need the
    /// place of this one.
    pub(crate) fn enter(
        &self,
        client: ClientId,
        peer: PeerId,
        commands: WeakUnboundedSender<ToPeer>,
    ) -> oneshot::Receiver<()> {
        self.live.enter(client, peer, commands)
    }

    /// The server has another key from now on.
    pub(crate) fn announce(&self, key: PublicKey) {
        self.live.tell(&ToClient::ServerKey { key });
    }

    /// Writes down who was here, and cuts off whoever may not be here any more. Gives the devices that may not take part any more
    /// since it was called last, and when it is called first all that may not, connected or not; those that were cut off
    /// in any case. To be called every now and then; it blocks.
    pub fn watch(&self, changes: &mut Changes) -> BTreeSet<ClientId> {
        let Register::Lab { database, .. } = &self.register else { return BTreeSet::new() };
        let seen = std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner));
        match Device::note(database, &seen) {
            Ok(()) if seen.is_empty() => {}
            Ok(()) => changes.unwritten = false,
            // Said once, until it has passed.
            Err(error) => {
                if !std::mem::replace(&mut changes.unwritten, true) {
                    warn!("who was here cannot be written down: {error}");
                }
            }
        }
        match self.cut_off(database, changes) {
            Ok(gone) => {
                changes.trouble = false;
                gone
            }
            // Said once, until it has passed.
            Err(error) => {
                if !std::mem::replace(&mut changes.trouble, true) {
                    warn!("whether a device was revoked cannot be seen: {error}");
                }
                BTreeSet::new()
            }
        }
    }

    fn cut_off(
        &self,
        database: &Database,
        changes: &mut Changes,
    ) -> Result<BTreeSet<ClientId>, DatabaseError> {
        let version = database.foreign_changes()?;
        let changed = changes.version != Some(version);
        // Whoever came in while something changed is looked up once more.
        let entered = self.live.entered();
        changes.let_in.extend(&entered);
        let mut gone = BTreeSet::new();
        if changed {
            let standing = Device::standing(database)?;
            let of =
                |wanted| standing.iter().filter(move |(_, it)| **it == wanted).map(|(client, _)| *client);
            let (let_in, revoked): (BTreeSet<_>, BTreeSet<_>) =
                (of(Standing::In).collect(), of(Standing::Revoked).collect());
            // Those that were removed altogether are in no list any more.
            gone.extend(changes.let_in.difference(&let_in).chain(revoked.difference(&changes.revoked)));
            (changes.let_in, changes.revoked) = (let_in, revoked);
        }
        for client in if changed { self.live.clients() } else { entered } {
            let standing = Device::find(database, client)?.map(|device| device.standing);
            let refusal = match standing {
                Some(Standing::In) => continue,
                Some(Standing::Revoked) => Refusal::Revoked,
                Some(Standing::Waiting) => Refusal::Pending { client },
                None => Refusal::Unknown,
            };
            self.live.cut(client, &refusal);
            gone.insert(client);
        }
        changes.version = Some(version);
        Ok(gone)
    }
}

/// What [`Admission::watch`] has seen before.
#[derive(Debug, Default)]
pub struct Changes {
    version: Option<i64>,
    /// Who was let in by then.
    let_in: BTreeSet<ClientId>,
    /// Who was revoked by then.
    revoked: BTreeSet<ClientId>,
    trouble: bool,
    /// Who was here could not be written down, and somebody was told.
    unwritten: bool,
}
