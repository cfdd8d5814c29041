//! Convolution by im2col and matrix products, for any sizes.
//!
//! `y = W C` with `W` `[out, taps]` and the columns `C` `[taps, places]`, one for each window of an image. The gradient of
//! the columns is `W^T G`, that of the weights `G C^T`. Columns are computed for one piece of the batch at a time, which
//! stays in the cache: some rows of an image, or a few small images. The output and the gradient of the images are computed
//! in parallel by groups of images, the gradient of the weights by blocks of channels, so that no two tasks add to the same
//! values.

use std::ops::Range;

use rayon::prelude::*;

use super::batch_groups::{for_groups, groups};
use super::copy::{copy_row, gather};
use super::gemm::{Matrix, gemm};
use super::geometry::Geometry;
use super::padded::PaddedLayout;
use super::vectorised::vectorised;

/// Limit of the values in the columns of a piece: 512 KiB, half of a core's own cache.
const MAX_PIECE_VALUES: usize = 1 << 17;
/// Small images are combined until the matrix has this many columns.
const MIN_COLUMNS: usize = 192;
/// Blocks of channels in which the gradient of the weights is computed.
const CHANNEL_BLOCKS: usize = 8;

/// A convolution with its scratch memory.
pub(crate) struct Im2col {
    geometry: Geometry,
    out: usize,
    whole: Gather,
    groups: Vec<Scratch>,
    /// The blocks of channels for the gradient of the weights.
    blocks: Vec<Block>,
}

/// Gathers the columns of images: im2col.
struct Gather {
    frame: PaddedLayout,
    taps: Vec<usize>,
}

/// A few whole images, or some rows of one.
#[derive(Clone)]
struct Piece {
    images: Range<usize>,
    rows: Range<usize>,
}

#[derive(Default)]
struct Scratch {
    /// The padded image, or its gradient.
    frame: Vec<f32>,
    columns: Vec<f32>,
    /// `[out, images * places]` of several images.
    outputs: Vec<f32>,
}

struct Block {
    channels: Range<usize>,
    gather: Gather,
    scratch: Scratch,
    /// `[out, taps of the channels]`.
    weight: Vec<f32>,
}

impl Im2col {
    pub(crate) fn new(geometry: Geometry, out: usize) -> Self {
        let count = geometry.channels.min(CHANNEL_BLOCKS);
        let start = |block: usize| block * geometry.channels / count.max(1);
        let blocks = (0..count)
            .map(|block| {
                let channels = start(block)..start(block + 1);
                let gather = Gather::new(Geometry { channels: channels.len(), ..geometry });
                let weight = Vec::new();
                Block { channels, gather, scratch: Scratch::default(), weight }
            })
            .collect();
        Self { geometry, out, whole: Gather::new(geometry), groups: Vec::new(), blocks }
    }

    /// The values of scratch memory for batches of `n`, at most; `learns` if there is a backward pass too.
    pub(crate) fn scratch(geometry: Geometry, out: usize, n: usize, learns: bool) -> u64 {
        let (taps, places) = (geometry.taps() as u64, geometry.places() as u64);
        let (out, row) = (out as u64, geometry.columns as u64);
        let frame = PaddedLayout::new(geometry).image_size() as u64;
        let work = out.saturating_mul(taps).saturating_mul(places);
        let groups = groups(n, usize::try_from(work).unwrap_or(usize::MAX)) as u64;
        // Several small images, or some rows of one: little more than the limit of a piece, but one row at least.
        let columns = |taps: u64| {
            taps.saturating_mul(places).min((taps.saturating_mul(row)).max(MAX_PIECE_VALUES as u64))
        };
        let outputs = if places < MIN_COLUMNS as u64 { out.saturating_mul(MIN_COLUMNS as u64) } else { 0 };
        let each = frame.saturating_add(columns(taps)).saturating_add(outputs);
        // Where each tap reads, twice: of all channels and of those of each block.
        let tables = 2 * taps * (size_of::<usize>() / size_of::<f32>()) as u64;
        let mut all = groups.saturating_mul(each).saturating_add(tables);
        if learns {
            let blocks = CHANNEL_BLOCKS.min(geometry.channels) as u64;
            let block = columns(taps.div_ceil(blocks.max(1))).saturating_add(outputs);
            all = all.saturating_add(frame).saturating_add(out.saturating_mul(taps));
            all = all.saturating_add(blocks.saturating_mul(block));
        }
        all
    }

    /// `y` `[n, out, rows, columns]` from `x` `[n, channels, height, width]` and `weight` `[out, channels, kernel, kernel]`.
    /// `finish` is called with each image's complete output, possibly in parallel.
    pub(crate) fn forward(
        &mut self,
        weight: &[f32],
        x: &[f32],
        y: &mut [f32],
        n: usize,
        finish: impl Fn(&mut [f32]) + Sync,
    ) {
        let (out, geometry) = (self.out, self.geometry);
        let (taps, places) = (geometry.taps(), geometry.places());
        let image_output = out * places;
        if image_output == 0 {
            return;
        }
        let weight = Matrix::new(weight, out, taps);
        let (groups, gather) = self.groups(n);
        for_groups(groups, n, y, image_output, &|scratch, images, y| {
            let x = &x[images.start * geometry.image()..images.end * geometry.image()];
            for piece in gather.pieces(images.len()) {
                let y = &mut y[piece.images.start * image_output..piece.images.end * image_output];
                let width = gather.columns(x, &piece, scratch);
                let columns = Matrix::new(&scratch.columns, taps, width);
                if piece.images.len() == 1 {
                    let first = piece.rows.start * geometry.columns;
                    gemm(1.0, weight, columns, 0.0, &mut y[first..], places);
                } else {
                    scratch.outputs.resize(out * width, 0.0);
                    gemm(1.0, weight, columns, 0.0, &mut scratch.outputs, width);
                    for (channel, outputs) in scratch.outputs.chunks_exact(width).enumerate() {
                        let planes = y.chunks_exact_mut(places).skip(channel).step_by(out);
                        planes.zip(outputs.chunks_exact(places)).for_each(|(to, from)| copy_row(from, to));
                    }
                }
                if piece.rows.end == geometry.rows {
                    y.chunks_exact_mut(image_output).for_each(&finish);
                }
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
        dx: Option<&mut [f32]>,
    ) {
        if let Some(dx) = dx {
            self.backward_images(weight, dy, n, dx);
        }
        self.backward_weights(x, dy, n, dweight);
    }

    fn backward_images(&mut self, weight: &[f32], dy: &[f32], n: usize, dx: &mut [f32]) {
        let (out, geometry) = (self.out, self.geometry);
        let (taps, places) = (geometry.taps(), geometry.places());
        let weight = Matrix::new(weight, out, taps).transposed();
        let (groups, gather) = self.groups(n);
        for_groups(groups, n, dx, geometry.image(), &|scratch, images, dx| {
            let dy = &dy[images.start * out * places..images.end * out * places];
            for piece in gather.pieces(images.len()) {
                let width = gather.width(&piece);
                scratch.columns.resize(taps * width, 0.0);
                let dy = outputs(&geometry, out, dy, &piece, &mut scratch.outputs);
                gemm(1.0, weight, dy, 0.0, &mut scratch.columns, width);
                let dx = &mut dx[piece.images.start * geometry.image()..piece.images.end * geometry.image()];
                gather.scatter(&piece, scratch, dx);
            }
        });
    }

    fn backward_weights(&mut self, x: &[f32], dy: &[f32], n: usize, dweight: &mut [f32]) {
        let (out, geometry) = (self.out, self.geometry);
        let plane = geometry.height * geometry.width;
        let area = geometry.kernel * geometry.kernel;
        let one = |block: &mut Block| {
            let Block { channels, gather, scratch, weight } = block;
            let taps = channels.len() * area;
            weight.resize(out * taps, 0.0);
            let mut beta = 0.0;
            for piece in gather.pieces(n) {
                let width = gather.width(&piece);
                gather.columns_of(&piece, scratch, |image| {
                    &x[image * geometry.image() + channels.start * plane..][..channels.len() * plane]
                });
                let dy = outputs(&geometry, out, dy, &piece, &mut scratch.outputs);
                let columns = Matrix::new(&scratch.columns, taps, width).transposed();
                gemm(1.0, dy, columns, beta, weight, taps);
                beta = 1.0;
            }
            if beta == 0.0 {
                weight.fill(0.0);
            }
        };
        if groups(n, out * geometry.taps() * geometry.places()) > 1 {
            self.blocks.par_iter_mut().for_each(one);
        } else {
            self.blocks.iter_mut().for_each(one);
        }
        for Block { channels, weight, .. } in &self.blocks {
            let taps = channels.len() * area;
            let rows = dweight.chunks_exact_mut(geometry.taps()).zip(weight.chunks_exact(taps));
            for (to, from) in rows {
                to[channels.start * area..channels.end * area].copy_from_slice(from);
            }
        }
    }

    /// The scratch memory of each group for a batch of `n`.
    fn groups(&mut self, n: usize) -> (&mut [Scratch], &Gather) {
        let count = groups(n, self.out * self.geometry.taps() * self.geometry.places());
        if self.groups.len() < count {
            self.groups.resize_with(count, Scratch::default);
        }
        (&mut self.groups[..count], &self.whole)
    }
}

/// A piece of `[n, out, places]` as a matrix with one row per channel.
fn outputs<'a>(
    geometry: &Geometry,
    out: usize,
    values: &'a [f32],
    piece: &Piece,
    scratch: &'a mut Vec<f32>,
) -> Matrix<'a> {
    let places = geometry.places();
    let values = &values[piece.images.start * out * places..piece.images.end * out * places];
    let count = piece.images.len();
    if count == 1 {
        let width = piece.rows.len() * geometry.columns;
        return Matrix::strided(&values[piece.rows.start * geometry.columns..], out, width, places);
    }
    scratch.resize(values.len(), 0.0);
    gather(values, out, places, scratch);
    Matrix::new(scratch, out, count * places)
}

impl Gather {
    fn new(geometry: Geometry) -> Self {
        let frame = PaddedLayout::new(geometry);
        Self { taps: frame.taps(), frame }
    }

    /// The pieces of `n` images, in order.
    fn pieces(&self, n: usize) -> impl Iterator<Item = Piece> + use<> {
        let Geometry { rows, .. } = self.frame.geometry;
        let places = self.frame.geometry.places().max(1);
        let size = (self.taps.len() * places).max(1);
        let together = MIN_COLUMNS.div_ceil(places).min(MAX_PIECE_VALUES / size).max(1);
        let parts = if together > 1 { 1 } else { size.div_ceil(MAX_PIECE_VALUES).clamp(1, rows.max(1)) };
        (0..n).step_by(together).flat_map(move |first| {
            (0..parts).map(move |part| Piece {
                images: first..n.min(first + together),
                rows: part * rows / parts..(part + 1) * rows / parts,
            })
        })
    }

    /// Columns of the matrix of a piece.
    fn width(&self, piece: &Piece) -> usize {
        piece.images.len() * piece.rows.len() * self.frame.geometry.columns
    }

    fn columns(&self, x: &[f32], piece: &Piece, scratch: &mut Scratch) -> usize {
        let image = self.frame.geometry.image();
        self.columns_of(piece, scratch, |index| &x[index * image..(index + 1) * image]);
        self.width(piece)
    }

    /// Gathers the columns of a piece, `[taps, images * rows * columns]`. The pieces of an image must come in order: the first
    /// one pads the image for the others.
    fn columns_of<'a>(&self, piece: &Piece, scratch: &mut Scratch, image: impl Fn(usize) -> &'a [f32]) {
        let (frame, width) = (&self.frame, self.width(piece));
        let columns = frame.geometry.columns;
        if scratch.frame.len() != frame.image_size() {
            scratch.frame.clear();
        }
        scratch.frame.resize(frame.image_size(), 0.0);
        scratch.columns.resize(self.taps.len() * width, 0.0);
        let places = piece.rows.len() * columns;
        vectorised(
            #[inline(always)]
            || {
                for (index, number) in piece.images.clone().enumerate() {
                    if piece.rows.start == 0 {
                        frame.embed(image(number), &mut scratch.frame);
                    }
                    let first = piece.rows.start * frame.row_length;
                    for (to, tap) in scratch.columns.chunks_exact_mut(width).zip(&self.taps) {
                        let to = &mut to[index * places..(index + 1) * places];
                        let from = scratch.frame[tap + first..].chunks(frame.row_length);
                        for (to, from) in to.chunks_exact_mut(columns).zip(from) {
                            copy_row(&from[..columns], to);
                        }
                    }
                }
            },
        );
    }

    /// Adds up the gradients of the columns of a piece to those of the pixels (col2im), and writes them to `dx`, the images of
    /// the piece, when their last row is complete.
    fn scatter(&self, piece: &Piece, scratch: &mut Scratch, dx: &mut [f32]) {
        let (frame, width) = (&self.frame, self.width(piece));
        let Geometry { columns, rows, .. } = frame.geometry;
        scratch.frame.resize(frame.image_size(), 0.0);
        let places = piece.rows.len() * columns;
        vectorised(
            #[inline(always)]
            || {
                for (index, dx) in dx.chunks_exact_mut(frame.geometry.image()).enumerate() {
                    if piece.rows.start == 0 {
                        scratch.frame.fill(0.0);
                    }
                    let first = piece.rows.start * frame.row_length;
                    for (from, tap) in scratch.columns.chunks_exact(width).zip(&self.taps) {
                        let from = &from[index * places..(index + 1) * places];
                        let to = scratch.frame[tap + first..].chunks_mut(frame.row_length);
                        for (from, to) in from.chunks_exact(columns).zip(to) {
                            to[..columns].iter_mut().zip(from).for_each(|(to, from)| *to += from);
                        }
                    }
                    if piece.rows.end == rows {
                        frame.extract(&scratch.frame, dx);
                        // The padding has gathered gradients too, and has to be zero for the next image.
                        scratch.frame.fill(0.0);
                    }
                }
            },
        );
    }
}

#[cfg(test)]
mod tests {
    crate::kernels::reference::convolution_tests!(Im2col);
}
