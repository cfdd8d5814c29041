//! Number formats of encoded tensors.

use safetensors::Dtype;

use crate::params::{IntegerFormat, Precision};

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

/// Floating point, and integers.
#[derive(Clone, Copy)]
pub(super) enum AnyNumber {
    Float(Precision),
    Integer(IntegerFormat),
}

impl Number for AnyNumber {
    fn from_dtype(dtype: Dtype) -> Option<Self> {
        let integer = IntegerFormat::from_dtype(dtype).map(Self::Integer);
        integer.or_else(|| Precision::from_dtype(dtype).map(Self::Float))
    }

    fn dtype(self) -> Dtype {
        match self {
            Self::Float(precision) => precision.dtype(),
            Self::Integer(format) => format.dtype(),
        }
    }

    fn bytes(self) -> usize {
        match self {
            Self::Float(precision) => precision.bytes(),
            Self::Integer(format) => format.bytes(),
        }
    }
}
