//! Whether the ledger gets on with what it was asked for.

use shared::vigil::Vigil;

use super::ledger::Done;

/// The ledger as the driver sees it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Watched {
    /// Durable steps that were asked for.
    pub(super) asked: u64,
    /// Those that were made.
    made: u64,
    /// All that was reported.
    reports: u64,
    vigil: Vigil,
}

impl Watched {
    /// The ledger has reported something.
    pub(super) fn hear(&mut self, done: &Done) {
        self.reports += 1;
        // What was closed is settled as a part of whatever is asked for next.
        if !matches!(done, Done::Settled(_)) {
            self.made += 1;
        }
    }

    /// Is nothing in hand, or has it come further since the last time? Closing a round may wait for the server's `own`
    /// training: steps done, and to do.
    pub(super) fn gets_on(&mut self, own: Option<(u64, u64)>) -> bool {
        let (steps, _) = own.unwrap_or_default();
        // Side by side: a sum would stay the same when one of them grows and the other ends.
        let both = (self.reports << 32) | (steps & u64::from(u32::MAX));
        self.vigil.progressed((self.asked > self.made).then_some(both))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_is_never_made_is_no_progress_and_the_servers_own_training_is() {
        let mut ledger = Watched::default();
        assert!(ledger.gets_on(None) && ledger.gets_on(None), "nothing was asked for");
        ledger.asked = 2;
        assert!(ledger.gets_on(None), "it has just been asked");
        assert!(!ledger.gets_on(None) && !ledger.gets_on(None));
        assert!(ledger.gets_on(Some((1, 9))) && !ledger.gets_on(Some((1, 9))));
        let closed = Done::Closed { round: 1, enough: false };
        ledger.hear(&closed);
        assert!(ledger.gets_on(None) && !ledger.gets_on(None), "one step was made, the other was not");
        ledger.hear(&closed);
        assert!(ledger.gets_on(None) && ledger.gets_on(None), "all were made");
    }
}
