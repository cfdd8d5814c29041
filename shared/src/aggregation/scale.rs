//! The fixed-point format of a round's sums.
//!
//! It is agreed when a round opens, from what is then known: the largest weight a member may have, the number of members, and the
//! largest magnitude that an update is allowed to have. It leaves `2^-31` per weighted term at worst for ordinary rounds, far below the
//! resolution of the f32 parameters that the mean is rounded to. Sums of 32 bits, which half the bytes of a hidden update take, leave
//! less: how much follows from `update.max-abs`.

use models::params::IntegerFormat;
use serde::{Deserialize, Serialize};

/// Bits of the greatest term: how values are [rounded](super::ExactSum) is exact below it.
const MAX_TERM_BITS: i32 = 50;

/// The fixed-point format of one round's sums.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scale {
    max_abs: f32,
    max_weight: u64,
    exponent: i32,
}

impl Scale {
    /// The finest scale at which `terms` contributions of weight up to `max_weight` and magnitude up to
    /// `max_abs` cannot overflow.
    ///
    /// # Panics
    /// If `max_abs` is not positive and finite.
    #[must_use]
    pub fn agree(max_abs: f32, max_weight: u64, terms: usize) -> Self {
        Self::agree_in(IntegerFormat::I64, max_abs, max_weight, terms)
    }

    /// The same for sums that are whole numbers of this format.
    ///
    /// # Panics
    /// As [`agree`](Self::agree).
    #[must_use]
    pub fn agree_in(format: IntegerFormat, max_abs: f32, max_weight: u64, terms: usize) -> Self {
        assert!(max_abs > 0.0 && max_abs.is_finite(), "the magnitude bound is a positive number");
        let max_weight = max_weight.max(1);
        // One bit is the sign, and one is left for what roundings add.
        let sum_bits = format.bits().cast_signed() - 2 - ceil_log2(terms.max(1) as u64);
        let term_bits = sum_bits.min(MAX_TERM_BITS);
        let used = max_abs.log2().ceil() as i32 + ceil_log2(max_weight);
        Self { max_abs, max_weight, exponent: term_bits - used }
    }

    /// The scale whose unit is `2^-exponent`, for single terms of which the caller knows that they do not overflow it.
    pub(super) fn with_exponent(max_abs: f32, exponent: i32) -> Self {
        Self { max_abs, max_weight: 1, exponent }
    }

    /// Largest magnitude of a value that may be added.
    #[must_use]
    pub fn max_abs(&self) -> f32 {
        self.max_abs
    }

    /// The greatest weight.
    pub(super) fn max_weight(&self) -> u64 {
        self.max_weight
    }

    /// The greatest magnitude of a weighted value, in units of the sum.
    pub(super) fn largest_term(&self) -> f64 {
        f64::from(self.max_abs) * self.max_weight as f64 / self.resolution()
    }

    /// Whether it could have been [agreed](Self::agree_in) for sums of this format, and has room for this weight. One that came from
    /// elsewhere may be anything.
    #[must_use]
    pub fn has_room_for(&self, weight: u64, format: IntegerFormat) -> bool {
        let bounded = self.max_abs > 0.0 && self.max_abs.is_finite() && self.max_weight > 0;
        let exponent =
            |terms: u32| Self::agree_in(format, self.max_abs, self.max_weight, 1 << terms).exponent;
        // More terms than 2^30 are no federation, and of as many nothing is left in 32 bits.
        let most_terms = format.bits().min(33) - 2;
        bounded && weight <= self.max_weight && (0..most_terms).any(|terms| exponent(terms) == self.exponent)
    }

    /// The same bounds and terms for other weights.
    #[must_use]
    pub(crate) fn with_max_weight(self, max_weight: u64) -> Self {
        let max_weight = max_weight.max(1);
        let finer = ceil_log2(self.max_weight) - ceil_log2(max_weight);
        // A scale that came from elsewhere may hold any exponent.
        let exponent = self.exponent.saturating_add(finer);
        Self { max_weight, exponent, ..self }
    }

    /// One unit of the sum in terms of `value * weight`.
    #[must_use]
    pub fn resolution(&self) -> f64 {
        (-f64::from(self.exponent)).exp2()
    }
}

fn ceil_log2(value: u64) -> i32 {
    (u64::BITS - value.saturating_sub(1).leading_zeros()).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_from_elsewhere_is_used_if_it_could_have_been_agreed() {
        let room = |scale: Scale, weight| scale.has_room_for(weight, IntegerFormat::I64);
        for terms in [1, 2, 10, 1000, 100_000] {
            let scale = Scale::agree(1000.0, 600, terms);
            assert!(room(scale, 600) && room(scale, 1) && !room(scale, 601), "{terms}");
            let narrow = Scale::agree_in(IntegerFormat::I32, 1000.0, 600, terms);
            assert!(narrow.has_room_for(600, IntegerFormat::I32), "{terms}");
            assert!(!room(narrow, 600) && !scale.has_room_for(600, IntegerFormat::I32), "{terms}");
            for other in [-60, 20, i32::MAX - 100] {
                let other = Scale { exponent: scale.exponent + other, ..scale };
                assert!(!room(other, 600), "{terms} {other:?}");
            }
        }
        let scale = Scale::agree(1000.0, 1, 3);
        for max_abs in [0.0, -1.0, f32::NAN, f32::INFINITY] {
            assert!(!room(Scale { max_abs, ..scale }, 1), "{max_abs}");
        }
        assert!(!room(Scale { max_weight: 0, ..scale }, 0));
    }
}
