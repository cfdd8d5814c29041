//! The one place where an algorithm's types are erased.
//!
//! Nothing above this file is generic over the algorithm: drivers hold an [`ErasedAlgorithm`] and move
//! [`Record`]s, [`Global`]s and [`Partial`]s. The two boxes are opened only by the algorithm that made them.

use std::any::Any;

use models::Architecture;
use models::params::ParamSet;

use super::kept::Kept;
use super::{
    AggregateError, Algorithm, Answering, Client, ClientNeeds, Closed, Conflict, Contribution, Round,
    Settings, TrainError, combinations, error_feedback,
};
use crate::aggregation::{MergeError, StoredUpdates};
use crate::message::{Rejection, reason};
use crate::record::{Record, RecordError, ToRecord};
use crate::seed::Seed;
use crate::spec::{DataSpec, Training};

/// An algorithm's server state.
pub struct Global(Box<dyn Any + Send>);

/// What an algorithm has folded of a round so far.
pub struct Partial(Box<dyn Any + Send>);

/// What a client's training leaves behind.
pub struct Trained {
    /// Goes to the server.
    pub update: Record,
    /// Stays on the device for its next round; `None` if the algorithm keeps nothing.
    pub local: Option<Record>,
}

/// [`Supervised::take_in`](super::Supervised::take_in), and the check that the model is finite.
pub type TakeIn<'a> = Box<dyn Fn(&mut Global, ParamSet) -> Result<(), AggregateError> + 'a>;

/// [`Personal::deployed`](super::Personal::deployed).
pub type Deployed<'a> = Box<dyn Fn(&Global, Checked) -> Option<ParamSet> + 'a>;

/// [`Algorithm`] without its types. Implemented for every algorithm, by hand for none.
pub trait ErasedAlgorithm: Send + Sync {
    /// [`Algorithm::NAME`].
    fn name(&self) -> &'static str;
    /// The settings among these that it does not go with ([`Algorithm::INCOMPATIBLE`]).
    fn conflicts(&self, settings: &Settings<'_>) -> Vec<Conflict>;
    /// [`Algorithm::check_data`].
    fn check_data(&self, data: &DataSpec, training: &Training) -> Result<(), String>;
    /// [`Algorithm::client_needs`].
    fn client_needs(&self) -> ClientNeeds;
    /// [`Algorithm::network`].
    fn network(&self, configured: Architecture) -> Result<Architecture, String>;
    /// Whether a client keeps something between rounds ([`Algorithm::Local`]).
    fn keeps_state(&self) -> bool;
    /// [`Algorithm::start`].
    fn start(&self, network: &Architecture, params: &mut ParamSet, seed: &Seed);
    /// [`Algorithm::init`].
    fn init(&self, params: ParamSet) -> Global;
    /// The server state from its checkpoint.
    fn restore(&self, checkpoint: Record) -> Result<Global, RecordError>;
    /// The server state as a checkpoint.
    fn store(&self, global: Global) -> Record;
    /// [`Algorithm::current_model`].
    fn current_model<'a>(&self, global: &'a Global) -> &'a ParamSet;
    /// [`Algorithm::broadcast`].
    fn broadcast(&self, global: &Global) -> Record;
    /// [`Algorithm::train`]. `local` is what the client's previous round left.
    fn train(
        &self,
        client: &mut Client<'_>,
        received: Record,
        local: Option<Record>,
    ) -> Result<Trained, TrainError>;
    /// [`Algorithm::eval_model`], with the buffers that stay on the device.
    fn eval_model(&self, received: Record, local: Option<Record>) -> Result<ParamSet, TrainError>;
    /// Decodes an update and runs [`Algorithm::check`]; believes nothing else.
    fn check(&self, round: &Round<'_>, update: Record) -> Result<Checked, Rejection>;
    /// [`Algorithm::begin`].
    ///
    /// # Errors
    /// [`AggregateError::NeedsEveryUpdate`] under a rule that has no partial results.
    fn begin(&self, round: &Round<'_>) -> Result<Partial, AggregateError>;
    /// [`Algorithm::fold`].
    fn fold(&self, partial: &mut Partial, contribution: Contribution<Checked>, round: &Round<'_>);
    /// [`Algorithm::merge`].
    fn merge(&self, into: &mut Partial, other: Partial) -> Result<(), MergeError>;
    /// A partial result as it travels.
    fn encode_partial(&self, partial: Partial) -> Record;
    /// A partial result that has travelled. It may be of any round: it is [merged](Self::merge) into one that was begun here, which
    /// finds out, and is not used before.
    fn decode_partial(&self, record: Record) -> Result<Partial, RecordError>;
    /// [`Algorithm::close`], and the check that the new model is finite.
    fn close(&self, global: &mut Global, partial: Partial, round: &Round<'_>) -> Closed;
    /// [`Algorithm::close_failed`].
    fn close_failed(&self, global: &mut Global, partial: Partial, round: &Round<'_>) -> Closed;
    /// [`Stored::close_stored`](super::Stored::close_stored), and the check that the new model is finite.
    fn close_stored(&self, global: &mut Global, updates: &mut dyn StoredUpdates, round: &Round<'_>)
    -> Closed;
    /// The partial result of one update, as a device has it that [hides](super::Hidden) it. `None` if the algorithm does not go with
    /// that.
    fn alone(&self, contribution: Contribution<Checked>, round: &Round<'_>) -> Option<Partial>;
    /// Takes note of what is no secret of an update that is hidden: folds [one of nothing](super::Hidden::nothing).
    fn count(&self, partial: &mut Partial, contribution: Contribution<()>, round: &Round<'_>) -> Option<()>;
    /// [`Hidden::numbers`](super::Hidden::numbers).
    fn numbers<'a>(&self, partial: &'a mut Partial) -> Option<Vec<(String, &'a mut [i64])>>;
    /// [`Hidden::reveal`](super::Hidden::reveal).
    fn reveal(&self, partial: &mut Partial) -> Result<(), String>;
    /// [`Algorithm::mixable`].
    fn mixable<'a>(&self, global: &'a mut Global) -> Option<&'a mut ParamSet>;
    /// [`Algorithm::supervised`].
    fn supervised(&self) -> Option<TakeIn<'_>>;
    /// [`Algorithm::personal`].
    fn personal(&self) -> Option<Deployed<'_>>;
    /// [`Algorithm::ensemble`].
    fn ensemble(&self) -> Option<Answering>;
    /// [`Algorithm::one_shot`].
    fn one_shot(&self) -> bool;
}

/// An update that was checked and may be folded.
pub struct Checked(Box<dyn Any + Send>);

const FOREIGN: &str = "boxes are opened only by the algorithm that made them";

impl<A: Algorithm> ErasedAlgorithm for A {
    fn name(&self) -> &'static str {
        A::NAME
    }

    fn conflicts(&self, settings: &Settings<'_>) -> Vec<Conflict> {
        combinations::conflicts(A::INCOMPATIBLE, settings)
    }

    fn check_data(&self, data: &DataSpec, training: &Training) -> Result<(), String> {
        Algorithm::check_data(self, data, training)
    }

    fn client_needs(&self) -> ClientNeeds {
        Algorithm::client_needs(self)
    }

    fn network(&self, configured: Architecture) -> Result<Architecture, String> {
        Algorithm::network(self, configured)
    }

    fn keeps_state(&self) -> bool {
        // What has no size holds nothing.
        size_of::<A::Local>() > 0
    }

    fn start(&self, network: &Architecture, params: &mut ParamSet, seed: &Seed) {
        Algorithm::start(self, network, params, seed);
    }

    fn init(&self, params: ParamSet) -> Global {
        Global(Box::new(Algorithm::init(self, params)))
    }

    fn restore(&self, checkpoint: Record) -> Result<Global, RecordError> {
        Ok(Global(Box::new(A::Global::from_record(checkpoint)?)))
    }

    fn store(&self, global: Global) -> Record {
        global.0.downcast::<A::Global>().expect(FOREIGN).into_record()
    }

    fn current_model<'a>(&self, global: &'a Global) -> &'a ParamSet {
        Algorithm::current_model(self, global.0.downcast_ref().expect(FOREIGN))
    }

    fn broadcast(&self, global: &Global) -> Record {
        Algorithm::broadcast(self, global.0.downcast_ref().expect(FOREIGN)).into_record()
    }

    fn train(
        &self,
        client: &mut Client<'_>,
        received: Record,
        local: Option<Record>,
    ) -> Result<Trained, TrainError> {
        let received = decode_broadcast::<A>(received)?;
        let (mut state, kept) = decode_local::<A>(local)?;
        client.restore(kept);
        let update = Algorithm::train(self, client, received, &mut state)?.into_record();
        let update = error_feedback::apply(client, update)?;
        let mut local = state.into_record();
        client.take_kept().put(&mut local);
        let local = Some(local).filter(|record| *record != Record::default());
        Ok(Trained { update, local })
    }

    fn eval_model(&self, received: Record, local: Option<Record>) -> Result<ParamSet, TrainError> {
        let received = decode_broadcast::<A>(received)?;
        let (state, kept) = decode_local::<A>(local)?;
        let mut model = Algorithm::eval_model(self, &received, &state).ok_or(TrainError::NoModel)?.clone();
        model.insert_under("", kept.buffers);
        Ok(model)
    }

    fn check(&self, round: &Round<'_>, update: Record) -> Result<Checked, Rejection> {
        let update = A::Update::from_record(update)
            .map_err(|error| Rejection::Malformed { reason: reason(&error) })?;
        Algorithm::check(self, round, &update)?;
        Ok(Checked(Box::new(update)))
    }

    fn begin(&self, round: &Round<'_>) -> Result<Partial, AggregateError> {
        let rule = round.spec.aggregation.rule;
        if rule.needs_every_update() {
            return Err(AggregateError::NeedsEveryUpdate { rule: rule.name() });
        }
        Ok(Partial(Box::new(Algorithm::begin(self, round))))
    }

    fn fold(&self, partial: &mut Partial, contribution: Contribution<Checked>, round: &Round<'_>) {
        let Contribution { client, weight, report, update } = contribution;
        let update = *update.0.downcast::<A::Update>().expect(FOREIGN);
        let partial = partial.0.downcast_mut().expect(FOREIGN);
        Algorithm::fold(self, partial, Contribution { client, weight, report, update }, round);
    }

    fn merge(&self, into: &mut Partial, other: Partial) -> Result<(), MergeError> {
        let other = *other.0.downcast::<A::Partial>().expect(FOREIGN);
        Algorithm::merge(self, into.0.downcast_mut().expect(FOREIGN), other)
    }

    fn encode_partial(&self, partial: Partial) -> Record {
        partial.0.downcast::<A::Partial>().expect(FOREIGN).into_record()
    }

    fn decode_partial(&self, record: Record) -> Result<Partial, RecordError> {
        Ok(Partial(Box::new(A::Partial::from_record(record)?)))
    }

    fn close(&self, global: &mut Global, partial: Partial, round: &Round<'_>) -> Closed {
        let partial = *partial.0.downcast::<A::Partial>().expect(FOREIGN);
        let state = global.0.downcast_mut().expect(FOREIGN);
        Algorithm::close(self, state, partial, round)?;
        finite(Algorithm::current_model(self, state))
    }

    fn close_failed(&self, global: &mut Global, partial: Partial, round: &Round<'_>) -> Closed {
        let partial = *partial.0.downcast::<A::Partial>().expect(FOREIGN);
        Algorithm::close_failed(self, global.0.downcast_mut().expect(FOREIGN), partial, round)
    }

    fn alone(&self, contribution: Contribution<Checked>, round: &Round<'_>) -> Option<Partial> {
        let hidden = Algorithm::hidden(self)?;
        let mut partial = ErasedAlgorithm::begin(self, round).ok()?;
        ErasedAlgorithm::fold(self, &mut partial, contribution, round);
        hidden.hide(partial.0.downcast_mut().expect(FOREIGN));
        Some(partial)
    }

    fn count(&self, partial: &mut Partial, contribution: Contribution<()>, round: &Round<'_>) -> Option<()> {
        let Contribution { client, weight, report, update: () } = contribution;
        let update = Algorithm::hidden(self)?.nothing(round);
        let contribution = Contribution { client, weight, report, update };
        Algorithm::fold(self, partial.0.downcast_mut().expect(FOREIGN), contribution, round);
        Some(())
    }

    fn numbers<'a>(&self, partial: &'a mut Partial) -> Option<Vec<(String, &'a mut [i64])>> {
        Some(Algorithm::hidden(self)?.numbers(partial.0.downcast_mut().expect(FOREIGN)))
    }

    fn reveal(&self, partial: &mut Partial) -> Result<(), String> {
        let partial = partial.0.downcast_mut().expect(FOREIGN);
        Algorithm::hidden(self).map_or(Ok(()), |hidden| hidden.reveal(partial))
    }

    fn mixable<'a>(&self, global: &'a mut Global) -> Option<&'a mut ParamSet> {
        Algorithm::mixable(self, global.0.downcast_mut().expect(FOREIGN))
    }

    fn supervised(&self) -> Option<TakeIn<'_>> {
        let supervised = Algorithm::supervised(self)?;
        Some(Box::new(|global, trained| {
            let state = global.0.downcast_mut().expect(FOREIGN);
            supervised.take_in(state, trained)?;
            finite(Algorithm::current_model(self, state))
        }))
    }

    fn personal(&self) -> Option<Deployed<'_>> {
        let personal = Algorithm::personal(self)?;
        Some(Box::new(|global, update| {
            let update = *update.0.downcast::<A::Update>().expect(FOREIGN);
            personal.deployed(global.0.downcast_ref().expect(FOREIGN), update)
        }))
    }

    fn ensemble(&self) -> Option<Answering> {
        Algorithm::ensemble(self)
    }

    fn one_shot(&self) -> bool {
        Algorithm::one_shot(self)
    }

    fn close_stored(
        &self,
        global: &mut Global,
        updates: &mut dyn StoredUpdates,
        round: &Round<'_>,
    ) -> Closed {
        let state = global.0.downcast_mut().expect(FOREIGN);
        Algorithm::stored(self).ok_or(AggregateError::Folded)?.close_stored(state, updates, round)?;
        finite(Algorithm::current_model(self, state))
    }
}

fn decode_broadcast<A: Algorithm>(received: Record) -> Result<A::Broadcast, TrainError> {
    A::Broadcast::from_record(received).map_err(|error| TrainError::Broadcast(error.to_string()))
}

/// What the algorithm keeps on the client, and what the client keeps beside it.
fn decode_local<A: Algorithm>(local: Option<Record>) -> Result<(A::Local, Kept), TrainError> {
    let mut rests = local.unwrap_or_default();
    let kept = Kept::take(&mut rests);
    if rests == Record::default() {
        return Ok((A::Local::default(), kept));
    }
    let state = A::Local::from_record(rests).map_err(|error| TrainError::Local(error.to_string()))?;
    Ok((state, kept))
}

fn finite(published: &ParamSet) -> Result<(), AggregateError> {
    match published.first_non_finite() {
        None => Ok(()),
        Some(tensor) => Err(AggregateError::NotFinite { tensor: tensor.to_owned() }),
    }
}
