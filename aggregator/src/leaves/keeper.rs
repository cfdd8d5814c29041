//! The root's hand on the store: it keeps the run there, as long as it leads.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tracing::warn;

use super::fetch::note_in_store;
use super::leadership::Led;
use super::standing::LEASE;
use super::store::RunStore;
use crate::cluster::connection::Patience;
use crate::cluster::error::StoreError;
use crate::cluster::experiments::Then;
use crate::cluster::files::{Chosen, Digests, Kept, keep};
use crate::run::LeavesError;
use crate::run::directory::RunDirectory;

/// Keeps a run in the store.
#[derive(Debug)]
pub struct Keeper {
    store: Box<dyn RunStore>,
    led: Led,
    /// What computes.
    arithmetic: &'static str,
    digests: Digests,
}

/// Waits through outages for as long as this process leads the run.
struct WhileLeading<'a> {
    led: &'a Led,
    /// Why the store cannot be used, and since when.
    outage: Option<(String, Instant)>,
    told: bool,
}

impl<'a> WhileLeading<'a> {
    fn new(led: &'a Led) -> Self {
        Self { led, outage: None, told: false }
    }
}

impl Patience for WhileLeading<'_> {
    fn outage(&mut self, why: &StoreError) {
        self.outage = Some((why.to_string(), Instant::now()));
    }

    fn over(&mut self) {
        if self.told {
            warn!("what the run goes on from is in the store again");
        }
    }

    /// The thread that renews the lease reports outages. This one has a connection of its own, and needs more room: it may be in trouble
    /// alone.
    fn wait(&mut self, time: Duration) -> bool {
        if let Some((why, since)) = &self.outage
            && !self.told
            && since.elapsed() > LEASE
            && self.led.is_confirmed()
        {
            warn!(
                "what the run goes on from cannot be put into the store: {why}; the round waits until it can"
            );
            self.told = true;
        }
        self.led.wait(time)
    }
}

impl Keeper {
    /// A hand on `store` under this lease, for what this `arithmetic` computes.
    #[must_use]
    pub fn new(store: Box<dyn RunStore>, led: Led, arithmetic: &'static str) -> Self {
        Self { store, led, arithmetic, digests: Digests::default() }
    }

    /// An error if the run is another process's, or this one is to stop.
    pub(super) fn still_leads(&self) -> Result<(), LeavesError> {
        self.led.check()
    }

    /// Puts what the run has in `directory`, after this many closed rounds, into the store.
    pub(super) fn keep(&mut self, directory: &RunDirectory, closed: u32) -> Result<(), LeavesError> {
        self.put(directory, (closed, Then::GoesOn), &is_state)
    }

    /// The same of all that a run has which is over, for all who look for its model and its report.
    ///
    /// # Errors
    /// Those of the store, and that this process does not lead the run any more.
    pub fn keep_whole(&mut self, directory: &RunDirectory, closed: u32) -> Result<(), LeavesError> {
        self.put(directory, (closed, Then::HasEnded), &|_| true)
    }

    fn put(
        &mut self,
        directory: &RunDirectory,
        stands: (u32, Then),
        which: &dyn Fn(&str) -> bool,
    ) -> Result<(), LeavesError> {
        self.led.check()?;
        let (run, claim) = (&self.led.run().id, self.led.claim());
        let mut patience = WhileLeading::new(&self.led);
        let of = Chosen { directory, which, digests: &mut self.digests };
        match keep(&mut *self.store, &mut patience, run, claim, of, stands, self.arithmetic) {
            Ok(Kept::There) => {
                note_in_store(directory, self.led.run()).map_err(|error| LeavesError::Store(error.into()))
            }
            Ok(Kept::Lost) => Err(LeavesError::Superseded),
            Ok(Kept::GivenUp) => self.led.check().and(Err(LeavesError::Stopped)),
            Err(error) => Err(LeavesError::Store(error.into())),
        }
    }

    /// The leaves that are alive by the store's clock.
    pub(super) fn living(&mut self) -> Result<BTreeSet<String>, LeavesError> {
        let run = &self.led.run().id;
        let mut patience = WhileLeading::new(&self.led);
        match self.store.living(&mut patience, run) {
            Ok(Some(leaves)) => Ok(leaves),
            Ok(None) => self.led.check().and(Err(LeavesError::Stopped)),
            Err(error) => Err(LeavesError::Store(error.into())),
        }
    }
}

/// Whether a part of a run is what it goes on from. The rest is written beside the rounds, for people, at any time.
fn is_state(name: &str) -> bool {
    const FOR_PEOPLE: [&str; 4] =
        ["state/about.json", "state/devices.json", "state/by-class.json", "state/ended.json"];
    let of_program = |folder: &str| name == folder || name.starts_with(&format!("{folder}/"));
    let is_goes_on = name == "config.toml" || name == "rounds.jsonl" || of_program("state");
    is_goes_on && !FOR_PEOPLE.contains(&name) && !of_program("state/tester")
}
