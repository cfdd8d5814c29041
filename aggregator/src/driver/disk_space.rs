//! Whether there is disk space for updates and durable steps.

use std::io::Error;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::coordinator::Event;
use crate::run::Run;
use crate::storage::FileLayer;
use crate::storage::outage::Outage;
use crate::storage::retry_full::{free_bytes, is_full};

/// How long after a failure to look for space again.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Watches the spool and the files of durable steps.
pub(super) struct DiskSpace {
    files: Arc<dyn FileLayer>,
    spool: PathBuf,
    /// Bytes of the largest update.
    payload: u64,
    /// Whether updates can be written, as the operator knows it.
    outage: Outage,
    /// Since when there is no space for one, as far as is known.
    full: Option<Instant>,
    /// Whether the coordinator was told to pause.
    paused: bool,
}

impl DiskSpace {
    pub(super) fn of(run: &Run) -> Self {
        let (files, spool, payload) = (run.files(), run.directory().spool(), run.max_payload());
        Self { files, spool, payload, outage: Outage::default(), full: None, paused: false }
    }

    /// An update was written.
    pub(super) fn received(&mut self) {
        self.full = None;
        self.outage.succeeds();
    }

    /// Whether the operator is to be told now that a full disk has space again.
    pub(super) fn recovered(&mut self, now: Instant) -> bool {
        let over = self.outage.over(now);
        over.is_some_and(|kinds| kinds.iter().any(|kind| is_full(&(*kind).into())))
    }

    /// An update could not be written at `now`, for a reason that may pass. Gives whether the operator knows already: clients
    /// come back with it again and again.
    pub(super) fn failed(&mut self, error: &Error, now: Instant) -> bool {
        if is_full(error) {
            self.full = Some(now);
        }
        !self.outage.fails(error.kind(), now)
    }

    /// Looks for space. Gives what has changed for the coordinator.
    pub(super) fn change(&mut self) -> Option<Event> {
        // A user's quota may be used up while the disk has space. So clients may try again now and then, and a round that goes on
        // waits for those that lost their connections by it.
        let enough = || free_bytes(&self.spool).is_none_or(|free| free >= self.payload);
        if self.full.is_some_and(|since| since.elapsed() >= RETRY_INTERVAL && enough()) {
            self.full = None;
        }
        let paused = self.full.is_some() || self.files.lacks_space();
        if paused == self.paused {
            return None;
        }
        self.paused = paused;
        Some(if paused { Event::Paused } else { Event::Resumed })
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;
    use crate::events::{Level, Notice};
    use crate::storage::Disk;
    use crate::storage::outage::QUIET_PERIOD;

    #[test]
    fn a_spool_with_space_for_small_updates_alone_is_not_told_of_each_time() {
        let (files, spool) = (Arc::new(Disk), PathBuf::from("spool"));
        let outage = Outage::default();
        let mut space = DiskSpace { files, spool, payload: 1, outage, full: None, paused: false };
        let (mut told, begin) = (Vec::new(), Instant::now());
        let mut now = begin;
        for minute in 0..50 {
            now = begin + minute * (QUIET_PERIOD / 2);
            let full: Error = ErrorKind::StorageFull.into();
            let known = space.failed(&full, now);
            let notice = Notice::SpoolFailed { folder: "spool".as_ref(), error: &full, free: None };
            assert_eq!(notice.level(), Level::Alarm);
            told.extend((!known).then_some("full"));
            assert_eq!(known, minute > 1);
            assert!(matches!(space.change(), Some(Event::Paused)), "the run stands still each time");
            space.received();
            assert!(matches!(space.change(), Some(Event::Resumed)), "and goes on each time");
            told.extend(space.recovered(now).then_some("space"));
        }
        assert_eq!(told, ["full", "space", "full"], "it is told when it comes back, and then no more");
        assert!(space.recovered(now + QUIET_PERIOD));
        assert!(!space.recovered(now + 2 * QUIET_PERIOD));
    }
}
