//! From planes to the slabs of the points and back, a frame of channels at a time.

use std::cell::Cell;

use super::aligned::Aligned;
use super::frame::{Interleave, LANES, Separate};
use super::tiles::{Content, SLABS, Tiling, collect, spread};

/// How the planes of one image, or the kernels of some channels, are cut into tiles.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    content: Content,
    kernel: usize,
    pub(super) tiling: Tiling,
    /// For each pixel of a plane, its place in the frame.
    places: Vec<u32>,
    /// Pixels of the frame.
    pixels: usize,
}

/// Cache lines in a row from which their number is made odd, lest the same column of many rows falls into the same set
/// of a cache.
const SPREAD: usize = 16;

/// A number of channels of a row in a slab.
#[derive(Clone, Copy, Debug)]
pub(super) struct Channels {
    pub(super) first: usize,
    pub(super) count: usize,
    /// From a row to the next: a multiple of [`LANES`].
    pub(super) row: usize,
}

impl Channels {
    /// All of them.
    pub(super) fn all(count: usize) -> Self {
        let lines = count.div_ceil(LANES);
        let lines = if lines >= SPREAD { lines | 1 } else { lines };
        Self { first: 0, count, row: lines * LANES }
    }

    /// The frames that they fill: their first channel, counted from this one's, and their number of channels.
    fn frames(self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.count).step_by(LANES).map(move |first| (first, LANES.min(self.count - first)))
    }
}

impl Layout {
    /// Planes of `height` x `width` with a border of `padding` zeros, under `rows` x `columns` tiles for `kernel`.
    pub(super) fn inputs(
        kernel: usize,
        (rows, columns): (usize, usize),
        (height, width): (usize, usize),
        padding: usize,
    ) -> Self {
        let side = 7 - kernel;
        let (tall, line) = (rows * side + kernel - 1, columns * side + kernel - 1);
        Self {
            content: Content::Inputs,
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
            content: Content::Outputs,
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
            content: Content::Taps,
            kernel,
            tiling: Tiling { rows: 1, columns: count, down: 0, across: taps, line: kernel },
            places: (0..(count * taps) as u32).collect(),
            pixels: count * taps,
        }
    }

    /// Transforms planes that begin `stride` values apart, one per channel, to the rows of the slabs.
    pub(super) fn spread(
        &self,
        planes: &[f32],
        stride: usize,
        channels: Channels,
        slabs: &mut [&mut [f32]; SLABS],
    ) {
        with_frame(self.pixels * LANES, |frame| {
            frame.fill(0.0);
            for (first, count) in channels.frames() {
                let planes = &planes[first * stride..];
                let places = &self.places[..];
                pulp::Arch::new().dispatch(Interleave { planes, stride, count, places, frame });
                let channels = (channels.row, channels.first + first);
                spread(self.content, self.kernel, frame, self.tiling, slabs, channels);
            }
        });
    }

    /// The transpose of [`Layout::spread`]: from rows of slabs that begin `slab` values apart. Overwrites the planes.
    pub(super) fn collect(
        &self,
        slabs: &[f32],
        slab: usize,
        channels: Channels,
        planes: &mut [f32],
        stride: usize,
    ) {
        with_frame(self.pixels * LANES, |frame| {
            for (first, count) in channels.frames() {
                if matches!(self.content, Content::Inputs) {
                    frame.fill(0.0);
                }
                let channels = (channels.row, channels.first + first);
                collect(self.content, self.kernel, (slabs, slab), channels, self.tiling, frame);
                let planes = &mut planes[first * stride..];
                let places = &self.places[..];
                pulp::Arch::new().dispatch(Separate { frame, places, planes, stride, count });
            }
        });
    }
}

/// The places of the pixels of a plane in a frame of which a row has `line` pixels.
fn places((height, width): (usize, usize), padding: usize, line: usize) -> Vec<u32> {
    let place = |row: usize, column: usize| ((row + padding) * line + column + padding) as u32;
    (0..height).flat_map(|row| (0..width).map(move |column| place(row, column))).collect()
}

/// Runs `f` on this thread's frame, of any content. It stays in the caches from one image and layer to the next.
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
