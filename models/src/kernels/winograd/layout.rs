//! Transforms of whole images between channels-first planes and the slabs of the points, one frame of channels at a time.

use std::cell::Cell;

use super::interleave::{Interleave, LANES, Separate};
use super::points::POINTS;
use super::tiles::{Operand, Row, SLABS, Tiling, collect, spread};
use crate::kernels::aligned::Aligned;
use crate::kernels::arch;

/// Limit of the values in a frame of more than one vector of channels: half of a core's own cache.
const MAX_FRAME_VALUES: usize = 1 << 15;

/// The tiles of the planes of one image, or of the kernels of some channels.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    operand: Operand,
    kernel: usize,
    pub(super) tiling: Tiling,
    /// For each pixel of a plane, its index in the frame.
    places: Vec<u32>,
    /// Pixels of the frame.
    pixels: usize,
}

/// A range of the channels of slabs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Channels {
    pub(super) first: usize,
    pub(super) count: usize,
    pub(super) row: Row,
}

impl Channels {
    /// All `count` channels. A row is an odd number of cache lines, so that the same channel of many tiles does not fall into
    /// the same set of a cache.
    pub(super) fn all(count: usize) -> Self {
        let point = count.next_multiple_of(LANES);
        Self { first: 0, count, row: Row { point, tile: POINTS * point + LANES } }
    }

    /// Parts of at most `width` channels: the offset of each from the first channel, and its number of channels.
    fn parts(self, width: usize) -> impl Iterator<Item = (usize, usize)> {
        (0..self.count).step_by(width).map(move |first| (first, width.min(self.count - first)))
    }
}

impl Layout {
    /// Planes of `height` x `width` with a border of `padding` zeros, covered by `rows` x `columns` tiles for `kernel`.
    pub(super) fn inputs(
        kernel: usize,
        (rows, columns): (usize, usize),
        (height, width): (usize, usize),
        padding: usize,
    ) -> Self {
        let side = 7 - kernel;
        let (tall, line) = (rows * side + kernel - 1, columns * side + kernel - 1);
        Self {
            operand: Operand::Inputs,
            kernel,
            tiling: Tiling { rows, columns, down: side * line, across: side, line },
            places: places((height, width), padding, line),
            pixels: tall * line,
        }
    }

    /// Planes of `height` x `width` outputs in `rows` x `columns` tiles.
    pub(super) fn outputs(
        kernel: usize,
        (rows, columns): (usize, usize),
        (height, width): (usize, usize),
    ) -> Self {
        let side = 7 - kernel;
        let line = columns * side;
        Self {
            operand: Operand::Outputs,
            kernel,
            tiling: Tiling { rows, columns, down: side * line, across: side, line },
            places: places((height, width), 0, line),
            pixels: rows * side * line,
        }
    }

    /// `count` kernels one after the other.
    pub(super) fn taps(kernel: usize, count: usize) -> Self {
        let taps = kernel * kernel;
        Self {
            operand: Operand::Taps,
            kernel,
            tiling: Tiling { rows: 1, columns: count, down: 0, across: taps, line: kernel },
            places: (0..(count * taps) as u32).collect(),
            pixels: count * taps,
        }
    }

    /// Channels in a frame.
    fn width(&self, channels: Channels) -> usize {
        let fit = MAX_FRAME_VALUES / self.pixels.max(1) / LANES * LANES;
        channels.count.next_multiple_of(LANES).min(fit.max(LANES))
    }

    /// Transforms planes, one per channel and `stride` values apart, into the first tiles of the slabs.
    pub(super) fn spread(
        &self,
        planes: &[f32],
        stride: usize,
        channels: Channels,
        slabs: &mut [&mut [f32]; SLABS],
    ) {
        let width = self.width(channels);
        with_frame(self.pixels * width, |frame| {
            frame.fill(0.0);
            for (first, count) in channels.parts(width) {
                for lane in (0..count).step_by(LANES) {
                    let (places, frame) = (&self.places[..], &mut frame[lane..]);
                    let planes = &planes[(first + lane) * stride..];
                    let count = LANES.min(count - lane);
                    arch().dispatch(Interleave { planes, stride, count, places, frame, width });
                }
                let slabs = slabs.each_mut().map(|slab| &mut slab[channels.first + first..]);
                // The slabs have no room for the lanes beyond the last channel.
                let used = count.next_multiple_of(LANES);
                spread(self.operand, self.kernel, (frame, width, used), self.tiling, slabs, channels.row);
            }
        });
    }

    /// The transpose of [`Layout::spread`]. Overwrites the planes.
    pub(super) fn collect(
        &self,
        slabs: [&[f32]; SLABS],
        channels: Channels,
        planes: &mut [f32],
        stride: usize,
    ) {
        let width = self.width(channels);
        with_frame(self.pixels * width, |frame| {
            for (first, count) in channels.parts(width) {
                if matches!(self.operand, Operand::Inputs) {
                    frame.fill(0.0);
                }
                let slabs = slabs.map(|slab| &slab[channels.first + first..]);
                let used = count.next_multiple_of(LANES);
                collect(self.operand, self.kernel, slabs, channels.row, self.tiling, (frame, width, used));
                for lane in (0..count).step_by(LANES) {
                    let (places, frame) = (&self.places[..], &frame[lane..]);
                    let planes = &mut planes[(first + lane) * stride..];
                    let count = LANES.min(count - lane);
                    arch().dispatch(Separate { frame, width, places, planes, stride, count });
                }
            }
        });
    }
}

/// The indices of the pixels of a plane in a frame with `line` pixels per row.
fn places((height, width): (usize, usize), padding: usize, line: usize) -> Vec<u32> {
    let place = |row: usize, column: usize| ((row + padding) * line + column + padding) as u32;
    (0..height).flat_map(|row| (0..width).map(move |column| place(row, column))).collect()
}

/// Runs `f` on this thread's frame, which has undefined values. The frame stays in the cache from one image and layer to the
/// next.
fn with_frame<T>(values: usize, f: impl FnOnce(&mut [f32]) -> T) -> T {
    thread_local! {
        static FRAME: Cell<Aligned> = Cell::default();
    }
    let mut frame = FRAME.take();
    frame.prepare(values);
    let result = f(&mut frame.get_mut()[..values]);
    FRAME.set(frame);
    result
}
