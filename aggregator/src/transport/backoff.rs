//! Backoff of networks whose connections were silent before they were admitted.
//!
//! A slot before admission costs a silent peer nothing, and it can ask for the next one at once. While slots are scarce, its network
//! therefore gets none for a time that doubles with every silent connection. Only validated addresses count, so that a
//! peer cannot have another one's address held back.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::limits::KNOWN_NETWORKS;

/// The backoff after the first silent connection.
const FIRST: Duration = Duration::from_secs(30);
/// The longest backoff.
const LONGEST: Duration = Duration::from_mins(5);

/// The networks that are held back, at most [`KNOWN_NETWORKS`].
#[derive(Debug, Default)]
pub(super) struct Backoffs(BTreeMap<IpAddr, Backoff>);

#[derive(Clone, Copy, Debug)]
struct Backoff {
    lasts: Duration,
    until: Instant,
}

impl Backoffs {
    /// A connection from `network` was silent.
    pub(super) fn note(&mut self, network: IpAddr, now: Instant) {
        // A network that has long been quiet begins anew.
        let earlier = self.0.get(&network).filter(|backoff| now < backoff.until + LONGEST);
        let lasts = earlier.map_or(FIRST, |backoff| (backoff.lasts * 2).min(LONGEST));
        self.0.insert(network, Backoff { lasts, until: now + lasts });
        if self.0.len() > KNOWN_NETWORKS
            && let Some(first) =
                self.0.iter().min_by_key(|(_, backoff)| backoff.until).map(|(network, _)| *network)
        {
            self.0.remove(&first);
        }
    }

    /// Whether `network` gets no slot now if slots are scarce.
    pub(super) fn holds_back(&self, network: IpAddr, now: Instant) -> bool {
        self.0.get(&network).is_some_and(|backoff| now < backoff.until)
    }

    /// A device was admitted from `network`.
    pub(super) fn forget(&mut self, network: IpAddr) {
        self.0.remove(&network);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(n: usize) -> IpAddr {
        IpAddr::from((n as u32).to_be_bytes())
    }

    #[test]
    fn the_backoff_doubles_and_ends() {
        let (mut backoffs, start) = (Backoffs::default(), Instant::now());
        let mut now = start;
        for seconds in [30, 60, 120, 240, 300, 300] {
            backoffs.note(network(1), now);
            let lasts = Duration::from_secs(seconds);
            assert!(backoffs.holds_back(network(1), now + lasts.mul_f64(0.99)), "{seconds}");
            assert!(!backoffs.holds_back(network(1), now + lasts) && !backoffs.holds_back(network(2), now));
            now += lasts;
        }
        backoffs.note(network(1), now + 2 * LONGEST);
        assert!(!backoffs.holds_back(network(1), now + 2 * LONGEST + FIRST), "it was quiet for long");
        backoffs.note(network(2), now);
        backoffs.forget(network(2));
        assert!(!backoffs.holds_back(network(2), now));
    }

    #[test]
    fn memory_is_bounded() {
        let (mut backoffs, now) = (Backoffs::default(), Instant::now());
        for n in 0..=KNOWN_NETWORKS {
            backoffs.note(network(n), now + Duration::from_millis(n as u64));
        }
        assert_eq!(backoffs.0.len(), KNOWN_NETWORKS);
        assert!(!backoffs.0.contains_key(&network(0)) && backoffs.0.contains_key(&network(KNOWN_NETWORKS)));
    }
}
