//! Winograd convolution of stride 1: F(4x4, 3x3) for kernels of size 3 and F(2x2, 5x5) for size 5.
//!
//! Both cut the images into tiles of 6 x 6 inputs, `d`, that give `m x m` outputs, `m = 7 - kernel`, and
//! compute them as `y = A^T [sum over channels of (G g G^T) . (B^T d B)] A` with 36 multiplications per pair
//! of channels instead of 144 or 100 (see `points`). Over all tiles, the multiplications and the sum over
//! channels are 36 products of matrices, one per pair of points: `[tiles, in]` by `[in, out]`. The gradients
//! are the transposes:
//!
//! * for the weights `G^T [sum over tiles of (A dy A^T) . (B^T d B)] G`,
//! * for the images `B [sum over outputs of (G g G^T) . (A dy A^T)] B^T`, added up where tiles overlap.
//!
//! One group of images at a time goes through the three phases (transform, products, transform), in slabs `[tiles, channels]`,
//! one per pair of points. The threads of the current rayon pool divide images and slabs among them; each is computed by one
//! thread, and sums over groups are in order, so that the results do not depend on the number of threads.

mod interleave;
mod layout;
mod points;
mod slabs;
#[cfg(test)]
mod tests;
mod tiles;

use rayon::prelude::*;

use super::gemm::gemm;
use super::geometry::Geometry;
use super::workspace::Workspace;
use interleave::LANES;
use layout::{Channels, Layout};
use points::POINTS;
use slabs::Slabs;
use tiles::SLABS;

/// Target for the values in the slabs of a group of images, unless [`MIN_GROUP_TILES`] needs more: 4 MiB, a few times the own
/// caches of two cores. Measured: twice as much is slower by a fifth for 64 -> 128 channels at 32 x 32.
const GROUP_VALUES: usize = 1 << 20;

/// The least tiles in a group, as far as there are images. With many channels a group needs as many tiles as channels, because
/// each group reads the transformed weights and reads and writes their gradient. Measured: for 256 -> 512 channels, four groups
/// instead of one take half as much time again.
const MIN_GROUP_TILES: usize = 128;

/// Input channels whose kernels are transformed at a time.
const INPUT_BLOCK: usize = 16;

/// Output channels whose gradients are transformed back at a time.
const OUTPUT_BLOCK: usize = 64;

/// Multiplications in a group from which several threads are used: about 100 microseconds of work.
const MIN_PARALLEL_WORK: usize = 5_000_000;

/// Whether [`Winograd`] is expected to be the fastest algorithm: it applies, has fewer multiplications, and the channels fill a
/// vector on both sides. With fewer channels, [`super::direct::Direct`] wins: for 8 -> 16 channels at 14 x 14 with kernel 3 a step
/// of `cnn-small` takes 0.25 ms instead of 0.31.
///
/// Measured with 64 images on one core with AVX-512, forward and backward together, against im2col: 1.5 times as fast for
/// 8 -> 16 channels at 14 x 14 with kernel 5, 2.7 for 16 -> 16, 3.1 for 8 -> 8 at 32 x 32 with kernel 3, 6 for 16 -> 16, 2.5 to
/// 3.5 for more channels. Against matrix products at their peak, without im2col, it only wins from 16 channels on. With 3
/// input channels both take about the same time.
pub(crate) fn pays(geometry: Geometry, out: usize) -> bool {
    let Geometry { channels, kernel, stride, rows, columns, .. } = geometry;
    if stride != 1 || !matches!(kernel, 3 | 5) {
        return false;
    }
    let (side, per_place) = (7 - kernel, kernel * kernel);
    let tiles = rows.div_ceil(side) * columns.div_ceil(side);
    channels.min(out) >= 16 && POINTS * POINTS * tiles < per_place * geometry.places()
}

/// A convolution for one geometry.
#[derive(Debug)]
pub(crate) struct Winograd {
    geometry: Geometry,
    out: usize,
    inputs: Layout,
    outputs: Layout,
    /// Images in a group.
    group: usize,
    workspace: Workspace,
    /// `G g G^T`, slabs `[in, out]`. All slabs have memory only during a pass.
    weights: Slabs,
    /// The gradient of `weights`.
    gradient: Slabs,
    /// `B^T d B`, slabs `[tiles, in]`, later its gradient.
    pixels: Slabs,
    /// The products, slabs `[tiles, out]`, or their gradient.
    products: Slabs,
}

/// Rows and columns of tiles that cover an image.
fn grid(Geometry { kernel, rows, columns, .. }: Geometry) -> (usize, usize) {
    let side = 7 - kernel;
    (rows.div_ceil(side), columns.div_ceil(side))
}

/// Images in a group.
fn group(geometry: Geometry, out: usize) -> usize {
    let (channels, grid) = (geometry.channels, grid(geometry));
    let tiles = grid.0 * grid.1;
    let size = POINTS * tiles * (Channels::all(channels).row.tile + Channels::all(out).row.tile);
    let fewest = MIN_GROUP_TILES.max(channels.min(out)).div_ceil(tiles.max(1));
    // Even, for two threads.
    (GROUP_VALUES / size.max(1)).max(fewest).max(1).next_multiple_of(2)
}

impl Winograd {
    /// A convolution to `out` channels; `None` if it is not of stride 1 with a kernel of size 3 or 5.
    pub(crate) fn new(geometry: Geometry, out: usize, workspace: &Workspace) -> Option<Self> {
        let Geometry { channels, height, width, kernel, stride, padding, rows, columns } = geometry;
        if stride != 1 || !matches!(kernel, 3 | 5) {
            return None;
        }
        let grid = grid(geometry);
        Some(Self {
            geometry,
            out,
            inputs: Layout::inputs(kernel, grid, (height, width), padding),
            outputs: Layout::outputs(kernel, grid, (rows, columns)),
            group: group(geometry, out),
            workspace: workspace.clone(),
            weights: Slabs::new(out),
            gradient: Slabs::new(out),
            pixels: Slabs::new(channels),
            products: Slabs::new(out),
        })
    }

    /// The values of the workspace that such a convolution needs for batches of `n`; `learns` if it has a backward pass too.
    pub(crate) fn scratch(geometry: Geometry, out: usize, n: usize, learns: bool) -> [u64; 4] {
        let (rows, columns) = grid(geometry);
        let tiles = n.min(group(geometry, out)) * rows * columns;
        let slabs = |rows: usize, columns| (SLABS * rows) as u64 * Channels::all(columns).row.tile as u64;
        let weights = slabs(geometry.channels, out);
        [weights, if learns { weights } else { 0 }, slabs(tiles, geometry.channels), slabs(tiles, out)]
    }

    /// `y` `[n, out, rows, columns]` from `x` `[n, channels, height, width]` and `weight` `[out, channels, kernel, kernel]`.
    /// `finish` is called with each image's complete output while it is in the cache, possibly in parallel.
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
        self.swap_workspace();
        self.transform_weights(weight);
        for first in (0..n).step_by(self.group) {
            let count = self.group.min(n - first);
            let parallel = self.parallel(count);
            self.pixels.prepare(count * tiles);
            self.products.prepare(count * tiles);
            let x = &x[first * image..][..count * image];
            let y = &mut y[first * result..][..count * result];

            let (inputs, channels) = (&self.inputs, self.pixels.columns);
            let tasks = x.chunks(image).zip(self.pixels.parts(tiles)).collect();
            for_each_task(parallel, tasks, |(x, mut slabs)| inputs.spread(x, plane, channels, &mut slabs));

            let (pixels, weights) = (&self.pixels, &self.weights);
            let row = self.products.columns.row;
            for_each_task(parallel, self.products.pieces().collect(), |(slab, rows, to)| {
                for point in 0..POINTS {
                    let pixels = pixels.matrix(slab, point, rows.clone());
                    let weights = weights.matrix(slab, point, 0..weights.rows);
                    gemm(1.0, pixels, weights, 0.0, &mut to[point * row.point..], row.tile);
                }
            });

            let (outputs, products) = (&self.outputs, &self.products);
            for_each_task(parallel, y.chunks_mut(result).enumerate().collect(), |(index, y)| {
                outputs.collect(products.from(index * tiles), products.columns, y, places);
                finish(y);
            });
        }
        self.swap_workspace();
    }

    /// Takes the memory for the slabs from the workspace, or returns it.
    fn swap_workspace(&mut self) {
        let mut shared = self.workspace.take();
        let own = [&mut self.weights, &mut self.gradient, &mut self.pixels, &mut self.products];
        for (own, shared) in own.into_iter().zip(&mut *shared) {
            std::mem::swap(&mut own.values, shared);
        }
    }

    /// From the gradient `dy` of the output, computes that of the weights, `dweight`, and optionally that of the images, `dx`.
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
        self.swap_workspace();
        if dx.is_some() {
            self.transform_weights(weight);
        }
        self.gradient.prepare(self.geometry.channels);
        if n == 0 {
            self.gradient.values.get_mut().fill(0.0);
        }
        for first in (0..n).step_by(self.group) {
            let count = self.group.min(n - first);
            let parallel = self.parallel(count);
            self.pixels.prepare(count * tiles);
            self.products.prepare(count * tiles);
            let x = &x[first * image..][..count * image];
            let dy = &dy[first * result..][..count * result];

            let (inputs, outputs) = (&self.inputs, &self.outputs);
            let (channels, out) = (self.pixels.columns, self.products.columns);
            let from = x.chunks(image).zip(dy.chunks(result));
            let tasks = from.zip(self.pixels.parts(tiles).zip(self.products.parts(tiles))).collect();
            for_each_task(parallel, tasks, |((x, dy), (mut pixels, mut products))| {
                inputs.spread(x, plane, channels, &mut pixels);
                outputs.spread(dy, places, out, &mut products);
            });

            let beta = if first == 0 { 0.0 } else { 1.0 };
            let (pixels, products, row) = (&self.pixels, &self.products, self.gradient.columns.row);
            for_each_task(parallel, self.gradient.pieces().collect(), |(slab, inputs, to)| {
                for point in 0..POINTS {
                    let pixels = pixels.matrix(slab, point, 0..pixels.rows).transposed().rows(inputs.clone());
                    let products = products.matrix(slab, point, 0..products.rows);
                    gemm(1.0, pixels, products, beta, &mut to[point * row.point..], row.tile);
                }
            });

            let Some(dx) = &mut dx else { continue };
            let (weights, row) = (&self.weights, self.pixels.columns.row);
            for_each_task(parallel, self.pixels.pieces().collect(), |(slab, rows, to)| {
                for point in 0..POINTS {
                    let products = products.matrix(slab, point, rows.clone());
                    let weights = weights.matrix(slab, point, 0..weights.rows).transposed();
                    gemm(1.0, products, weights, 0.0, &mut to[point * row.point..], row.tile);
                }
            });

            let dx = &mut dx[first * image..][..count * image];
            let (inputs, pixels) = (&self.inputs, &self.pixels);
            for_each_task(parallel, dx.chunks_mut(image).enumerate().collect(), |(index, dx)| {
                inputs.collect(pixels.from(index * tiles), pixels.columns, dx, plane);
            });
        }
        self.collect_gradient(dweight);
        self.swap_workspace();
    }

    /// Whether several threads process a group of `count` images.
    fn parallel(&self, count: usize) -> bool {
        POINTS * POINTS * count * self.inputs.tiling.tiles() * self.geometry.channels * self.out
            >= MIN_PARALLEL_WORK
    }

    /// Whether several threads transform the weights.
    fn parallel_weights(&self) -> bool {
        self.geometry.channels * self.out >= 1 << 14
    }

    fn transform_weights(&mut self, weight: &[f32]) {
        let (kernel, inputs, taps) = (self.geometry.kernel, self.geometry.channels, self.geometry.taps());
        assert_eq!(weight.len(), self.out * taps, "a kernel for each pair of channels");
        let parallel = self.parallel_weights();
        self.weights.prepare(self.geometry.channels);
        let out = self.weights.columns;
        let tasks = self.weights.parts(INPUT_BLOCK).enumerate().collect();
        for_each_task(parallel, tasks, |(block, mut slabs)| {
            let first = block * INPUT_BLOCK;
            let layout = Layout::taps(kernel, INPUT_BLOCK.min(inputs - first));
            layout.spread(&weight[first * kernel * kernel..], taps, out, &mut slabs);
        });
    }

    fn collect_gradient(&self, dweight: &mut [f32]) {
        let (kernel, inputs, taps) = (self.geometry.kernel, self.geometry.channels, self.geometry.taps());
        assert_eq!(dweight.len(), self.out * taps, "a kernel for each pair of channels");
        let gradient = &self.gradient;
        let width = if self.out >= 4 * OUTPUT_BLOCK { OUTPUT_BLOCK } else { LANES };
        let tasks = dweight.chunks_mut(width * taps).enumerate().collect();
        for_each_task(self.parallel_weights(), tasks, |(part, dweight)| {
            let channels = Channels { first: part * width, count: dweight.len() / taps, ..gradient.columns };
            for first in (0..inputs).step_by(INPUT_BLOCK) {
                let layout = Layout::taps(kernel, INPUT_BLOCK.min(inputs - first));
                layout.collect(gradient.from(first), channels, &mut dweight[first * kernel * kernel..], taps);
            }
        });
    }
}

/// Runs the tasks, on the threads of the current pool if `parallel`.
fn for_each_task<T: Send>(parallel: bool, tasks: Vec<T>, run: impl Fn(T) + Sync) {
    if parallel {
        tasks.into_par_iter().with_max_len(1).for_each(&run);
    } else {
        tasks.into_iter().for_each(run);
    }
}
