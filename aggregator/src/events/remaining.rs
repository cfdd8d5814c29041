//! How long the rest of a run takes, by the rounds that have closed since this process works on it.

use std::time::{Duration, Instant};

/// The rounds that have closed, and since when.
#[derive(Clone, Copy, Debug)]
pub struct Remaining {
    since: Instant,
    /// Rounds closed before.
    before: u32,
    planned: u32,
    closed: u32,
    last: Instant,
}

impl Remaining {
    /// A process begins at `now` to work on a run of `planned` rounds of which `before` are closed.
    #[must_use]
    pub fn new(planned: u32, before: u32, now: Instant) -> Self {
        Self { since: now, before, planned, closed: before, last: now }
    }

    /// This round is closed at `now`.
    pub fn closed(&mut self, round: u32, now: Instant) {
        (self.closed, self.last) = (round, now);
    }

    /// The time that the planned rounds take from `now` on, if they go on as those before; `None` while that is not known, or
    /// nothing is left. A run that is stopped early takes less.
    #[must_use]
    pub fn at(&self, now: Instant) -> Option<Duration> {
        let done = self.closed.checked_sub(self.before).filter(|done| *done > 0)?;
        let left = self.planned.checked_sub(self.closed).filter(|left| *left > 0)?;
        let each = self.last.saturating_duration_since(self.since).as_secs_f64() / f64::from(done);
        let begun = now.saturating_duration_since(self.last).as_secs_f64().min(each);
        Some(Duration::from_secs_f64((each * f64::from(left) - begun).max(0.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_goes_on_as_the_rounds_before() {
        let begin = Instant::now();
        let second = |count: u64| begin + Duration::from_secs(count);
        let mut remaining = Remaining::new(10, 4, begin);
        assert_eq!(remaining.at(second(5)), None, "no round has closed yet");
        remaining.closed(6, second(20));
        assert_eq!(remaining.at(second(20)), Some(Duration::from_secs(40)), "ten seconds each");
        assert_eq!(remaining.at(second(23)), Some(Duration::from_secs(37)));
        assert_eq!(
            remaining.at(second(90)),
            Some(Duration::from_secs(30)),
            "a slow round is over at any moment"
        );
        remaining.closed(10, second(60));
        assert_eq!(remaining.at(second(60)), None, "nothing is left");
    }
}
