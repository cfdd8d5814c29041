//! Convolutions of stride 1 with few multiplications: F(4x4, 3x3) for kernels of size 3 and F(2x2, 5x5) for size 5.
//!
//! Both cut the images into tiles of 6 x 6 inputs, `d`, that give `m x m` outputs, `m = 7 - kernel`, and compute them as
//! `y = A^T [sum over channels of (G g G^T) . (B^T d B)] A` with 36 multiplications per pair of channels instead of 144
//! or 100 (see [`points`]). Over all tiles, the multiplications and the sum over channels are 36 products of matrices,
//! one per pair of points: `[tiles, in]` by `[in, out]`. The gradients are the transposes:
//!
//! * for the weights `G^T [sum over tiles of (A dy A^T) . (B^T d B)] G`,
//! * for the images `B [sum over outputs of (G g G^T) . (A dy A^T)] B^T`, where tiles overlap added.
//!
//! A group of images at a time goes through the three phases (transform, products, transform), in slabs `[tiles,
//! channels]`, one per pair of points. Images and slabs are shared out to the threads of the current rayon pool; each is
//! computed by one thread, and sums over groups are in order, so the results do not depend on the number of threads.

mod aligned;
mod frame;
mod layout;
mod points;
#[cfg(test)]
mod tests;
mod tiles;

use rayon::prelude::*;

use super::im2col::Geometry;
use super::product::{Matrix, product};
use aligned::Aligned;
use layout::{Channels, Layout};
use tiles::SLABS;

/// The most values in the slabs of a group of more than one image.
const GROUP: usize = 1 << 20;

/// The fewest tiles in a group, if there are enough images: below, the products run at less than their peak.
const TILES: usize = 64;

/// Kernels' inputs that are transformed at a time.
const BLOCK: usize = 16;

/// Multiplications in a group from which it is shared out to threads: about 100 microseconds.
const PARALLEL: usize = 5_000_000;

/// A convolution for one geometry, with its scratch.
#[derive(Debug)]
pub(crate) struct Winograd {
    geometry: Geometry,
    out: usize,
    inputs: Layout,
    outputs: Layout,
    /// Images in a group.
    group: usize,
    /// `G g G^T`, slabs `[in, out]`.
    weights: Slabs,
    /// Whether `weights` belong to the weights of the last forward pass.
    current: bool,
    /// The gradient of `weights`.
    gradient: Slabs,
    /// `B^T d B`, slabs `[tiles, in]`, later its gradient.
    pixels: Slabs,
    /// The products, slabs `[tiles, out]`, or their gradient.
    products: Slabs,
}

/// One matrix per pair of points.
#[derive(Debug)]
struct Slabs {
    values: Aligned,
    rows: usize,
    columns: Channels,
}

impl Slabs {
    fn new(rows: usize, columns: usize) -> Self {
        Self { values: Aligned::default(), rows, columns: Channels::all(columns) }
    }

    /// From a slab to the next. One cache line more than needed, lest the same element of all slabs falls into the same
    /// set of a cache.
    fn stride(&self) -> usize {
        self.rows * self.columns.row + 16
    }

    /// Makes room, the first time.
    fn prepare(&mut self) {
        self.values.prepare(SLABS * self.stride());
    }

    /// The first rows of a slab as a matrix.
    fn matrix<'a>(&self, slab: &'a [f32], rows: usize) -> Matrix<'a> {
        Matrix::strided(slab, rows, self.columns.count, self.columns.row)
    }

    /// All slabs, cut into parts of `rows` rows.
    fn parts(&mut self, rows: usize) -> impl Iterator<Item = [&mut [f32]; SLABS]> {
        let (stride, part) = (self.stride(), rows * self.columns.row);
        let mut slabs: Vec<_> = self.values.get_mut().chunks_mut(stride).map(|slab| slab.chunks_mut(part)).collect();
        (0..self.rows.div_ceil(rows)).map(move |_| {
            std::array::from_fn(|slab| slabs[slab].next().expect("a slab has as many parts as its rows give"))
        })
    }
}

impl Winograd {
    /// Scratch for a convolution to `out` channels; `None` if it is not of stride 1 with a kernel of size 3 or 5.
    pub(crate) fn new(geometry: Geometry, out: usize) -> Option<Self> {
        let Geometry { channels, height, width, kernel, stride, padding, rows, columns } = geometry;
        if stride != 1 || !matches!(kernel, 3 | 5) {
            return None;
        }
        let side = 7 - kernel;
        let grid = (rows.div_ceil(side), columns.div_ceil(side));
        let tiles = grid.0 * grid.1;
        let size = SLABS * tiles * (Channels::all(channels).row + Channels::all(out).row);
        let var = |n: &str, d: usize| std::env::var(n).map_or(d, |v| v.parse().unwrap());
        let tmin = var("TMIN", 64).max(channels.min(out) * var("TMUL", 100) / 100);
        let group = (var("GROUP", GROUP) / size.max(1)).max(tmin.div_ceil(tiles.max(1))).max(1);
        Some(Self {
            geometry,
            out,
            inputs: Layout::inputs(kernel, grid, (height, width), padding),
            outputs: Layout::outputs(kernel, grid, (rows, columns)),
            group,
            weights: Slabs::new(channels, out),
            current: false,
            gradient: Slabs::new(channels, out),
            pixels: Slabs::new(group * tiles, channels),
            products: Slabs::new(group * tiles, out),
        })
    }

    /// The images `x [n, in, height, width]` convolved with `weight [out, in, kernel, kernel]`, written to
    /// `y [n, out, rows, columns]`. Calls `finish` once for each image's result while it is in a cache, on any thread.
    pub(crate) fn forward(
        &mut self,
        weight: &[f32],
        x: &[f32],
        y: &mut [f32],
        n: usize,
        finish: impl Fn(&mut [f32]) + Sync,
    ) {
        let (image, places, tiles) =
            (self.geometry.image(), self.geometry.places(), self.inputs.tiling.tiles());
        let plane = self.geometry.height * self.geometry.width;
        let result = self.out * places;
        assert_eq!((x.len(), y.len()), (n * image, n * result), "{n} images and their results");
        self.transform_weights(weight);
        self.current = true;
        self.pixels.prepare();
        self.products.prepare();
        for first in (0..n).step_by(self.group) {
            let count = self.group.min(n - first);
            let parallel = self.parallel(count);
            let x = &x[first * image..][..count * image];
            let y = &mut y[first * result..][..count * result];

            let (inputs, channels) = (&self.inputs, self.pixels.columns);
            let tasks = x.chunks(image).zip(self.pixels.parts(tiles)).collect();
            share(parallel, tasks, |(x, mut slabs)| inputs.spread(x, plane, channels, &mut slabs));

            let (pixels, weights) = (&self.pixels, &self.weights);
            let (stride, rows, columns) = (self.products.stride(), count * tiles, self.products.columns.row);
            let operands = pixels.values.get().chunks(pixels.stride()).zip(weights.values.get().chunks(weights.stride()));
            let tasks = operands.zip(self.products.values.get_mut().chunks_mut(stride)).collect();
            share(parallel, tasks, |((pixels_slab, weights_slab), to)| {
                let pixels = pixels.matrix(pixels_slab, rows);
                let weights = weights.matrix(weights_slab, weights.rows);
                product(1.0, pixels, weights, 0.0, to, columns);
            });

            let (outputs, products) = (&self.outputs, &self.products);
            share(parallel, y.chunks_mut(result).enumerate().collect(), |(index, y)| {
                let slabs = &products.values.get()[index * tiles * products.columns.row..];
                outputs.collect(slabs, products.stride(), products.columns, y, places);
                finish(y);
            });
        }
    }

    /// The gradients for the weights and, if wanted, for the images, given that for the result. Both are overwritten.
    ///
    /// After [`Winograd::forward`], `weight` is taken to be the same as there.
    pub(crate) fn backward(
        &mut self,
        weight: &[f32],
        x: &[f32],
        dy: &[f32],
        n: usize,
        dweight: &mut [f32],
        mut dx: Option<&mut [f32]>,
    ) {
        let (image, places, tiles) =
            (self.geometry.image(), self.geometry.places(), self.inputs.tiling.tiles());
        let plane = self.geometry.height * self.geometry.width;
        let result = self.out * places;
        assert_eq!(
            (x.len(), dy.len()),
            (n * image, n * result),
            "{n} images and the gradients of their results"
        );
        if dx.is_some() && !self.current {
            self.transform_weights(weight);
        }
        self.current = false;
        self.pixels.prepare();
        self.products.prepare();
        self.gradient.prepare();
        if n == 0 {
            self.gradient.values.get_mut().fill(0.0);
        }
        for first in (0..n).step_by(self.group) {
            let count = self.group.min(n - first);
            let parallel = self.parallel(count);
            let x = &x[first * image..][..count * image];
            let dy = &dy[first * result..][..count * result];

            let (inputs, outputs) = (&self.inputs, &self.outputs);
            let (channels, out) = (self.pixels.columns, self.products.columns);
            let from = x.chunks(image).zip(dy.chunks(result));
            let tasks = from.zip(self.pixels.parts(tiles).zip(self.products.parts(tiles))).collect();
            share(parallel, tasks, |((x, dy), (mut pixels, mut products))| {
                inputs.spread(x, plane, channels, &mut pixels);
                outputs.spread(dy, places, out, &mut products);
            });

            let wanted = dx.is_some();
            let (beta, rows) = (if first == 0 { 0.0 } else { 1.0 }, count * tiles);
            let (channels, weights, products) = (self.pixels.columns, &self.weights, &self.products);
            let (pixels_stride, gradient_stride) = (self.pixels.stride(), self.gradient.stride());
            let to = self.gradient.values.get_mut().chunks_mut(gradient_stride);
            let tasks = to.zip(self.pixels.values.get_mut().chunks_mut(pixels_stride)).enumerate().collect();
            share(parallel, tasks, |(slab, (gradient, pixels))| {
                let products = products.matrix(&products.values.get()[slab * products.stride()..], rows);
                let transformed = Matrix::strided(pixels, rows, channels.count, channels.row).transposed();
                product(1.0, transformed, products, beta, gradient, weights.columns.row);
                if wanted {
                    let weights = weights.matrix(&weights.values.get()[slab * weights.stride()..], weights.rows);
                    product(1.0, products, weights.transposed(), 0.0, pixels, channels.row);
                }
            });

            if let Some(dx) = &mut dx {
                let dx = &mut dx[first * image..][..count * image];
                let (inputs, pixels) = (&self.inputs, &self.pixels);
                share(parallel, dx.chunks_mut(image).enumerate().collect(), |(index, dx)| {
                    let slabs = &pixels.values.get()[index * tiles * pixels.columns.row..];
                    inputs.collect(slabs, pixels.stride(), pixels.columns, dx, plane);
                });
            }
        }
        self.collect_gradient(dweight);
    }

    /// Whether a group of `count` images is shared out.
    fn parallel(&self, count: usize) -> bool {
        SLABS * count * self.inputs.tiling.tiles() * self.geometry.channels * self.out >= PARALLEL
    }

    /// Whether the transforms of the weights are.
    fn parallel_weights(&self) -> bool {
        self.geometry.channels * self.out >= 1 << 14
    }

    fn transform_weights(&mut self, weight: &[f32]) {
        let (kernel, inputs, taps) = (self.geometry.kernel, self.geometry.channels, self.geometry.taps());
        assert_eq!(weight.len(), self.out * taps, "a kernel for each pair of channels");
        let parallel = self.parallel_weights();
        self.weights.prepare();
        let out = self.weights.columns;
        let tasks = self.weights.parts(BLOCK).enumerate().collect();
        share(parallel, tasks, |(block, mut slabs)| {
            let first = block * BLOCK;
            let layout = Layout::taps(kernel, BLOCK.min(inputs - first));
            layout.spread(&weight[first * kernel * kernel..], taps, out, &mut slabs);
        });
    }

    fn collect_gradient(&self, dweight: &mut [f32]) {
        let (kernel, inputs, taps) = (self.geometry.kernel, self.geometry.channels, self.geometry.taps());
        assert_eq!(dweight.len(), self.out * taps, "a kernel for each pair of channels");
        let gradient = &self.gradient;
        let tasks = dweight.chunks_mut(frame::LANES * taps).enumerate().collect();
        share(self.parallel_weights(), tasks, |(part, dweight)| {
            let channels =
                Channels { first: part * frame::LANES, count: dweight.len() / taps, ..gradient.columns };
            for first in (0..inputs).step_by(BLOCK) {
                let layout = Layout::taps(kernel, BLOCK.min(inputs - first));
                let slabs = &gradient.values.get()[first * channels.row..];
                let to = &mut dweight[first * kernel * kernel..];
                layout.collect(slabs, gradient.stride(), channels, to, taps);
            }
        });
    }
}

/// Does the tasks, on the threads of the current pool if they are worth it.
fn share<T: Send>(parallel: bool, tasks: Vec<T>, run: impl Fn(T) + Sync) {
    if parallel {
        tasks.into_par_iter().with_max_len(1).for_each(|task| run(task));
    } else {
        tasks.into_iter().for_each(run);
    }
}
