//! `[privacy]`.

use std::ops::Bound::{Excluded, Included};

use shared::aggregation::{LEAST_NOISE, MOST_NOISE};
use shared::section;
use shared::settings::Kind;

section! {
    /// `[privacy]`
    #[derive(Copy)]
    pub struct PrivacyTable {
        /// C: the greatest length of an update
        pub clip: Option<f64> = None, in Kind::Number(Included(1e-9), Included(1e9)), unset "not private";
        /// z: deviation of the sum's noise, as a multiple of clip
        pub noise: Option<f64> = None, in Kind::Number(Included(LEAST_NOISE), Included(MOST_NOISE)), unset "not private";
        /// q: the probability with which a round asks a device; 1 asks all
        pub rate: f64 = 1.0, in Kind::Number(Excluded(0.0), Included(1.0));
        /// N: devices for which the sum is divided, by q N
        pub devices: Option<u32> = None, in Kind::POSITIVE, unset "data.clients";
        /// The probability with which epsilon does not hold
        pub delta: f64 = 1e-6, in Kind::Number(Excluded(0.0), Excluded(1.0));
        /// The budget: training ends before the round that would exceed it
        pub epsilon: Option<f64> = None, in Kind::RATE, unset "no budget";
    }
}

impl PrivacyTable {
    /// Whether anything of it was asked for.
    pub(super) fn is_asked_for(&self) -> bool {
        *self != Self::default()
    }
}
