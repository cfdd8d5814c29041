//! The runs that are left, handed out by the store.

use std::path::Path;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::{Workers, WorkersError, lock, wait};
use crate::cluster::error::StoreError;
use crate::cluster::experiments::{Claim, Stands, Then};
use crate::cluster::files::Kept;
use crate::compare::content;
use crate::compare::plan::{Plan, Planned, Standing};
use crate::compare::queue::{Ended, Queue, Told};
use crate::compare::step::Step;
use crate::storage::{Disk, FileLayer as _};

/// How often the store is asked for what others have ended.
const POLL: Duration = Duration::from_secs(1);
/// A run goes on for this many times the time that it took to bring what it has to the store.
const SHARE: u32 = 20;

/// What is said of a run that is not this worker's any more.
const LOST: &str =
    "was taken over by another worker, which had not heard of this one, or removed from the store";

/// The runs `left` of a plan, which are those of all workers.
pub(super) struct Shared<'a> {
    workers: &'a Workers,
    plan: &'a Plan,
    left: &'a [usize],
    runs: &'a Path,
    /// Those of which nothing is left to hear.
    over: std::sync::Mutex<std::collections::BTreeSet<usize>>,
}

impl Workers {
    /// Hands out the runs `left` of `plan`.
    #[must_use]
    pub fn queue<'a>(&'a self, plan: &'a Plan, left: &'a [usize], runs: &'a Path) -> Box<dyn Queue + 'a> {
        Box::new(Shared { workers: self, plan, left, runs, over: std::sync::Mutex::default() })
    }
}

impl Shared<'_> {
    fn name(&self, position: usize) -> &str {
        &self.plan.runs[position].config.spec.name
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.left.iter().copied().find(|&position| self.name(position) == name)
    }

    /// Those that have not ended yet, and that can be worked on here.
    fn open(&self) -> Vec<&str> {
        let over = lock(&self.over);
        let failed = lock(&self.workers.failed);
        let names =
            self.left.iter().filter(|position| !over.contains(position)).map(|&position| self.name(position));
        names.filter(|name| !failed.contains(*name)).collect()
    }

    fn next(&self, stop: &watch::Receiver<bool>, tell: &Told<'_>) -> Result<Option<usize>, WorkersError> {
        // One thread asks and waits for all.
        let mut waiting = lock(&self.workers.asking);
        loop {
            let open = self.open();
            let free: Vec<&str> = open.iter().copied().filter(|name| !self.workers.held.has(name)).collect();
            if free.is_empty() || *stop.borrow() || lock(&self.workers.trouble).is_some() {
                return Ok(None);
            }
            if let Some(claim) = self.workers.claim(&free)? {
                let Some(position) = self.position(&claim.name) else { continue };
                self.workers.held.add(claim.clone(), Instant::now() + self.workers.due());
                drop(waiting);
                self.begin(position, &claim, tell).inspect_err(|_| self.leave(&claim))?;
                return Ok(Some(position));
            }
            let standing = self.workers.standing()?;
            let is_there = |name: &&str| standing.iter().any(|stands| stands.name == **name);
            if let Some(name) = free.iter().find(|name| !is_there(name)) {
                return Err(WorkersError::Forgotten((*name).to_owned()));
            }
            self.ended_elsewhere(&standing, tell);
            let others: Vec<&Stands> = standing
                .iter()
                .filter(|stands| !stands.ended && free.contains(&&*stands.name) && stands.worker.is_some())
                .collect();
            if let [first, more @ ..] = &others[..]
                && *waiting != Some(others.len())
                && let Some(position) = self.position(&first.name)
            {
                let by = first.worker.as_deref().unwrap_or_default();
                let more =
                    if more.is_empty() { String::new() } else { format!(", {} more elsewhere", more.len()) };
                tell(position, &Step::Shared(&format!("still runs on {by}{more}; waiting")));
                *waiting = Some(others.len());
            }
            if !wait(POLL, stop) {
                return Ok(None);
            }
        }
    }

    /// Brings a run that was taken to where the store has it, if that is further than here.
    fn begin(&self, position: usize, claim: &Claim, tell: &Told<'_>) -> Result<(), WorkersError> {
        if let Some(worker) = &claim.deserted {
            let text = format!(
                "{worker} has not been heard of for too long, and had got to round {} when it was",
                claim.rounds
            );
            tell(position, &Step::Shared(&text));
        }
        let run = &self.plan.runs[position];
        let here = match run.standing(&Disk, self.runs) {
            Standing::Unfinished(rounds) => rounds,
            Standing::Absent => 0,
            _ => u32::MAX,
        };
        if claim.rounds <= here {
            return Ok(());
        }
        self.workers.fetch(run, self.runs)?;
        match other_data(run, self.runs) {
            Some(why) => Err(StoreError::OtherData { run: claim.name.clone(), why }.into()),
            None => Ok(()),
        }
    }

    /// Leaves a run that cannot be worked on here to the others.
    fn leave(&self, claim: &Claim) {
        self.workers.held.remove(&claim.name);
        // Without an answer its lease runs out.
        let _ = self.workers.give_back(claim);
    }

    fn ended_elsewhere(&self, standing: &[Stands], tell: &Told<'_>) {
        for stands in standing.iter().filter(|stands| stands.ended) {
            let Some(position) = self.position(&stands.name) else { continue };
            if !self.workers.held.has(&stands.name) && lock(&self.over).insert(position) {
                tell(position, &Step::Elsewhere);
            }
        }
    }

    fn finish(
        &self,
        position: usize,
        ended: Ended,
        stop: &watch::Receiver<bool>,
        tell: &Told<'_>,
    ) -> Result<bool, WorkersError> {
        let name = self.name(position);
        let run = &self.plan.runs[position];
        let leaves = |why: &str| {
            self.workers.held.remove(name);
            tell(position, &Step::Shared(why));
            Ok(false)
        };
        let Some(claim) = self.workers.held.claim(name) else { return leaves(LOST) };
        let stays = self.stays(run);
        let stopped = *stop.borrow();
        let then = match ended {
            Ended::Over => Then::HasEnded,
            Ended::Stopped if stopped => Then::IsFree,
            Ended::Stopped => Then::GoesOn,
            Ended::Failed => {
                lock(&self.workers.failed).insert(name.to_owned());
                Then::IsFree
            }
        };
        let goes_on = then == Then::GoesOn;
        let begun = Instant::now();
        if ended == Ended::Failed || (stays && !goes_on && ended != Ended::Over) {
            self.workers.give_back(&claim)?;
        } else if !(stays && goes_on) {
            match self.workers.keep(run, &claim, self.runs, then)? {
                Kept::There => {}
                Kept::Lost => return leaves(LOST),
                Kept::GivenUp => {
                    return leaves("could not be put into the store before the end; the same command does");
                }
            }
        }
        if goes_on {
            self.workers
                .held
                .postpone(name, Instant::now() + self.workers.due().max(begun.elapsed() * SHARE));
        } else {
            if ended == Ended::Over {
                lock(&self.over).insert(position);
            }
            self.workers.held.remove(name);
        }
        Ok(goes_on)
    }

    /// Whether a run that has not ended stays on its machine, and begins anew elsewhere: the secret of a private run is nowhere else, and a
    /// process alone knows what its clients were sent before, where that decides how many bytes they are sent next.
    fn stays(&self, run: &Planned) -> bool {
        let spec = &run.config.spec;
        Disk.length(&run.directory(self.runs).secret()).is_ok_and(|length| length.is_some())
            || spec.update.broadcast().is_difference()
            || spec.architecture.frozen.is_some()
    }

    /// Keeps what ended the work on all runs, for [`Workers::trouble`].
    fn note(&self, error: WorkersError) {
        if !matches!(error, WorkersError::Stopped) {
            lock(&self.workers.trouble).get_or_insert(error);
        }
    }
}

/// In what the data that the run here has learned from so far differ from those of this worker.
fn other_data(run: &Planned, runs: &Path) -> Option<String> {
    let mut standing = run.standing(&Disk, runs);
    content::compare([(run, runs)], &Disk, [&mut standing]);
    let Standing::Changed(differences) = standing else { return None };
    let said =
        differences.iter().map(|(what, there, here)| format!("{what} is {there} there and {here} here"));
    Some(said.collect::<Vec<_>>().join(", "))
}

impl Queue for Shared<'_> {
    fn take(&self, stop: &watch::Receiver<bool>, tell: &Told<'_>) -> Option<usize> {
        if lock(&self.workers.trouble).is_some() {
            return None;
        }
        self.next(stop, tell).unwrap_or_else(|error| {
            self.note(error);
            None
        })
    }

    fn interrupts(&self, position: usize) -> bool {
        let (held, run) = (&self.workers.held, self.name(position));
        // The disk is looked at last: this is asked after every round.
        held.is_lost(run) || (held.is_due(run) && !self.stays(&self.plan.runs[position]))
    }

    fn put(&self, position: usize, ended: Ended, stop: &watch::Receiver<bool>, tell: &Told<'_>) -> bool {
        self.finish(position, ended, stop, tell).unwrap_or_else(|error| {
            if let Some(claim) = self.workers.held.claim(self.name(position)) {
                self.leave(&claim);
            }
            self.note(error);
            false
        })
    }
}
