//! Operations for the CPU where candle's own are slow, each with its gradient.
//!
//! They are candle operations like any other and take part in its automatic differentiation. All are plain loops around
//! candle's matrix product, sum in an order that depends on the shapes alone, and so give the same bytes for any number
//! of threads.
//!
//! The kernels on plain slices, without candle, are those of [`direct`], [`columns`], [`pooling`], [`bias`] and [`update`].

#![allow(
    clippy::inline_always,
    reason = "only what is inlined takes on the vector instructions of its caller"
)]
#![allow(dead_code, reason = "the kernels on plain slices wait for the training step that is made of them")]

mod bias;
mod columns;
mod convolution;
mod descent;
mod direct;
mod frame;
mod groups;
mod im2col;
mod linear;
mod max_pool;
mod pooling;
mod product;
#[cfg(test)]
mod reference;
mod relu;
mod rows;
mod update;
mod vectorised;

use candle_core::{CpuStorage, Layout, Result, Storage, Tensor, bail};

pub(crate) use convolution::conv2d;
pub(crate) use descent::{accumulate, descend};
pub(crate) use linear::linear;
pub(crate) use max_pool::max_pool;
pub(crate) use relu::relu;

/// The values behind an operation's argument, which the functions of this module make contiguous first.
fn values<'a>(storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [f32]> {
    match layout.contiguous_offsets() {
        Some((start, end)) => Ok(&storage.as_slice::<f32>()?[start..end]),
        None => bail!("the kernels take contiguous tensors, not {layout:?}"),
    }
}

/// Runs `f` on the values of a tensor on the CPU, row-major.
fn with_values<T>(tensor: &Tensor, f: impl FnOnce(&[f32]) -> T) -> Result<T> {
    let tensor = tensor.contiguous()?;
    let (storage, layout) = tensor.storage_and_layout();
    match &*storage {
        Storage::Cpu(storage) => Ok(f(values(storage, layout)?)),
        _ => bail!("the kernels run on the CPU"),
    }
}

/// The sum of some values in 16 interleaved partial sums: faster than one after the other, and more accurate.
fn sum(values: &[f32]) -> f32 {
    let (chunks, rest) = values.as_chunks::<16>();
    let mut partial = [0.0f32; 16];
    for chunk in chunks {
        for (sum, value) in partial.iter_mut().zip(chunk) {
            *sum += value;
        }
    }
    partial.iter().chain(rest).sum()
}
