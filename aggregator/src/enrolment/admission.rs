//! Admission: the decision on every device that connects.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use shared::id::ClientId;
use shared::identity::PublicKey;
use shared::message::{Hello, Refusal, ToClient};
use shared::ticket::TicketSecret;
use tokio::sync::mpsc::WeakUnboundedSender;
use tokio::sync::oneshot;
use tracing::warn;

use super::devices::Shown;
use super::live::Live;
use super::{Claim, Policy, SharedTickets};
use crate::coordinator::PeerId;
use crate::database::{Database, DatabaseError};
use crate::enrolment::{Admittance, Device, Seen, Standing};
use crate::names;
use crate::peer::ToPeer;

/// Interval at which it is recorded that connected devices are there. A device that is silent for longer than `connection.timeout` is
/// disconnected, so that "last here" is right to about this.
const HEARD_INTERVAL: Duration = Duration::from_secs(10);

/// The known devices.
#[derive(Debug)]
pub enum Register {
    /// None: any key may take part, under the id that follows from it.
    Anyone,
    /// Clients of this process, by the keys that were made for them.
    Insiders(BTreeMap<PublicKey, ClientId>),
    /// The devices of a lab.
    Lab {
        /// Their database.
        database: Database,
        /// How unknown devices are treated.
        policy: Policy,
    },
}

/// Why a device is not admitted.
#[derive(Debug)]
pub enum Denied {
    /// It is refused, and told why.
    Refused(Refusal),
    /// This machine cannot decide: the device may try again.
    Trouble(DatabaseError),
    /// The servers that share its ticket cannot decide now: the device may try again.
    Later,
}

/// Decides on every device that connects, and tracks those that are connected.
#[derive(Debug)]
pub struct Admission {
    register: Register,
    live: Live,
    /// Recent connections that are not recorded yet.
    seen: Mutex<BTreeMap<ClientId, Seen>>,
    /// Tickets that other servers take too.
    tickets: Option<Arc<dyn SharedTickets>>,
}

impl Admission {
    /// Admits the devices that `register` knows.
    #[must_use]
    pub fn new(register: Register) -> Self {
        Self { register, live: Live::default(), seen: Mutex::default(), tickets: None }
    }

    /// The same, with tickets that are shared with other servers.
    #[must_use]
    pub fn sharing(self, tickets: Arc<dyn SharedTickets>) -> Self {
        Self { tickets: Some(tickets), ..self }
    }

    /// Decides whether the device that has proved `key` may take part. Blocks on the disk if something must be recorded.
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
        let shown = self.shown(database, key, ticket, *policy, now)?;
        let weighed =
            Device::admit_with(database, key, &shown, *policy, address.ip(), now).map_err(Denied::Trouble)?;
        match weighed {
            Admittance::In => {
                let seen = Seen {
                    at: now,
                    address: address.ip(),
                    software: hello.software.chars().take(Seen::SOFTWARE).collect(),
                    samples: hello.samples,
                };
                self.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(known, seen);
                Ok(())
            }
            Admittance::Refused(refusal) => Err(Denied::Refused(refusal)),
        }
    }

    /// What a device with this ticket shows. One that is shared is used before, if need be.
    fn shown(
        &self,
        database: &Database,
        key: PublicKey,
        ticket: Option<TicketSecret>,
        policy: Policy,
        now: SystemTime,
    ) -> Result<Shown, Denied> {
        let (ticket, tickets) = match (ticket, &self.tickets) {
            (None, _) => return Ok(Shown::Nothing),
            (Some(ticket), None) => return Ok(Shown::Ticket(ticket)),
            (Some(ticket), Some(tickets)) => (ticket, tickets),
        };
        let known = Device::find(database, key.client()).map_err(Denied::Trouble)?;
        if known.is_some_and(|device| device.standing != Standing::Waiting) {
            return Ok(Shown::Nothing);
        }
        match tickets.claim(key, ticket, now) {
            Claim::Granted => Ok(Shown::Claimed(Ok(()))),
            Claim::Refused(refusal) => Ok(Shown::Claimed(Err(refusal))),
            Claim::Unavailable if policy == Policy::Anyone => Ok(Shown::Nothing),
            Claim::Unavailable => Err(Denied::Later),
        }
    }

    /// The last addresses of admitted devices, at most `most`, the newest last. Empty if there are none, or if they cannot be
    /// read, which is logged. Blocks.
    pub(crate) fn addresses(&self, most: usize) -> Vec<IpAddr> {
        let Register::Lab { database, .. } = &self.register else { return Vec::new() };
        Device::addresses(database, most).unwrap_or_else(|error| {
            warn!(
                "from where devices come cannot be seen, so that none has a place reserved at first: {error}"
            );
            Vec::new()
        })
    }

    /// Registers a connection of the device and its command channel. The channel it returns fires when newer connections of the
    /// device replace this one.
    pub(crate) fn enter(
        &self,
        client: ClientId,
        peer: PeerId,
        commands: WeakUnboundedSender<ToPeer>,
    ) -> oneshot::Receiver<()> {
        self.live.enter(client, peer, commands)
    }

    /// Announces a new key of the server to all connections.
    pub(crate) fn announce(&self, key: PublicKey) {
        self.live.tell(&ToClient::ServerKey { key });
    }

    /// Records recent connections now: when a run ends, its page says who was here. Blocks.
    pub(crate) fn record(&self) -> Result<(), DatabaseError> {
        let Register::Lab { database, .. } = &self.register else { return Ok(()) };
        Device::note(database, &self.take_seen())?;
        Device::note_heard(database, &self.live.clients(), SystemTime::now())
    }

    /// The connections that were not recorded yet.
    fn take_seen(&self) -> BTreeMap<ClientId, Seen> {
        std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records recent connections, and disconnects devices that may no longer take part. Returns the devices that have lost their
    /// admission since the last call, connected or not; on the first call, all revoked ones. Call it at intervals; it blocks.
    pub fn watch(&self, changes: &mut Changes) -> BTreeSet<ClientId> {
        self.watch_and_tell(changes, &mut |_| {})
    }

    /// [`watch`](Self::watch), which names each connected device to `cuts_off` before it is disconnected: it leaves as soon as it hears why.
    pub fn watch_and_tell(
        &self,
        changes: &mut Changes,
        cuts_off: &mut dyn FnMut(ClientId),
    ) -> BTreeSet<ClientId> {
        let Register::Lab { database, .. } = &self.register else { return BTreeSet::new() };
        let seen = self.take_seen();
        let here = if changes.due(SystemTime::now()) { self.live.clients() } else { Vec::new() };
        match Device::note(database, &seen)
            .and_then(|()| Device::note_heard(database, &here, SystemTime::now()))
        {
            Ok(()) if seen.is_empty() => {}
            Ok(()) => changes.unwritten = false,
            // Logged once per failure.
            Err(error) => {
                if !std::mem::replace(&mut changes.unwritten, true) {
                    warn!("when devices were last connected cannot be noted: {error}");
                }
            }
        }
        match self.cut_off(database, changes, cuts_off) {
            Ok(gone) => {
                changes.trouble = false;
                gone
            }
            // Logged once per failure.
            Err(error) => {
                if !std::mem::replace(&mut changes.trouble, true) {
                    warn!("whether devices were revoked cannot be read: {error}");
                }
                BTreeSet::new()
            }
        }
    }

    fn cut_off(
        &self,
        database: &Database,
        changes: &mut Changes,
        cuts_off: &mut dyn FnMut(ClientId),
    ) -> Result<BTreeSet<ClientId>, DatabaseError> {
        let version = database.foreign_changes()?;
        let changed = changes.version != Some(version);
        // Devices that connected during a change are looked up again.
        let entered = self.live.entered();
        changes.let_in.extend(&entered);
        let mut gone = BTreeSet::new();
        if changed {
            names::set(Device::names(database)?);
            let standing = Device::standing(database)?;
            let of =
                |wanted| standing.iter().filter(move |(_, it)| **it == wanted).map(|(client, _)| *client);
            let (let_in, revoked): (BTreeSet<_>, BTreeSet<_>) =
                (of(Standing::In).collect(), of(Standing::Revoked).collect());
            // Devices that were removed are in neither list.
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
            cuts_off(client);
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
    /// Devices that were admitted then.
    let_in: BTreeSet<ClientId>,
    /// Devices that were revoked then.
    revoked: BTreeSet<ClientId>,
    trouble: bool,
    /// Recording connections has failed, and that was logged.
    unwritten: bool,
    /// When it was last recorded which devices are connected.
    recorded: Option<SystemTime>,
}

impl Changes {
    /// Whether it is time to record which devices are connected.
    fn due(&mut self, now: SystemTime) -> bool {
        // A clock that was set back must not end the recording.
        let recent =
            self.recorded.is_some_and(|at| now.duration_since(at).is_ok_and(|since| since < HEARD_INTERVAL));
        if !recent {
            self.recorded = Some(now);
        }
        !recent
    }
}
