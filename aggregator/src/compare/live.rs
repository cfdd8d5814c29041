//! The page of an experiment while it runs: written from its first complete run on, at most every few seconds.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tracing::debug;

use super::page::{Found, page};
use super::plan::Plan;
use super::results::{Rounds, lines};
use super::runs::recorded;
use super::step::Step;
use crate::page::live::{INTERVAL, SHARE};
use crate::storage::unsynced::Unsynced;
use crate::storage::{Disk, write_durably};

/// Writes the page of an experiment that goes on. No failure of that ends a run: the last page is written with care.
#[derive(Debug)]
pub struct LivePage<'a> {
    plan: &'a Plan,
    runs: &'a Path,
    path: PathBuf,
    complete: AtomicUsize,
    due: Mutex<Instant>,
}

impl<'a> LivePage<'a> {
    /// The page at `path` of the experiment with these `runs`, `complete` of which are over.
    #[must_use]
    pub fn new(plan: &'a Plan, complete: usize, runs: &'a Path, path: PathBuf) -> Self {
        Self { plan, runs, path, complete: complete.into(), due: Instant::now().into() }
    }

    /// Writes it if a run has gone on and it is due. What happens while one thread writes is on the next page.
    pub fn note(&self, step: &Step<'_>) {
        let ended = matches!(step, Step::Done | Step::Dropped(_));
        let more = usize::from(ended);
        let complete = self.complete.fetch_add(more, Ordering::Relaxed) + more;
        if complete == 0 || !(ended || matches!(step, Step::Round(..))) {
            return;
        }
        let Ok(mut due) = self.due.try_lock() else { return };
        let begun = Instant::now();
        if begun < *due {
            return;
        }
        let text = self.page(complete);
        if let Err(error) = write_durably(&Unsynced, &self.path, |out| out.write_all(text.as_bytes())) {
            debug!("no page is written: {error}");
        }
        *due = Instant::now() + INTERVAL.max(begun.elapsed() * SHARE);
    }

    /// The page of what the runs have recorded. A run that cannot be read is left out, and is named at the end.
    fn page(&self, complete: usize) -> String {
        let read = |run| recorded(&Disk, run, self.runs).unwrap_or_default();
        let rounds: Rounds = self.plan.runs.iter().map(read).collect();
        let lines = lines(self.plan, &rounds);
        page(&Found {
            plan: self.plan,
            rounds: &rounds,
            lines: &lines,
            mixtures: &[],
            complete: Some(complete),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::plan::tests::plan;

    #[test]
    fn it_is_written_from_the_first_complete_run_on_and_not_all_the_time() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let plan = plan("seeds = 3\n[variants.x]\nmodel.name = 'linear'", "full").expect("a plan");
        let (runs, path) = (folder.path().join("runs"), folder.path().join("report.html"));
        let live = LivePage::new(&plan, 0, &runs, path.clone());
        live.note(&Step::Begun(0));
        live.note(&Step::Round(&crate::round::RoundRecord::default(), std::time::Duration::ZERO));
        assert!(!path.exists(), "no run is complete");
        live.note(&Step::Done);
        let text = std::fs::read_to_string(&path).expect("it was written");
        assert!(text.contains("<strong>Running</strong>, 1 of 3 runs complete."), "{text}");
        assert!(text.contains("http-equiv=\"refresh\""), "{text}");
        std::fs::remove_file(&path).expect("it was there");
        live.note(&Step::Done);
        assert!(!path.exists(), "the next one is due in a few seconds");
    }
}
