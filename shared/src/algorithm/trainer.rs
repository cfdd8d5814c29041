//! Trainers: programs of the device's owner that train and test a network in place of our engine.

use std::ops::ControlFlow;

use models::ParamSet;

use super::{TrainError, TrainerError};
use crate::spec::Training;
use crate::task::Progress;

/// A program that trains and tests networks of its own framework on samples that it alone reads.
pub trait Trainer {
    /// Trains a model. `monitor` is told the progress and cancels by breaking.
    ///
    /// # Errors
    /// [`TrainError::Trainer`], or [`TrainError::Cancelled`].
    fn train(
        &mut self,
        job: &TrainerJob<'_>,
        monitor: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<TrainerResult, TrainError>;

    /// Tests a model on the trainer's test samples.
    ///
    /// # Errors
    /// As [`Trainer::train`].
    fn test(
        &mut self,
        round: u32,
        params: &ParamSet,
        monitor: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<TrainerTest, TrainError>;
}

/// What a trainer is asked for.
#[derive(Debug)]
pub struct TrainerJob<'a> {
    /// The round.
    pub round: u32,
    /// Samples that it has said to have.
    pub samples: u64,
    /// For all that it draws: the run's, the round's and the client's.
    pub seed: u32,
    /// The run's `[training]`.
    pub training: &'a Training,
    /// The learning rate in this round, by the run's schedule.
    pub learning_rate: f64,
    /// The model to start from: all tensors.
    pub params: &'a ParamSet,
}

/// What a trainer has made of it.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainerResult {
    /// The model after the training: at least the tensors that are learned.
    pub params: ParamSet,
    /// Optimiser steps.
    pub steps: u64,
    /// Mean training loss.
    pub loss: f64,
    /// Share of the training samples that were classified correctly, if it says so.
    pub accuracy: Option<f64>,
}

/// What a trainer has found of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrainerTest {
    /// Test samples.
    pub samples: u64,
    /// Mean loss on them.
    pub loss: f64,
    /// Share of them that were classified correctly, if they have classes.
    pub accuracy: Option<f64>,
}

/// Takes the tensors that are learned out of what a trainer has given back.
///
/// # Errors
/// [`TrainerError::Model`], which names the first tensor that is missing, is too much, has another shape or is not finite.
pub(super) fn learned(
    start: &ParamSet,
    whole: &ParamSet,
    mut given: ParamSet,
) -> Result<ParamSet, TrainerError> {
    let refused = |reason: String| Err(TrainerError::Model { reason });
    for (name, array) in start {
        let Some(found) = given.get(name) else { return refused(format!("there is no tensor `{name}`")) };
        if found.shape() != array.shape() {
            let (found, expected) = (found.shape(), array.shape());
            return refused(format!(
                "the tensor `{name}` has the shape {found:?} and must have {expected:?}"
            ));
        }
    }
    let names: Vec<String> = given.names().map(str::to_owned).collect();
    for name in names {
        if start.get(&name).is_none() {
            if whole.get(&name).is_none() {
                return refused(format!("the run's model has no tensor `{name}`"));
            }
            given.remove(&name);
        }
    }
    match given.first_non_finite() {
        Some(name) => refused(format!("the tensor `{name}` has values that are no finite numbers")),
        None => Ok(given),
    }
}

#[cfg(test)]
mod tests {
    use models::Array;

    use super::*;

    fn set(tensors: &[(&str, &[f32])]) -> ParamSet {
        let array = |values: &[f32]| Array::new([values.len()], values.to_vec()).unwrap();
        tensors.iter().map(|(name, values)| ((*name).to_owned(), array(values))).collect()
    }

    #[test]
    fn what_is_learned_is_taken_and_the_rest_is_named() {
        let start = set(&[("a", &[1.0, 2.0])]);
        let whole = set(&[("a", &[1.0, 2.0]), ("fixed", &[0.0])]);
        let taken = |given: &[(&str, &[f32])]| learned(&start, &whole, set(given));
        assert_eq!(taken(&[("a", &[3.0, 4.0]), ("fixed", &[9.0])]), Ok(set(&[("a", &[3.0, 4.0])])));
        for (given, part) in [
            (&[("b", &[1.0][..])][..], "no tensor `a`"),
            (&[("a", &[1.0])], "`a` has the shape [1] and must have [2]"),
            (&[("a", &[1.0, 2.0]), ("b", &[1.0])], "has no tensor `b`"),
            (&[("a", &[1.0, f32::NAN])], "`a` has values"),
        ] {
            let said = taken(given).unwrap_err().to_string();
            assert!(said.contains(part), "{said}");
        }
    }
}
