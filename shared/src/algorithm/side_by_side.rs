//! Algorithms whose clients learn once, and whose server keeps their models side by side.

use std::collections::BTreeSet;

use models::Architecture;
use models::params::ParamSet;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::answering::Answering;
use super::membership::{Invitation, Joined, Membership};
use super::{Algorithm, Client, ClientNeeds, Closed, Contribution, Incompatible, Round, TrainError};
use crate::aggregation::{EmptySum, MergeError};
use crate::message::Rejection;
use crate::seed::Seed;

/// What no [`OneShot`] makes sense with, for the one of this name: `aggregation` says why the server's half cannot be chosen. What only
/// some refuse comes as `own`, and of the weights as `weights`.
macro_rules! refusals {
    ($name:literal, own: [$($own:expr),* $(,)?], aggregation: $aggregation:expr, weights: [$($weights:expr),*]) => {
        &[
            (
                $crate::algorithm::Setting::Secure,
                concat!($name, " keeps every client's model, and the server would see a sum alone: use fedavg"),
            ),
            (
                $crate::algorithm::Setting::TopK,
                concat!(
                    $name,
                    " has one round, and what an update leaves out is for the next one: leave update.top-k out"
                ),
            ),
            (
                $crate::algorithm::Setting::Private,
                concat!(
                    $name,
                    " keeps the models of single devices, and no noise on a sum hides those: use fedavg"
                ),
            ),
            $($own,)*
            (
                $crate::algorithm::Setting::KeptOptimizer,
                concat!(
                    $name,
                    " has one round and no later one to keep anything for: leave training.keep-optimizer out"
                ),
            ),
            (
                $crate::algorithm::Setting::Frozen,
                concat!(
                    $name,
                    " keeps whole models side by side, and each of them would hold the frozen parameters again: leave \
                     model.freeze out, or use another algorithm"
                ),
            ),
            $($weights,)*
            ($crate::algorithm::Setting::LossWeights, $aggregation),
            ($crate::algorithm::Setting::ServerSgd, $aggregation),
            ($crate::algorithm::Setting::AdaptiveServer, $aggregation),
            ($crate::algorithm::Setting::Robust, $aggregation),
            ($crate::algorithm::Setting::Matched, $aggregation),
            ($crate::algorithm::Setting::ClippedMean, $aggregation),
            (
                $crate::algorithm::Setting::Mixed,
                concat!($name, " has no model that the server's could be mixed with: leave [server] out"),
            ),
            (
                $crate::algorithm::Setting::LocalBuffers,
                concat!(
                    "in ",
                    $name,
                    " every member is used with its own statistics, which have to be sent: leave aggregation.buffers out"
                ),
            ),
            (
                $crate::algorithm::Setting::Late,
                concat!(
                    $name,
                    " sets models side by side, and one that comes in a later round is as good as any: leave \
                     round.staleness.enabled out"
                ),
            ),
        ]
    };
}
pub(super) use refusals;

/// What a client learns in its one round, and how the models of all clients answer together.
///
/// ```text
/// client m:  w_m = learn(w_0)
/// server:    keeps every w_m, of each client once
/// in use:    answering(w_1, ..., w_M)
/// ```
///
/// Every one of them is an [`Algorithm`], [`SideBySide`]. What is sent is the difference to the start, as everywhere, and the
/// server adds the start again. A client whose model is among the members already says so and trains nothing: a second round, with
/// a cohort of others or with clients that came late, extends the ensemble.
pub trait OneShot: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Its name in the configuration: `[algorithm.NAME]`.
    const NAME: &'static str;
    /// What it makes no sense with.
    const INCOMPATIBLE: &'static [Incompatible];

    /// As [`Algorithm::later`].
    #[must_use]
    fn later() -> Vec<u8> {
        Vec::new()
    }

    /// As [`Algorithm::validate`].
    fn validate(&self) -> Result<(), String> {
        Ok(())
    }

    /// As [`Algorithm::client_needs`].
    fn client_needs(&self) -> ClientNeeds {
        ClientNeeds::default()
    }

    /// As [`Algorithm::network`].
    fn network(&self, configured: Architecture) -> Result<Architecture, String>;

    /// As [`Algorithm::start`].
    fn start(&self, network: &Architecture, params: &mut ParamSet, seed: &Seed) {
        let _ = (network, params, seed);
    }

    /// The client's work: the model that it learns from the initial parameters `w_0`.
    fn learn(&self, client: &mut Client<'_>, w_0: &ParamSet) -> Result<ParamSet, TrainError>;

    /// How the members answer.
    fn answering(&self) -> Answering;
}

/// Both halves of a [`OneShot`] algorithm.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
pub struct SideBySide<O>(O);

impl<O: OneShot> Algorithm for SideBySide<O> {
    const NAME: &'static str = O::NAME;
    const INCOMPATIBLE: &'static [Incompatible] = O::INCOMPATIBLE;
    type Global = Invitation;
    type Local = ();
    type Broadcast = Invitation;
    type Update = Membership;
    type Partial = Joined;

    fn later() -> Vec<u8> {
        O::later()
    }

    fn validate(&self) -> Result<(), String> {
        self.0.validate()
    }

    fn client_needs(&self) -> ClientNeeds {
        self.0.client_needs()
    }

    fn network(&self, configured: Architecture) -> Result<Architecture, String> {
        self.0.network(configured)
    }

    fn start(&self, network: &Architecture, params: &mut ParamSet, seed: &Seed) {
        self.0.start(network, params, seed);
    }

    fn init(&self, params: ParamSet) -> Invitation {
        Invitation { start: params, members: BTreeSet::new() }
    }

    /// The initial model. It answers nothing: the ensemble does.
    fn current_model<'a>(&self, global: &'a Invitation) -> &'a ParamSet {
        &global.start
    }

    fn broadcast(&self, global: &Invitation) -> Invitation {
        global.clone()
    }

    fn train(
        &self,
        client: &mut Client<'_>,
        Invitation { start, members }: Invitation,
        (): &mut (),
    ) -> Result<Membership, TrainError> {
        if client.id.is_some_and(|id| members.contains(&id)) {
            return Ok(Membership::Old);
        }
        let learned = self.0.learn(client, &start)?;
        Ok(Membership::New(client.delta(learned, &start)?))
    }

    fn check(&self, round: &Round<'_>, update: &Membership) -> Result<(), Rejection> {
        match update {
            Membership::New(delta) => round.check(delta),
            Membership::Old => Ok(()),
        }
    }

    fn begin(&self, _round: &Round<'_>) -> Joined {
        Joined::default()
    }

    fn fold(&self, partial: &mut Joined, contribution: Contribution<Membership>, _round: &Round<'_>) {
        partial.answers += 1;
        if let Membership::New(_) = contribution.update {
            partial.new.insert(contribution.client);
        }
    }

    fn merge(&self, into: &mut Joined, other: Joined) -> Result<(), MergeError> {
        into.answers = into.answers.saturating_add(other.answers);
        into.new.extend(other.new);
        Ok(())
    }

    fn close(&self, global: &mut Invitation, partial: Joined, _round: &Round<'_>) -> Closed {
        if partial.answers == 0 {
            return Err(EmptySum.into());
        }
        global.members.extend(partial.new);
        Ok(())
    }

    fn ensemble(&self) -> Option<Answering> {
        Some(self.0.answering())
    }

    fn one_shot(&self) -> bool {
        true
    }
}
