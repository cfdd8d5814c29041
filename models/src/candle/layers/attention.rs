//! Attention and positions in candle's operations.

use candle_core::{D, Result, Tensor};

use crate::kernels::waves::waves;

/// Attention of several heads, `[n, t, 3 d]` to `[n, t, d]`.
pub(super) fn attention(x: &Tensor, heads: usize, causal: bool) -> Result<Tensor> {
    let (n, positions, features) = x.dims3()?;
    let (features, width) = (features / 3, features / 3 / heads);
    let part = |index: usize| {
        let part = x.narrow(2, index * features, features)?.contiguous()?;
        part.reshape((n, positions, heads, width))?.transpose(1, 2)?.contiguous()
    };
    let (queries, keys, values) = (part(0)?, part(1)?, part(2)?);
    let mut scores = (queries.matmul(&keys.t()?.contiguous()?)? * (1.0 / (width as f64).sqrt()))?;
    if causal {
        let later = |row: usize| (0..positions).map(move |column| if column > row { f32::MIN } else { 0.0 });
        let later = Tensor::from_iter((0..positions).flat_map(later), x.device())?;
        scores = scores.broadcast_add(&later.reshape((positions, positions))?)?;
    }
    // The largest of a row cancels out, so that no gradient flows through it.
    let powers = scores.broadcast_sub(&scores.max_keepdim(D::Minus1)?.detach())?.exp()?;
    let weights = powers.broadcast_div(&powers.sum_keepdim(D::Minus1)?)?;
    weights.matmul(&values)?.transpose(1, 2)?.contiguous()?.reshape((n, positions, features))
}

/// `[n, t, d]` with the waves of its positions.
pub(super) fn add_waves(x: &Tensor) -> Result<Tensor> {
    let (_, positions, features) = x.dims3()?;
    x.broadcast_add(&Tensor::from_vec(waves(positions, features), (1, positions, features), x.device())?)
}
