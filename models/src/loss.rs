//! The cross-entropy loss with its gradient.

use crate::kernels::softmax;

/// The mean over all rows of `-log softmax(logits)[label]`, in nats, with its gradient.
///
/// `logits` is `[n, classes]`, and `labels` has `n` labels below `classes`. `gradient` is overwritten with the gradient with
/// respect to the logits, `(softmax(logits) - onehot) / n`. The maximum is subtracted first, so that large logits do not
/// overflow. The loss is not finite if a logit is NaN or positive infinity, or the label's logit is not finite.
///
/// # Panics
/// If there are no labels, or the lengths do not fit.
#[must_use]
pub fn cross_entropy(logits: &[f32], labels: &[u32], gradient: &mut Vec<f32>) -> f32 {
    let (n, classes) = (labels.len(), logits.len() / labels.len());
    assert_eq!(logits.len(), n * classes, "as many rows of logits as labels");
    gradient.resize(logits.len(), 0.0);
    softmax::cross_entropy(logits, labels, classes, gradient) as f32
}

/// `log sum exp(logits)` in f64. The maximum is subtracted first, so that nothing overflows.
pub(crate) fn log_sum_exp(logits: &[f32]) -> f64 {
    let max = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    max + logits.iter().map(|&logit| (f64::from(logit) - max).exp()).sum::<f64>().ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss(logits: &[[f32; 3]], labels: &[u32]) -> f32 {
        cross_entropy(logits.as_flattened(), labels, &mut Vec::new())
    }

    #[test]
    fn closed_forms() {
        // Equal logits: log 3, for any value.
        assert!((loss(&[[5.0; 3], [-2.0; 3]], &[0, 2]) - 3f32.ln()).abs() < 1e-6);
        // Logits log(1), log(2), log(5) are probabilities 1/8, 2/8, 5/8; the mean of -log(1/4) and -log(5/8).
        let row = [0.0, 2f32.ln(), 5f32.ln()];
        let expected = f32::midpoint(4f32.ln(), (8.0f32 / 5.0).ln());
        assert!((loss(&[row, row], &[1, 2]) - expected).abs() < 1e-6);
    }

    #[test]
    fn large_logits_do_not_overflow() {
        assert!(loss(&[[1000.0, 0.0, 0.0]], &[0]).abs() < 1e-6);
        assert!((loss(&[[1000.0, 0.0, 0.0]], &[1]) - 1000.0).abs() < 1e-3);
    }

    #[test]
    fn logits_that_are_not_finite_show() {
        assert!(!loss(&[[f32::NAN, 0.0, 0.0]], &[1]).is_finite());
        assert!(!loss(&[[f32::INFINITY, 0.0, 0.0]], &[1]).is_finite());
        assert!(!loss(&[[0.0, f32::NEG_INFINITY, 0.0]], &[1]).is_finite());
    }

    #[test]
    fn the_gradient_is_softmax_minus_one_hot_over_the_batch() {
        let logits = [0.0, 2f32.ln(), 5f32.ln(), 1.0, 1.0, 1.0];
        // What an earlier batch left does not count.
        let mut gradient = vec![7.0; 9];
        let _ = cross_entropy(&logits, &[1, 0], &mut gradient);
        let third = 1.0 / 3.0;
        let expected = [0.125, 0.25 - 1.0, 0.625, third - 1.0, third, third].map(|g: f32| g / 2.0);
        assert_eq!(gradient.len(), expected.len());
        for (found, expected) in gradient.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-6, "{gradient:?}");
        }
    }
}
