//! Integer tensors in host memory: the accumulators of exact sums.

use std::collections::BTreeMap;
use std::fmt;

use safetensors::Dtype;
use serde::{Deserialize, Serialize};

use super::{ShapeError, element_count};

/// Named integer tensors, ordered by name.
pub type IntegerSet = BTreeMap<String, Integers>;

/// The number format that integers travel and rest in. In memory they are always `i64`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IntegerFormat {
    /// 64 bits.
    #[default]
    I64,
    /// 32 bits.
    I32,
}

impl IntegerFormat {
    /// The bits of one value.
    #[must_use]
    pub fn bits(self) -> u32 {
        match self {
            Self::I64 => 64,
            Self::I32 => 32,
        }
    }

    /// The bytes that one value takes.
    #[must_use]
    pub fn bytes(self) -> usize {
        self.bits() as usize / 8
    }

    /// The number of this format that is equal to `value` modulo 2 to the number of its bits.
    #[must_use]
    #[inline]
    pub fn wrap(self, value: i64) -> i64 {
        match self {
            Self::I64 => value,
            Self::I32 => i64::from(value as i32),
        }
    }

    pub(crate) fn dtype(self) -> Dtype {
        match self {
            Self::I64 => Dtype::I64,
            Self::I32 => Dtype::I32,
        }
    }

    pub(crate) fn from_dtype(dtype: Dtype) -> Option<Self> {
        match dtype {
            Dtype::I64 => Some(Self::I64),
            Dtype::I32 => Some(Self::I32),
            _ => None,
        }
    }
}

impl fmt::Display for IntegerFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::I64 => "i64",
            Self::I32 => "i32",
        })
    }
}

/// A dense row-major tensor of `i64`. The number of values equals the product of the shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Integers {
    shape: Vec<usize>,
    values: Vec<i64>,
    format: IntegerFormat,
}

impl Integers {
    /// A tensor of this shape over these values, in row-major order.
    ///
    /// # Errors
    /// [`ShapeError`] if the product of the shape is not the number of values, or overflows.
    pub fn new(shape: impl Into<Vec<usize>>, values: Vec<i64>) -> Result<Self, ShapeError> {
        let shape = shape.into();
        if element_count(&shape) == Some(values.len()) {
            Ok(Self { shape, values, format: IntegerFormat::I64 })
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
        Self { shape, values: vec![0; count], format: IntegerFormat::I64 }
    }

    /// The same tensor in another format. What it cannot hold is [wrapped](IntegerFormat::wrap) when it is written.
    #[must_use]
    pub fn in_format(self, format: IntegerFormat) -> Self {
        Self { format, ..self }
    }

    /// The format in which it is written.
    #[must_use]
    pub fn format(&self) -> IntegerFormat {
        self.format
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
