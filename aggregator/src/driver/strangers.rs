//! What the operator is told of connections that no device was let in on. Anybody on the network can make them.

use std::time::{Duration, Instant};

/// Connections that end before a device says hello are told of so often, together.
const PACE: Duration = Duration::from_secs(60);

/// What came and is not known.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    /// When connections that ended were told of last.
    told: Option<Instant>,
    /// Those since then, and why the last of them ended.
    untold: Option<(u64, String)>,
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
}
