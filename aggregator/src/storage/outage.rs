//! Debounced outages: alerts for trouble that comes and goes.
//!
//! On a disk that is nearly full, one write finds room and the next one does not, and an alert for every change would hide all
//! others. So there is one alert for each kind of error, and the all-clear comes at once the first time. If the error returns
//! soon, the all-clear waits for a quiet period, which doubles each time that it was too short.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

/// The quiet period before a second outage is over: twice as long as a device waits at most before it comes
/// again with what could not be written down. It doubles with each further outage.
pub const QUIET_PERIOD: Duration = Duration::from_mins(1);
/// The longest quiet period. An error that comes later than this after the last one begins a new outage.
pub const MAX_QUIET_PERIOD: Duration = Duration::from_hours(1);

/// An outage, or none.
#[derive(Debug, Default)]
pub struct Outage {
    /// Kinds of errors that were reported; none between two outages.
    told: Vec<ErrorKind>,
    /// When the last error occurred.
    failed: Option<Instant>,
    /// Whether the operation has succeeded since.
    mended: bool,
    /// The quiet period of this outage.
    calm: Duration,
}

impl Outage {
    /// Records an error; returns whether to report it.
    pub fn fails(&mut self, kind: ErrorKind, now: Instant) -> bool {
        if self.told.is_empty() {
            let again = self.failed.is_some_and(|failed| now < failed + MAX_QUIET_PERIOD);
            self.calm =
                if again { (2 * self.calm).clamp(QUIET_PERIOD, MAX_QUIET_PERIOD) } else { Duration::ZERO };
        }
        self.failed = Some(now);
        self.mended = false;
        let news = !self.told.contains(&kind);
        if news {
            self.told.push(kind);
        }
        news
    }

    /// Records a success.
    pub fn succeeds(&mut self) {
        self.mended = true;
    }

    /// The kinds of errors that are over, once the quiet period has passed.
    pub fn over(&mut self, now: Instant) -> Option<Vec<ErrorKind>> {
        let calm = self.mended && self.failed.is_some_and(|failed| now >= failed + self.calm);
        (calm && !self.told.is_empty()).then(|| std::mem::take(&mut self.told))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: ErrorKind = ErrorKind::StorageFull;

    #[test]
    fn trouble_is_told_once_for_each_kind_of_it_and_its_end_at_once() {
        let (mut outage, now) = (Outage::default(), Instant::now());
        assert_eq!(outage.over(now), None, "there was none");
        assert!(outage.fails(FULL, now) && !outage.fails(FULL, now));
        assert!(outage.fails(ErrorKind::QuotaExceeded, now), "another kind");
        assert_eq!(outage.over(now + MAX_QUIET_PERIOD), None, "no write was tried since");
        outage.succeeds();
        assert_eq!(outage.over(now), Some(vec![FULL, ErrorKind::QuotaExceeded]));
        assert_eq!(outage.over(now + MAX_QUIET_PERIOD), None, "once");
    }

    #[test]
    fn trouble_that_comes_back_has_to_be_gone_for_a_while_and_for_longer_each_time() {
        let (mut outage, mut now) = (Outage::default(), Instant::now());
        for calm in [0, 60, 120, 240, 480, 960, 1920, 3600, 3600] {
            let calm = Duration::from_secs(calm);
            assert!(outage.fails(FULL, now));
            for _ in 0..100 {
                now += Duration::from_secs(1);
                assert!(!outage.fails(FULL, now), "it is known");
                outage.succeeds();
                assert!(calm.is_zero() || outage.over(now).is_none(), "it may come back");
            }
            let almost = calm.saturating_sub(Duration::from_secs(1));
            assert!(calm.is_zero() || outage.over(now + almost).is_none());
            assert_eq!(outage.over(now + calm), Some(vec![FULL]));
            // A moment later, and it would be something else in the end.
            now += almost;
        }
        now += MAX_QUIET_PERIOD;
        assert!(outage.fails(FULL, now));
        outage.succeeds();
        assert!(outage.over(now).is_some(), "so long after that it is something else");
    }
}
