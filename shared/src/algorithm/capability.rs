//! Capabilities: what some algorithms can do beyond the common round.
//!
//! Each is returned by a method of [`Algorithm`](super::Algorithm) that gives `None` or `false` by default. A run asks for the
//! capability, never for the algorithm's name.
//!
//! | method | who has it |
//! |---|---|
//! | [`supervised`](super::Algorithm::supervised) | algorithms with a training on the server's labelled samples in every round |
//! | [`personal`](super::Algorithm::personal) | algorithms whose clients deploy models of their own |
//! | [`ensemble`](super::Algorithm::ensemble) | algorithms whose result is the clients' models side by side |
//! | [`one_shot`](super::Algorithm::one_shot) | algorithms that need one round alone |
//! | [`stored`](super::Algorithm::stored) | algorithms that go with aggregation rules that need every update at once |
//! | [`hidden`](super::Algorithm::hidden) | algorithms whose updates add up while no one sees them |

use models::params::ParamSet;

use super::{AggregateError, Closed, Round};
use crate::aggregation::StoredUpdates;

/// The server's own training on labelled samples is a step of the algorithm: before the first round and at the end of each, from
/// the [current model](super::Algorithm::current_model).
pub trait Supervised<Global> {
    /// Takes in what that training has made of the current model.
    fn take_in(&self, global: &mut Global, trained: ParamSet) -> Result<(), AggregateError>;
}

/// Clients deploy models of their own, so that these are tested in place of the global one.
pub trait Personal<Global, Update> {
    /// The model that the client with this update would deploy, if it has one.
    fn deployed(&self, global: &Global, update: Update) -> Option<ParamSet>;
}

/// The algorithm goes with rules that make nothing of an update before all are there
/// ([`Rule::needs_every_update`](crate::aggregation::Rule::needs_every_update)).
pub trait Stored<Global> {
    /// Ends the round: the stored updates, at least one, become the new state.
    fn close_stored(&self, global: &mut Global, updates: &mut dyn StoredUpdates, round: &Round<'_>)
    -> Closed;
}

/// Updates add up while each of them is [hidden](crate::secure): a partial result is whole numbers, and what else it has follows from
/// what the server knows of a device anyway.
pub trait Hidden<Partial, Update> {
    /// The update that changes nothing: folding it takes note of what is no secret, as weights are.
    fn nothing(&self, round: &Round<'_>) -> Update;

    /// The whole numbers of a partial result, by their names. They add up modulo 2^64.
    fn numbers<'a>(&self, partial: &'a mut Partial) -> Vec<(String, &'a mut [i64])>;

    /// Moves what else is secret to these numbers. Done on a device, before they are hidden.
    fn hide(&self, partial: &mut Partial);

    /// Moves it back, once nothing is hidden any more. The error names a tensor whose sum no checked updates have.
    fn reveal(&self, partial: &mut Partial) -> Result<(), String>;
}
