//! The root's part of a run whose updates are at leaves.

use std::collections::BTreeSet;

use shared::algorithm::{AggregateError, Partial};
use shared::id::ClientId;
use shared::message::Rejection;

use super::leaves::{HeldUpdate, Leaves, RoundAtLeaves};
use super::leaves_error::LeavesError;
use super::{Broadcast, OpenRound, Run, RunError, Upload};
use crate::coordinator::{Agreement, Opening, Resume};

impl Run {
    /// The updates of the run are at these leaves from now on. In a round that is open already those count that the leaves have.
    pub fn serve_with(&mut self, leaves: Box<dyn Leaves>, resume: &mut Resume) -> Result<(), RunError> {
        self.leaves = Some(leaves);
        self.keep()?;
        let Some(reopened) = &mut resume.open else { return Ok(()) };
        let broadcast = self.broadcast(reopened.opening.round, reopened.opening.work)?;
        let decision = self.read_opening(reopened.opening.round)?.and_then(|record| record.decision);
        let counts = |client: &ClientId| {
            let decided = decision.as_ref().map(|decision| &decision.closing.contributors);
            decided.is_none_or(|contributors| contributors.contains(client))
        };
        for held in self.open_at_leaves(&reopened.opening, &broadcast, (reopened.agreement.as_ref(), true))? {
            let (client, trained) = (held.client, held.header.round);
            let opening = &reopened.opening;
            let is_late = trained < opening.round;
            let expected = if is_late {
                opening.owed.get(&client).is_some_and(|owed| owed.round == trained)
            } else {
                opening.cohort.contains_key(&client)
            };
            if !expected || !counts(&client) {
                continue;
            }
            let open = self.open.as_mut().expect("a round that is reopened is open");
            reopened.accepted.insert(client);
            if is_late {
                reopened.late.insert(client, trained);
            }
            reopened.fingerprints.insert(client, open.note_held(held));
        }
        resume.owed = self.still_owed(&reopened.opening, &reopened.late, reopened.decided());
        if reopened.decided().is_some()
            && let Some(open) = &mut self.open
        {
            open.decision = decision;
        }
        Ok(())
    }

    /// Tells the leaves of the open round, if there are any; of one that `resumes`, with who takes part if updates are hidden.
    pub(super) fn open_at_leaves(
        &mut self,
        opening: &Opening,
        broadcast: &Broadcast,
        (agreement, resumes): (Option<&Agreement>, bool),
    ) -> Result<Vec<HeldUpdate>, RunError> {
        let (failed, clip) = (self.failed, self.clip);
        let Some(leaves) = &mut self.leaves else { return Ok(Vec::new()) };
        Ok(leaves.open(RoundAtLeaves { opening, failed, clip, broadcast, agreement, resumes })?)
    }

    /// Step *accept*, here or at the leaves. `None` of an update that was lost with its leaf.
    pub fn accept(
        &mut self,
        round: u32,
        uploads: &[(ClientId, Upload)],
    ) -> Result<Vec<Option<Result<u32, Rejection>>>, RunError> {
        if self.leaves.is_some() {
            return self.accept_at_leaves(round, uploads);
        }
        Ok(self.fold(round, uploads)?.into_iter().map(Some).collect())
    }

    fn accept_at_leaves(
        &mut self,
        round: u32,
        uploads: &[(ClientId, Upload)],
    ) -> Result<Vec<Option<Result<u32, Rejection>>>, RunError> {
        let there = |(client, upload): &(ClientId, Upload)| match upload {
            Upload::Leaf(upload) => (*client, *upload),
            Upload::File(_) | Upload::Memory { .. } => {
                unreachable!("the devices of a cluster are at its leaves")
            }
        };
        let uploads: Vec<_> = uploads.iter().map(there).collect();
        let leaves = self.leaves.as_mut().expect("their updates come from leaves");
        let accepted = leaves.accept(round, &uploads)?;
        let open = self.open.as_mut().expect("updates are accepted between open and close");
        Ok(accepted.into_iter().map(|held| held.map(|held| held.map(|held| open.note_held(held)))).collect())
    }

    /// An update at a leaf is not needed.
    pub fn discard(&mut self, upload: &Upload) {
        if let (Some(leaves), Upload::Leaf(upload)) = (&mut self.leaves, upload) {
            leaves.discard(*upload);
        }
    }

    /// Has the leaves sum up the updates of these clients.
    pub(super) fn sum_at_leaves(
        &mut self,
        open: &mut OpenRound,
        clients: &BTreeSet<ClientId>,
    ) -> Result<(), RunError> {
        let Some(leaves) = &mut self.leaves else { return Ok(()) };
        if clients.is_empty() || !open.opening.work.train {
            return Ok(());
        }
        let sums = leaves.sums(open.opening.round, clients)?;
        if let Some(hidden) = &mut open.hidden {
            return hidden.gather(&*self.algorithm, sums);
        }
        // Merging finds out whether they are of this round.
        let mut whole: Partial = self.algorithm.begin(&self.round_of(open))?;
        for sum in sums {
            let part = self.algorithm.decode_partial(sum)?;
            self.algorithm.merge(&mut whole, part).map_err(AggregateError::from)?;
        }
        open.partials = vec![Some(whole)];
        Ok(())
    }

    /// Makes what the directory has durable for all leaves, if there are any.
    pub fn keep(&mut self) -> Result<(), RunError> {
        let closed = self.settled;
        if let Some(leaves) = &mut self.leaves {
            leaves.keep(&self.directory, closed)?;
        }
        Ok(())
    }
}

impl OpenRound {
    /// Takes note of an update that a leaf has. Gives the fingerprint of its report.
    fn note_held(&mut self, held: HeldUpdate) -> u32 {
        self.received += held.bytes;
        self.note(held.client, held.header, held.tested)
    }
}

impl From<LeavesError> for RunError {
    fn from(error: LeavesError) -> Self {
        Self::Leaves(error)
    }
}
