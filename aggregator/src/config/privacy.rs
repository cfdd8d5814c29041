//! `[privacy]`.

use std::ops::Bound::{Excluded, Included};

use serde::{Deserialize, Serialize};
use shared::aggregation::{LEAST_CLIP, LEAST_NOISE, MOST_CLIP, MOST_NOISE};
use shared::privacy::USUAL_DELTA;
use shared::settings::Kind;
use shared::{named, section};

use crate::privacy::adaptive::AdaptiveClipTable;

/// What the account makes of the choice of devices for a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sampling {
    /// Each device is drawn with a probability, and whom a round asks is secret: rounds give less away.
    #[default]
    Poisson,
    /// Nothing: a device gives as much away as the rounds that ask it, which are counted and bounded.
    None,
}

named!(Sampling);

section! {
    /// `[privacy]`
    #[derive(Copy)]
    pub struct PrivacyTable {
        /// C: the greatest length of an update; if it adapts, in the first round
        pub clip: Option<f64> = None, in Kind::Number(Included(LEAST_CLIP), Included(MOST_CLIP)), unset "not private";
        /// z: deviation of the sum's noise, as a multiple of clip
        pub noise: Option<f64> = None, in Kind::Number(Included(LEAST_NOISE), Included(MOST_NOISE)), unset "not private";
        /// The bound follows the lengths of updates, and its own noise is part of noise
        pub adaptive_clip: Option<AdaptiveClipTable> = None;
        /// q: the probability with which a round asks a device; 1 asks all
        pub rate: f64 = 1.0, in Kind::Number(Excluded(0.0), Included(1.0));
        /// poisson: whom rounds ask is secret, and makes them cheaper; none: it does not
        pub sampling: Sampling = Sampling::default();
        /// K: rounds that ask a device at most, with sampling = "none"
        pub max_participations: Option<u32> = None, in Kind::POSITIVE, unset "no bound";
        /// N: devices for which the sum is divided, by q N
        pub devices: Option<u32> = None, in Kind::POSITIVE, unset "data.clients";
        /// The probability with which epsilon does not hold
        pub delta: f64 = USUAL_DELTA, in Kind::Number(Excluded(0.0), Excluded(1.0));
        /// The budget: training ends before the round that would exceed it
        pub epsilon: Option<f64> = None, in Kind::RATE, unset "no budget";
    }
}

impl Sampling {
    /// Its name in configurations.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Poisson => "poisson",
            Self::None => "none",
        }
    }
}

impl PrivacyTable {
    /// Whether anything of it was asked for.
    pub(super) fn is_asked_for(&self) -> bool {
        *self != Self::default()
    }
}
