//! How long a server that leads a run with others is sure to be the one that does.

use std::time::Instant;

use tokio::sync::watch;

/// The store has said that a process leads the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirmed {
    /// Under which epoch.
    pub epoch: i64,
    /// When it was asked.
    pub asked: Instant,
    /// No other process leads before this moment, by the clock of this machine.
    pub until: Instant,
}

/// What is known of the lease under one epoch.
#[derive(Clone, Debug)]
pub struct Lease {
    confirmed: watch::Receiver<Confirmed>,
    epoch: i64,
    known: Option<Confirmed>,
}

impl Lease {
    /// Under this epoch.
    #[must_use]
    pub fn new(confirmed: watch::Receiver<Confirmed>, epoch: i64) -> Self {
        Self { confirmed, epoch, known: None }
    }

    /// What the store has said, if it has said it anew since this was last called.
    pub fn renewed(&mut self) -> Option<Confirmed> {
        let confirmed = *self.confirmed.borrow();
        let renewed =
            Some(confirmed).filter(|_| confirmed.epoch == self.epoch && self.known != Some(confirmed));
        self.known = renewed.or(self.known);
        renewed
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_lease_is_of_one_epoch_and_is_told_once() {
        let now = Instant::now();
        let until = now + Duration::from_secs(5);
        let of = |epoch| Confirmed { epoch, asked: now, until };
        let (store, confirmed) = watch::channel(of(1));
        let mut lease = Lease::new(confirmed, 2);
        assert_eq!(lease.renewed(), None, "an earlier one");
        store.send_replace(of(2));
        assert_eq!([lease.renewed(), lease.renewed()], [Some(of(2)), None]);
        store.send_replace(of(3));
        assert_eq!(lease.renewed(), None, "a later one");
    }
}
