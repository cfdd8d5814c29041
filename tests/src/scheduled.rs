//! What happens in a simulation, by time.

use std::time::Duration;

/// A moment, a number that keeps what falls on one moment in order, and what happens.
pub(crate) struct Scheduled<H>(pub(crate) Duration, pub(crate) u64, pub(crate) H);

impl<H> PartialEq for Scheduled<H> {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl<H> Eq for Scheduled<H> {}
impl<H> PartialOrd for Scheduled<H> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<H> Ord for Scheduled<H> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}
