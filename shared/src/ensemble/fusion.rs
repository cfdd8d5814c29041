//! Sums over members that do not depend on the members' order.

use models::Network;

use crate::algorithm::Head;

/// 2^80: a number has 80 binary places after the point and 47 before it. With weights up to 2 and values up to
/// [`LARGEST`], tens of thousands of members fit.
const PLACES: f64 = 1_208_925_819_614_629_174_706_176.0;

/// The largest magnitude of a value in a sum.
const LARGEST: f32 = 1e9;

/// Whether all values are finite and at most 10^9, so that they can be summed up.
#[must_use]
pub fn summable(values: &[f32]) -> bool {
    values.iter().all(|value| value.abs() <= LARGEST)
}

/// A value in fixed point. This is the only rounding: sums are exact.
fn fixed(value: f64) -> i128 {
    (value * PLACES).round() as i128
}

fn real(fixed: i128) -> f64 {
    fixed as f64 / PLACES
}

/// Weighted sums of rows, one for each sample, and of their weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowSums {
    sums: Vec<i128>,
    weights: Vec<i128>,
}

impl RowSums {
    /// Zero sums of `n` rows of `d` values.
    #[must_use]
    pub fn new(n: usize, d: usize) -> Self {
        Self { sums: vec![0; n * d], weights: vec![0; n] }
    }

    /// Adds each row times `weight(row)`, which is at most 2.
    pub fn add(&mut self, rows: &[f32], weight: impl Fn(usize) -> f64) {
        let d = self.sums.len() / self.weights.len();
        let places = self.sums.chunks_mut(d).zip(&mut self.weights);
        for (index, (row, (sums, sum))) in rows.chunks(d).zip(places).enumerate() {
            let weight = weight(index);
            *sum += fixed(weight);
            sums.iter_mut().zip(row).for_each(|(sum, &value)| *sum += fixed(weight * f64::from(value)));
        }
    }

    /// The weighted mean of each row, in order.
    pub fn means(&self) -> impl Iterator<Item = Vec<f64>> {
        let d = self.sums.len() / self.weights.len();
        self.sums.chunks(d).zip(&self.weights).map(|(sums, &weight)| {
            let weight = real(weight);
            sums.iter().map(|&sum| real(sum) / weight).collect()
        })
    }
}

/// The cosine of two vectors; 0 if one of them is zero.
pub fn cosine(a: impl Iterator<Item = f64>, b: impl Iterator<Item = f64>) -> f64 {
    let (mut product, mut left, mut right) = (0.0, 0.0, 0.0);
    for (a, b) in a.zip(b) {
        product += a * b;
        left += a * a;
        right += b * b;
    }
    let lengths = f64::sqrt(left) * f64::sqrt(right);
    if lengths < 1e-30 { 0.0 } else { product / lengths }
}

/// The least weight of a member, which keeps the sum of weights above 0 if all members see only noise.
const LEAST: f64 = 1e-6;

/// `1 - cos(F(x), F(noise))`: how far a member's features of a sample are from those of noise.
#[must_use]
pub fn information(features: &[f32], of_noise: &[f32]) -> f64 {
    let wide = |values: &[f32]| values.iter().map(|&value| f64::from(value)).collect::<Vec<_>>();
    (1.0 - cosine(wide(features).into_iter(), wide(of_noise).into_iter())).max(LEAST)
}

/// `log softmax(scores)`.
#[must_use]
pub fn log_softmax(scores: &[f64]) -> Vec<f64> {
    let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let total = max + scores.iter().map(|score| (score - max).exp()).sum::<f64>().ln();
    scores.iter().map(|score| score - total).collect()
}

/// The least probability that a mean of probabilities has, so that its logarithm is a number.
pub const LEAST_PROBABILITY: f64 = 1e-30;

/// The position of the largest value; the first of equals.
#[must_use]
pub fn largest(values: &[f64]) -> usize {
    (1..values.len()).fold(0, |best, index| if values[index] > values[best] { index } else { best })
}

/// The mean of vectors that arrive in parts.
#[derive(Debug)]
pub struct MeanSum {
    sums: Vec<i128>,
}

impl MeanSum {
    /// A zero sum of vectors of this length.
    #[must_use]
    pub fn new(length: usize) -> Self {
        Self { sums: vec![0; length] }
    }

    /// Adds [`summable`] values from `offset` on; false if they exceed the length.
    pub fn add(&mut self, offset: usize, values: &[f32]) -> bool {
        let Some(places) = self.sums.get_mut(offset..offset + values.len()) else { return false };
        places.iter_mut().zip(values).for_each(|(sum, &value)| *sum += fixed(f64::from(value)));
        true
    }

    /// The mean of this number of vectors.
    #[must_use]
    pub fn mean(&self, terms: usize) -> Vec<f32> {
        self.sums.iter().map(|&sum| (real(sum) / terms as f64) as f32).collect()
    }
}

/// A network's own answers for its last batch, one row for each of `n` samples: `f_hat P^T` of one with prototypes, the logits of a
/// classifier. `None` if they, or features that are fused, cannot be summed up.
#[must_use]
pub fn own_answers(network: &Network, head: Head, n: usize) -> Option<Vec<f32>> {
    let logits = network.logits();
    if head == Head::Classifier {
        return summable(logits).then(|| logits.to_vec());
    }
    let features = network.representation();
    if !summable(features) {
        return None;
    }
    let (d, classes) = (features.len() / n, logits.len() / n);
    let lengths = features.chunks(d).map(|row| {
        row.iter().map(|&value| f64::from(value) * f64::from(value)).sum::<f64>().sqrt().max(1e-8)
    });
    let rows = logits.chunks(classes).zip(lengths);
    let answers: Vec<f32> =
        rows.flat_map(|(row, length)| row.iter().map(move |&v| (f64::from(v) / length) as f32)).collect();
    summable(&answers).then_some(answers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_exact_and_know_no_order() {
        let rows = [[0.1f32, -7e8, 3.0, 1e-9], [0.7, 0.3, -2.5, 4e-9], [1e7, 9.0, 0.2, 0.0]];
        let weights = [0.3, 1.7, 1e-6];
        let sum = |order: [usize; 3]| {
            let mut sums = RowSums::new(2, 2);
            for k in order {
                sums.add(&rows[k], |row| weights[k] + row as f64);
            }
            sums
        };
        let first = sum([0, 1, 2]);
        for order in [[2, 1, 0], [1, 2, 0], [0, 2, 1]] {
            assert_eq!(sum(order), first);
        }
        let found: Vec<f64> = first.means().flatten().collect();
        let expected = (0.3 * f64::from(0.1f32) + 1.7 * f64::from(0.7f32) + 1e-6 * 1e7) / (2.0 + 1e-6);
        assert!((found[0] - expected).abs() < 1e-12, "{found:?}");
        // One row is its own mean with any weight.
        for weight in [LEAST, 0.3, 2.0] {
            let mut one = RowSums::new(1, 4);
            one.add(&rows[0], |_| weight);
            let mean: Vec<f32> = one.means().next().unwrap().into_iter().map(|value| value as f32).collect();
            assert!(
                mean.iter().zip(rows[0]).all(|(a, b)| (a - b).abs() <= 1e-6 * b.abs().max(1e-6)),
                "{mean:?}"
            );
        }
    }

    #[test]
    fn information_is_one_minus_the_cosine() {
        assert!((information(&[1.0, 0.0], &[0.0, 3.0]) - 1.0).abs() < 1e-12);
        assert!((information(&[1.0, 1.0], &[-2.0, -2.0]) - 2.0).abs() < 1e-12);
        assert!((information(&[1.0, 0.0], &[1.0, 1.0]) - (1.0 - 0.5f64.sqrt())).abs() < 1e-12);
        assert!((information(&[1.0, 2.0], &[1.0, 2.0]) - LEAST).abs() < 1e-15, "all of it looks like noise");
        assert!((information(&[0.0, 0.0], &[1.0, 2.0]) - 1.0).abs() < 1e-12, "no direction");
    }

    #[test]
    fn the_mean_of_vectors_in_parts() {
        let mut mean = MeanSum::new(3);
        assert!(mean.add(0, &[1.0, 2.0]) && mean.add(2, &[3.0]) && mean.add(0, &[2.0, 0.0, -3.0]));
        assert!(!mean.add(2, &[1.0, 1.0]));
        assert_eq!(mean.mean(2), [1.5, 1.0, 0.0]);
    }
}
