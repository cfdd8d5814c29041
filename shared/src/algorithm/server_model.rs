//! The server's state under most algorithms: the global model, and what the server's optimiser keeps of it.

use std::ops::Range;

use models::params::{Array, ParamSet};

use super::{AggregateError, Round};
use crate::aggregation::{Chain, Matching, Rule, ServerOptimizer, StoredUpdates, WeightedSum};
use crate::record::{Record, RecordError, ToRecord};

/// Prefixes of the moments' names in a checkpoint. No part of a model begins so.
const FIRST: &str = "server.first-moment.";
const SECOND: &str = "server.second-moment.";

/// `w_t`, and the moments of the server's optimiser, which are there from the first step that needs them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerModel {
    /// The global model, buffers included.
    pub w: ParamSet,
    first: ParamSet,
    second: ParamSet,
}

impl ServerModel {
    /// The state before the first round.
    #[must_use]
    pub fn new(w: ParamSet) -> Self {
        Self { w, ..Self::default() }
    }

    /// Steps along `factor` times the mean of what was summed up: the server half of every algorithm whose updates point
    /// where the model should go.
    pub fn step(&mut self, sum: WeightedSum, factor: f32, round: &Round<'_>) -> Result<(), AggregateError> {
        let mut stepper = Stepper::new(self, factor, round);
        round.each_mean(sum, |tensor, offset, values| stepper.step(tensor, offset, values))?;
        Ok(())
    }

    /// [`ServerModel::step`] along what the run's aggregation rule makes of stored updates.
    pub fn step_stored(
        &mut self,
        updates: &mut dyn StoredUpdates,
        factor: f32,
        round: &Round<'_>,
    ) -> Result<(), AggregateError> {
        let rule = round.spec.aggregation.rule;
        let found = updates.contributors().len();
        if found < rule.least() {
            return Err(AggregateError::TooFew { rule: rule.name(), least: rule.least(), found });
        }
        let mut stepper = Stepper::new(self, factor, round);
        if rule == (Rule::Fedma {}) {
            let chain = Chain::of(&round.spec.architecture)?;
            let mut matching = Matching::new(&chain, found);
            for layer in 0..matching.layers() {
                // A layer is stepped along when all clients have been matched in it: what is above does not look back.
                for (tensor, mean) in matching.layer(layer, &stepper.model.w, updates)? {
                    stepper.step(&tensor, 0, &mean);
                }
            }
            return Ok(());
        }
        rule.each_value(updates, round.template, &mut |tensor, offset, values| {
            stepper.step(tensor, offset, values);
        })?;
        Ok(())
    }
}

/// A step in progress, a few values at a time.
struct Stepper<'a> {
    model: &'a mut ServerModel,
    round: &'a Round<'a>,
    optimizer: ServerOptimizer,
    factor: f32,
    delta: Vec<f32>,
}

impl<'a> Stepper<'a> {
    fn new(model: &'a mut ServerModel, factor: f32, round: &'a Round<'a>) -> Self {
        Self { model, round, optimizer: round.spec.aggregation.server_optimizer, factor, delta: Vec::new() }
    }

    /// # Panics
    /// If the tensor is not the model's: updates are checked against the model's template before they are folded.
    fn step(&mut self, tensor: &str, offset: usize, mean: &[f32]) {
        let Self { model, round, optimizer, factor, delta } = self;
        let array = model.w.get_mut(tensor).expect("the server's state fits the template");
        let shape = array.shape().to_vec();
        let place = offset..offset + mean.len();
        let w = &mut array.values_mut()[place.clone()];
        if round.template.is_buffer(tensor) {
            // A statistic is averaged: no optimiser, and nothing that a gradient is scaled by.
            w.iter_mut().zip(mean).for_each(|(w, mean)| *w += mean);
            return;
        }
        delta.clear();
        delta.extend(mean.iter().map(|mean| *factor * mean));
        let (first, second) = optimizer.moments();
        let first = moment(&mut model.first, tensor, &shape, first, &place);
        let second = moment(&mut model.second, tensor, &shape, second, &place);
        optimizer.step(w, delta, first, second);
    }
}

/// The values at `place` of a tensor's moment, all of which begin as `start`; none if there is no such moment.
fn moment<'a>(
    moments: &'a mut ParamSet,
    tensor: &str,
    shape: &[usize],
    start: Option<f32>,
    place: &Range<usize>,
) -> &'a mut [f32] {
    let Some(start) = start else { return &mut [] };
    if moments.get(tensor).is_none() {
        let mut fresh = Array::zeros(shape);
        fresh.values_mut().fill(start);
        moments.insert(tensor, fresh);
    }
    &mut moments.get_mut(tensor).expect("inserted above").values_mut()[place.clone()]
}

/// The model under its own names, the moments beside it.
impl ToRecord for ServerModel {
    fn into_record(self) -> Record {
        let mut tensors = self.w;
        tensors.insert_under(FIRST, self.first);
        tensors.insert_under(SECOND, self.second);
        Record { tensors, ..Record::default() }
    }

    fn from_record(record: Record) -> Result<Self, RecordError> {
        let mut w = ParamSet::from_record(record)?;
        let (first, second) = (w.take_under(FIRST), w.take_under(SECOND));
        Ok(Self { w, first, second })
    }
}
