//! Whether updates and durable steps find room on the disk.

use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Notice;
use crate::coordinator::Event;
use crate::files::FileLayer;
use crate::files::patient::{free_bytes, is_full, no_room};
use crate::run::Run;

/// After so long without a failure it is looked whether there is room again.
const AGAIN: Duration = Duration::from_secs(5);

/// What is known of it.
pub(super) struct Room {
    files: Arc<dyn FileLayer>,
    spool: PathBuf,
    /// What the largest update may take.
    payload: u64,
    /// Why updates cannot be written down at the moment.
    trouble: Option<ErrorKind>,
    /// Since when there is no room for one, as far as is known.
    full: Option<Instant>,
    /// Whether the coordinator was told that there is no room.
    paused: bool,
}

impl Room {
    pub(super) fn of(run: &Run) -> Self {
        let (files, spool, payload) = (run.files(), run.directory().spool(), run.max_payload());
        Self { files, spool, payload, trouble: None, full: None, paused: false }
    }

    /// Whether the run waits for room.
    pub(super) fn is_paused(&self) -> bool {
        self.paused
    }

    /// An update was written down.
    pub(super) fn received(&mut self, notice: &mut (dyn FnMut(Notice<'_>) + Send)) {
        self.full = None;
        if self.trouble.take().is_some_and(|kind| is_full(&kind.into())) {
            notice(Notice::Remark("there is room for updates again: the run goes on".to_owned()));
        }
    }

    /// An update could not be written down, for a reason that may pass. Said once, until it has passed: clients come back
    /// with it again and again. Gives whether it was said before.
    pub(super) fn failed(
        &mut self,
        path: &Path,
        error: &Error,
        notice: &mut (dyn FnMut(Notice<'_>) + Send),
    ) -> bool {
        if is_full(error) {
            self.full = Some(Instant::now());
        }
        let said = self.trouble.replace(error.kind()) == Some(error.kind());
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
