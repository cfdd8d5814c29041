//! Losses.

use candle_core::Tensor;

use crate::error::ModelError;

/// The mean over the batch of `-log softmax(logits)[label]`, a scalar tensor through which gradients flow.
///
/// `logits` is `[n, classes]`, `labels` is `[n]` of `u32`, each below `classes` ([`crate::Batch::labels`] checks that).
/// The maximum is subtracted first, so that no logit is too large.
///
/// # Errors
/// [`ModelError::Candle`] if the shapes do not fit or the device fails.
pub fn cross_entropy(logits: &Tensor, labels: &Tensor) -> Result<Tensor, ModelError> {
    candle_nn::loss::cross_entropy(logits, labels).map_err(ModelError::candle("computing the cross-entropy"))
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    fn loss(logits: &[[f32; 3]], labels: &[u32]) -> f32 {
        let logits = Tensor::from_slice(logits.as_flattened(), (logits.len(), 3), &Device::Cpu).unwrap();
        let labels = Tensor::new(labels, &Device::Cpu).unwrap();
        cross_entropy(&logits, &labels).unwrap().to_scalar().unwrap()
    }

    #[test]
    fn closed_forms() {
        // Equal logits: log 3, whatever they are.
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
    fn the_gradient_is_softmax_minus_one_hot_over_the_batch() {
        let logits =
            candle_core::Var::new(&[[0.0f32, 2f32.ln(), 5f32.ln()], [1.0, 1.0, 1.0]], &Device::Cpu).unwrap();
        let labels = Tensor::new(&[1u32, 0], &Device::Cpu).unwrap();
        let gradients = cross_entropy(&logits, &labels).unwrap().backward().unwrap();
        let gradient: Vec<f32> = gradients.get(&logits).unwrap().flatten_all().unwrap().to_vec1().unwrap();
        let third = 1.0 / 3.0;
        let expected = [0.125, 0.25 - 1.0, 0.625, third - 1.0, third, third].map(|g: f32| g / 2.0);
        for (found, expected) in gradient.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-6, "{gradient:?}");
        }
    }
}
