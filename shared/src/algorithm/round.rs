//! What an algorithm's server half is told about the round.

use std::collections::BTreeMap;

use models::params::{Mismatch, MismatchKind, ParamSet};
use models::{ParameterKind, ParameterSpec, vectorised};

use crate::aggregation::{Buffers, Rule, Scale, WeightedSum};
use crate::id::ClientId;
use crate::message::{Rejection, TrainReport, reason};
use crate::spec::RunSpec;

/// Names and shapes that a parameter set must have, and which of the tensors are buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(BTreeMap<String, Tensor>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Tensor {
    shape: Vec<usize>,
    buffer: bool,
}

impl Template {
    /// The template of what clients send of a model with these parameters.
    #[must_use]
    pub fn of_updates(parameters: impl IntoIterator<Item = ParameterSpec>, buffers: Buffers) -> Self {
        let tensor = |spec: ParameterSpec| {
            (spec.name, Tensor { shape: spec.shape, buffer: spec.kind == ParameterKind::Buffer })
        };
        let sent = |(_, tensor): &(String, Tensor)| !tensor.buffer || buffers == Buffers::Average;
        Self(parameters.into_iter().map(tensor).filter(sent).collect())
    }

    /// The template that `params` fits, without buffers.
    #[must_use]
    pub fn of(params: &ParamSet) -> Self {
        let tensor = |shape: &[usize]| Tensor { shape: shape.to_vec(), buffer: false };
        Self(params.iter().map(|(name, array)| (name.to_owned(), tensor(array.shape()))).collect())
    }

    /// The template of the tensors that follow a gradient.
    #[must_use]
    pub fn without_buffers(&self) -> Self {
        let learned = self.0.iter().filter(|(_, tensor)| !tensor.buffer);
        Self(learned.map(|(name, tensor)| (name.clone(), tensor.clone())).collect())
    }

    /// Names and shapes, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[usize])> {
        self.0.iter().map(|(name, tensor)| (name.as_str(), tensor.shape.as_slice()))
    }

    /// Whether this tensor follows the data and not a gradient.
    #[must_use]
    pub fn is_buffer(&self, tensor: &str) -> bool {
        self.0.get(tensor).is_some_and(|tensor| tensor.buffer)
    }

    /// Whether a fitting parameter set has this tensor.
    #[must_use]
    pub fn contains(&self, tensor: &str) -> bool {
        self.0.contains_key(tensor)
    }

    /// Number of scalars in a fitting parameter set.
    #[must_use]
    pub fn parameters(&self) -> usize {
        self.0.values().map(|tensor| tensor.shape.iter().product::<usize>()).sum()
    }

    /// Does `params` have exactly these names and shapes? The error names the first tensor that differs.
    pub fn check(&self, params: &ParamSet) -> Result<(), Mismatch> {
        for (name, shape) in self.iter() {
            let kind = match params.get(name) {
                None => MismatchKind::Missing,
                Some(array) if array.shape() != shape => {
                    MismatchKind::Shape { expected: shape.to_vec(), found: array.shape().to_vec() }
                }
                Some(_) => continue,
            };
            return Err(Mismatch { tensor: name.to_owned(), kind });
        }
        match params.names().find(|name| !self.0.contains_key(*name)) {
            None => Ok(()),
            Some(extra) => Err(Mismatch { tensor: extra.to_owned(), kind: MismatchKind::Extra }),
        }
    }
}

/// One round, as the server's half of an algorithm sees it.
#[derive(Clone, Copy, Debug)]
pub struct Round<'a> {
    /// Its number, from 1.
    pub number: u32,
    /// The run's specification.
    pub spec: &'a RunSpec,
    /// Names and shapes of the parameters that clients send.
    pub template: &'a Template,
    /// The fixed-point format agreed for this round's sums.
    pub scale: Scale,
    /// Clients that the server knows, K: those that it knew when the round opened, and whoever has joined its cohort since.
    pub clients: usize,
}

impl Round<'_> {
    /// The empty sum of this round's updates under the run's weights, clipped if its rule says so.
    #[must_use]
    pub fn sum(&self) -> WeightedSum {
        let sum = WeightedSum::new(self.template, self.scale, self.spec.aggregation.weights);
        match self.spec.aggregation.rule {
            Rule::ClippedMean { bound } => sum.clipped(self.template, bound),
            _ => sum,
        }
    }

    /// The checks that every update of model shape must pass: layout, finite, bounded.
    pub fn check(&self, params: &ParamSet) -> Result<(), Rejection> {
        self.template.check(params).map_err(|mismatch| Rejection::Layout { reason: reason(&mismatch) })?;
        let limit = self.scale.max_abs();
        // One pass for the usual case: NaN and infinity fail this comparison too. In chunks without a way out, since a
        // loop that may end anywhere is not made into vector instructions.
        let bounded = |values: &[f32]| {
            vectorised(
                #[inline(always)]
                || values.iter().fold(true, |all, value| all & (value.abs() <= limit)),
            )
        };
        for (tensor, array) in params {
            if array.values().chunks(1024).all(bounded) {
                continue;
            }
            if array.values().iter().any(|value| !value.is_finite()) {
                return Err(Rejection::NotFinite { tensor: tensor.to_owned() });
            }
            let found = array.values().iter().fold(0.0, |largest: f32, value| largest.max(value.abs()));
            return Err(Rejection::TooLarge { tensor: reason(&tensor), found, limit });
        }
        Ok(())
    }
}

/// One client's part in a round.
#[derive(Clone, Debug)]
pub struct Contribution<U> {
    /// Who trained it.
    pub client: ClientId,
    /// Its integer weight under the run's [`Weights`](crate::aggregation::Weights).
    pub weight: u64,
    /// How the training went.
    pub report: TrainReport,
    /// What was trained.
    pub update: U,
}

#[cfg(test)]
mod tests {
    use super::*;
    use models::params::Array;

    fn set(tensors: &[(&str, &[f32])]) -> ParamSet {
        let mut params = ParamSet::new();
        for (name, values) in tensors {
            params.insert(*name, Array::new(vec![values.len()], values.to_vec()).expect("one axis"));
        }
        params
    }

    #[test]
    fn a_template_names_the_tensor_that_differs() {
        let template = Template::of(&set(&[("a", &[0.0]), ("b", &[0.0, 0.0])]));
        assert_eq!(template.parameters(), 3);
        assert_eq!(template.check(&set(&[("a", &[5.0]), ("b", &[1.0, 2.0])])), Ok(()));
        let cases = [
            (set(&[("a", &[0.0])]), "b", MismatchKind::Missing),
            (set(&[("a", &[0.0]), ("b", &[0.0, 0.0]), ("c", &[])]), "c", MismatchKind::Extra),
            (
                set(&[("a", &[0.0]), ("b", &[0.0])]),
                "b",
                MismatchKind::Shape { expected: vec![2], found: vec![1] },
            ),
        ];
        for (found, tensor, kind) in cases {
            assert_eq!(template.check(&found), Err(Mismatch { tensor: tensor.to_owned(), kind }));
        }
    }
}
