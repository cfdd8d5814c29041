//! The watchdog of the disk thread.

use shared::watchdog::Watchdog;

use super::ledger::Done;

/// Counts the steps that the disk thread was asked for and those that it reported.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LedgerWatchdog {
    /// Durable steps requested.
    pub(super) asked: u64,
    /// Durable steps done.
    made: u64,
    /// Reports of any kind.
    reports: u64,
    watchdog: Watchdog<(u64, u64)>,
}

impl LedgerWatchdog {
    /// Counts a report of the disk thread.
    pub(super) fn hear(&mut self, done: &Done) {
        self.reports += 1;
        // Settling a closed round is a part of the next step.
        if !matches!(done, Done::Settled(_)) {
            self.made += 1;
        }
    }

    /// Whether nothing is requested, or the requested work has advanced since the last call. Closing a round may wait for the
    /// server's `own` training: steps done, and steps to do.
    pub(super) fn advanced(&mut self, own: Option<(u64, u64)>) -> bool {
        let (steps, _) = own.unwrap_or_default();
        self.watchdog.advanced((self.asked > self.made).then_some((self.reports, steps)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_is_never_made_is_no_progress_and_the_servers_own_training_is() {
        let mut ledger = LedgerWatchdog::default();
        assert!(ledger.advanced(None) && ledger.advanced(None), "nothing was asked for");
        ledger.asked = 2;
        assert!(ledger.advanced(None), "it has just been asked");
        assert!(!ledger.advanced(None) && !ledger.advanced(None));
        assert!(ledger.advanced(Some((1, 9))) && !ledger.advanced(Some((1, 9))));
        let closed = Done::Closed { round: 1, enough: false };
        ledger.hear(&closed);
        assert!(ledger.advanced(None) && !ledger.advanced(None), "one step was made, the other was not");
        ledger.hear(&closed);
        assert!(ledger.advanced(None) && ledger.advanced(None), "all were made");
    }
}
