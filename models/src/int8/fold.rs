//! Batch normalisation as a part of the layer before it.
//!
//! By its running statistics it is one affine function of each output, `scale (x - mean) + offset`, and so goes into the weights
//! and the bias of a layer whose outputs nothing else changes.

/// The parameters and running statistics of a batch normalisation, one of each per output.
#[derive(Clone, Copy, Debug)]
pub(super) struct Norm<'a> {
    pub(super) weight: &'a [f32],
    pub(super) bias: &'a [f32],
    pub(super) mean: &'a [f32],
    pub(super) variance: &'a [f32],
    pub(super) epsilon: f64,
}

/// Weights `[outputs, ...]` and a bias, `[outputs]`, with which a layer computes what it and the normalisation after it did.
pub(super) fn fold(
    weight: &[f32],
    bias: Option<&[f32]>,
    outputs: usize,
    norm: Option<Norm<'_>>,
) -> (Vec<f32>, Vec<f32>) {
    let mut weight = weight.to_vec();
    let mut bias = bias.map_or_else(|| vec![0.0; outputs], <[f32]>::to_vec);
    if let Some(norm) = norm {
        let each = weight.len() / outputs.max(1);
        for (output, row) in weight.chunks_exact_mut(each.max(1)).enumerate() {
            // As the normalisation itself: a variance that was sent in 16 bits may be slightly negative by rounding.
            let variance = f64::from(norm.variance[output]).max(0.0);
            let scale = f64::from(norm.weight[output]) / (variance + norm.epsilon).sqrt();
            for weight in row {
                *weight = (f64::from(*weight) * scale) as f32;
            }
            let centred = f64::from(bias[output]) - f64::from(norm.mean[output]);
            bias[output] = (centred * scale + f64::from(norm.bias[output])) as f32;
        }
    }
    (weight, bias)
}
