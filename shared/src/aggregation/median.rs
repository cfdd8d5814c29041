//! The coordinate-wise median.
//!
//! Yin, Chen, Ramchandran, Bartlett: *Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates*, ICML 2018
//! (arXiv 1803.01498), Algorithm 1, option I. The median of an even number of values is the mean of the two in the middle.

/// The median of at least one finite value. Reorders the values.
pub(super) fn median(values: &mut [f32]) -> f32 {
    let middle = values.len() / 2;
    let odd = values.len() % 2 == 1;
    let (below, &mut upper, _) = values.select_nth_unstable_by(middle, f32::total_cmp);
    if odd {
        return upper;
    }
    let lower = below.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    f32::midpoint(lower, upper)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_the_middle_values() {
        for (values, expected) in [
            (&mut [3.0][..], 3.0),
            (&mut [4.0, 1.0], 2.5),
            (&mut [9.0, -1e30, 2.0], 2.0),
            (&mut [5.0, 1.0, 1e30, 2.0], 3.5),
            (&mut [0.0, 0.0, 7.0, 7.0, 7.0], 7.0),
        ] {
            let expected: f32 = expected;
            assert_eq!(median(values).to_bits(), expected.to_bits());
        }
    }
}
