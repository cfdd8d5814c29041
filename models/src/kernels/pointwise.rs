//! Convolution with a kernel of one pixel and stride 1: a matrix product over channels at every place.
//!
//! `y = W x` for each image, `x` `[channels, places]`. A large image is a product of its own, which reads and writes it where it
//! is. Small images make too narrow a product: some of them are copied into one matrix, `[channels, images * places]`, and its
//! result back. The gradients are `W^T dy` and the sum over the images of `dy x^T`. Sums over images are taken in groups that
//! the shapes decide, and the threads of the current pool share out work of which no two parts add to the same values, so that
//! the bits are the same for any number of threads.

use std::ops::Range;

use rayon::prelude::*;

use super::aligned::Aligned;
use super::batch_groups::{for_groups, groups, groups_of};
use super::copy::{gather, gather_parallel, scatter};
use super::gemm::{Matrix, gemm, gemm_parallel};
use super::geometry::Geometry;
use super::workspace::Workspace;

/// Places from which an image is a product of its own.
const MIN_PLACES: usize = 192;
/// Limit of the values of images that are copied into one matrix, and of their results.
const MAX_PIECE_VALUES: usize = 1 << 21;
/// Limit of the groups in which the gradient of the weights is summed, and of those of small images: each has memory of its own.
const MAX_GROUPS: usize = 8;

/// Such a convolution.
pub(crate) struct Pointwise {
    channels: usize,
    out: usize,
    places: usize,
    workspace: Workspace,
}

impl Pointwise {
    /// Whether a convolution is one.
    pub(crate) fn is(geometry: Geometry) -> bool {
        let Geometry { kernel, stride, padding, .. } = geometry;
        (kernel, stride, padding) == (1, 1, 0)
    }

    /// To `out` channels.
    ///
    /// # Panics
    /// Unless [it is one](Self::is).
    pub(crate) fn new(geometry: Geometry, out: usize, workspace: &Workspace) -> Self {
        assert!(Self::is(geometry), "{geometry:?} has more than one pixel");
        let (channels, places) = (geometry.channels, geometry.places());
        assert!(
            channels > 0 && places > 0 && out > 0,
            "an architecture has no layer without values: {geometry:?}"
        );
        Self { channels, out, places, workspace: workspace.clone() }
    }

    /// The values of the workspace that such a convolution needs for batches of `n`; `learns` if it has a backward pass too.
    pub(crate) fn scratch(geometry: Geometry, out: usize, n: usize, learns: bool) -> [u64; 4] {
        let own = Self::new(geometry, out, &Workspace::default());
        if own.is_wide() {
            return [0, 0, 0, if learns { (own.sums(n) * out * own.channels) as u64 } else { 0 }];
        }
        let values = |rows: usize, images: usize| (rows as u64).saturating_mul((images * own.places) as u64);
        let parts = own.groups(n) as u64 * values(own.channels + out, own.narrowest().min(n));
        let whole = |rows| if learns { values(rows, n.min(own.together())) } else { 0 };
        [parts, whole(own.channels), whole(out), 0]
    }

    /// `y` `[n, out, places]` from `x` `[n, channels, places]` and `weight` `[out, channels]`. `finish` is called with each
    /// image's complete output, possibly in parallel.
    pub(crate) fn forward(
        &mut self,
        weight: &[f32],
        x: &[f32],
        y: &mut [f32],
        n: usize,
        finish: impl Fn(&mut [f32]) + Sync,
    ) {
        let Self { channels, out, places, .. } = *self;
        let (image, result) = (channels * places, out * places);
        assert_eq!((x.len(), y.len()), (n * image, n * result), "{n} images and their results");
        let weight = Matrix::new(weight, out, channels);
        if self.is_wide() {
            self.each(n, y, result, &|images, y| {
                let x = x[images.start * image..images.end * image].chunks_exact(image);
                for (x, y) in x.zip(y.chunks_exact_mut(result)) {
                    gemm(1.0, weight, Matrix::new(x, channels, places), 0.0, y, places);
                    finish(y);
                }
            });
            return;
        }
        let mut workspace = self.workspace.take();
        let mut scratch = self.parts(&mut workspace[0], n, channels + out);
        let product = product(scratch.len());
        for_groups(&mut scratch, n, y, result, &|scratch, images, y| {
            for piece in self.narrow(images.len()) {
                let of = images.start + piece.start..images.start + piece.end;
                let (pixels, products) = scratch.split_at_mut(channels * piece.len() * places);
                gather(&x[of.start * image..of.end * image], channels, places, pixels);
                let (width, products) = (piece.len() * places, &mut products[..out * piece.len() * places]);
                product(1.0, weight, Matrix::new(pixels, channels, width), 0.0, products, width);
                scatter(products, &mut y[piece.start * result..piece.end * result], out, places, &finish);
            }
        });
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
        let Self { channels, out, places, .. } = *self;
        let (image, result) = (channels * places, out * places);
        let weight = Matrix::new(weight, out, channels).transposed();
        if self.is_wide() {
            if let Some(dx) = dx {
                self.each(n, dx, image, &|images, dx| {
                    let dy = dy[images.start * result..images.end * result].chunks_exact(result);
                    for (dy, dx) in dy.zip(dx.chunks_exact_mut(image)) {
                        gemm(1.0, weight, Matrix::new(dy, out, places), 0.0, dx, places);
                    }
                });
            }
            self.backward_weights(x, dy, n, dweight);
            return;
        }
        let mut workspace = self.workspace.take();
        let [gradients, inputs, outputs, _] = &mut *workspace;
        if n == 0 {
            dweight.fill(0.0);
        }
        let together = self.together();
        for first in (0..n).step_by(together) {
            let images = first..n.min(first + together);
            let (count, width) = (images.len(), images.len() * places);
            let by_outputs = outputs.first(out * width);
            gather_parallel(&dy[images.start * result..images.end * result], out, places, by_outputs);
            let pixels = inputs.first(channels * width);
            gather_parallel(&x[images.start * image..images.end * image], channels, places, pixels);
            let (by_outputs, pixels) =
                (Matrix::new(by_outputs, out, width), Matrix::new(pixels, channels, width));
            let beta = if first == 0 { 0.0 } else { 1.0 };
            gemm_parallel(1.0, by_outputs, pixels.transposed(), beta, dweight, channels);
            let Some(dx) = &mut dx else { continue };
            let dx = &mut dx[images.start * image..images.end * image];
            let mut scratch = self.parts(gradients, count, channels);
            let product = product(scratch.len());
            for_groups(&mut scratch, count, dx, image, &|scratch, images, dx| {
                for piece in self.narrow(images.len()) {
                    let columns = (images.start + piece.start) * places;
                    let width = piece.len() * places;
                    let products = &mut scratch[..channels * width];
                    let by_outputs = by_outputs.columns(columns..columns + width);
                    product(1.0, weight, by_outputs, 0.0, products, width);
                    scatter(
                        products,
                        &mut dx[piece.start * image..piece.end * image],
                        channels,
                        places,
                        &|_| {},
                    );
                }
            });
        }
    }

    /// The gradient of the weights from large images: the sum of those of groups of images.
    fn backward_weights(&self, x: &[f32], dy: &[f32], n: usize, dweight: &mut [f32]) {
        let Self { channels, out, places, .. } = *self;
        let count = self.sums(n);
        let mut workspace = self.workspace.take();
        let sums = workspace[3].first(count * dweight.len());
        sums.par_chunks_exact_mut(dweight.len()).enumerate().for_each(|(group, sum)| {
            let images = group * n / count..(group + 1) * n / count;
            if images.is_empty() {
                sum.fill(0.0);
            }
            for number in images.clone() {
                let x = Matrix::new(&x[number * channels * places..], channels, places);
                let dy = Matrix::new(&dy[number * out * places..], out, places);
                let beta = if number == images.start { 0.0 } else { 1.0 };
                gemm(1.0, dy, x.transposed(), beta, sum, channels);
            }
        });
        let mut sums = sums.chunks_exact(dweight.len());
        dweight.copy_from_slice(sums.next().expect("there is one group at least"));
        for sum in sums {
            dweight.iter_mut().zip(sum).for_each(|(to, from)| *to += from);
        }
    }

    /// Whether each image is a product of its own.
    fn is_wide(&self) -> bool {
        self.places >= MIN_PLACES
    }

    /// Groups in which the gradient of the weights is summed.
    fn sums(&self, n: usize) -> usize {
        groups(n, self.out * self.channels * self.places).min(MAX_GROUPS)
    }

    /// Small images that the gradient of the weights is computed of at once.
    fn together(&self) -> usize {
        let each = self.places * self.channels.max(self.out);
        (MAX_PIECE_VALUES / each.max(1)).max(self.narrowest())
    }

    /// Small images that are wide enough together.
    fn narrowest(&self) -> usize {
        MIN_PLACES.div_ceil(self.places.max(1))
    }

    /// `n` small images in pieces that are wide enough.
    fn narrow(&self, n: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let size = self.narrowest();
        (0..n).step_by(size).map(move |first| first..n.min(first + size))
    }

    /// Groups of small images.
    fn groups(&self, n: usize) -> usize {
        groups_of(self.narrowest().min(n.max(1)), n, self.out * self.channels * self.places).min(MAX_GROUPS)
    }

    /// Scratch memory for each group of `n` small images, with this number of rows.
    fn parts<'a>(&self, memory: &'a mut Aligned, n: usize, rows: usize) -> Vec<&'a mut [f32]> {
        let (count, size) = (self.groups(n), rows * self.narrowest().min(n) * self.places);
        memory.first(count * size).chunks_exact_mut(size.max(1)).collect()
    }

    /// Runs groups of large images with their share of `values`, `size` each.
    fn each(
        &self,
        n: usize,
        values: &mut [f32],
        size: usize,
        run: &(impl Fn(Range<usize>, &mut [f32]) + Sync),
    ) {
        let count = groups(n, self.out * self.channels * self.places);
        for_groups(&mut vec![(); count], n, values, size, &|(), images, values| run(images, values));
    }
}

/// As [`gemm`].
type Product = fn(f32, Matrix<'_>, Matrix<'_>, f32, &mut [f32], usize);

/// The product of small images in this number of groups: several groups are parallel as they are.
fn product(groups: usize) -> Product {
    if groups == 1 { gemm_parallel } else { gemm }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::reference::{Case, convolution_checks};

    convolution_checks!(Pointwise, |geometry, out| Pointwise::new(geometry, out, &Workspace::default()));

    proptest! {
        #[test]
        fn any_sizes(image in (1..9usize, 1..18usize, 1..18usize), out in 1..9usize, n in 1..5usize) {
            check(&Case::new(image, out, 1, 1, 0, n));
        }
    }

    #[test]
    fn images_of_all_widths_in_pieces_and_groups() {
        for (image, out, n) in
            [((24, 24, 24), 144, 9), ((96, 7, 5), 40, 11), ((960, 12, 12), 20, 9), ((5, 3, 3), 700, 300)]
        {
            let case = Case::new(image, out, 1, 1, 0, n);
            check(&case);
            let with = |threads: usize| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
                pool.install(|| run(&mut new(case.geometry, case.out), &case))
            };
            let one = with(1);
            assert_eq!(with(2), one);
            assert_eq!(with(3), one);
        }
    }

    #[test]
    fn an_empty_batch_has_no_gradient() {
        for side in [3, 20] {
            let case = Case::new((2, side, side), 3, 1, 1, 0, 0);
            let [y, dweight, dx] = run(&mut new(case.geometry, case.out), &case);
            assert!(y.is_empty() && dx.is_empty());
            assert!(dweight.iter().all(|value| *value == 0.0));
        }
    }
}
