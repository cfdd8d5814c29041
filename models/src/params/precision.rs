//! The number format parameters travel and rest in.

use std::fmt;

use safetensors::Dtype;
use serde::{Deserialize, Serialize};

/// The number format of stored or sent values. In memory, values are always `f32`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// IEEE 754 single precision: exact.
    #[default]
    F32,
    /// IEEE 754 half precision: 11 significant bits, so a relative rounding error of at most 2^-11 from 2^-14 (about
    /// 6.1e-5) up to 65504, an absolute one of at most 2^-25 below that, and infinity above.
    F16,
    /// The upper half of an `f32`: 8 significant bits, so a relative rounding error of at most 2^-8 over nearly the whole
    /// range of `f32`.
    BF16,
}

impl Precision {
    /// The bytes that one value takes.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::BF16 => 2,
        }
    }

    pub(crate) fn dtype(self) -> Dtype {
        match self {
            Self::F32 => Dtype::F32,
            Self::F16 => Dtype::F16,
            Self::BF16 => Dtype::BF16,
        }
    }

    pub(crate) fn from_dtype(dtype: Dtype) -> Option<Self> {
        match dtype {
            Dtype::F32 => Some(Self::F32),
            Dtype::F16 => Some(Self::F16),
            Dtype::BF16 => Some(Self::BF16),
            _ => None,
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_and_display_use_the_same_names() {
        for precision in [Precision::F32, Precision::F16, Precision::BF16] {
            let json = serde_json::to_string(&precision).unwrap();
            assert_eq!(json, format!("\"{precision}\""));
            assert_eq!(Precision::from_dtype(precision.dtype()), Some(precision));
            assert_eq!(precision.dtype().bitsize(), 8 * precision.bytes());
        }
    }
}
