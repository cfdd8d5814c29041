//! Softmax cross-entropy with its gradient.

use super::activation::exp;
use super::lanes::LANES;
use super::vectors;
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
            let max = greatest(simd, logits);
            let mut sum = 0.0f32;
            for (x, e) in logits.chunks(S::F32_LANES).zip(gradient.chunks_mut(S::F32_LANES)) {
                let shifted = simd.sub_f32s(vectors::load(simd, x), simd.splat_f32s(max));
                vectors::store(simd, e, exp(simd, shifted));
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

/// Of two vectors, the greater value in each place; that of `a` if one is NaN.
#[inline(always)]
fn greater<S: Simd>(simd: S, a: S::f32s, b: S::f32s) -> S::f32s {
    simd.select_f32s(simd.less_than_f32s(a, b), b, a)
}

/// Vectors that [`greatest`] compares side by side, since each comparison takes several cycles.
const SIDE_BY_SIDE: usize = 4;

/// The greatest value, without those that are NaN; minus infinity if there is none.
#[inline(always)]
pub(super) fn greatest<S: Simd>(simd: S, values: &[f32]) -> f32 {
    let (vectors, rest) = S::as_simd_f32s(values);
    let mut most = [simd.splat_f32s(f32::NEG_INFINITY); SIDE_BY_SIDE];
    let (fours, last) = vectors.as_chunks::<SIDE_BY_SIDE>();
    for four in fours {
        for (most, vector) in most.iter_mut().zip(four) {
            *most = greater(simd, *most, *vector);
        }
    }
    for vector in last {
        most[0] = greater(simd, most[0], *vector);
    }
    let most = greater(simd, greater(simd, most[0], most[1]), greater(simd, most[2], most[3]));
    rest.iter().copied().fold(simd.reduce_max_f32s(most), f32::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::noise;

    fn run(logits: &[f32], labels: &[u32], classes: usize) -> (f64, Vec<f32>) {
        let mut gradient = vec![f32::NAN; logits.len()];
        (cross_entropy(logits, labels, classes, &mut gradient), gradient)
    }

    struct Greatest<'a>(&'a [f32]);

    impl WithSimd for Greatest<'_> {
        type Output = f32;

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) -> f32 {
            greatest(simd, self.0)
        }
    }

    #[test]
    fn the_greatest_value_is_found_wherever_it_is() {
        let greatest = |values: &[f32]| arch().dispatch(Greatest(values));
        for count in [1, 3, 8, 15, 16, 17, 63, 64, 65, 100, 200] {
            let values = noise(count, 1);
            for place in 0..count {
                let mut values = values.clone();
                values[place] = 2.0;
                values[(place + 1) % count] = if count > 1 { f32::NAN } else { 2.0 };
                assert_eq!(greatest(&values), 2.0, "{count} {place}");
                let negative: Vec<f32> = values.iter().map(|value| value - 10.0).collect();
                assert_eq!(greatest(&negative), -8.0, "{count} {place}");
            }
        }
        assert_eq!(greatest(&[]), f32::NEG_INFINITY);
        assert_eq!(greatest(&[f32::NAN; 40]), f32::NEG_INFINITY);
        assert_eq!(greatest(&[f32::INFINITY, f32::NAN]), f32::INFINITY);
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
