//! Participations: how many rounds have asked each client, in private runs that bound them.
//!
//! They are part of every opening, of the rounds before it, and its cohort counts on top: a restart asks no client more often than a
//! process that went on would have. A member counts whether its update came or not, since an opening is all that is durable by the
//! time a member may begin. Clients that have left the roster are kept.

use shared::id::ClientId;

use super::{Coordinator, Opening, Participations};
use crate::round::Poisson;

/// Participations when the round of this opening is over.
#[must_use]
pub fn participations_after(opening: &Opening) -> Participations {
    let mut counts = opening.participations.clone();
    if opening.work.train {
        for client in opening.cohort.keys() {
            *counts.entry(*client).or_default() += 1;
        }
    }
    counts
}

impl Coordinator {
    /// Whether a round of training may ask this client: it has not been asked as often as it may.
    pub(super) fn may_take_part(&self, client: ClientId) -> bool {
        let count = self.participations.get(&client).copied().unwrap_or_default();
        self.policy.poisson.is_none_or(|poisson| count < poisson.most.get())
    }

    /// Whether a client is connected that a round of training may ask: without one it would be noise alone.
    pub(super) fn any_may_take_part(&self) -> bool {
        self.peers.values().any(|client| self.may_take_part(*client))
    }

    /// Counts the members of this round, where participations are bounded.
    pub(super) fn count_participations(&mut self, opening: &Opening) {
        if self.policy.poisson.is_some_and(|poisson| poisson.is_bounded()) {
            self.participations = participations_after(opening);
        }
    }

    /// Whether no client is left that a further round of training may ask. While fewer are known than the run is for, others may come;
    /// in a simulation none does.
    pub(super) fn is_used_up(&self) -> bool {
        let Some(poisson) = self.policy.poisson.filter(Poisson::is_bounded) else {
            return false;
        };
        let complete = self.members.len() >= poisson.devices as usize || self.policy.void_pause.is_zero();
        complete && !self.members.is_empty() && !self.members.keys().any(|client| self.may_take_part(*client))
    }
}
