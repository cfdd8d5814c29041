//! The losses of the tasks, with their gradients.

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

/// The mean over all logits of the binary cross-entropy of their sigmoid, in nats, with its gradient `(sigmoid(x) - y) / n`.
///
/// `targets` are as many as the logits: 1 where the class applies, 0 where it does not. `gradient` is overwritten. Large logits
/// do not overflow. The loss is not finite if a logit is not.
///
/// # Panics
/// If there are none, or they are not as many.
pub(crate) fn binary_cross_entropy(logits: &[f32], targets: &[f32], gradient: &mut Vec<f32>) -> f32 {
    mean(logits, targets, gradient, |x, y| (cross_entropy_of_flag(x, y), sigmoid(x) - f64::from(y)))
}

/// The mean over all outputs of the squared error, with its gradient `2 (x - y) / n`, which is overwritten.
///
/// # Panics
/// As [`binary_cross_entropy`].
pub(crate) fn squared_error(outputs: &[f32], targets: &[f32], gradient: &mut Vec<f32>) -> f32 {
    mean(outputs, targets, gradient, |x, y| (squared(x, y), 2.0 * error(x, y)))
}

/// The mean over all outputs of Huber's loss of the error (Huber 1964), with its gradient, which is overwritten.
///
/// # Panics
/// As [`binary_cross_entropy`].
pub(crate) fn huber(outputs: &[f32], targets: &[f32], delta: f64, gradient: &mut Vec<f32>) -> f32 {
    mean(outputs, targets, gradient, |x, y| (huber_of(x, y, delta), error(x, y).clamp(-delta, delta)))
}

/// The mean of a loss over pairs of an output and a target, and its gradient.
fn mean(
    outputs: &[f32],
    targets: &[f32],
    gradient: &mut Vec<f32>,
    loss: impl Fn(f32, f32) -> (f64, f64),
) -> f32 {
    assert_eq!(outputs.len(), targets.len(), "as many outputs as targets");
    assert!(!targets.is_empty(), "there is something to take the mean of");
    let n = targets.len() as f64;
    gradient.resize(outputs.len(), 0.0);
    let mut sum = 0.0;
    for ((&x, &y), slope) in outputs.iter().zip(targets).zip(gradient) {
        let (value, by_x) = loss(x, y);
        sum += value;
        *slope = (by_x / n) as f32;
    }
    (sum / n) as f32
}

/// The binary cross-entropy of `sigmoid(x)` for a flag, in nats: `log(1 + exp(x)) - x y`, without overflow.
pub(crate) fn cross_entropy_of_flag(logit: f32, flag: f32) -> f64 {
    let (x, y) = (f64::from(logit), f64::from(flag));
    x.max(0.0) - x * y + (-x.abs()).exp().ln_1p()
}

/// `1 / (1 + exp(-x))` in f64.
pub(crate) fn sigmoid(logit: f32) -> f64 {
    1.0 / (1.0 + (-f64::from(logit)).exp())
}

/// The square of the error.
pub(crate) fn squared(output: f32, target: f32) -> f64 {
    error(output, target).powi(2)
}

/// Huber's loss of the error.
pub(crate) fn huber_of(output: f32, target: f32, delta: f64) -> f64 {
    let error = error(output, target);
    // A NaN is not at most delta, and stays one.
    if error.abs() <= delta { error * error / 2.0 } else { delta * (error.abs() - delta / 2.0) }
}

fn error(output: f32, target: f32) -> f64 {
    f64::from(output) - f64::from(target)
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
    fn closed_forms_of_the_losses_of_numbers() {
        let mut gradient = vec![7.0; 5];
        // Sigmoids of 0 and log(3) are 1/2 and 3/4.
        let found = binary_cross_entropy(&[0.0, 3f32.ln()], &[1.0, 0.0], &mut gradient);
        assert!((found - f32::midpoint(2f32.ln(), 4f32.ln())).abs() < 1e-6, "{found}");
        assert_eq!(gradient.len(), 2);
        assert!((gradient[0] + 0.25).abs() < 1e-6 && (gradient[1] - 0.375).abs() < 1e-6, "{gradient:?}");
        let huge = binary_cross_entropy(&[1000.0, -1000.0], &[0.0, 0.0], &mut gradient);
        assert!((huge - 500.0).abs() < 1e-3, "{huge}");
        assert_eq!(squared_error(&[3.0, -1.0], &[1.0, -1.0], &mut gradient), 2.0);
        assert_eq!(gradient, [2.0, 0.0]);
        assert_eq!(huber(&[3.0, -0.5], &[0.0, 0.0], 1.0, &mut gradient), f32::midpoint(2.5, 0.125));
        assert_eq!(gradient, [0.5, -0.25]);
    }

    #[test]
    fn gradients_of_the_losses_of_numbers_are_those_of_differences() {
        type Loss = fn(&[f32], &[f32], &mut Vec<f32>) -> f32;
        let (outputs, targets) = ([0.3, -1.2, 2.5, 0.05, -3.0], [1.0, 0.0, 0.0, 1.0, 1.0]);
        let losses: [Loss; 3] = [binary_cross_entropy, squared_error, |x, y, g| huber(x, y, 1.5, g)];
        for loss in losses {
            let mut gradient = Vec::new();
            let _ = loss(&outputs, &targets, &mut gradient);
            for at in 0..outputs.len() {
                let moved = |by: f32| {
                    let mut outputs = outputs;
                    outputs[at] += by;
                    f64::from(loss(&outputs, &targets, &mut Vec::new()))
                };
                let slope = (moved(0.01) - moved(-0.01)) / 0.02;
                assert!((slope - f64::from(gradient[at])).abs() < 1e-3, "{at}: {slope} {gradient:?}");
            }
        }
    }

    #[test]
    fn outputs_that_are_not_finite_show_in_every_loss() {
        for bad in [f32::NAN, f32::INFINITY] {
            let (gradient, flag) = (&mut Vec::new(), &[0.0]);
            assert!(!binary_cross_entropy(&[bad], flag, gradient).is_finite());
            assert!(!squared_error(&[bad], flag, gradient).is_finite());
            assert!(!huber(&[bad], flag, 1.0, gradient).is_finite());
        }
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
