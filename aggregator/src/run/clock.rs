//! What the time of a run goes to, round by round, so that the parts of all rounds add up to the time that it took.
//!
//! A round's record says how long the round was open (`seconds`: clients train), how long no round was open before it
//! (`waited_seconds`), and how long its close took: the test of the model (`test_seconds`), and aggregation and the disk
//! (`disk_seconds`). What the disk does while a round is open is part of neither: nothing waits for it. The clock of a process
//! begins when it begins to work on the run, so that time in which no process runs counts nowhere.

use std::time::{Duration, Instant, SystemTime};

use shared::calendar::{moment, utc};

use crate::round::RoundRecord;

/// The clock of one process at a run.
#[derive(Debug)]
pub(super) struct RunClock {
    /// When the last round was closed, or the process began.
    since: Instant,
    /// What steps without an open round have taken since then.
    steps: Duration,
}

impl RunClock {
    pub(super) fn start() -> Self {
        Self { since: Instant::now(), steps: Duration::ZERO }
    }

    /// A step that began at `from` is done, while no round is open.
    pub(super) fn stepped(&mut self, from: Instant) {
        self.steps += from.elapsed();
    }

    /// A round is closed: the close began at `from`, and `test` of it went to the test.
    pub(super) fn closed(&mut self, record: &mut RoundRecord, from: Instant, test: Option<Duration>) {
        let now = Instant::now();
        let close = now.saturating_duration_since(from);
        let passed = now.saturating_duration_since(self.since);
        let steps = self.steps + close.saturating_sub(test.unwrap_or_default());
        fill(record, passed, steps, test);
        record.closed = Some(utc(moment(SystemTime::now())));
        (self.since, self.steps) = (now, Duration::ZERO);
    }
}

/// Divides the time that has `passed` since the round before.
fn fill(record: &mut RoundRecord, passed: Duration, steps: Duration, test: Option<Duration>) {
    let known = record.seconds.max(0.0) + steps.as_secs_f64() + test.unwrap_or_default().as_secs_f64();
    // A round that an earlier process opened was open for longer than this one runs.
    record.waited_seconds = Some((passed.as_secs_f64() - known).max(0.0));
    record.test_seconds = test.map(|test| test.as_secs_f64());
    record.disk_seconds = Some(steps.as_secs_f64());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_round_add_up_to_the_time_since_the_one_before() {
        let seconds = Duration::from_secs;
        let mut record = RoundRecord { seconds: 5.0, ..RoundRecord::default() };
        fill(&mut record, seconds(12), seconds(1), Some(seconds(2)));
        assert_eq!(
            (record.waited_seconds, record.test_seconds, record.disk_seconds),
            (Some(4.0), Some(2.0), Some(1.0))
        );
        assert!((record.wall_seconds() - 12.0).abs() < 1e-9);
        // Another process had opened the round 5 s before it closed, and this one has run for one.
        fill(&mut record, seconds(1), Duration::ZERO, None);
        assert_eq!((record.waited_seconds, record.test_seconds), (Some(0.0), None));
        assert!((record.wall_seconds() - 5.0).abs() < 1e-9);
    }

    #[test]
    fn a_closed_round_has_its_date_and_the_next_one_begins_there() {
        let mut clock = RunClock::start();
        clock.stepped(Instant::now());
        let mut record = RoundRecord::default();
        clock.closed(&mut record, Instant::now(), None);
        assert!(record.closed.as_deref().is_some_and(|closed| closed.ends_with('Z')), "{record:?}");
        assert_eq!(clock.steps, Duration::ZERO);
    }
}
