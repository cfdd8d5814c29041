//! Whether updates and durable steps find room on the disk.

use std::io::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Notice;
use crate::coordinator::Event;
use crate::run::Run;
use crate::storage::FileLayer;
use crate::storage::patient::{free_bytes, is_full, no_room};
use crate::storage::spell::Spell;

/// After so long without a failure it is looked whether there is room again.
const AGAIN: Duration = Duration::from_secs(5);

/// What is known of it.
pub(super) struct Room {
    files: Arc<dyn FileLayer>,
    spool: PathBuf,
    /// What the largest update may take.
    payload: u64,
    /// Whether updates can be written down, as far as the operator is told of it.
    spell: Spell,
    /// Since when there is no room for one, as far as is known.
    full: Option<Instant>,
    /// Whether the coordinator was told that there is no room.
    paused: bool,
}

impl Room {
    pub(super) fn of(run: &Run) -> Self {
        let (files, spool, payload) = (run.files(), run.directory().spool(), run.max_payload());
        Self { files, spool, payload, spell: Spell::default(), full: None, paused: false }
    }

    /// Whether the run waits for room.
    pub(super) fn is_paused(&self) -> bool {
        self.paused
    }

    /// An update was written down.
    pub(super) fn received(&mut self) {
        self.full = None;
        self.spell.succeeds();
    }

    /// What the operator is told once it is clear that there is room again.
    pub(super) fn recovered(&mut self, now: Instant) -> Option<String> {
        let over = self.spell.over(now)?;
        let full = over.iter().any(|kind| is_full(&(*kind).into()));
        full.then(|| "there is room for updates again: the run goes on".to_owned())
    }

    /// An update could not be written down at `now`, for a reason that may pass. Said once, until it has clearly passed: clients
    /// come back with it again and again. Gives whether it was said before.
    pub(super) fn failed(
        &mut self,
        path: &Path,
        error: &Error,
        now: Instant,
        notice: &mut (dyn FnMut(Notice<'_>) + Send),
    ) -> bool {
        if is_full(error) {
            self.full = Some(now);
        }
        let said = !self.spell.fails(error.kind(), now);
        let folder = path.parent().unwrap_or(path);
        if !said && is_full(error) {
            notice(Notice::Alarm(no_room(folder, error)));
        } else if !said {
            notice(Notice::Remark(format!(
                "cannot write updates to {}: {error}; clients offer theirs again, and again, until this is mended",
                folder.display()
            )));
        }
        said
    }

    /// Looks whether there is room: what the coordinator has to know of it and does not.
    pub(super) fn change(&mut self) -> Option<Event> {
        // Whoever has only a share of the disk may have used that up while there is room on it. So clients are let try now and
        // then, and a round that goes on waits for those that have lost their connections by it.
        let enough = || free_bytes(&self.spool).is_none_or(|free| free >= self.payload);
        if self.full.is_some_and(|since| since.elapsed() >= AGAIN && enough()) {
            self.full = None;
        }
        let paused = self.full.is_some() || self.files.lacks_room();
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
    use crate::storage::Disk;
    use crate::storage::spell::CALM;

    #[test]
    fn a_spool_with_room_for_small_updates_alone_is_not_told_of_each_time() {
        let (files, spool) = (Arc::new(Disk), PathBuf::from("spool"));
        let mut room = Room { files, spool, payload: 1, spell: Spell::default(), full: None, paused: false };
        let (mut told, begin) = (Vec::new(), Instant::now());
        let mut now = begin;
        for minute in 0..50 {
            now = begin + minute * (CALM / 2);
            let full: Error = ErrorKind::StorageFull.into();
            let said = room.failed(Path::new("spool/large.upload"), &full, now, &mut |notice| {
                assert!(matches!(notice, Notice::Alarm(_)));
                told.push("full");
            });
            assert_eq!(said, minute > 1);
            assert!(matches!(room.change(), Some(Event::Paused)), "the run stands still each time");
            room.received();
            assert!(matches!(room.change(), Some(Event::Resumed)), "and goes on each time");
            told.extend(room.recovered(now).map(|_| "room"));
        }
        assert_eq!(told, ["full", "room", "full"], "it is told when it comes back, and then no more");
        assert!(room.recovered(now + CALM).is_some_and(|text| text.contains("room for updates again")));
        assert_eq!(room.recovered(now + 2 * CALM), None);
    }
}
