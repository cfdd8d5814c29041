//! Batch, group and local response normalisation of images `[n, channels, pixels]`.
//!
//! The first two are sums over planes, the pixels of one channel of one image, and then one affine function for each. Sums within
//! a plane are taken in single precision in 16 parts, those over planes in double precision, in one order.

mod batch;
mod group;
mod planes;
mod response;

pub(crate) use batch::BatchNorm;
pub(crate) use group::GroupNorm;
pub(crate) use response::{LocalResponseNorm, Response};

/// Added to variances, so that channels without any stay finite: the default of `PyTorch`.
pub(crate) const EPSILON: f64 = 1e-5;

/// How far the buffers of batch normalisation move to each batch: the default of `PyTorch`.
pub(crate) const MOMENTUM: f64 = 0.1;

/// Where the gradients by a normalisation's parameters are written to, `[channels]` each.
#[derive(Debug)]
pub(crate) struct NormGradients<'a> {
    /// By the scale.
    pub(crate) weight: &'a mut [f32],
    /// By the offset.
    pub(crate) bias: &'a mut [f32],
}
