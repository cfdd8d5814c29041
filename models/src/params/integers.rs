//! Integer tensors in host memory: the accumulators of exact sums.

use std::collections::BTreeMap;

use super::{ShapeError, element_count};

/// Named integer tensors, ordered by name.
pub type IntegerSet = BTreeMap<String, Integers>;

/// A dense row-major tensor of `i64`. The number of values equals the product of the shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Integers {
    shape: Vec<usize>,
    values: Vec<i64>,
}

impl Integers {
    /// A tensor of this shape over these values, in row-major order.
    ///
    /// # Errors
    /// [`ShapeError`] if the product of the shape is not the number of values, or overflows.
    pub fn new(shape: impl Into<Vec<usize>>, values: Vec<i64>) -> Result<Self, ShapeError> {
        let shape = shape.into();
        if element_count(&shape) == Some(values.len()) {
            Ok(Self { shape, values })
        } else {
            Err(ShapeError { shape, values: values.len() })
        }
    }

    /// A tensor of zeros.
    ///
    /// # Panics
    /// As [`Array::zeros`](super::Array::zeros), if the product of the shape overflows.
    #[must_use]
    pub fn zeros(shape: impl Into<Vec<usize>>) -> Self {
        let shape = shape.into();
        let count = element_count(&shape).expect("the caller gives a shape that fits into memory");
        Self { shape, values: vec![0; count] }
    }

    /// The extent of each dimension, outermost first.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The values in row-major order.
    #[must_use]
    pub fn values(&self) -> &[i64] {
        &self.values
    }

    /// The values in row-major order, to be changed in place.
    pub fn values_mut(&mut self) -> &mut [i64] {
        &mut self.values
    }

    /// Shape and values.
    #[must_use]
    pub fn into_parts(self) -> (Vec<usize>, Vec<i64>) {
        (self.shape, self.values)
    }
}
