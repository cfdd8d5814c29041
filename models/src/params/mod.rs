//! Parameter sets: what is trained, averaged, sent and stored.
//!
//! A [`ParamSet`] maps names to host arrays, ordered by name. Two sets are always paired by name, and a disagreement
//! names the tensor ([`Mismatch`]). The part of the model a tensor belongs to is the prefix of its name (`extractor.`,
//! `projection.`, `head.`), so choosing a part is choosing names ([`ParamSet::select`]).

mod array;
pub mod codec;
pub mod foreign;
mod integers;
mod layout;
mod precision;
mod verbs;

use std::collections::{BTreeMap, btree_map};

pub use array::{Array, ShapeError, element_count};
pub use integers::{IntegerFormat, IntegerSet, Integers};
pub use layout::LayoutId;
pub use precision::Precision;
pub use verbs::{Mismatch, MismatchKind};

/// Named tensors in host memory, ordered by name.
///
/// ```
/// use models::{Array, ParamSet};
///
/// let mut params = ParamSet::new();
/// params.insert("head.fc.weight", Array::zeros([10, 784]));
/// params.insert("head.fc.bias", Array::zeros([10]));
/// assert_eq!(params.names().collect::<Vec<_>>(), ["head.fc.bias", "head.fc.weight"]);
/// assert_eq!((params.len(), params.parameters()), (2, 7850));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ParamSet {
    arrays: BTreeMap<String, Array>,
}

impl ParamSet {
    /// A set without tensors.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts a tensor under a name and returns the one it replaces.
    pub fn insert(&mut self, name: impl Into<String>, array: Array) -> Option<Array> {
        self.arrays.insert(name.into(), array)
    }

    /// Takes the tensor of this name out.
    pub fn remove(&mut self, name: &str) -> Option<Array> {
        self.arrays.remove(name)
    }

    /// The tensor of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Array> {
        self.arrays.get(name)
    }

    /// The tensor of this name, to be changed in place.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Array> {
        self.arrays.get_mut(name)
    }

    /// Every tensor with its name, in name order.
    #[must_use]
    pub fn iter(&self) -> Iter<'_> {
        Iter(self.arrays.iter())
    }

    /// Every tensor with its name, in name order, to be changed in place.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut Array)> {
        self.arrays.iter_mut().map(|(name, array)| (name.as_str(), array))
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.arrays.keys().map(String::as_str)
    }

    /// The number of tensors.
    #[must_use]
    pub fn len(&self) -> usize {
        self.arrays.len()
    }

    /// Whether there are no tensors.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.arrays.is_empty()
    }

    /// The number of scalars in all tensors together.
    #[must_use]
    pub fn parameters(&self) -> usize {
        self.arrays.values().map(Array::len).sum()
    }
}

impl FromIterator<(String, Array)> for ParamSet {
    /// Collects named tensors; of two with the same name the later stays.
    fn from_iter<I: IntoIterator<Item = (String, Array)>>(tensors: I) -> Self {
        Self { arrays: tensors.into_iter().collect() }
    }
}

impl IntoIterator for ParamSet {
    type Item = (String, Array);
    type IntoIter = btree_map::IntoIter<String, Array>;

    fn into_iter(self) -> Self::IntoIter {
        self.arrays.into_iter()
    }
}

impl<'a> IntoIterator for &'a ParamSet {
    type Item = (&'a str, &'a Array);
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// The tensors of a [`ParamSet`] with their names, in name order.
#[derive(Clone, Debug)]
pub struct Iter<'a>(btree_map::Iter<'a, String, Array>);

impl<'a> Iterator for Iter<'a> {
    type Item = (&'a str, &'a Array);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|(name, array)| (name.as_str(), array))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.0.size_hint()
    }
}

impl ExactSizeIterator for Iter<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_that_of_the_names_whatever_the_order_of_insertion() {
        let mut forwards = ParamSet::new();
        let mut backwards = ParamSet::new();
        for name in ["a", "b.c", "b"] {
            forwards.insert(name, Array::zeros([2]));
        }
        for name in ["b", "b.c", "a"] {
            backwards.insert(name, Array::zeros([2]));
        }
        assert_eq!(forwards, backwards);
        assert_eq!(forwards.names().collect::<Vec<_>>(), ["a", "b", "b.c"]);
        assert_eq!(forwards.iter().len(), 3);
    }

    #[test]
    fn debug_output_is_names_and_shapes() {
        let mut params = ParamSet::new();
        params.insert("w", Array::zeros([3, 4]));
        assert_eq!(format!("{params:?}"), r#"ParamSet { arrays: {"w": Array[3, 4]} }"#);
    }
}
