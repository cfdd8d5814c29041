//! Convolution of images by products of 8-bit integers, for any kernel, stride, padding and number of groups.
//!
//! Four channels of a pixel are one group. A column of the product is one place of the output and has the groups of all channels
//! and taps that it reads. Convolutions of single pixels quantise images straight into columns; others into a frame with the
//! padding around it first, from which columns are copied. With few images, threads share out the output channels of each;
//! otherwise the images. No sum depends on that.

use std::ops::Range;

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::columns::{Columns, Frame, Pixels, frame_of};
use super::finish::Function;
use super::quantise::Quantisation;
use super::tile::{Level, Start, Sums};
use super::weights::Weights;
use super::{PANEL, ROWS};
use crate::kernels::arch;
use crate::kernels::batch_groups::for_groups;
use crate::kernels::geometry::Geometry;

/// Multiply-adds from which a part of the work pays for a thread: about ten microseconds.
const MIN_TASK_WORK: usize = 1 << 20;
/// Panels that are filled together, so that images are read in runs.
const FILLED_TOGETHER: usize = 8;
/// Groups of columns, of 64 bytes, that are kept for the product: a quarter of a core's own cache.
const MAX_GROUPS: usize = 1 << 12;
/// The same where threads share the work, and wait for each other each time.
const MAX_SHARED_GROUPS: usize = 1 << 14;

/// A convolution with its weights and its scratch memory.
#[derive(Debug)]
pub(crate) struct Convolution {
    /// Of one group of channels.
    geometry: Geometry,
    /// For each group of channels.
    weights: Vec<Weights<ROWS>>,
    /// Output channels.
    out: usize,
    function: Function,
}

/// The scratch memory of one image at a time, which convolutions may share.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// `[channels / 4, height + 2 padding, width + 2 padding]`: groups of four channels.
    frame: Vec<u32>,
    /// `[panels][groups][PANEL]`: some columns.
    panels: Vec<[u32; PANEL]>,
}

impl Convolution {
    /// Quantises the weights `[out, channels / groups, kernel, kernel]`; `bias` has `out` values.
    pub(crate) fn new(
        geometry: Geometry,
        groups: usize,
        weight: &[f32],
        bias: &[f32],
        function: Function,
    ) -> Self {
        let out = bias.len() / groups;
        let geometry = Geometry { channels: geometry.channels / groups, ..geometry };
        let area = geometry.kernel * geometry.kernel;
        let depth = Self::depth(geometry);
        let packed = |(weight, bias): (&[f32], &[f32])| {
            // The channels of a group of four next to each other.
            let mut ordered = vec![0.0; out * depth];
            let rows = weight.chunks_exact(geometry.taps()).zip(ordered.chunks_exact_mut(depth));
            for (from, to) in rows {
                for (index, &weight) in from.iter().enumerate() {
                    let (channel, tap) = (index / area, index % area);
                    to[(channel / 4 * area + tap) * 4 + channel % 4] = weight;
                }
            }
            Weights::new(&ordered, bias, depth)
        };
        let parts = weight.chunks_exact(out * geometry.taps()).zip(bias.chunks_exact(out));
        let weights = parts.map(packed).collect();
        Self { geometry, weights, out: bias.len(), function }
    }

    /// The depth of the product for images of this geometry, of one group of channels.
    pub(crate) fn depth(geometry: Geometry) -> usize {
        geometry.channels.next_multiple_of(4) * geometry.kernel * geometry.kernel
    }

    /// `y` `[n, out, rows, columns]` from `x` `[n, channels, height, width]`.
    pub(crate) fn forward(&self, scratch: &mut Vec<Scratch>, x: &[f32], y: &mut [f32], n: usize) {
        let Self { geometry, ref weights, out, function } = *self;
        let (image, output) = (weights.len() * geometry.image(), out * geometry.places());
        assert!(x.len() == n * image && y.len() == n * output, "images of this geometry");
        if n == 0 || output == 0 {
            return;
        }
        let work = output.saturating_mul(Self::depth(geometry));
        let pays = n.saturating_mul(work) / MIN_TASK_WORK;
        let count = n.min(rayon::current_num_threads()).min(pays).max(1);
        if scratch.len() < count {
            scratch.resize_with(count, Scratch::default);
        }
        let pass = Pass { geometry, weights, function, shared: count == 1 && work >= 2 * MIN_TASK_WORK };
        for_groups(&mut scratch[..count], n, y, output, &|scratch, images: Range<usize>, y| {
            for (image_index, y) in images.zip(y.chunks_exact_mut(output)) {
                pass.image(&x[image_index * image..][..image], scratch, y);
            }
        });
    }

    /// The bytes of the weights.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.weights.iter().map(Weights::bytes).sum()
    }
}

impl Scratch {
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.frame.capacity() * size_of::<u32>() + self.panels.capacity() * size_of::<[u32; PANEL]>()
    }
}

/// What all images of a pass share.
#[derive(Clone, Copy)]
struct Pass<'a> {
    geometry: Geometry,
    weights: &'a [Weights<ROWS>],
    function: Function,
    /// Whether threads share the work of an image.
    shared: bool,
}

impl Pass<'_> {
    fn image(&self, x: &[f32], scratch: &mut Scratch, y: &mut [f32]) {
        let (geometry, places) = (self.geometry, self.geometry.places());
        let how = Quantisation::of(x);
        let groups = self.weights.iter().zip(x.chunks_exact(self.geometry.image()));
        let outputs = y.len() / self.weights.len();
        for ((weights, x), y) in groups.zip(y.chunks_exact_mut(outputs)) {
            let pixels = (geometry.kernel, geometry.stride, geometry.padding) == (1, 1, 0);
            if !pixels {
                let length = geometry.channels.div_ceil(4) * frame_of(geometry).iter().product::<usize>();
                scratch.frame.clear();
                scratch.frame.resize(length, how.zeros());
                arch().dispatch(Frame { how, x, geometry, to: &mut scratch.frame });
            }
            let (groups, all) = (weights.groups(), places.div_ceil(PANEL));
            let limit = if self.shared { MAX_SHARED_GROUPS } else { MAX_GROUPS };
            let together = (limit / groups).next_multiple_of(FILLED_TOGETHER).min(all);
            let size = together * groups;
            scratch.panels.resize(scratch.panels.len().max(size), [0; PANEL]);
            for first in (0..all).step_by(together) {
                let count = together.min(all - first);
                let panels = &mut scratch.panels[..count * groups];
                let frame = scratch.frame.as_slice();
                self.fill(panels, groups, |panel, panels| {
                    if pixels {
                        arch().dispatch(Pixels { how, x, places, first: first + panel, panels });
                    } else {
                        arch().dispatch(Columns { frame, geometry, first: first + panel, panels });
                    }
                });
                let threads = if self.shared { rayon::current_num_threads() } else { 1 };
                let blocks = weights.outputs().div_ceil(ROWS).div_ceil(threads);
                let panels = &*panels;
                let band = |(band, y): (usize, &mut [f32])| {
                    let (block, column, function) = (band * blocks, first * PANEL, self.function);
                    arch().dispatch(Product { weights, block, panels, column, how, function, places, y });
                };
                if threads == 1 {
                    band((0, y));
                } else {
                    y.par_chunks_mut(blocks * ROWS * places).enumerate().for_each(band);
                }
            }
        }
    }

    /// Fills all panels, a few at a time; `fill` is given the first of them and `[panels][groups][PANEL]` to overwrite.
    fn fill(
        &self,
        panels: &mut [[u32; PANEL]],
        groups: usize,
        fill: impl Fn(usize, &mut [&mut [[u32; PANEL]]]) + Sync,
    ) {
        let some = |(index, panels): (usize, &mut [[u32; PANEL]])| {
            let mut panels: Vec<_> = panels.chunks_exact_mut(groups).collect();
            fill(index * FILLED_TOGETHER, &mut panels);
        };
        let size = FILLED_TOGETHER * groups;
        if self.shared {
            panels.par_chunks_mut(size).enumerate().for_each(some);
        } else {
            panels.chunks_mut(size).enumerate().for_each(some);
        }
    }
}

/// The product of the weights from `block` on and the columns from `column` on. One block after the other, so that outputs are
/// written in runs.
struct Product<'a> {
    weights: &'a Weights<ROWS>,
    block: usize,
    panels: &'a [[u32; PANEL]],
    column: usize,
    how: Quantisation,
    function: Function,
    places: usize,
    y: &'a mut [f32],
}

impl WithSimd for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { weights, block, panels, column, how, function, places, y } = self;
        let (level, zero, groups) = (Level::best(), i32::from(how.zero), weights.groups());
        for (index, y) in y.chunks_mut(ROWS * places).enumerate() {
            let block = block + index;
            let (values, sums, bias) = (weights.block(block), weights.sums[block], weights.bias[block]);
            let factors = weights.scales[block].map(|scale| scale * how.scale);
            let affine = (&factors, &bias, function);
            let start = sums.map(|sum| -zero * sum);
            for (pair, panels) in panels.chunks(2 * groups).enumerate() {
                let column = column + pair * 2 * PANEL;
                let (left, right) = panels.split_at(groups);
                if right.is_empty() {
                    let mut sums = [[[0.0; PANEL]; 1]; ROWS];
                    level.sums::<ROWS, 1, true>(values, [left], &Start::Rows(start), &mut sums);
                    store(simd, &sums, affine, y, places, column);
                } else {
                    let mut sums = [[[0.0; PANEL]; 2]; ROWS];
                    level.sums::<ROWS, 2, true>(values, [left, right], &Start::Rows(start), &mut sums);
                    store(simd, &sums, affine, y, places, column);
                }
            }
        }
    }
}

/// Writes the outputs of some rows of sums, as many as `y` has, from `column` on.
#[inline(always)]
fn store<S: Simd, const C: usize>(
    simd: S,
    sums: &Sums<ROWS, C>,
    (factors, bias, function): (&[f32; ROWS], &[f32; ROWS], Function),
    y: &mut [f32],
    places: usize,
    column: usize,
) {
    for (row, y) in y.chunks_exact_mut(places).enumerate() {
        let (factor, bias) = (simd.splat_f32s(factors[row]), simd.splat_f32s(bias[row]));
        for (panel, sums) in sums[row].iter().enumerate() {
            let y = &mut y[column + panel * PANEL..];
            let length = y.len().min(PANEL);
            let (sums, _) = S::as_simd_f32s(sums);
            let (to, rest) = S::as_mut_simd_f32s(&mut y[..length]);
            for (to, &sum) in to.iter_mut().zip(sums) {
                *to = function.of(simd, sum, factor, bias);
            }
            if !rest.is_empty() {
                simd.partial_store_f32s(rest, function.of(simd, sums[to.len()], factor, bias));
            }
        }
    }
}

#[cfg(test)]
mod tests;
