//! Softmax cross-entropy with its gradient.

use super::activation::exp;
use super::lanes::LANES;
use crate::kernels::arch;
use pulp::{Simd, WithSimd};
use rayon::prelude::*;

/// Logits per task: about twenty microseconds.
const TASK_VALUES: usize = 1 << 15;

/// The mean over rows of `-log softmax(logits)[label]`, and its gradient `(softmax - one-hot) / rows`.
///
/// `logits` and `gradient` are `[rows, classes]`. The maximum of a row is subtracted first, so that large logits do
/// not overflow. A NaN, or a row of infinities, makes the loss NaN. The sum over rows is taken in f64.
///
/// # Panics
/// If a label is not below `classes`. The caller has checked them.
pub(crate) fn cross_entropy(logits: &[f32], labels: &[u32], classes: usize, gradient: &mut [f32]) -> f64 {
    assert!(logits.len() == labels.len() * classes && gradient.len() == logits.len());
    let (share, mut losses) = (1.0 / labels.len() as f32, vec![0.0; labels.len()]);
    if logits.len() < 2 * TASK_VALUES {
        arch().dispatch(CrossEntropy { logits, labels, classes, share, gradient, losses: &mut losses });
    } else {
        let rows = (TASK_VALUES / classes).max(1);
        let tasks = (logits.par_chunks(rows * classes).zip(labels.par_chunks(rows)))
            .zip(gradient.par_chunks_mut(rows * classes).zip(losses.par_chunks_mut(rows)));
        tasks.for_each(|((logits, labels), (gradient, losses))| {
            arch().dispatch(CrossEntropy { logits, labels, classes, share, gradient, losses });
        });
    }
    losses.iter().sum::<f64>() / labels.len() as f64
}

struct CrossEntropy<'a> {
    logits: &'a [f32],
    labels: &'a [u32],
    classes: usize,
    /// Of one row in the mean.
    share: f32,
    gradient: &'a mut [f32],
    /// Of each row.
    losses: &'a mut [f64],
}

impl WithSimd for CrossEntropy<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { logits, labels, classes, share, gradient, losses } = self;
        let rows = logits.chunks_exact(classes).zip(gradient.chunks_exact_mut(classes));
        for ((logits, gradient), (&label, loss)) in rows.zip(labels.iter().zip(losses)) {
            let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let mut sum = 0.0f32;
            for (x, e) in logits.chunks(S::F32_LANES).zip(gradient.chunks_mut(S::F32_LANES)) {
                let shifted = simd.sub_f32s(simd.partial_load_f32s(x), simd.splat_f32s(max));
                simd.partial_store_f32s(e, exp(simd, shifted));
            }
            for e in gradient.chunks(LANES) {
                sum += e.iter().sum::<f32>();
            }
            *loss = f64::from(sum).ln() - (f64::from(logits[label as usize]) - f64::from(max));
            let scale = share / sum;
            for value in &mut *gradient {
                *value *= scale;
            }
            gradient[label as usize] -= share;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::noise;

    fn run(logits: &[f32], labels: &[u32], classes: usize) -> (f64, Vec<f32>) {
        let mut gradient = vec![f32::NAN; logits.len()];
        (cross_entropy(logits, labels, classes, &mut gradient), gradient)
    }

    #[test]
    fn the_loss_and_its_gradient_in_double_precision() {
        for classes in [1, 2, 3, 10, 15, 16, 17, 33, 90] {
            let logits: Vec<f32> = noise(7 * classes, 1).iter().map(|x| 10.0 * x).collect();
            let labels: Vec<u32> = (0..7).map(|row| (row * 5 % classes) as u32).collect();
            let (loss, gradient) = run(&logits, &labels, classes);
            let mut expected = 0.0;
            for ((row, gradient), &label) in logits.chunks(classes).zip(gradient.chunks(classes)).zip(&labels)
            {
                let total: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
                expected += total.ln() - f64::from(row[label as usize]);
                for (class, (&x, &found)) in row.iter().zip(gradient).enumerate() {
                    let hit = if class == label as usize { 1.0 } else { 0.0 };
                    let expected = (f64::from(x).exp() / total - hit) / 7.0;
                    assert!((f64::from(found) - expected).abs() < 1e-7, "{classes}: {found} {expected}");
                }
            }
            assert!((loss - expected / 7.0).abs() < 1e-6, "{classes}: {loss} {expected}");
        }
    }

    #[test]
    fn large_logits_do_not_overflow_and_nan_does_not_hide() {
        let (loss, gradient) = run(&[1000.0, 0.0, -1000.0], &[0], 3);
        assert!(loss.abs() < 1e-6 && gradient.iter().all(|g| g.abs() < 1e-6));
        let (loss, gradient) = run(&[1000.0, 0.0], &[1], 2);
        assert_eq!((loss, gradient), (1000.0, vec![1.0, -1.0]));
        for logits in [[f32::NAN, 0.0], [f32::INFINITY, 0.0], [f32::NEG_INFINITY; 2]] {
            assert!(!run(&logits, &[1], 2).0.is_finite(), "{logits:?}");
        }
    }
}
