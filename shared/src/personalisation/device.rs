//! The device that makes a model of its own, and its seeds.

use models::Backend;

use crate::data::View;
use crate::id::ClientId;
use crate::seed::Seed;
use crate::spec::RunSpec;
use crate::spec::personalisation::Personalisation;

/// Whose model it is going to be.
#[derive(Clone, Copy, Debug)]
pub struct Device<'a> {
    /// The run.
    pub spec: &'a RunSpec,
    /// What it says of personalisation.
    pub settings: &'a Personalisation,
    /// The round in which it is done.
    pub round: u32,
    /// Who it is.
    pub client: ClientId,
    /// Its training samples, at least one.
    pub data: &'a View,
    /// Test samples, if it has any.
    pub test: Option<&'a View>,
    /// Where it trains.
    pub backend: &'a Backend,
}

impl Device<'_> {
    /// The client's seed in this run for one purpose, the same in every round.
    pub(super) fn seed(&self, label: &str) -> Seed {
        let seed = self.spec.root_seed().derive("personalisation");
        seed.derive_bytes("client", self.client.as_bytes()).derive(label)
    }

    /// The client's seed in this round.
    pub(super) fn seed_now(&self, label: &str) -> Seed {
        self.seed(label).derive_numbered("round", u64::from(self.round))
    }
}
