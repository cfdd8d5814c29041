//! The server's part: which masks are left in a sum, once its members have revealed what they must.

use std::collections::BTreeMap;

use super::exchange::{Advertised, Exchange, commitment};
use super::graph::threshold;
use super::mask::Mask;
use super::party::{masks_of_missing, own_mask};
use super::shamir::{Share, combine};
use crate::id::ClientId;

/// What the server knows of an exchange that is over.
#[derive(Clone, Copy, Debug)]
pub struct Recovery<'a> {
    /// Which.
    pub exchange: Exchange,
    /// What its members have been told about the round.
    pub terms: &'a [u8; 32],
    /// What the members have said of themselves.
    pub members: &'a BTreeMap<ClientId, Advertised>,
    /// The neighbours of each among the members.
    pub neighbours: &'a BTreeMap<ClientId, Vec<ClientId>>,
    /// Which share of its holders put a secret together.
    pub share: f64,
}

/// A secret cannot be put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecoveryError {
    /// Too few of its holders have answered.
    #[error(
        "{found} of the {needed} devices have answered that are needed to take the mask of device {of} away"
    )]
    TooFew {
        /// Whose secret.
        of: ClientId,
        /// The answers.
        found: usize,
        /// The threshold.
        needed: usize,
    },
    /// Shares of it are wrong.
    #[error(
        "the answers on the mask of device {of} contradict what it said before: more than one of them is wrong"
    )]
    Wrong {
        /// Whose secret.
        of: ClientId,
    },
}

impl Recovery<'_> {
    /// The masks that the sum of the updates of `counted` contains. Shares are of the own mask of a member that counts, and of the
    /// masking key of another one.
    pub fn masks(
        &self,
        counted: &[ClientId],
        shares: &BTreeMap<ClientId, Vec<Share>>,
    ) -> Result<Vec<Mask>, RecoveryError> {
        let mut masks = Vec::new();
        for (client, said) in self.members {
            let shares = shares.get(client).map_or(&[][..], Vec::as_slice);
            if counted.contains(client) {
                let is_own = |seed: &[u8; 32]| (commitment(seed) == said.commitment).then_some(*seed);
                masks.push(own_mask(&self.put_together(*client, shares, is_own)?));
                continue;
            }
            let with = self.neighbours.get(client).into_iter().flatten();
            let with = with.filter(|neighbour| counted.contains(neighbour));
            let with: BTreeMap<_, _> =
                with.filter_map(|neighbour| Some((*neighbour, *self.members.get(neighbour)?))).collect();
            if with.is_empty() {
                continue;
            }
            let is_key =
                |secret: &[u8; 32]| masks_of_missing((self.exchange, self.terms), said, *secret, &with);
            let shared = self.put_together(*client, shares, is_key)?;
            // The sum has what the others have added or taken away, and not the missing one's part.
            masks.extend(shared.into_iter().map(Mask::opposite));
        }
        Ok(masks)
    }

    /// What `right` makes of the secret of these shares. One of them may be wrong if there are more than it takes.
    fn put_together<T>(
        &self,
        of: ClientId,
        shares: &[Share],
        right: impl Fn(&[u8; 32]) -> Option<T>,
    ) -> Result<T, RecoveryError> {
        let neighbours = self.neighbours.get(&of);
        let needed = neighbours.map_or(usize::MAX, |all| threshold(self.share, all.len() + 1));
        if shares.len() < needed {
            return Err(RecoveryError::TooFew { of, found: shares.len(), needed });
        }
        let without = |left_out: usize| {
            let others = shares.iter().enumerate().filter(move |(index, _)| *index != left_out);
            others.map(|(_, share)| *share).take(needed).collect::<Vec<_>>()
        };
        let tries = std::iter::once(usize::MAX).chain(0..needed.min(shares.len()));
        let mut tries = tries.map(without).filter(|chosen| chosen.len() == needed);
        tries.find_map(|chosen| right(&combine(&chosen)?)).ok_or(RecoveryError::Wrong { of })
    }
}
