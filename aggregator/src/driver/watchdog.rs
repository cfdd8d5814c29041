//! Watchdogs: whether the disk worker makes progress, and whether the driver was stalled.

use std::time::Duration;

use shared::watchdog::Watchdog;

use super::STATUS_INTERVAL;
use super::disk_worker::Done;

/// The disk worker's progress.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DiskWatchdog {
    /// Durable steps that were asked for.
    pub(super) asked: u64,
    /// Those that were made.
    made: u64,
    /// All that was reported.
    reports: u64,
    watchdog: Watchdog<(u64, u64)>,
}

impl DiskWatchdog {
    /// The disk worker has reported something.
    pub(super) fn note(&mut self, done: &Done) {
        self.reports += 1;
        // A closed round is settled as a part of the next job.
        if !matches!(done, Done::Settled(_)) {
            self.made += 1;
        }
    }

    /// Whether no step is in progress, or it has advanced since the last call. Closing a round may wait for the server's `own`
    /// training: steps done, and to do.
    pub(super) fn advanced(&mut self, own: Option<(u64, u64)>) -> bool {
        let (steps, _) = own.unwrap_or_default();
        self.watchdog.advanced((self.asked > self.made).then_some((self.reports, steps)))
    }
}

/// The driver's loop turns every [`STATUS_INTERVAL`] at the latest. If it takes this much longer, something kept it: a terminal
/// that takes no more output (Ctrl-S), or a machine that was suspended or is overloaded.
const STALL: Duration = Duration::from_secs(2);

/// When the driver's loop turned last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StallDetector(Duration);

impl StallDetector {
    /// The loop turns at `now`. Gives for how long it did not, if it was kept from it.
    pub(super) fn check(&mut self, now: Duration) -> Option<Duration> {
        let by = now.saturating_sub(std::mem::replace(&mut self.0, now));
        (by >= STATUS_INTERVAL + STALL).then_some(by)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_is_never_made_is_no_progress_and_the_servers_own_training_is() {
        let mut watchdog = DiskWatchdog::default();
        assert!(watchdog.advanced(None) && watchdog.advanced(None), "nothing was asked for");
        watchdog.asked = 2;
        assert!(watchdog.advanced(None), "it has just been asked");
        assert!(!watchdog.advanced(None) && !watchdog.advanced(None));
        assert!(watchdog.advanced(Some((1, 9))) && !watchdog.advanced(Some((1, 9))));
        let closed = Done::Closed { round: 1, void: false, enough: false };
        watchdog.note(&closed);
        assert!(watchdog.advanced(None) && !watchdog.advanced(None), "one step was made, the other was not");
        watchdog.note(&closed);
        assert!(watchdog.advanced(None) && watchdog.advanced(None), "all were made");
    }

    #[test]
    fn a_driver_that_was_kept_from_its_work_learns_for_how_long() {
        let mut stalls = StallDetector::default();
        let at = |stalls: &mut StallDetector, seconds| stalls.check(Duration::from_secs_f64(seconds));
        assert_eq!(at(&mut stalls, 0.5), None);
        assert_eq!(at(&mut stalls, 2.5), None, "late, as any thread may be");
        assert_eq!(at(&mut stalls, 22.5), Some(Duration::from_secs(20)));
        assert_eq!(at(&mut stalls, 22.6), None, "once");
    }
}
