//! Slabs: the matrices of the transform points.

use std::ops::Range;

use super::super::aligned::Aligned;
use super::super::gemm::Matrix;
use super::interleave::LANES;
use super::layout::Channels;
use super::tiles::{Row, SLABS};

/// The least rows in a piece of a slab.
const MIN_PIECE_ROWS: usize = 64;

/// One matrix per pair of points, in one slab per row of points.
#[derive(Debug)]
pub(super) struct Slabs {
    pub(super) values: Aligned,
    /// Rows of each matrix.
    pub(super) rows: usize,
    pub(super) columns: Channels,
}

impl Slabs {
    pub(super) fn new(columns: usize) -> Self {
        Self { values: Aligned::default(), rows: 0, columns: Channels::all(columns) }
    }

    /// Makes room for matrices of `rows` rows. Their values are undefined if the number changes.
    pub(super) fn prepare(&mut self, rows: usize) {
        self.rows = rows;
        self.values.prepare(SLABS * self.stride());
    }

    /// Distance from a slab to the next.
    fn stride(&self) -> usize {
        self.rows * self.columns.row.tile
    }

    fn slab(&self, slab: usize) -> &[f32] {
        &self.values.get()[slab * self.stride()..][..self.stride()]
    }

    /// All slabs from one row on.
    pub(super) fn from(&self, row: usize) -> [&[f32]; SLABS] {
        std::array::from_fn(|slab| &self.slab(slab)[row * self.columns.row.tile..])
    }

    /// Some of the rows of the matrix of a pair of points.
    pub(super) fn matrix(&self, slab: usize, point: usize, rows: Range<usize>) -> Matrix<'_> {
        let Row { point: stride, tile } = self.columns.row;
        let values = &self.slab(slab)[rows.start * tile + point * stride..];
        Matrix::strided(values, rows.len(), self.columns.count, tile)
    }

    /// All slabs, cut into parts of `rows` rows.
    pub(super) fn parts(&mut self, rows: usize) -> impl Iterator<Item = [&mut [f32]; SLABS]> {
        let (stride, part) = (self.stride(), rows * self.columns.row.tile);
        let all = &mut self.values.get_mut()[..SLABS * stride];
        let mut slabs: Vec<_> = all.chunks_mut(stride).map(|slab| slab.chunks_mut(part)).collect();
        (0..self.rows.div_ceil(rows)).map(move |_| {
            std::array::from_fn(|slab| slabs[slab].next().expect("a slab has as many parts as its rows give"))
        })
    }

    /// The slabs in pieces for different threads: the slab's number, its rows and their values.
    pub(super) fn pieces(&mut self) -> impl Iterator<Item = (usize, Range<usize>, &mut [f32])> {
        let (stride, tile, rows) = (self.stride(), self.columns.row.tile, self.rows);
        let piece = if rows >= 2 * MIN_PIECE_ROWS { rows.div_ceil(2).next_multiple_of(LANES) } else { rows };
        let all = &mut self.values.get_mut()[..SLABS * stride];
        all.chunks_mut(stride).enumerate().flat_map(move |(slab, values)| {
            let pieces = values.chunks_mut(piece * tile).enumerate();
            pieces.map(move |(index, values)| {
                (slab, index * piece..index * piece + values.len() / tile, values)
            })
        })
    }
}
