//! A store in memory that answers as `PostgreSQL` does, is slow and away at times, and remembers all that was written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aggregator::cluster::connection::Patience;
use aggregator::cluster::error::StoreError;
use aggregator::cluster::experiments::{Claim, ExperimentId, Then};
use aggregator::cluster::file_store::{FileStore, Held, Of};
use aggregator::leaves::standing::{LEASE, ServedRun, Standing};
use aggregator::leaves::store::RunStore;
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;

use super::baton::Baton;

/// The time between two attempts during an outage.
const RETRY: Duration = Duration::from_millis(700);

/// What was written under an epoch, when the store had another or the same.
#[derive(Clone, Debug)]
pub(super) struct Write {
    /// The epoch that the writer named.
    pub(super) claimed: i64,
    /// The epoch of the store.
    pub(super) epoch: i64,
    /// The rounds that had closed.
    pub(super) rounds: u32,
    /// Lines of `rounds.jsonl`.
    pub(super) lines: Vec<String>,
    /// The opening of the last closed round, with its decision.
    pub(super) opening: Option<String>,
}

/// What the store has.
#[derive(Debug)]
pub(super) struct State {
    pub(super) epoch: i64,
    worker: Option<String>,
    expires: Option<Duration>,
    pub(super) ended: bool,
    pub(super) rounds: u32,
    leaves: BTreeMap<String, (String, Duration)>,
    files: Vec<Held>,
    parts: BTreeMap<(Vec<u8>, i32), Vec<u8>>,
    /// It does not answer before this.
    pub(super) away_until: Duration,
    /// Servers that do not reach it before these moments.
    pub(super) cut_off: BTreeMap<usize, Duration>,
    /// A question and its answer take up to this.
    latency: Duration,
    /// How often the answer to what was done is lost.
    lost: f64,
    pub(super) chance: ChaCha8Rng,
    /// All writes of files.
    pub(super) writes: Vec<Write>,
    /// Writes of an epoch that is over, which were refused.
    pub(super) refused: usize,
    /// Whether a write of an epoch that is over is refused. Without, the store has a bug.
    checks_epoch: bool,
}

/// A hand on the store.
#[derive(Clone, Debug)]
pub(super) struct FakeStore {
    state: Arc<Mutex<State>>,
    /// Of a thread that waits in virtual time, of this server.
    baton: Option<(Baton, usize)>,
}

impl FakeStore {
    pub(super) fn new(chance: ChaCha8Rng, latency: Duration, lost: f64, checks_epoch: bool) -> Self {
        let state = State {
            epoch: 0,
            worker: None,
            expires: None,
            ended: false,
            rounds: 0,
            leaves: BTreeMap::new(),
            files: Vec::new(),
            parts: BTreeMap::new(),
            away_until: Duration::ZERO,
            cut_off: BTreeMap::new(),
            latency,
            lost,
            chance,
            writes: Vec::new(),
            refused: 0,
            checks_epoch,
        };
        Self { state: Arc::new(Mutex::new(state)), baton: None }
    }

    /// The same store, for a thread of this server.
    pub(super) fn with(&self, baton: &Baton, server: usize) -> Self {
        Self { state: self.state.clone(), baton: Some((baton.clone(), server)) }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks, as often as it takes: outages are waited through, and an answer may be lost.
    fn ask<T>(
        &self,
        patience: &mut dyn Patience,
        mut what: impl FnMut(&mut State, Duration) -> T,
    ) -> Option<T> {
        let (baton, server) = self.baton.as_ref().expect("a thread asks");
        let takes = || {
            let mut state = self.state();
            let latency = state.latency;
            latency.mul_f64(state.chance.random_range(0.0..1.0))
        };
        loop {
            baton.sleep(takes(), true);
            let answer = {
                let mut state = self.state();
                if state.is_away_for(*server, baton.now()) {
                    None
                } else {
                    let answer = what(&mut state, baton.now());
                    let probability = state.lost;
                    let lost = probability > 0.0 && state.chance.random_bool(probability);
                    (!lost).then_some(answer)
                }
            };
            if let Some(answer) = answer {
                baton.sleep(takes(), true);
                return Some(answer);
            }
            if !patience.wait(Duration::ZERO) {
                return None;
            }
            baton.sleep(RETRY, true);
        }
    }
}

impl State {
    /// Whether a server gets no answer now.
    pub(super) fn is_away_for(&self, server: usize, now: Duration) -> bool {
        self.away_until > now || self.cut_off.get(&server).is_some_and(|until| *until > now)
    }

    /// What a file of the run holds.
    pub(super) fn file(&self, path: &str) -> Option<Vec<u8>> {
        let held = self.files.iter().find(|held| held.path == path)?;
        let digest = held.digest.as_ref()?;
        let parts = self.parts.range((digest.clone(), 0)..=(digest.clone(), i32::MAX));
        Some(parts.flat_map(|(_, content)| content.clone()).collect())
    }

    fn text(&self, path: &str) -> Option<String> {
        String::from_utf8(self.file(path)?).ok()
    }

    /// What [`RunStore::stand`] asks for.
    pub(super) fn stand(&mut self, now: Duration, run: &str, leaf: &str, held: Option<&Claim>) -> Standing {
        self.leaves.insert(leaf.to_owned(), (leaf.to_owned(), now + LEASE));
        if let Some(claim) = held
            && claim.epoch == self.epoch
            && !self.ended
        {
            self.expires = Some(now + LEASE);
            return Standing::Leads(claim.clone());
        }
        if self.ended {
            return Standing::Over;
        }
        let alive = self.expires.is_some_and(|expires| expires > now);
        if !alive || self.worker.as_deref() == Some(leaf) {
            self.epoch += 1;
            let deserted = self.worker.replace(leaf.to_owned());
            self.expires = Some(now + LEASE);
            let (name, epoch, rounds) = (run.to_owned(), self.epoch, self.rounds);
            let worker = leaf.to_owned();
            return Standing::Leads(Claim { name, epoch, rounds, worker, deserted, lease: LEASE });
        }
        match self.worker.as_ref().and_then(|worker| self.leaves.get_key_value(worker)) {
            Some((worker, (address, _))) => {
                Standing::Follows { leaf: worker.clone(), epoch: self.epoch, address: address.clone() }
            }
            None => Standing::Unknown,
        }
    }

    fn replace(&mut self, now: Duration, claim: &Claim, files: &[Held], (rounds, then): (u32, Then)) -> bool {
        if self.ended || (self.checks_epoch && claim.epoch != self.epoch) {
            self.refused += 1;
            return false;
        }
        self.rounds = rounds;
        self.ended = then == Then::HasEnded;
        self.expires = (then != Then::IsFree).then(|| now + claim.lease);
        self.files = files.to_vec();
        let used: BTreeSet<Vec<u8>> = files.iter().filter_map(|held| held.digest.clone()).collect();
        self.parts.retain(|(digest, _), _| used.contains(digest));
        let lines = self.text("rounds.jsonl").unwrap_or_default().lines().map(str::to_owned).collect();
        let opening = self.text(&format!("state/round-{rounds:06}.json"));
        self.writes.push(Write { claimed: claim.epoch, epoch: self.epoch, rounds, lines, opening });
        true
    }
}

impl FileStore for FakeStore {
    fn held(&mut self, patience: &mut dyn Patience, _: Of<'_>) -> Result<Option<Vec<Held>>, StoreError> {
        Ok(self.ask(patience, |state, _| state.files.clone()))
    }

    fn put_part(
        &mut self,
        patience: &mut dyn Patience,
        _: Of<'_>,
        (digest, number): (&[u8], i32),
        content: &[u8],
    ) -> Result<Option<()>, StoreError> {
        Ok(self.ask(patience, |state, _| {
            state.parts.entry((digest.to_vec(), number)).or_insert_with(|| content.to_vec());
        }))
    }

    fn part(
        &mut self,
        patience: &mut dyn Patience,
        _: Of<'_>,
        (digest, number): (&[u8], i32),
    ) -> Result<Option<Option<Vec<u8>>>, StoreError> {
        Ok(self.ask(patience, |state, _| state.parts.get(&(digest.to_vec(), number)).cloned()))
    }

    fn replace(
        &mut self,
        patience: &mut dyn Patience,
        _: &ExperimentId,
        claim: &Claim,
        files: &[Held],
        stands: (u32, Then),
        _: &str,
    ) -> Result<Option<bool>, StoreError> {
        Ok(self.ask(patience, |state, now| state.replace(now, claim, files, stands)))
    }
}

impl RunStore for FakeStore {
    fn stand(
        &mut self,
        patience: &mut dyn Patience,
        run: &ServedRun,
        (leaf, _): (&str, &str),
        held: Option<&Claim>,
    ) -> Result<Option<Standing>, StoreError> {
        Ok(self.ask(patience, |state, now| state.stand(now, &run.name, leaf, held)))
    }

    fn living(
        &mut self,
        patience: &mut dyn Patience,
        _: &ExperimentId,
    ) -> Result<Option<BTreeSet<String>>, StoreError> {
        Ok(self.ask(patience, |state, now| {
            let alive = state.leaves.iter().filter(|(_, (_, expires))| *expires > now);
            alive.map(|(leaf, _)| leaf.clone()).collect()
        }))
    }
}
