//! The coordinate-wise trimmed mean.
//!
//! Yin, Chen, Ramchandran, Bartlett: *Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates*, ICML 2018
//! (arXiv 1803.01498), Algorithm 1, option II and Definition 2:
//!
//! ```text
//! trmean_beta(x_1 ... x_m) = 1 / (m - 2k)  sum of x_(k+1) ... x_(m-k) in order of size,   k = floor(beta m)
//! ```
//!
//! It withstands a share of up to beta of wrong updates; beta = 0 is the plain mean.

use super::columns::mean;
use crate::share;

/// `k`: of `updates` values, how many are left out at either end.
pub(super) fn cut(beta: f64, updates: usize) -> usize {
    share::of(beta, updates).min(updates.saturating_sub(1) / 2)
}

/// The least number of updates of which any is left out; 1 if none ever is.
pub(super) fn least(beta: f64) -> usize {
    if beta <= 0.0 {
        return 1;
    }
    let about = (1.0 / beta).floor() as usize;
    if cut(beta, about) > 0 { about } else { about.saturating_add(1) }
}

/// The mean of the values but for the `cut` smallest and largest; their order changes.
pub(super) fn trimmed_mean(values: &mut [f32], cut: usize) -> f32 {
    values.sort_unstable_by(f32::total_cmp);
    mean(&values[cut..values.len() - cut])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_and_largest_are_left_out() {
        for (values, cut, expected) in [
            (&mut [3.0][..], 0, 3.0),
            (&mut [4.0, 1.0], 0, 2.5),
            (&mut [9.0, -1e30, 2.0], 1, 2.0),
            (&mut [1e30, 1.0, 5.0, -1e30, 3.0], 1, 3.0),
            (&mut [7.0, 1.0, 100.0, 2.0, -50.0, 3.0], 2, 2.5),
        ] {
            let expected: f32 = expected;
            assert_eq!(trimmed_mean(values, cut).to_bits(), expected.to_bits());
        }
    }

    #[test]
    fn beta_is_a_share_of_those_who_are_there() {
        let cases = [(0.2, 10, 2), (0.2, 14, 2), (0.2, 4, 0), (0.29, 100, 29), (0.0, 9, 0), (0.49, 3, 1)];
        for (beta, updates, expected) in cases {
            assert_eq!(cut(beta, updates), expected, "{beta} of {updates}");
        }
        for beta in [0.01, 0.1, 0.2, 0.25, 0.29, 0.3, 1.0 / 3.0, 0.4, 0.49] {
            for updates in 1..500 {
                assert!(2 * cut(beta, updates) < updates, "{beta} of {updates}");
                assert_eq!(cut(beta, updates) > 0, updates >= least(beta), "{beta} of {updates}");
            }
        }
        assert_eq!(least(0.0), 1);
    }
}
