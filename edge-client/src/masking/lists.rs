//! What the server says of an exchange, and the checks of it: a device does not believe that it hides among others because it is told so.

use std::collections::{BTreeMap, BTreeSet};

use shared::id::ClientId;
use shared::message::Rounding;
use shared::secure::{Advertised, Exchange, Sealed, graph};
use shared::spec::SecureAggregation;

use super::error::Refused;
use super::state::{Digest, digest};

/// The devices with which this one shares masks.
#[derive(Clone, Debug)]
pub(super) struct Neighbours {
    /// What each has said of itself, in the order in which shares are made.
    pub(super) said: Vec<Advertised>,
    pub(super) digest: Digest,
}

/// By which neighbours are told from others.
pub(super) fn digest_of(members: u32, said: &[Advertised]) -> Digest {
    digest("neighbours", &(members, said))
}

impl Neighbours {
    /// Checks them: as many as follow from the number of members, all of them others, each signed for by its own key.
    pub(super) fn check(
        (exchange, own): (Exchange, ClientId),
        settings: &SecureAggregation,
        members: u32,
        said: Vec<Advertised>,
    ) -> Result<Self, Refused> {
        let digest = digest_of(members, &said);
        let (members, least) = (members as usize, settings.least());
        if members < least {
            return Err(Refused::TooFew { found: members, least });
        }
        let expected = settings.degree(members);
        if said.len() != expected {
            return Err(Refused::Degree { found: said.len(), members, expected });
        }
        let mut named = BTreeSet::from([own]);
        for neighbour in &said {
            let client = neighbour.client();
            if !named.insert(client) {
                return Err(Refused::Twice { client });
            }
            if !neighbour.is_genuine(exchange) {
                return Err(Refused::NotGenuine { client });
            }
        }
        Ok(Self { said, digest })
    }

    /// What this neighbour has said of itself.
    pub(super) fn of(&self, client: ClientId) -> Option<&Advertised> {
        self.said.iter().find(|said| said.client() == client)
    }

    /// How many of them and this device are needed.
    ///
    /// Where all are neighbours of all, these are all whose updates are added up, and the run promises a least number of them. In a
    /// larger cohort a device sees its own neighbourhood alone.
    pub(super) fn needed(&self, settings: &SecureAggregation) -> usize {
        let holders = settings.holders_needed(self.said.len());
        if self.said.len() + 1 < graph::COMPLETE { holders.max(settings.least()) } else { holders }
    }
}

/// How an update is to be hidden.
#[derive(Clone, Debug)]
pub(super) struct Masking {
    pub(super) rounding: Rounding,
    /// The neighbours that take part, with what each has sealed for this device.
    pub(super) present: BTreeMap<ClientId, Sealed>,
    pub(super) digest: Digest,
}

impl Masking {
    /// Checks that these are neighbours, and enough of them.
    pub(super) fn check(
        neighbours: &Neighbours,
        settings: &SecureAggregation,
        rounding: Rounding,
        present: Vec<(ClientId, Sealed)>,
    ) -> Result<Self, Refused> {
        let mut checked = BTreeMap::new();
        for (client, sealed) in present {
            if neighbours.of(client).is_none() {
                return Err(Refused::Foreign { client });
            }
            if checked.insert(client, sealed).is_some() {
                return Err(Refused::Twice { client });
            }
        }
        let (found, needed) = (checked.len() + 1, neighbours.needed(settings));
        if found < needed {
            return Err(Refused::TooFewLeft { found, needed });
        }
        let digest = digest("masking", &(rounding, &checked));
        Ok(Self { rounding, present: checked, digest })
    }

    /// The neighbours that take part.
    pub(super) fn said<'a>(&'a self, neighbours: &'a Neighbours) -> impl Iterator<Item = &'a Advertised> {
        neighbours.said.iter().filter(|said| self.present.contains_key(&said.client()))
    }
}

/// Whose updates count.
#[derive(Clone, Debug)]
pub(super) struct Decision {
    pub(super) counted: BTreeSet<ClientId>,
    pub(super) digest: Digest,
}

impl Decision {
    /// Checks that each neighbour that takes part is in one of the lists, and enough are counted.
    pub(super) fn check(
        neighbours: &Neighbours,
        masking: &Masking,
        settings: &SecureAggregation,
        (counted, missing): (&[ClientId], &[ClientId]),
    ) -> Result<Self, Refused> {
        let mut named = BTreeSet::new();
        for &client in counted.iter().chain(missing) {
            if !masking.present.contains_key(&client) {
                return Err(Refused::Foreign { client });
            }
            if !named.insert(client) {
                return Err(Refused::Twice { client });
            }
        }
        if let Some(&client) = masking.present.keys().find(|client| !named.contains(client)) {
            return Err(Refused::Unnamed { client });
        }
        let counted: BTreeSet<ClientId> = counted.iter().copied().collect();
        let (found, needed) = (counted.len() + 1, neighbours.needed(settings));
        if found < needed {
            return Err(Refused::TooFewLeft { found, needed });
        }
        let digest = digest("decision", &(masking.digest, &counted));
        Ok(Self { counted, digest })
    }
}
