//! What peers may take of this machine, and the arithmetic behind it.
//!
//! Anybody may connect, and is a stranger until [`enrolment`](crate::enrolment) has let the device in, so every bound holds
//! for strangers too. The worst that any
//! number of peers can make this process hold, with windows as on a network:
//!
//! | what | how many | each | together |
//! |---|---|---|---|
//! | received, not yet read | [`CONNECTIONS`] | [`IDLE_WINDOW`], 256 KiB | 256 MiB |
//! | received, of an upload that is being read | [`UPLOADS`] | [`STREAM_WINDOW`], 4 MiB | 128 MiB |
//! | sent, not yet acknowledged | [`CONNECTIONS`] | [`SEND_WINDOW`], 1 MiB | 1 GiB |
//! | messages that wait for the driver | [`CONNECTIONS`] | [`UNHEARD`] of at most 64 KiB | 1 GiB |
//! | messages that wait for the line | [`CONNECTIONS`] | [`MESSAGES`] of some 100 bytes | 6 MiB |
//! | files that are being written | [`UPLOADS`] | one | 32 files |
//! | parts of updates whose connection was cut, on disk | 64 | one update | 64 updates |
//!
//! The third line is reached only when a model that is too large to be shared in memory goes to all of them
//! at the same moment. A federation of more than half of [`CONNECTIONS`] clients has proportionally more of
//! each.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::partials::Partials;

/// Connections at a time, in a federation of up to half as many clients; a larger one has two per client,
/// since a client that comes back may be here twice for a while.
pub const CONNECTIONS: usize = 1024;
/// Connections at a time that were not welcomed yet. Each has [`GREETING`] to change that.
pub const STRANGERS: usize = 64;
/// Of these, so many from one address (of IPv6: one network of 64 bits), so that nobody alone takes all. Half of them without
/// having shown that the address is its own. Connections of this machine to itself are not counted.
pub const FROM_ONE_ADDRESS: usize = 16;
/// Uploads that are read at a time. The others wait in their clients, held there by QUIC's flow control.
pub const UPLOADS: usize = 32;
/// Unread bytes that are buffered for a connection on which nothing large is being read: room for the largest
/// message and then some.
pub const IDLE_WINDOW: u32 = 256 << 10;
/// Unread bytes of one upload that are buffered while it is being read. Bounds memory, and bandwidth to this
/// much per round trip.
pub const STREAM_WINDOW: u32 = 4 << 20;
/// Sent bytes that are kept for retransmission, per connection: memory grows by this with every client that
/// is sent a large model, bandwidth is bounded to this per round trip.
pub const SEND_WINDOW: u64 = 1 << 20;
/// Bytes that a peer must bring, of an upload, or take, of a task, within the listener's patience. One that
/// brings less keeps others from their turn.
pub const PROGRESS: u64 = 16 << 10;
/// Within so many times the listener's patience an upload must be over, whatever its length, as long as somebody waits
/// for a turn: peers that are slow on purpose cannot keep all turns for hours.
pub const SPANS: u64 = 32;
/// Messages that may wait for a peer that does not read. An honest client is sent a few per round.
pub const MESSAGES: usize = 64;
/// Messages of a peer that may wait for the driver. The next one is left on the line, so that nobody talks faster
/// than this machine listens.
pub const UNHEARD: usize = 16;
/// A peer must be connected within this time, and have said hello within as much again.
pub const GREETING: Duration = Duration::from_secs(10);

/// What the peers of one listener share.
pub(super) struct Limits {
    /// Where updates are written as they arrive.
    pub(super) spool: PathBuf,
    /// The largest payload of an update.
    pub(super) max_payload: u64,
    /// A peer that takes or brings nothing for so long, in the middle of something, is lost.
    pub(super) patience: Duration,
    /// Places for connections.
    pub(super) connections: Arc<Semaphore>,
    /// Places for those among them that were not welcomed yet.
    pub(super) strangers: Arc<Semaphore>,
    /// Where those come from.
    addresses: Arc<Mutex<BTreeMap<IpAddr, usize>>>,
    /// Turns at uploading, given in the order in which they were asked for.
    pub(super) uploads: Semaphore,
    /// What is here of uploads that were cut off.
    pub(super) partials: Partials,
    /// Peers that wait for a turn.
    pub(super) waiting: AtomicUsize,
}

impl Limits {
    pub(super) fn new(spool: PathBuf, max_payload: u64, patience: Duration, connections: usize, over: Arc<AtomicBool>) -> Self {
        Self {
            spool,
            max_payload,
            patience,
            connections: Arc::new(Semaphore::new(connections)),
            strangers: Arc::new(Semaphore::new(STRANGERS.min(connections))),
            addresses: Arc::default(),
            uploads: Semaphore::new(UPLOADS),
            partials: Partials::new(over),
            waiting: AtomicUsize::new(0),
        }
    }

    /// How many that were not welcomed yet come from there.
    pub(super) fn strangers_from(&self, address: IpAddr) -> usize {
        let addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        addresses.get(&network(address)).copied().unwrap_or(0)
    }

    /// A place for one more who was not welcomed yet.
    pub(super) fn stranger(&self, address: IpAddr) -> Option<Stranger> {
        let place = self.strangers.clone().try_acquire_owned().ok()?;
        let counted = (!address.is_loopback()).then(|| network(address));
        if let Some(network) = counted {
            let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
            let here = addresses.entry(network).or_default();
            if *here >= FROM_ONE_ADDRESS {
                return None;
            }
            *here += 1;
        }
        Some(Stranger { _place: place, addresses: self.addresses.clone(), counted })
    }

    /// The bytes of an upload of `payload` that must arrive within the listener's patience from now on.
    pub(super) fn progress(&self, payload: u64) -> u64 {
        match self.waiting.load(Ordering::Relaxed) {
            0 => PROGRESS,
            _ => PROGRESS.max(payload.div_ceil(SPANS)),
        }
    }
}

/// The place of one who was not welcomed yet; free for another when this is dropped.
pub(super) struct Stranger {
    _place: OwnedSemaphorePermit,
    addresses: Arc<Mutex<BTreeMap<IpAddr, usize>>>,
    counted: Option<IpAddr>,
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let Some(network) = self.counted else { return };
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut here) = addresses.entry(network) {
            *here.get_mut() -= 1;
            if *here.get() == 0 {
                here.remove();
            }
        }
    }
}

/// What is counted as one address: whoever has one of IPv6 has all of its network.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(address) => address.into(),
            None => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        },
    }
}

/// Places for connections in a federation of `clients`.
pub(super) fn connections(clients: usize) -> usize {
    CONNECTIONS.max(clients.saturating_mul(2)).min(Semaphore::MAX_PERMITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_does_not_take_all_places() {
        let limits = Limits::new(PathBuf::new(), u64::MAX, Duration::from_secs(1), 1000, Arc::default());
        let [greedy, neighbour] = ["2001:db8::1", "2001:db8::ffff:2"].map(|text| text.parse().unwrap());
        let other = "192.0.2.7".parse().unwrap();
        let mut here: Vec<_> =
            (0..FROM_ONE_ADDRESS).map(|_| limits.stranger(greedy).expect("a place")).collect();
        assert!(limits.stranger(greedy).is_none() && limits.stranger(neighbour).is_none());
        assert!(limits.stranger(other).is_some(), "others have theirs");
        here.pop();
        assert_eq!(limits.strangers_from(neighbour), FROM_ONE_ADDRESS - 1);
        assert!(limits.stranger(neighbour).is_some());
        drop(here);
        assert_eq!(limits.strangers_from(greedy), 0);
        assert!(limits.addresses.lock().unwrap().is_empty(), "of nobody who is gone anything is kept");
        let itself = "127.0.0.1".parse().unwrap();
        let all: Vec<_> = (0..STRANGERS).map_while(|_| limits.stranger(itself)).collect();
        assert_eq!(all.len(), STRANGERS);
        assert!(limits.stranger(itself).is_none() && limits.stranger(other).is_none());
    }

    #[test]
    fn whoever_has_a_turn_must_hurry_while_others_wait() {
        let limits = Limits::new(PathBuf::new(), u64::MAX, Duration::from_secs(1), 1, Arc::default());
        assert_eq!(limits.progress(100 << 20), PROGRESS);
        limits.waiting.store(1, Ordering::Relaxed);
        assert_eq!(limits.progress(100 << 20) * SPANS, 100 << 20);
        // A small one is over sooner anyway.
        assert_eq!(limits.progress(1), PROGRESS);
    }
}
