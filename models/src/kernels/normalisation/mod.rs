//! Batch, group and local response normalisation of images `[n, channels, pixels]`, and of rows: layer normalisation
//! and cosines with a simplex.
//!
//! Batch and group normalisation are sums over planes, the pixels of one channel of one image, followed by one affine function of each plane.
//! Sums within a plane are taken in single precision in 16 parts, those over planes in double precision, in one order.

mod batch;
mod group;
mod layer;
mod local_response;
pub(in crate::kernels) mod plane;
pub(crate) mod simplex;

pub(crate) use batch::BatchNorm;
pub(crate) use group::GroupNorm;
pub(crate) use layer::LayerNorm;
pub(crate) use local_response::{LocalResponse, LocalResponseNorm};
pub(crate) use simplex::SimplexEtf;

/// Added to variances, so that the results for constant channels are finite: the default of `PyTorch`.
pub(crate) const EPSILON: f64 = 1e-5;

/// The weight of a new batch in the running statistics: the default of `PyTorch`.
pub(crate) const MOMENTUM: f64 = 0.1;

/// The gradients with respect to the parameters of a normalisation, `[channels]` each.
#[derive(Debug)]
pub(crate) struct NormGradients<'a> {
    /// Of the scale.
    pub(crate) weight: &'a mut [f32],
    /// Of the offset.
    pub(crate) bias: &'a mut [f32],
}
