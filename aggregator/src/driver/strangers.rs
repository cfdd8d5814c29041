//! What the operator is told of connections that no device was let in on. Anybody on the network can make them.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use shared::protocol::Protocol;

/// Connections that end before a device says hello are told of so often, together.
const PACE: Duration = Duration::from_secs(60);

/// So many addresses are named at which something speaks another version.
const ADDRESSES: usize = 32;

/// What came and is not known.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    /// When connections that ended were told of last.
    told: Option<Instant>,
    /// Those since then, and why the last of them ended.
    untold: Option<(u64, String)>,
    foreign: BTreeSet<IpAddr>,
    /// It was told that nobody can be looked up, and nobody has been let in since.
    unknowable: bool,
}

impl Strangers {
    /// A connection has ended on which nobody was let in.
    pub(super) fn ended(&mut self, reason: String) {
        let before = self.untold.take().map_or(0, |(count, _)| count);
        self.untold = Some((before + 1, reason));
    }

    /// What there is to say of them at `now`.
    pub(super) fn due(&mut self, now: Instant) -> Option<String> {
        if self.told.is_some_and(|told| now.saturating_duration_since(told) < PACE) {
            return None;
        }
        let (count, reason) = self.untold.take()?;
        self.told = Some(now);
        Some(match count {
            1 => format!("a connection ended before any device was let in on it: {reason}"),
            _ => format!(
                "{count} connections ended before any device was let in on them, the last one: {reason}"
            ),
        })
    }

    /// A device could not be looked up: what is to be said of it, if anything.
    pub(super) fn unknowable(&mut self, error: &str) -> Option<String> {
        let told = std::mem::replace(&mut self.unknowable, true);
        (!told).then(|| {
            format!(
                "a device that came cannot be looked up, and is sent away: {error}; it tries again by itself (this is said once, \
                 until a device is let in again)"
            )
        })
    }

    /// A device was looked up and let in.
    pub(super) fn let_in(&mut self) {
        self.unknowable = false;
    }

    /// Something that speaks another version of the protocol is at this address: what is to be said of it, if anything.
    pub(super) fn foreign(&mut self, address: IpAddr) -> Option<String> {
        if self.foreign.len() > ADDRESSES || !self.foreign.insert(address) {
            return None;
        }
        if self.foreign.len() > ADDRESSES {
            let more = "more addresses than can be listed speak no version of the protocol that this server does; of further \
                        ones nothing is said";
            return Some(more.to_owned());
        }
        let spoken: Vec<_> =
            Protocol::SPOKEN.iter().map(|version| String::from_utf8_lossy(version.name())).collect();
        Some(format!(
            "whatever is at {address} speaks no version of the protocol that this server does ({}): if it is a device, update \
             its edge-client, or this aggregator if that is the older one (this is said once of an address)",
            spoken.join(", ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_nobody_are_told_of_together_and_now_and_then() {
        let (mut strangers, start) = (Strangers::default(), Instant::now());
        assert_eq!(strangers.due(start), None);
        strangers.ended("mute".to_owned());
        assert!(
            strangers
                .due(start)
                .is_some_and(|told| told.starts_with("a connection") && told.ends_with("mute"))
        );
        for n in 0..1000 {
            strangers.ended(format!("reason {n}"));
            assert_eq!(strangers.due(start + PACE / 2), None);
        }
        let told = strangers.due(start + PACE).expect("a minute is over");
        assert!(told.starts_with("1000 connections") && told.ends_with("reason 999"), "{told}");
        assert_eq!(strangers.due(start + 9 * PACE), None, "nothing is told twice");
    }

    #[test]
    fn why_nobody_can_be_looked_up_is_told_until_it_has_passed() {
        let mut strangers = Strangers::default();
        let told = strangers.unknowable("the disk is broken").expect("told");
        assert!(told.contains("cannot be looked up") && told.contains("the disk is broken"), "{told}");
        assert_eq!(strangers.unknowable("the disk is broken"), None, "once");
        strangers.let_in();
        assert!(strangers.unknowable("the disk is broken").is_some(), "again");
    }

    #[test]
    fn an_address_that_speaks_something_else_is_told_of_once_and_not_of_any_number() {
        let mut strangers = Strangers::default();
        let address = |n: u32| IpAddr::from(n.to_be_bytes());
        let told = strangers.foreign(address(0x0102_0304)).expect("told");
        assert!(
            told.contains("1.2.3.4") && told.contains("federation/5") && told.contains("update"),
            "{told}"
        );
        assert_eq!(strangers.foreign(address(0x0102_0304)), None);
        let said = (0..5000).filter_map(|n| strangers.foreign(address(n))).count();
        assert_eq!(said, ADDRESSES, "and once that there are more");
    }
}
