//! Throttles: how often the same thing is let through.
//!
//! Any peer can cause the same event any number of times, under any number of invented names. A [`Throttle`] bounds
//! how often each key is let through, and how many keys are remembered; a [`RateLimit`] bounds how often per unit of time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Whether something is let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// It is.
    Passed,
    /// It is not, and it is the first key beyond the capacity: say once that further ones are not told apart.
    Overflow,
    /// It is not.
    Suppressed,
}

/// Lets each key through a limited number of times, and again when its value changes.
#[derive(Debug)]
pub(super) struct Throttle<K, V = ()> {
    seen: BTreeMap<K, (V, u32)>,
    per_key: u32,
    capacity: usize,
}

impl<K: Ord, V: PartialEq> Throttle<K, V> {
    /// Lets each of the first `capacity` keys through `per_key` times.
    pub(super) fn new(per_key: u32, capacity: usize) -> Self {
        Self { seen: BTreeMap::new(), per_key, capacity }
    }

    /// Lets each key through once, however many there are.
    pub(super) fn once() -> Self {
        Self::new(1, usize::MAX)
    }

    /// Whether this is let through.
    pub(super) fn admit(&mut self, key: K, value: V) -> Admission {
        let full = self.seen.len() > self.capacity;
        if let Some((seen, times)) = self.seen.get_mut(&key) {
            let budget = if *seen == value { *times } else { 0 };
            (*seen, *times) = (value, budget.saturating_add(1));
            return if budget < self.per_key { Admission::Passed } else { Admission::Suppressed };
        }
        if full {
            return Admission::Suppressed;
        }
        self.seen.insert(key, (value, 1));
        if self.seen.len() > self.capacity { Admission::Overflow } else { Admission::Passed }
    }

    /// Forgets the keys for which `keep` is false: they are let through anew.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&K) -> bool) {
        self.seen.retain(|key, _| keep(key));
    }

    /// Forgets all keys.
    pub(super) fn clear(&mut self) {
        self.seen.clear();
    }

    /// How many keys are remembered.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.seen.len()
    }
}

/// Lets one of many through per period, with the number of those since the last one.
#[derive(Debug)]
pub(super) struct RateLimit<T> {
    period: Duration,
    passed: Option<Instant>,
    /// How many wait, and the last of them.
    waiting: Option<(u64, T)>,
}

impl<T> RateLimit<T> {
    /// Nothing waits.
    pub(super) fn every(period: Duration) -> Self {
        Self { period, passed: None, waiting: None }
    }

    /// One more; the last one stands for all that wait.
    pub(super) fn add(&mut self, last: T) {
        let before = self.waiting.take().map_or(0, |(count, _)| count);
        self.waiting = Some((before + 1, last));
    }

    /// What has waited, if it is due at `now`.
    pub(super) fn due(&mut self, now: Instant) -> Option<(u64, T)> {
        if self.passed.is_some_and(|passed| now.saturating_duration_since(passed) < self.period) {
            return None;
        }
        let waiting = self.waiting.take()?;
        self.passed = Some(now);
        Some(waiting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_a_budget_and_a_new_value_renews_it() {
        let mut throttle = Throttle::new(2, usize::MAX);
        let passed = [7, 7, 7, 8, 8, 8, 7].map(|value| throttle.admit("key", value) == Admission::Passed);
        assert_eq!(passed, [true, true, false, true, true, false, true]);
        assert_eq!(throttle.admit("other", 7), Admission::Passed);
        throttle.retain(|key| *key != "key");
        assert_eq!(throttle.admit("key", 7), Admission::Passed);
    }

    #[test]
    fn keys_beyond_the_capacity_overflow_once_and_fill_no_memory() {
        let mut throttle = Throttle::new(1, 3);
        let admitted: Vec<_> = (0..1000).map(|key| throttle.admit(key, ())).collect();
        assert_eq!(admitted[..3], [Admission::Passed; 3]);
        assert_eq!(admitted[3], Admission::Overflow);
        assert!(admitted[4..].iter().all(|admission| *admission == Admission::Suppressed));
        assert_eq!(throttle.len(), 4);
    }
}
