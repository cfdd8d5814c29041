//! Number formats of encoded tensors.

use safetensors::Dtype;

use crate::params::Precision;

/// The number formats that a reader accepts, or a writer uses.
pub(crate) trait Number: Copy {
    /// The format of this type, if it is one of them.
    fn from_dtype(dtype: Dtype) -> Option<Self>;
    /// Its name in the header.
    fn dtype(self) -> Dtype;
    /// The bytes that one value takes.
    fn bytes(self) -> usize;
}

/// Floating point alone: everything but partial sums.
impl Number for Precision {
    fn from_dtype(dtype: Dtype) -> Option<Self> {
        Self::from_dtype(dtype)
    }

    fn dtype(self) -> Dtype {
        self.dtype()
    }

    fn bytes(self) -> usize {
        self.bytes()
    }
}

/// Floating point, and integers of 64 bits.
#[derive(Clone, Copy)]
pub(super) enum AnyNumber {
    Float(Precision),
    Integer,
}

impl Number for AnyNumber {
    fn from_dtype(dtype: Dtype) -> Option<Self> {
        match dtype {
            Dtype::I64 => Some(Self::Integer),
            _ => Precision::from_dtype(dtype).map(Self::Float),
        }
    }

    fn dtype(self) -> Dtype {
        match self {
            Self::Float(precision) => precision.dtype(),
            Self::Integer => Dtype::I64,
        }
    }

    fn bytes(self) -> usize {
        match self {
            Self::Float(precision) => precision.bytes(),
            Self::Integer => 8,
        }
    }
}
