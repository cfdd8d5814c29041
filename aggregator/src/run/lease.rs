//! How long a server that leads a run with others is sure to be the one that does.

use std::time::Instant;

use tokio::sync::watch;

/// The store has said that a process leads the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirmed {
    /// Under which epoch.
    pub epoch: i64,
    /// No other process leads before this moment, by the clock of this machine.
    pub until: Instant,
}

/// What is known of the lease under one epoch.
#[derive(Clone, Debug)]
pub struct Lease {
    confirmed: watch::Receiver<Confirmed>,
    epoch: i64,
    known: Option<Instant>,
}

impl Lease {
    /// Under this epoch.
    #[must_use]
    pub fn new(confirmed: watch::Receiver<Confirmed>, epoch: i64) -> Self {
        Self { confirmed, epoch, known: None }
    }

    /// Until when no other process leads, if that is another moment than when it was last asked for.
    pub fn renewed(&mut self) -> Option<Instant> {
        let Confirmed { epoch, until } = *self.confirmed.borrow();
        let renewed = Some(until).filter(|_| epoch == self.epoch && self.known != Some(until));
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
        let (store, confirmed) = watch::channel(Confirmed { epoch: 1, until: now });
        let mut lease = Lease::new(confirmed, 2);
        assert_eq!(lease.renewed(), None, "an earlier one");
        let until = now + Duration::from_secs(5);
        store.send_replace(Confirmed { epoch: 2, until });
        assert_eq!([lease.renewed(), lease.renewed()], [Some(until), None]);
        store.send_replace(Confirmed { epoch: 3, until: until + Duration::from_secs(5) });
        assert_eq!(lease.renewed(), None, "a later one");
    }
}
