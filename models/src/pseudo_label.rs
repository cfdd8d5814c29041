//! Losses for learning from unlabelled samples: pseudo-labels and consistency.
//!
//! After `FedMix` (Wang et al. 2022), with the confidence threshold of `FixMatch` (Sohn et al. 2020) and the sharpening of
//! `MixMatch` (Berthelot et al. 2019). Rows are samples throughout. Sums over a row are taken in f64.

use crate::loss::log_sum_exp;

/// Adds the softmax of every row of `logits`, `[n, classes]`, to `sum`, which is as long.
///
/// # Panics
/// If the lengths do not fit.
pub fn add_probabilities(logits: &[f32], classes: usize, sum: &mut [f32]) {
    assert_eq!(logits.len(), sum.len(), "as many sums as logits");
    for (logits, sum) in logits.chunks_exact(classes).zip(sum.chunks_exact_mut(classes)) {
        for (sum, probability) in sum.iter_mut().zip(softmax(logits)) {
            *sum += probability as f32;
        }
    }
}

/// Sharpens a distribution by a temperature: `p_j^(1/T) / sum_i p_i^(1/T)`. A temperature of 1 changes nothing; 0 puts all
/// probability on the greatest value, divided equally if there are several.
///
/// A distribution without positive values stays as it is.
pub fn sharpen(distribution: &mut [f32], temperature: f64) {
    let greatest = f64::from(distribution.iter().copied().fold(0.0, f32::max));
    if greatest <= 0.0 {
        return;
    }
    // Relative to the greatest, whose power is then 1 for every exponent, even infinity.
    let power = |p: f32| (f64::from(p) / greatest).powf(1.0 / temperature);
    let total: f64 = distribution.iter().map(|&p| power(p)).sum();
    for p in distribution {
        *p = (power(*p) / total) as f32;
    }
}

/// The cross-entropy `-sum_j targets_j log softmax(logits)_j`, summed over the rows that count and divided by the number of
/// **all** rows, with its gradient.
///
/// `logits` and `targets` are `[n, classes]`, and each row of targets sums to one; `counts` has a flag for each row. `gradient`
/// is overwritten with `weight` times the gradient with respect to the logits: `(softmax - targets) / n`, and 0 in rows that do
/// not count. The targets are constants: no gradient flows through them.
///
/// # Panics
/// If there are no rows, or the lengths do not fit.
#[must_use]
pub fn soft_cross_entropy(
    logits: &[f32],
    targets: &[f32],
    counts: &[bool],
    weight: f32,
    gradient: &mut [f32],
) -> f32 {
    let (n, classes) = (counts.len(), logits.len() / counts.len());
    assert!(logits.len() == n * classes && targets.len() == logits.len() && gradient.len() == logits.len());
    let share = f64::from(weight) / n as f64;
    let mut loss = 0.0;
    let rows = logits.chunks_exact(classes).zip(targets.chunks_exact(classes));
    for (((logits, targets), gradient), &counts) in rows.zip(gradient.chunks_exact_mut(classes)).zip(counts) {
        if !counts {
            gradient.fill(0.0);
            continue;
        }
        let log_total = log_sum_exp(logits);
        for ((&logit, &target), gradient) in logits.iter().zip(targets).zip(gradient) {
            let log_p = f64::from(logit) - log_total;
            // A target of 0 contributes nothing, even if the probability is 0.
            if target > 0.0 {
                loss -= f64::from(target) * log_p;
            }
            *gradient = (share * (log_p.exp() - f64::from(target))) as f32;
        }
    }
    (loss / n as f64) as f32
}

/// The mean over `n` samples of the squared distance of two predictions, `||softmax(a) - softmax(b)||^2`, with its gradients.
///
/// All slices are `[n, classes]`. `by_a` and `by_b` are overwritten with `weight` times the gradients with respect to the
/// logits: `da_j = 2/n p_j ((p_j - q_j) - sum_i p_i (p_i - q_i))`, and likewise for `b`.
///
/// # Panics
/// If there are no rows, or the lengths do not fit.
#[must_use]
pub fn squared_distance(
    (a, b): (&[f32], &[f32]),
    n: usize,
    weight: f32,
    (by_a, by_b): (&mut [f32], &mut [f32]),
) -> f32 {
    assert!(a.len() == b.len() && by_a.len() == a.len() && by_b.len() == a.len(), "outputs of one network");
    let classes = a.len() / n;
    let scale = 2.0 * f64::from(weight) / n as f64;
    let mut loss = 0.0;
    let rows = a.chunks_exact(classes).zip(b.chunks_exact(classes));
    let gradients = by_a.chunks_exact_mut(classes).zip(by_b.chunks_exact_mut(classes));
    for ((a, b), (by_a, by_b)) in rows.zip(gradients) {
        let (p, q): (Vec<f64>, Vec<f64>) = (softmax(a).collect(), softmax(b).collect());
        let d: Vec<f64> = p.iter().zip(&q).map(|(p, q)| p - q).collect();
        let dot = |x: &[f64]| x.iter().zip(&d).map(|(x, d)| x * d).sum::<f64>();
        let (p_d, q_d) = (dot(&p), dot(&q));
        loss += dot(&d);
        for j in 0..classes {
            by_a[j] = (scale * p[j] * (d[j] - p_d)) as f32;
            by_b[j] = (scale * q[j] * (q_d - d[j])) as f32;
        }
    }
    (loss / n as f64) as f32
}

/// The entropy of a distribution in nats.
#[must_use]
pub fn entropy(distribution: &[f32]) -> f64 {
    distribution.iter().map(|&p| f64::from(p)).filter(|&p| p > 0.0).map(|p| -p * p.ln()).sum()
}

fn softmax(logits: &[f32]) -> impl Iterator<Item = f64> {
    let log_total = log_sum_exp(logits);
    logits.iter().map(move |&logit| (f64::from(logit) - log_total).exp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::noise;
    use crate::loss::cross_entropy;

    const CLASSES: usize = 4;

    /// Three rows of targets that sum to one.
    fn targets() -> Vec<f32> {
        let mut targets: Vec<f32> = noise(3 * CLASSES, 2).iter().map(|x| x.abs() + 0.1).collect();
        for row in targets.chunks_mut(CLASSES) {
            let sum: f32 = row.iter().sum();
            for p in row {
                *p /= sum;
            }
        }
        targets
    }

    /// Holds a gradient against central differences of `weight` times the loss.
    fn check(weight: f64, x: &[f32], gradient: &[f32], loss: impl Fn(&[f32]) -> f64) {
        assert!(gradient.iter().any(|g| g.abs() > 0.02), "a gradient of nothing proves nothing");
        for (index, &found) in gradient.iter().enumerate() {
            let at = |offset: f32| {
                let mut moved = x.to_vec();
                moved[index] += offset;
                loss(&moved)
            };
            let expected = weight * (at(1e-2) - at(-1e-2)) / 2e-2;
            assert!((f64::from(found) - expected).abs() < 1e-4, "{index}: {found} {expected}");
        }
    }

    #[test]
    fn the_gradient_of_the_soft_cross_entropy_is_that_of_differences() {
        let (logits, targets, counts) = (noise(3 * CLASSES, 1), targets(), [true, false, true]);
        let loss =
            |x: &[f32]| f64::from(soft_cross_entropy(x, &targets, &counts, 1.0, &mut vec![0.0; x.len()]));
        let mut gradient = vec![9.0; logits.len()];
        let _ = soft_cross_entropy(&logits, &targets, &counts, 1.5, &mut gradient);
        check(1.5, &logits, &gradient, loss);
        assert_eq!(gradient[CLASSES..2 * CLASSES], [0.0; CLASSES], "a row that does not count");
    }

    #[test]
    fn the_gradients_of_the_squared_distance_are_those_of_differences() {
        let [a, b] =
            [3, 4].map(|seed| noise(3 * CLASSES, seed).iter().map(|x| 3.0 * x).collect::<Vec<f32>>());
        let loss = |a: &[f32], b: &[f32]| {
            let (mut by_a, mut by_b) = (vec![0.0; a.len()], vec![0.0; a.len()]);
            f64::from(squared_distance((a, b), 3, 1.0, (&mut by_a, &mut by_b)))
        };
        let (mut by_a, mut by_b) = (vec![9.0; a.len()], vec![9.0; a.len()]);
        let _ = squared_distance((&a, &b), 3, 2.0, (&mut by_a, &mut by_b));
        check(2.0, &a, &by_a, |a| loss(a, &b));
        check(2.0, &b, &by_b, |b| loss(&a, b));
    }

    #[test]
    fn closed_forms() {
        // Probabilities 1/8, 2/8, 5/8 against 1/3 each: (5/24)^2 + (2/24)^2 + (7/24)^2.
        let row = [0.0, 2f32.ln(), 5f32.ln()];
        let (mut by_a, mut by_b) = ([0.0; 3], [0.0; 3]);
        let distance = squared_distance((&row, &[7.0; 3]), 1, 1.0, (&mut by_a, &mut by_b));
        assert!((distance - (25.0 + 4.0 + 49.0) / 576.0).abs() < 1e-6);
        assert!((entropy(&[0.25; 4]) - 4f64.ln()).abs() < 1e-12);
        assert!(entropy(&[0.0, 1.0]).abs() < 1e-12);
        let mut sum = [1.0; 3];
        add_probabilities(&row, 3, &mut sum);
        assert!(sum.iter().zip([1.125, 1.25, 1.625]).all(|(found, p): (&f32, f32)| (found - p).abs() < 1e-6));
    }

    #[test]
    fn the_loss_is_divided_by_the_batch_and_not_by_what_passes_the_gate() {
        let logits = noise(2 * CLASSES, 5);
        let mut one_hot = vec![0.0; 2 * CLASSES];
        (one_hot[2], one_hot[CLASSES]) = (1.0, 1.0);
        let mut hard = Vec::new();
        let expected = cross_entropy(&logits[..CLASSES], &[2], &mut hard);
        let mut gradient = vec![0.0; 2 * CLASSES];
        let found = soft_cross_entropy(&logits, &one_hot, &[true, false], 1.0, &mut gradient);
        assert!((found - expected / 2.0).abs() < 1e-6);
        assert!(gradient.iter().zip(&hard).all(|(found, hard)| (found - hard / 2.0).abs() < 1e-6));
        let found = soft_cross_entropy(&logits, &one_hot, &[false; 2], 1.0, &mut gradient);
        assert_eq!((found, &gradient[..]), (0.0, &[0.0; 2 * CLASSES][..]));
    }

    #[test]
    fn sharpening_goes_from_the_distribution_to_its_greatest_value() {
        let sharpened = |temperature| {
            let mut p = [0.5, 0.3, 0.2];
            sharpen(&mut p, temperature);
            p
        };
        assert!(
            sharpened(1.0)
                .iter()
                .zip([0.5, 0.3, 0.2])
                .all(|(found, p): (&f32, f32)| (found - p).abs() < 1e-6)
        );
        let squares = [0.25, 0.09, 0.04].map(|p: f32| p / 0.38);
        assert!(sharpened(0.5).iter().zip(squares).all(|(found, p)| (found - p).abs() < 1e-6));
        assert_eq!(sharpened(1e-3), [1.0, 0.0, 0.0]);
        assert_eq!(sharpened(0.0), [1.0, 0.0, 0.0]);
        let mut equal = [0.4, 0.2, 0.4];
        sharpen(&mut equal, 0.0);
        assert_eq!(equal, [0.5, 0.0, 0.5]);
        let mut nothing = [0.0; 2];
        sharpen(&mut nothing, 0.5);
        assert_eq!(nothing, [0.0; 2]);
    }

    #[test]
    fn what_is_not_a_number_shows() {
        let mut gradient = [0.0; 2];
        let loss = soft_cross_entropy(&[f32::NAN, 0.0], &[0.5, 0.5], &[true], 1.0, &mut gradient);
        assert!(!loss.is_finite());
    }
}
