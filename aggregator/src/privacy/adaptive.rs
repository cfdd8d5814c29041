//! `privacy.adaptive-clip`: how the bound on updates follows their lengths, and what holds where nothing is said of it.

use std::ops::Bound::{Excluded, Included};

use shared::aggregation::{AdaptiveClip, LEAST_COUNT_NOISE, MOST_COUNT_NOISE};
use shared::section;
use shared::settings::Kind;

/// What the deviation of the noise is by default, as a share of the devices that a round asks (section 3 of the paper).
const USUAL_NOISE: f64 = 0.05;

/// The quantile where nothing is said: one half takes the least noise, and the bound moves as fast up as down.
const USUAL_QUANTILE: f64 = 0.5;

/// The least quantile: with a smaller one the bound would rise by next to nothing in a round, and sink at once by chance.
const LEAST_QUANTILE: f64 = 0.05;

/// The greatest one.
const MOST_QUANTILE: f64 = 0.95;

/// The rate where nothing is said, which is the paper's.
const USUAL_RATE: f64 = 0.2;

section! {
    /// `privacy.adaptive-clip`: with any of its keys, or none, the bound adapts.
    #[derive(Copy)]
    pub struct AdaptiveClipTable {
        /// gamma: the share of updates that the bound comes to leave as they are
        pub quantile: Option<f64> = None, in Kind::Number(Included(LEAST_QUANTILE), Included(MOST_QUANTILE)), unset "with {} 0.5";
        /// eta: how fast the bound moves, in powers of e for a round
        pub rate: Option<f64> = None, in Kind::Number(Excluded(0.0), Included(1.0)), unset "with {} 0.2";
        /// sigma: deviation of the noise on their number
        pub noise: Option<f64> = None, in Kind::Number(Included(LEAST_COUNT_NOISE), Included(MOST_COUNT_NOISE)), unset "with {} at least cohort / 20";
    }
}

impl AdaptiveClipTable {
    /// How the bound adapts, with this noise of all that a round gives away and this number of devices in a round. Notes the defaults.
    pub fn complete(&mut self, noise: f64, expected: f64) -> AdaptiveClip {
        let [quantile, rate] = [(&mut self.quantile, USUAL_QUANTILE), (&mut self.rate, USUAL_RATE)]
            .map(|(value, usual)| *value.get_or_insert(usual));
        let noise = *self.noise.get_or_insert(usual_noise(quantile, noise, expected));
        AdaptiveClip { quantile, rate, noise }
    }
}

/// How the bound adapts where nothing is said, with this noise of all that a round gives away and this number of devices in a round.
#[must_use]
pub fn usual(noise: f64, expected: f64) -> AdaptiveClip {
    AdaptiveClipTable::default().complete(noise, expected)
}

/// The noise of the number of updates within the bound where nothing is said: what leaves the sum at least 87 % of its precision, in any
/// cohort.
fn usual_noise(quantile: f64, noise: f64, expected: f64) -> f64 {
    let enough = AdaptiveClip { quantile, rate: USUAL_RATE, noise }.enough_noise(noise);
    (USUAL_NOISE * expected).max(enough).clamp(LEAST_COUNT_NOISE, MOST_COUNT_NOISE)
}

#[cfg(test)]
mod tests {
    use shared::aggregation::Mechanism;

    use super::*;

    #[test]
    fn the_usual_noise_leaves_the_sum_most_of_its_precision_at_any_quantile() {
        for (noise, expected) in [(0.01, 1.0), (3.0, 4.0), (1.1, 100.0), (11.28, 500.0), (1000.0, 1.0)] {
            for quantile in [LEAST_QUANTILE, 0.5, 0.8, MOST_QUANTILE] {
                let mut table =
                    AdaptiveClipTable { quantile: Some(quantile), ..AdaptiveClipTable::default() };
                let adaptive = Some(table.complete(noise, expected));
                let mechanism = Mechanism { clip: 1.0, noise, rate: 1.0, devices: 1, adaptive };
                let more = mechanism.noise_of_sum().expect("it leaves enough") / noise;
                assert!(more <= 1.1548, "{noise} {expected} {quantile}: {more}");
            }
        }
        let [papers, least] =
            [(1.0, 1000.0), (1.5, 4.0)].map(|(noise, expected)| usual(noise, expected).noise);
        assert_eq!((papers.to_bits(), least.to_bits()), (50f64.to_bits(), 1.5f64.to_bits()));
    }
}
