//! Names and shapes of what clients send.

use std::collections::BTreeMap;

use models::params::{Array, Mismatch, MismatchKind, ParamSet};
use models::{ParameterKind, ParameterSpec};

use super::Buffers;

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

    /// The parameter set of zeros that fits it.
    #[must_use]
    pub fn zeros(&self) -> ParamSet {
        let mut zeros = ParamSet::new();
        for (name, shape) in self.iter() {
            zeros.insert(name, Array::zeros(shape));
        }
        zeros
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

#[cfg(test)]
mod tests {
    use super::*;

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
