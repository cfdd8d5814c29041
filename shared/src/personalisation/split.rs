//! Which of a device's samples are the expert's, and which the gate's.

use crate::seed::{Seed, shuffle};

/// Positions among a device's training samples, ascending; each is in exactly one of the two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalSplit {
    /// What the local expert learns from.
    pub expert: Vec<u32>,
    /// What the gate learns from. No expert has seen them, or the gate would learn how well a local expert remembers.
    pub gate: Vec<u32>,
}

impl LocalSplit {
    /// Divides this number of samples at random. `share` of them, from 0 to 1 and rounded, is the expert's; of two samples or more
    /// either gets one at least, and a single one is the expert's.
    ///
    /// `seed` is the client's in the run, the same in every round: a sample of the gate is never one of an expert.
    #[must_use]
    pub fn draw(samples: usize, share: f64, seed: &Seed) -> Self {
        let mut order: Vec<u32> = (0..samples as u32).collect();
        shuffle(&mut order, &mut seed.rng());
        let most = samples.saturating_sub(1).max(1);
        let expert = ((samples as f64 * share).round() as usize).clamp(1, most).min(samples);
        let mut gate = order.split_off(expert);
        order.sort_unstable();
        gate.sort_unstable();
        Self { expert: order, gate }
    }

    /// The same split of samples of which those that were divided are some: by their positions among all.
    ///
    /// # Panics
    /// If more were divided than there are positions.
    #[must_use]
    pub fn among(&self, positions: &[u32]) -> Self {
        let place = |part: &[u32]| -> Vec<u32> {
            let mut placed: Vec<u32> = part.iter().map(|&position| positions[position as usize]).collect();
            placed.sort_unstable();
            placed
        };
        Self { expert: place(&self.expert), gate: place(&self.gate) }
    }

    /// How many samples were divided.
    #[must_use]
    pub fn samples(&self) -> usize {
        self.expert.len() + self.gate.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn positions_are_those_among_all_samples() {
        let split = LocalSplit { expert: vec![0, 2], gate: vec![1] };
        let placed = split.among(&[7, 3, 4]);
        assert_eq!(placed, LocalSplit { expert: vec![4, 7], gate: vec![3] });
    }

    #[test]
    fn sizes_follow_the_share() {
        let sizes = |samples, share| {
            let split = LocalSplit::draw(samples, share, &Seed::root(3));
            (split.expert.len(), split.gate.len())
        };
        assert_eq!(sizes(100, 0.75), (75, 25));
        assert_eq!(sizes(10, 0.75), (8, 2));
        assert_eq!((sizes(0, 0.75), sizes(1, 0.75), sizes(2, 0.75)), ((0, 0), (1, 0), (1, 1)));
        assert_eq!((sizes(5, 0.0), sizes(5, 1.0)), ((1, 4), (4, 1)));
    }

    #[test]
    fn a_seed_decides() {
        let draw = |seed| LocalSplit::draw(40, 0.75, &Seed::root(seed));
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    proptest! {
        #[test]
        fn every_sample_is_in_exactly_one_part(samples in 0_usize..200, share in 0.0..=1.0_f64, seed: u64) {
            let split = LocalSplit::draw(samples, share, &Seed::root(seed));
            let mut all = [split.expert, split.gate].concat();
            all.sort_unstable();
            prop_assert_eq!(all, (0..samples as u32).collect::<Vec<_>>());
        }
    }
}
