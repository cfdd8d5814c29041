//! Places for those who were not welcomed yet.
//!
//! Anybody can connect and say nothing, from as many addresses as he has. So that nobody who does keeps the devices of this
//! server out, half of the places are for those alone who come from where a device was let in lately, and of the others, when they
//! get scarce, whoever says nothing has to go soon.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::future::Future;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::limits::{FAMILIAR, FROM_ONE_ADDRESS, GREETING, HURRY, STRANGERS};
use crate::enrolment::network;

/// The places, shared by all connections of a listener.
pub(super) struct Strangers {
    places: Arc<Semaphore>,
    unfamiliar: Arc<Semaphore>,
    /// So many of those there are.
    unfamiliar_places: usize,
    /// Where those come from who are here.
    addresses: Arc<Mutex<BTreeMap<IpAddr, usize>>>,
    familiar: Mutex<Familiar>,
}

/// Where devices were let in lately.
#[derive(Debug, Default)]
struct Familiar {
    /// When, as a number that grows.
    networks: BTreeMap<IpAddr, u64>,
    in_order: BTreeMap<u64, IpAddr>,
    next: u64,
}

impl Familiar {
    fn remember(&mut self, network: IpAddr) {
        if let Some(before) = self.networks.insert(network, self.next) {
            self.in_order.remove(&before);
        }
        self.in_order.insert(self.next, network);
        self.next += 1;
        while self.networks.len() > FAMILIAR
            && let Some((_, oldest)) = self.in_order.pop_first()
        {
            self.networks.remove(&oldest);
        }
    }
}

impl Strangers {
    /// The places among so many for connections of any kind.
    pub(super) fn new(connections: usize) -> Self {
        let places = STRANGERS.min(connections);
        let unfamiliar_places = places.div_ceil(2);
        Self {
            places: Arc::new(Semaphore::new(places)),
            unfamiliar: Arc::new(Semaphore::new(unfamiliar_places)),
            unfamiliar_places,
            addresses: Arc::default(),
            familiar: Mutex::default(),
        }
    }

    /// A device was let in from there.
    pub(super) fn remember(&self, address: IpAddr) {
        self.familiar.lock().unwrap_or_else(PoisonError::into_inner).remember(network(address));
    }

    /// Connections of this machine to itself are no strangers'.
    fn is_familiar(&self, address: IpAddr) -> bool {
        let familiar = self.familiar.lock().unwrap_or_else(PoisonError::into_inner);
        address.is_loopback() || familiar.networks.contains_key(&network(address))
    }

    /// Whether whoever comes from there has to show that the address is its own.
    pub(super) fn are_many(&self, address: IpAddr) -> bool {
        self.places.available_permits() < STRANGERS / 2
            || is_crowded(&self.unfamiliar, self.unfamiliar_places)
            || self.from(address) >= FROM_ONE_ADDRESS / 2
    }

    /// How many are here from there.
    fn from(&self, address: IpAddr) -> usize {
        lock(&self.addresses).get(&network(address)).copied().unwrap_or(0)
    }

    /// A place for one more.
    pub(super) fn place(&self, address: IpAddr) -> Option<Stranger> {
        let place = self.places.clone().try_acquire_owned().ok()?;
        let unfamiliar = if self.is_familiar(address) {
            None
        } else {
            Some((self.unfamiliar.clone().try_acquire_owned().ok()?, self.unfamiliar.clone()))
        };
        let counted = (!address.is_loopback()).then(|| network(address));
        if let Some(network) = counted {
            let mut addresses = lock(&self.addresses);
            let here = addresses.entry(network).or_default();
            if *here >= FROM_ONE_ADDRESS {
                return None;
            }
            *here += 1;
        }
        let addresses = self.addresses.clone();
        Some(Stranger { _place: place, unfamiliar, of: self.unfamiliar_places, addresses, counted })
    }
}

fn is_crowded(places: &Semaphore, of: usize) -> bool {
    places.available_permits() < of / 2
}

fn lock(addresses: &Mutex<BTreeMap<IpAddr, usize>>) -> MutexGuard<'_, BTreeMap<IpAddr, usize>> {
    addresses.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The place of one who was not welcomed yet; free for another when this is dropped.
pub(super) struct Stranger {
    _place: OwnedSemaphorePermit,
    /// Of one who comes from nowhere familiar, the place among those, and all such places.
    unfamiliar: Option<(OwnedSemaphorePermit, Arc<Semaphore>)>,
    /// So many of those there are.
    of: usize,
    addresses: Arc<Mutex<BTreeMap<IpAddr, usize>>>,
    counted: Option<IpAddr>,
}

impl Stranger {
    /// The result of what a stranger has to bring about; `None` if it has not in the time that it has for that.
    pub(super) async fn in_time<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        tokio::pin!(future);
        let mut waited = Duration::ZERO;
        while !self.is_over(waited) {
            if let Ok(done) = tokio::time::timeout(HURRY, &mut future).await {
                return Some(done);
            }
            waited += HURRY;
        }
        None
    }

    /// Whether its time is over after so much of it.
    fn is_over(&self, waited: Duration) -> bool {
        let hurries = || self.unfamiliar.as_ref().is_some_and(|(_, places)| is_crowded(places, self.of));
        waited >= GREETING || waited >= HURRY && hurries()
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let Some(network) = self.counted else { return };
        let mut addresses = lock(&self.addresses);
        if let Entry::Occupied(mut here) = addresses.entry(network) {
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

    #[test]
    fn one_address_does_not_take_all_places() {
        let strangers = Strangers::new(1000);
        let [greedy, neighbour] = ["2001:db8::1", "2001:db8::ffff:2"].map(address);
        let other = address("192.0.2.7");
        let mut here: Vec<_> =
            (0..FROM_ONE_ADDRESS).map(|_| strangers.place(greedy).expect("a place")).collect();
        assert!(strangers.place(greedy).is_none() && strangers.place(neighbour).is_none());
        assert!(strangers.place(other).is_some(), "others have theirs");
        here.pop();
        assert_eq!(strangers.from(neighbour), FROM_ONE_ADDRESS - 1);
        assert!(strangers.place(neighbour).is_some());
        drop(here);
        assert_eq!(strangers.from(greedy), 0);
        assert!(lock(&strangers.addresses).is_empty(), "of nobody who is gone anything is kept");
        let itself = address("127.0.0.1");
        let all: Vec<_> = (0..STRANGERS).map_while(|_| strangers.place(itself)).collect();
        assert_eq!(all.len(), STRANGERS);
        assert!(strangers.place(itself).is_none() && strangers.place(other).is_none());
    }

    #[test]
    fn whoever_has_many_addresses_leaves_room_for_devices_that_are_known() {
        let strangers = Strangers::new(1000);
        let known = address("::ffff:192.0.2.7");
        strangers.remember(address("192.0.2.7"));
        let mute = (0..STRANGERS as u8).filter_map(|n| strangers.place([10, 0, 0, n].into()));
        let mute: Vec<_> = mute.collect();
        assert_eq!(mute.len(), STRANGERS / 2);
        assert!(strangers.are_many(known), "whoever comes shows that its address is its own");
        let devices: Vec<_> = (0..FROM_ONE_ADDRESS).map_while(|_| strangers.place(known)).collect();
        assert_eq!(devices.len(), FROM_ONE_ADDRESS);
        // There are many that say nothing: they have to go, and devices that are known have their time.
        assert!(!mute[0].is_over(HURRY / 2) && mute[0].is_over(HURRY));
        assert!(!devices[0].is_over(HURRY) && devices[0].is_over(GREETING));
        drop(mute);
        let alone = strangers.place([10, 0, 0, 1].into()).expect("there is room again");
        assert!(!alone.is_over(HURRY) && alone.is_over(GREETING));
    }

    #[test]
    fn so_many_addresses_are_remembered_those_of_late() {
        let mut familiar = Familiar::default();
        let of = |n: usize| IpAddr::from((n as u32).to_be_bytes());
        (0..FAMILIAR).for_each(|n| familiar.remember(of(n)));
        familiar.remember(of(0));
        familiar.remember(of(FAMILIAR));
        assert_eq!((familiar.networks.len(), familiar.in_order.len()), (FAMILIAR, FAMILIAR));
        assert!(familiar.networks.contains_key(&of(0)) && !familiar.networks.contains_key(&of(1)));
    }
}
