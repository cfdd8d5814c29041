//! The runs that a worker has taken, and their leases: renewed by a thread of their own.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak, mpsc};
use std::time::{Duration, Instant};

use tracing::warn;

use super::lock;
use crate::cluster::connection::{Connection, Patience};
use crate::cluster::error::StoreError;
use crate::cluster::experiments::{Claim, ExperimentId, LEASE, renew};

/// What this worker has taken.
#[derive(Debug)]
pub(super) struct Held {
    runs: Mutex<BTreeMap<String, Holding>>,
    /// Ends the thread when it is dropped.
    _working: Mutex<mpsc::Sender<()>>,
}

#[derive(Debug)]
struct Holding {
    claim: Claim,
    /// When what it has is to go to the store.
    due: Instant,
    /// Whether another worker has taken it meanwhile.
    lost: bool,
}

/// Waits through outages until the worker ends.
struct UntilEnded<'a>(&'a mpsc::Receiver<()>);

impl Patience for UntilEnded<'_> {
    /// The threads that work with the store say so.
    fn outage(&mut self, _: &StoreError) {}

    fn over(&mut self) {}

    fn wait(&mut self, time: Duration) -> bool {
        self.0.recv_timeout(time) == Err(mpsc::RecvTimeoutError::Timeout)
    }
}

impl Held {
    /// None yet. Leases of the worker of this name are renewed over `connection` for as long as this is kept.
    pub(super) fn start(connection: Connection, experiment: ExperimentId, worker: String) -> Arc<Self> {
        let (working, ended) = mpsc::channel();
        let held = Arc::new(Self { runs: Mutex::default(), _working: Mutex::new(working) });
        let weak = Arc::downgrade(&held);
        std::thread::spawn(move || renewing(connection, (&experiment, &worker), &weak, &ended));
        held
    }

    pub(super) fn add(&self, claim: Claim, due: Instant) {
        lock(&self.runs).insert(claim.name.clone(), Holding { claim, due, lost: false });
    }

    pub(super) fn has(&self, run: &str) -> bool {
        lock(&self.runs).contains_key(run)
    }

    /// Whether a run is another worker's by now.
    pub(super) fn is_lost(&self, run: &str) -> bool {
        lock(&self.runs).get(run).is_some_and(|held| held.lost)
    }

    /// Whether what a run has is to go to the store.
    pub(super) fn is_due(&self, run: &str) -> bool {
        lock(&self.runs).get(run).is_some_and(|held| held.due <= Instant::now())
    }

    /// The claim of a run that is still this worker's, as far as it knows.
    pub(super) fn claim(&self, run: &str) -> Option<Claim> {
        lock(&self.runs).get(run).filter(|held| !held.lost).map(|held| held.claim.clone())
    }

    pub(super) fn postpone(&self, run: &str, due: Instant) {
        if let Some(held) = lock(&self.runs).get_mut(run) {
            held.due = due;
        }
    }

    pub(super) fn remove(&self, run: &str) {
        lock(&self.runs).remove(run);
    }

    fn all(&self) -> Vec<(String, i64)> {
        let runs = lock(&self.runs);
        runs.values()
            .filter(|held| !held.lost)
            .map(|held| (held.claim.name.clone(), held.claim.epoch))
            .collect()
    }

    /// Marks those of `asked` that were not renewed, if they are still held under that epoch.
    fn mark(&self, asked: &[(String, i64)], renewed: &[String]) {
        let mut runs = lock(&self.runs);
        for (name, epoch) in asked.iter().filter(|(name, _)| !renewed.contains(name)) {
            if let Some(held) = runs.get_mut(name).filter(|held| held.claim.epoch == *epoch) {
                held.lost = true;
            }
        }
    }
}

fn renewing(
    mut connection: Connection,
    (experiment, worker): (&ExperimentId, &str),
    held: &Weak<Held>,
    ended: &mpsc::Receiver<()>,
) {
    let mut patience = UntilEnded(ended);
    // Two may fail before the lease is over.
    while patience.wait(LEASE / 3) {
        let Some(asked) = held.upgrade().map(|held| held.all()) else { return };
        if asked.is_empty() {
            continue;
        }
        let renewed = connection
            .lasting(&mut patience, &mut |client| renew(client, experiment, &asked, (worker, LEASE)));
        match renewed {
            Ok(Some(renewed)) => {
                if let Some(held) = held.upgrade() {
                    held.mark(&asked, &renewed);
                }
            }
            Ok(None) => return,
            // Those who work with the store fail of it as well, and end.
            Err(error) => warn!("leases are not renewed: {error}"),
        }
    }
}
