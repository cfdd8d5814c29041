//! `[update]`: what travels between server and clients.

use std::fmt;
use std::ops::Bound::{Excluded, Included};

use models::Precision;
use models::compression::{self, Compression};
use serde::{Deserialize, Serialize};

use crate::settings::Kind;

crate::named!(ModelFormat, UpdateFormat);

crate::section! {
    /// Number formats on the wire, and which updates are believed. The model itself stays f32 on both sides.
    #[derive(Copy)]
    pub struct Update {
        /// Of updates on the wire: f32, f16, bf16, int8 or int4
        ///
        /// The last two are unbiased, and take a quarter and an eighth of f32 ([`compression`]); statistics of normalisation layers and
        /// what is short stay f32.
        pub precision: UpdateFormat = UpdateFormat::F32;
        /// Share of an update's values that are sent, the largest; the rest is kept
        ///
        /// It is one of every tensor's values; statistics of normalisation layers and what is short are sent whole and in f32. The others
        /// are sent in the format of `precision`.
        pub top_k: Option<f64> = None, in Kind::Number(Excluded(0.0), Included(1.0)), unset "all";
        /// Of models on it: f32, f16, bf16 or int8
        ///
        /// The last is that of differences to the model that a device has ([`differences`](crate::differences)); a device without one, or
        /// with one that is too old, is sent the whole in f32.
        pub broadcast: Option<ModelFormat> = None, unset "update.precision, bf16 for int8 and int4";
        /// Updates with values beyond this are rejected
        pub max_abs: f64 = 1000.0, in Kind::RATE;
    }
}

impl Update {
    /// The number format of the models that the server sends.
    #[must_use]
    pub fn broadcast(&self) -> ModelFormat {
        self.broadcast.or(self.precision.precision().map(ModelFormat::from)).unwrap_or(ModelFormat::BF16)
    }

    /// How updates are compressed, with this seed, if they are.
    #[must_use]
    pub fn compression(&self, seed: [u8; 32]) -> Option<Compression> {
        let sparse = self.top_k.is_some();
        let floats = self.precision.precision().filter(|_| sparse).map(compression::Format::Float);
        let format = self.precision.compression().or(floats)?;
        Some(Compression { format, sparse, seed })
    }

    /// Whether updates are compressed.
    #[must_use]
    pub fn is_compressed(&self) -> bool {
        self.compression([0; 32]).is_some()
    }

    /// The most bytes that a value of an update takes: tensors that are too short to be compressed stay f32, and zeros are left out of
    /// those alone that take fewer bytes so.
    #[must_use]
    pub fn most_bytes(&self) -> u64 {
        let whole = self.precision.precision().filter(|_| !self.is_compressed());
        whole.map_or(4, |precision| precision.bytes() as u64)
    }
}

/// How the values of a model travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ModelFormat {
    /// As they are.
    #[default]
    F32,
    /// Rounded to 16 bits.
    F16,
    /// Rounded to the upper 16 bits.
    BF16,
    /// As differences to the model that a device has, in 8 bits.
    Int8,
}

impl ModelFormat {
    /// The precision in which a whole model travels.
    #[must_use]
    pub fn whole(self) -> Precision {
        match self {
            // Those who were sent differences have the same bytes.
            Self::F32 | Self::Int8 => Precision::F32,
            Self::F16 => Precision::F16,
            Self::BF16 => Precision::BF16,
        }
    }

    /// Whether models travel as differences, where a device has one.
    #[must_use]
    pub fn is_difference(self) -> bool {
        self == Self::Int8
    }

    /// The precision in which every model travels; `None` if some do as differences.
    #[must_use]
    pub fn precision(self) -> Option<Precision> {
        Some(self.whole()).filter(|_| !self.is_difference())
    }
}

impl From<Precision> for ModelFormat {
    fn from(precision: Precision) -> Self {
        match precision {
            Precision::F32 => Self::F32,
            Precision::F16 => Self::F16,
            Precision::BF16 => Self::BF16,
        }
    }
}

impl fmt::Display for ModelFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(crate::settings::variants::<Self>()[*self as usize])
    }
}

/// How the values of an update travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UpdateFormat {
    /// As they are.
    #[default]
    F32,
    /// Rounded to 16 bits.
    F16,
    /// Rounded to the upper 16 bits.
    BF16,
    /// Rounded to 8 bits at random.
    Int8,
    /// Rotated at random, in 4 bits.
    Int4,
}

impl UpdateFormat {
    /// The precision in which every value travels; `None` if they are compressed.
    #[must_use]
    pub fn precision(self) -> Option<Precision> {
        match self {
            Self::F32 => Some(Precision::F32),
            Self::F16 => Some(Precision::F16),
            Self::BF16 => Some(Precision::BF16),
            Self::Int8 | Self::Int4 => None,
        }
    }

    /// How values are compressed, if they are.
    #[must_use]
    pub fn compression(self) -> Option<compression::Format> {
        match self {
            Self::F32 | Self::F16 | Self::BF16 => None,
            Self::Int8 => Some(compression::Format::Int8),
            Self::Int4 => Some(compression::Format::Int4),
        }
    }
}

impl From<Precision> for UpdateFormat {
    fn from(precision: Precision) -> Self {
        match precision {
            Precision::F32 => Self::F32,
            Precision::F16 => Self::F16,
            Precision::BF16 => Self::BF16,
        }
    }
}

impl fmt::Display for UpdateFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(crate::settings::variants::<Self>()[*self as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_have_the_names_of_the_configuration_and_models_travel_in_16_bits_beside_compressed_updates() {
        for (format, broadcast) in [
            (UpdateFormat::F32, ModelFormat::F32),
            (UpdateFormat::F16, ModelFormat::F16),
            (UpdateFormat::BF16, ModelFormat::BF16),
            (UpdateFormat::Int8, ModelFormat::BF16),
            (UpdateFormat::Int4, ModelFormat::BF16),
        ] {
            assert_eq!(serde_json::to_string(&format).unwrap(), format!("\"{format}\""));
            assert_eq!(Update { precision: format, ..Update::default() }.broadcast(), broadcast);
            assert_eq!(
                format.precision().map(UpdateFormat::from),
                Some(format).filter(|_| format.compression().is_none())
            );
        }
        for (top_k, precision, most) in [
            (None, UpdateFormat::F16, 2),
            (None, UpdateFormat::Int4, 4),
            (Some(0.1), UpdateFormat::F16, 4),
            (Some(0.1), UpdateFormat::F32, 4),
        ] {
            let update = Update { precision, top_k, ..Update::default() };
            assert_eq!((update.most_bytes(), update.is_compressed()), (most, most == 4), "{update:?}");
        }
        for format in [ModelFormat::F32, ModelFormat::F16, ModelFormat::BF16, ModelFormat::Int8] {
            assert_eq!(serde_json::to_string(&format).unwrap(), format!("\"{format}\""));
            assert_eq!(ModelFormat::from(format.whole()) == format, !format.is_difference());
        }
    }
}
