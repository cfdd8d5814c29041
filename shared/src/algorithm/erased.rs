//! The one place where an algorithm's types are erased.
//!
//! Nothing above this file is generic over the algorithm: drivers hold an [`ErasedAlgorithm`] and move
//! [`Record`]s, [`Global`]s and [`Partial`]s. The two boxes are opened only by the algorithm that made them.

use std::any::Any;

use models::Architecture;
use models::params::ParamSet;

use super::{
    AggregateError, Algorithm, Answering, Client, Conflict, Contribution, Round, Settings, TrainError,
    combinations,
};
use crate::aggregation::StoredUpdates;
use crate::id::ClientId;
use crate::message::{Rejection, TrainReport, reason};
use crate::record::{Record, RecordError, ToRecord};
use crate::spec::{DataSpec, RunSpec, Training};

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

/// [`Algorithm`] without its types. Implemented for every algorithm, by hand for none.
pub trait ErasedAlgorithm: Send + Sync {
    /// [`Algorithm::NAME`].
    fn name(&self) -> &'static str;
    /// What of these makes no sense with it ([`Algorithm::INCOMPATIBLE`]).
    fn conflicts(&self, settings: &Settings<'_>) -> Vec<Conflict>;
    /// [`Algorithm::check_data`].
    fn check_data(&self, data: &DataSpec, training: &Training) -> Result<(), String>;
    /// [`Algorithm::network`].
    fn network(&self, configured: Architecture) -> Result<Architecture, String>;
    /// [`Algorithm::init`].
    fn init(&self, params: ParamSet) -> Global;
    /// The server state from its checkpoint.
    fn restore(&self, checkpoint: Record) -> Result<Global, RecordError>;
    /// The server state as a checkpoint.
    fn store(&self, global: Global) -> Record;
    /// [`Algorithm::published`].
    fn published<'a>(&self, global: &'a Global) -> &'a ParamSet;
    /// [`Algorithm::broadcast`].
    fn broadcast(&self, global: &Global) -> Record;
    /// [`Algorithm::train`]. `local` is what the client's previous round left.
    fn train(
        &self,
        client: &mut Client<'_>,
        received: Record,
        local: Option<Record>,
    ) -> Result<Trained, TrainError>;
    /// [`Algorithm::used`], with the buffers that stay on the device.
    fn used(&self, received: Record, local: Option<Record>) -> Result<ParamSet, TrainError>;
    /// Decodes an update and runs [`Algorithm::check`]; believes nothing else.
    fn check(&self, round: &Round<'_>, update: Record) -> Result<Checked, Rejection>;
    /// [`Algorithm::begin`].
    fn begin(&self, round: &Round<'_>) -> Partial;
    /// [`Algorithm::fold`].
    fn fold(
        &self,
        partial: &mut Partial,
        client: ClientId,
        weight: u64,
        report: TrainReport,
        update: Checked,
    );
    /// [`Algorithm::merge`].
    fn merge(&self, into: &mut Partial, other: Partial);
    /// [`Algorithm::ensemble`].
    fn ensemble(&self) -> Option<Answering>;
    /// [`Algorithm::is_personal`].
    fn is_personal(&self) -> bool;
    /// [`Algorithm::deployed`].
    fn deployed(&self, global: &Global, update: Checked) -> Option<ParamSet>;
    /// [`Algorithm::close`], and the check that the new model is finite.
    fn close(&self, global: &mut Global, partial: Partial, round: &Round<'_>) -> Result<(), AggregateError>;
    /// [`Algorithm::close_void`].
    fn close_void(
        &self,
        global: &mut Global,
        partial: Partial,
        round: &Round<'_>,
    ) -> Result<(), AggregateError>;
    /// [`Algorithm::mixed`].
    fn mixed<'a>(&self, global: &'a mut Global) -> Option<&'a mut ParamSet>;
    /// [`Algorithm::SUPERVISED`].
    fn is_supervised(&self) -> bool;
    /// [`Algorithm::supervised`], and the check that the model is finite.
    fn supervised(&self, global: &mut Global, trained: ParamSet) -> Result<(), AggregateError>;
    /// [`Algorithm::needs_every_update`].
    fn needs_every_update(&self, spec: &RunSpec) -> bool;
    /// [`Algorithm::close_stored`], and the check that the new model is finite.
    fn close_stored(
        &self,
        global: &mut Global,
        updates: &mut dyn StoredUpdates,
        round: &Round<'_>,
    ) -> Result<(), AggregateError>;
}

/// An update that was checked and may be folded.
pub struct Checked(Box<dyn Any + Send>);

/// Prefix of the names under which a client's own buffers rest beside what its algorithm keeps.
const BUFFERS: &str = "client.buffers.";

const FOREIGN: &str = "boxes are opened only by the algorithm that made them";

impl<A> ErasedAlgorithm for A
where
    A: Algorithm,
    A::Update: Send + 'static,
{
    fn name(&self) -> &'static str {
        A::NAME
    }

    fn conflicts(&self, settings: &Settings<'_>) -> Vec<Conflict> {
        combinations::conflicts(A::INCOMPATIBLE, settings)
    }

    fn check_data(&self, data: &DataSpec, training: &Training) -> Result<(), String> {
        Algorithm::check_data(self, data, training)
    }

    fn network(&self, configured: Architecture) -> Result<Architecture, String> {
        Algorithm::network(self, configured)
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

    fn published<'a>(&self, global: &'a Global) -> &'a ParamSet {
        Algorithm::published(self, global.0.downcast_ref().expect(FOREIGN))
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
        let received = unpack_broadcast::<A>(received)?;
        let (mut state, buffers) = unpack_local::<A>(local)?;
        client.restore_buffers(buffers);
        let update = Algorithm::train(self, client, received, &mut state)?.into_record();
        let mut local = state.into_record();
        local.tensors.insert_under(BUFFERS, client.take_buffers());
        let local = Some(local).filter(|record| *record != Record::default());
        Ok(Trained { update, local })
    }

    fn used(&self, received: Record, local: Option<Record>) -> Result<ParamSet, TrainError> {
        let received = unpack_broadcast::<A>(received)?;
        let (state, buffers) = unpack_local::<A>(local)?;
        let mut model = Algorithm::used(self, &received, &state).ok_or(TrainError::NoModel)?.clone();
        model.insert_under("", buffers);
        Ok(model)
    }

    fn check(&self, round: &Round<'_>, update: Record) -> Result<Checked, Rejection> {
        let update = A::Update::from_record(update)
            .map_err(|error| Rejection::Malformed { reason: reason(&error) })?;
        Algorithm::check(self, round, &update)?;
        Ok(Checked(Box::new(update)))
    }

    fn begin(&self, round: &Round<'_>) -> Partial {
        Partial(Box::new(Algorithm::begin(self, round)))
    }

    fn fold(
        &self,
        partial: &mut Partial,
        client: ClientId,
        weight: u64,
        report: TrainReport,
        update: Checked,
    ) {
        let update = *update.0.downcast::<A::Update>().expect(FOREIGN);
        let partial = partial.0.downcast_mut().expect(FOREIGN);
        Algorithm::fold(self, partial, Contribution { client, weight, report, update });
    }

    fn merge(&self, into: &mut Partial, other: Partial) {
        let other = *other.0.downcast::<A::Partial>().expect(FOREIGN);
        Algorithm::merge(self, into.0.downcast_mut().expect(FOREIGN), other);
    }

    fn close(&self, global: &mut Global, partial: Partial, round: &Round<'_>) -> Result<(), AggregateError> {
        let partial = *partial.0.downcast::<A::Partial>().expect(FOREIGN);
        let state = global.0.downcast_mut().expect(FOREIGN);
        Algorithm::close(self, state, partial, round)?;
        finite(Algorithm::published(self, state))
    }

    fn close_void(
        &self,
        global: &mut Global,
        partial: Partial,
        round: &Round<'_>,
    ) -> Result<(), AggregateError> {
        let partial = *partial.0.downcast::<A::Partial>().expect(FOREIGN);
        Algorithm::close_void(self, global.0.downcast_mut().expect(FOREIGN), partial, round)
    }

    fn mixed<'a>(&self, global: &'a mut Global) -> Option<&'a mut ParamSet> {
        Algorithm::mixed(self, global.0.downcast_mut().expect(FOREIGN))
    }

    fn is_supervised(&self) -> bool {
        A::SUPERVISED
    }

    fn supervised(&self, global: &mut Global, trained: ParamSet) -> Result<(), AggregateError> {
        let state = global.0.downcast_mut().expect(FOREIGN);
        Algorithm::supervised(self, state, trained)?;
        finite(Algorithm::published(self, state))
    }

    fn ensemble(&self) -> Option<Answering> {
        Algorithm::ensemble(self)
    }

    fn is_personal(&self) -> bool {
        Algorithm::is_personal(self)
    }

    fn deployed(&self, global: &Global, update: Checked) -> Option<ParamSet> {
        let update = *update.0.downcast::<A::Update>().expect(FOREIGN);
        Algorithm::deployed(self, global.0.downcast_ref().expect(FOREIGN), update)
    }

    fn needs_every_update(&self, spec: &RunSpec) -> bool {
        Algorithm::needs_every_update(self, spec)
    }

    fn close_stored(
        &self,
        global: &mut Global,
        updates: &mut dyn StoredUpdates,
        round: &Round<'_>,
    ) -> Result<(), AggregateError> {
        let state = global.0.downcast_mut().expect(FOREIGN);
        Algorithm::close_stored(self, state, updates, round)?;
        finite(Algorithm::published(self, state))
    }
}

fn unpack_broadcast<A: Algorithm>(received: Record) -> Result<A::Broadcast, TrainError> {
    A::Broadcast::from_record(received).map_err(|error| TrainError::Broadcast(error.to_string()))
}

/// What the algorithm keeps on the client, and the client's own buffers.
fn unpack_local<A: Algorithm>(local: Option<Record>) -> Result<(A::Local, ParamSet), TrainError> {
    let mut kept = local.unwrap_or_default();
    let buffers = kept.tensors.take_under(BUFFERS);
    if kept == Record::default() {
        return Ok((A::Local::default(), buffers));
    }
    let state = A::Local::from_record(kept).map_err(|error| TrainError::Local(error.to_string()))?;
    Ok((state, buffers))
}

fn finite(published: &ParamSet) -> Result<(), AggregateError> {
    match published.first_non_finite() {
        None => Ok(()),
        Some(tensor) => Err(AggregateError::NotFinite { tensor: tensor.to_owned() }),
    }
}
