//! Slots for connections that are not admitted yet.
//!
//! Anyone can connect and stay silent, from any number of addresses. To keep the server's devices from being crowded out, half
//! of the slots are reserved for networks from which a device was admitted lately, and while the other half is scarce, a
//! silent connection from elsewhere is closed sooner, and its network gets no other slot for some time (`backoff`).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::future::Future;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::backoff::Backoffs;
use super::limits::{
    HANDSHAKE_TIMEOUT, HANDSHAKE_TIMEOUT_CROWDED, KNOWN_NETWORKS, PREAUTH_CONNECTIONS, PREAUTH_PER_ADDRESS,
};
use crate::enrolment::network;

/// The slots, shared by all connections of a listener.
pub(super) struct PreauthSlots {
    places: Arc<Semaphore>,
    unknown: Arc<Semaphore>,
    /// Number of slots in `unknown`.
    unknown_total: usize,
    /// Occupied slots by network.
    per_network: Arc<Mutex<BTreeMap<IpAddr, usize>>>,
    known: Mutex<KnownNetworks>,
    /// Networks whose connections were silent.
    backoffs: Arc<Mutex<Backoffs>>,
}

/// Networks from which a device was admitted lately, the [`KNOWN_NETWORKS`] newest.
#[derive(Debug, Default)]
struct KnownNetworks {
    /// When, as a sequence number.
    networks: BTreeMap<IpAddr, u64>,
    next: u64,
}

impl KnownNetworks {
    fn remember(&mut self, network: IpAddr) {
        self.networks.insert(network, self.next);
        self.next += 1;
        let oldest = self.networks.iter().min_by_key(|(_, admitted)| **admitted);
        if let Some((&oldest, _)) = oldest.filter(|_| self.networks.len() > KNOWN_NETWORKS) {
            self.networks.remove(&oldest);
        }
    }
}

impl PreauthSlots {
    /// Slots for a listener that serves at most `connections` connections of any kind.
    pub(super) fn new(connections: usize) -> Self {
        let places = PREAUTH_CONNECTIONS.min(connections);
        let unknown_total = places.div_ceil(2);
        Self {
            places: Arc::new(Semaphore::new(places)),
            unknown: Arc::new(Semaphore::new(unknown_total)),
            unknown_total,
            per_network: Arc::default(),
            known: Mutex::default(),
            backoffs: Arc::default(),
        }
    }

    /// Records that a device was admitted from `address`.
    pub(super) fn remember(&self, address: IpAddr) {
        lock(&self.known).remember(network(address));
        lock(&self.backoffs).forget(network(address));
    }

    /// Loopback is always known.
    fn is_known(&self, address: IpAddr) -> bool {
        address.is_loopback() || lock(&self.known).networks.contains_key(&network(address))
    }

    /// Whether slots are so scarce that a connection from `address` must first prove that the address is its own.
    pub(super) fn must_validate(&self, address: IpAddr) -> bool {
        self.places.available_permits() < PREAUTH_CONNECTIONS / 2
            || is_scarce(&self.unknown, self.unknown_total)
            || self.occupied_by(address) >= PREAUTH_PER_ADDRESS / 2
    }

    /// Slots that the network of `address` occupies.
    fn occupied_by(&self, address: IpAddr) -> usize {
        lock(&self.per_network).get(&network(address)).copied().unwrap_or(0)
    }

    /// A slot for a connection from `address`, which may be validated; `None` if there is none left for it.
    pub(super) fn acquire(&self, address: IpAddr, validated: bool, now: Instant) -> Option<PreauthSlot> {
        let place = self.places.clone().try_acquire_owned().ok()?;
        let unknown = if self.is_known(address) {
            None
        } else {
            let scarce = is_scarce(&self.unknown, self.unknown_total);
            if scarce && lock(&self.backoffs).holds_back(network(address), now) {
                return None;
            }
            Some((self.unknown.clone().try_acquire_owned().ok()?, self.unknown.clone()))
        };
        let counted = (!address.is_loopback()).then(|| network(address));
        if let Some(network) = counted {
            let mut per_network = lock(&self.per_network);
            let here = per_network.entry(network).or_default();
            if *here >= PREAUTH_PER_ADDRESS {
                return None;
            }
            *here += 1;
        }
        let (per_network, backoffs) = (self.per_network.clone(), self.backoffs.clone());
        Some(PreauthSlot {
            _place: place,
            unknown,
            of: self.unknown_total,
            per_network,
            counted,
            validated,
            backoffs,
        })
    }
}

fn is_scarce(places: &Semaphore, of: usize) -> bool {
    places.available_permits() < of / 2
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The slot of one connection; free for another when this is dropped.
pub(super) struct PreauthSlot {
    _place: OwnedSemaphorePermit,
    /// The permit for a connection from an unknown network, and the semaphore that it comes from.
    unknown: Option<(OwnedSemaphorePermit, Arc<Semaphore>)>,
    /// Number of such slots.
    of: usize,
    per_network: Arc<Mutex<BTreeMap<IpAddr, usize>>>,
    counted: Option<IpAddr>,
    /// Whether the address is known to be the peer's own.
    validated: bool,
    backoffs: Arc<Mutex<Backoffs>>,
}

impl PreauthSlot {
    /// The result of `future`; `None` if it takes longer than this slot may be held.
    pub(super) async fn in_time<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        tokio::pin!(future);
        let mut waited = Duration::ZERO;
        while !self.is_expired(waited) {
            if let Ok(done) = tokio::time::timeout(HANDSHAKE_TIMEOUT_CROWDED, &mut future).await {
                return Some(done);
            }
            waited += HANDSHAKE_TIMEOUT_CROWDED;
        }
        None
    }

    /// The connection has not done what it was given the slot for in time.
    pub(super) fn was_silent(&self, now: Instant) {
        if let Some(network) = self.counted.filter(|_| self.validated && self.is_scarce()) {
            lock(&self.backoffs).note(network, now);
        }
    }

    /// Whether slots for connections from unknown networks are scarce, and this is one of them.
    fn is_scarce(&self) -> bool {
        self.unknown.as_ref().is_some_and(|(_, places)| is_scarce(places, self.of))
    }

    /// Whether the slot must be given up after `waited`.
    fn is_expired(&self, waited: Duration) -> bool {
        waited >= if self.is_scarce() { HANDSHAKE_TIMEOUT_CROWDED } else { HANDSHAKE_TIMEOUT }
    }
}

impl Drop for PreauthSlot {
    fn drop(&mut self) {
        let Some(network) = self.counted else { return };
        let mut per_network = lock(&self.per_network);
        if let Entry::Occupied(mut here) = per_network.entry(network) {
            *here.get_mut() -= 1;
            if *here.get() == 0 {
                here.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    /// A slot for a validated address.
    fn slot(slots: &PreauthSlots, address: IpAddr) -> Option<PreauthSlot> {
        slots.acquire(address, true, Instant::now())
    }

    #[test]
    fn one_address_does_not_take_all_places() {
        let slots = PreauthSlots::new(1000);
        let [greedy, neighbour] = ["2001:db8::1", "2001:db8::ffff:2"].map(address);
        let other = address("192.0.2.7");
        let mut here: Vec<_> =
            (0..PREAUTH_PER_ADDRESS).map(|_| slot(&slots, greedy).expect("a place")).collect();
        assert!(slot(&slots, greedy).is_none() && slot(&slots, neighbour).is_none());
        assert!(slot(&slots, other).is_some(), "others have theirs");
        here.pop();
        assert_eq!(slots.occupied_by(neighbour), PREAUTH_PER_ADDRESS - 1);
        assert!(slot(&slots, neighbour).is_some());
        drop(here);
        assert_eq!(slots.occupied_by(greedy), 0);
        assert!(lock(&slots.per_network).is_empty(), "nothing is kept of peers that have disconnected");
        let itself = address("127.0.0.1");
        let all: Vec<_> = (0..PREAUTH_CONNECTIONS).map_while(|_| slot(&slots, itself)).collect();
        assert_eq!(all.len(), PREAUTH_CONNECTIONS);
        assert!(slot(&slots, itself).is_none() && slot(&slots, other).is_none());
    }

    #[test]
    fn whoever_has_many_addresses_leaves_room_for_devices_that_are_known() {
        let slots = PreauthSlots::new(1000);
        let known = address("::ffff:192.0.2.7");
        slots.remember(address("192.0.2.7"));
        let mute = (0..PREAUTH_CONNECTIONS as u8).filter_map(|n| slot(&slots, [10, 0, 0, n].into()));
        let mute: Vec<_> = mute.collect();
        assert_eq!(mute.len(), PREAUTH_CONNECTIONS / 2);
        assert!(slots.must_validate(known), "every peer has to validate its address");
        let devices: Vec<_> = (0..PREAUTH_PER_ADDRESS).map_while(|_| slot(&slots, known)).collect();
        assert_eq!(devices.len(), PREAUTH_PER_ADDRESS);
        // There are many that say nothing: they have to go, and devices that are known have their time.
        assert!(
            !mute[0].is_expired(HANDSHAKE_TIMEOUT_CROWDED / 2)
                && mute[0].is_expired(HANDSHAKE_TIMEOUT_CROWDED)
        );
        assert!(
            !devices[0].is_expired(HANDSHAKE_TIMEOUT_CROWDED) && devices[0].is_expired(HANDSHAKE_TIMEOUT)
        );
        drop(mute);
        let alone = slot(&slots, [10, 0, 0, 1].into()).expect("there is room again");
        assert!(!alone.is_expired(HANDSHAKE_TIMEOUT_CROWDED) && alone.is_expired(HANDSHAKE_TIMEOUT));
    }

    /// A flood of silent connections from 250 addresses, each of which tries again every 50 ms, and nine devices that come one
    /// after the other, with a client's backoff.
    #[test]
    fn a_silent_flood_does_not_keep_new_devices_waiting() {
        const TICK: Duration = Duration::from_millis(50);
        let (slots, start) = (PreauthSlots::new(1000), Instant::now());
        let flooder = |n: u8| IpAddr::from([10, 0, 0, n]);
        let mut silent: Vec<(Duration, PreauthSlot)> = Vec::new();
        let mut held = [false; 250];
        // Of each device: when it tries next, and how often it has.
        let mut devices: Vec<_> = (0..9).map(|n| (Duration::from_secs(5 + 2 * n), 0_u32)).collect();
        let mut waits = Vec::new();
        for tick in 0..1200 {
            let now = tick * TICK;
            silent.retain(|(since, slot)| {
                let expired = slot.is_expired(now.saturating_sub(*since));
                if expired {
                    slot.was_silent(start + now);
                    let network = slot.counted.expect("it is counted");
                    held.iter_mut().zip(0..).for_each(|(held, n)| *held &= flooder(n) != network);
                }
                !expired
            });
            for (held, n) in held.iter_mut().zip(0..) {
                if !*held && let Some(slot) = slots.acquire(flooder(n), true, start + now) {
                    *held = true;
                    silent.push((now, slot));
                }
            }
            for (n, (at, tries)) in (0..).zip(&mut devices) {
                if *at == now {
                    *tries += 1;
                    if slots.acquire([192, 0, 2, n].into(), true, start + now).is_some() {
                        let from = Duration::from_secs(5 + 2 * u64::from(n));
                        waits.push((from, now.saturating_sub(from)));
                    } else {
                        *at += TICK * 5 * 2_u32.pow(*tries);
                    }
                }
            }
        }
        assert_eq!(waits.len(), 9, "{waits:?}");
        // Every address of the flood has held a slot within twenty seconds, and is held back from then on.
        for (from, wait) in &waits {
            let most = if *from < Duration::from_secs(20) { 16 } else { 0 };
            assert!(*wait <= Duration::from_secs(most), "{waits:?}");
        }
    }

    #[test]
    fn so_many_addresses_are_remembered_those_of_late() {
        let mut known = KnownNetworks::default();
        let of = |n: usize| IpAddr::from((n as u32).to_be_bytes());
        (0..KNOWN_NETWORKS).for_each(|n| known.remember(of(n)));
        known.remember(of(0));
        known.remember(of(KNOWN_NETWORKS));
        assert_eq!(known.networks.len(), KNOWN_NETWORKS);
        assert!(known.networks.contains_key(&of(0)) && !known.networks.contains_key(&of(1)));
    }
}
