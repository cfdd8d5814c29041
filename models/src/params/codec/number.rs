//! Number formats of encoded tensors.

use safetensors::Dtype;

use crate::params::Precision;

/// The number formats that a reader accepts, or a writer uses.
pub(super) trait Number: Copy {
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

/// Floating point, and bytes that stand for it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Packed {
    Float(Precision),
    /// A whole number of 8 bits each.
    Signed,
    /// Anything of 8 bits.
    Unsigned,
}

impl Number for Packed {
    fn from_dtype(dtype: Dtype) -> Option<Self> {
        match dtype {
            Dtype::I8 => Some(Self::Signed),
            Dtype::U8 => Some(Self::Unsigned),
            _ => Precision::from_dtype(dtype).map(Self::Float),
        }
    }

    fn dtype(self) -> Dtype {
        match self {
            Self::Float(precision) => precision.dtype(),
            Self::Signed => Dtype::I8,
            Self::Unsigned => Dtype::U8,
        }
    }

    fn bytes(self) -> usize {
        match self {
            Self::Float(precision) => precision.bytes(),
            Self::Signed | Self::Unsigned => 1,
        }
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
