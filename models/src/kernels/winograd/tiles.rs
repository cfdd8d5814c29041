//! The transforms of the tiles of a frame to slabs, one per pair of points, and back.

use std::marker::PhantomData;

use pulp::{Simd, WithSimd};

use super::frame::LANES;
use super::points::{
    Axis, Inputs, InputsTransposed, Outputs, OutputsTransposed, POINTS, Taps, TapsTransposed,
};

/// Slabs: products of matrices per tile.
pub(super) const SLABS: usize = POINTS * POINTS;

/// Where the tiles of a frame lie, in pixels of the frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tiling {
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// From a tile to the one below it, and to the one on its right.
    pub(super) down: usize,
    pub(super) across: usize,
    /// From a pixel to the one below it.
    pub(super) line: usize,
}

impl Tiling {
    pub(super) fn tiles(&self) -> usize {
        self.rows * self.columns
    }
}

/// Tiles of `SIDE` x `SIDE` pixels of a frame `[pixels, LANES]`, transformed along both axes by `A`: each of the 36
/// results is written to its slab, `[tiles, channels]`.
pub(super) struct Spread<'a, 'b, A, const SIDE: usize> {
    pub(super) frame: &'a [f32],
    pub(super) tiling: Tiling,
    /// From the row of the first tile on.
    pub(super) slabs: &'a mut [&'b mut [f32]; SLABS],
    /// Channels, a multiple of [`LANES`], and the first of the frame's.
    pub(super) channels: usize,
    pub(super) channel: usize,
    pub(super) axis: PhantomData<A>,
}

/// The 36 values per tile of the slabs, transformed along both axes by `A` to `SIDE` x `SIDE` pixels.
pub(super) struct Collect<'a, A, const SIDE: usize> {
    /// From the row of the first tile on; slabs begin `stride` values apart.
    pub(super) slabs: &'a [f32],
    pub(super) stride: usize,
    pub(super) channels: usize,
    pub(super) channel: usize,
    pub(super) tiling: Tiling,
    pub(super) frame: &'a mut [f32],
    /// Whether to add to the frame's pixels, for tiles that overlap, or to overwrite them.
    pub(super) add: bool,
    pub(super) axis: PhantomData<A>,
}

impl<A: Axis<SIDE, POINTS>, const SIDE: usize> WithSimd for Spread<'_, '_, A, SIDE> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { frame, tiling, slabs, channels, channel, .. } = self;
        let parts = LANES / S::F32_LANES;
        let (frame, _) = S::as_simd_f32s(frame);
        for row in 0..tiling.rows {
            for column in 0..tiling.columns {
                let first = row * tiling.down + column * tiling.across;
                let to = (row * tiling.columns + column) * channels + channel;
                for part in 0..parts {
                    let mut tile = [[simd.splat_f32s(0.0); SIDE]; SIDE];
                    for i in 0..SIDE {
                        let line = &frame[(first + i * tiling.line) * parts..][..SIDE * parts];
                        for j in 0..SIDE {
                            tile[i][j] = line[j * parts + part];
                        }
                    }
                    let half = columns::<S, A, SIDE, POINTS>(simd, &tile);
                    let to = to + part * S::F32_LANES;
                    for i in 0..POINTS {
                        let values = A::map(simd, half[i]);
                        for j in 0..POINTS {
                            let slab = &mut slabs[i * POINTS + j][to..][..S::F32_LANES];
                            S::as_mut_simd_f32s(slab).0[0] = values[j];
                        }
                    }
                }
            }
        }
    }
}

impl<A: Axis<POINTS, SIDE>, const SIDE: usize> WithSimd for Collect<'_, A, SIDE> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { slabs, stride, channels, channel, tiling, frame, add, .. } = self;
        let parts = LANES / S::F32_LANES;
        let (frame, _) = S::as_mut_simd_f32s(frame);
        for row in 0..tiling.rows {
            for column in 0..tiling.columns {
                let first = row * tiling.down + column * tiling.across;
                let from = (row * tiling.columns + column) * channels + channel;
                for part in 0..parts {
                    let from = from + part * S::F32_LANES;
                    let mut tile = [[simd.splat_f32s(0.0); POINTS]; POINTS];
                    for i in 0..POINTS {
                        for j in 0..POINTS {
                            let slab = &slabs[(i * POINTS + j) * stride + from..][..S::F32_LANES];
                            tile[i][j] = S::as_simd_f32s(slab).0[0];
                        }
                    }
                    let half = columns::<S, A, POINTS, SIDE>(simd, &tile);
                    for i in 0..SIDE {
                        let values = A::map(simd, half[i]);
                        let line = &mut frame[(first + i * tiling.line) * parts..][..SIDE * parts];
                        for j in 0..SIDE {
                            let pixel = &mut line[j * parts + part];
                            *pixel = if add { simd.add_f32s(*pixel, values[j]) } else { values[j] };
                        }
                    }
                }
            }
        }
    }
}

/// Maps the columns of a tile.
#[inline(always)]
fn columns<S: Simd, A: Axis<FROM, TO>, const FROM: usize, const TO: usize>(
    simd: S,
    tile: &[[S::f32s; FROM]; FROM],
) -> [[S::f32s; FROM]; TO] {
    let mut result = [[simd.splat_f32s(0.0); FROM]; TO];
    for j in 0..FROM {
        let mut column = [simd.splat_f32s(0.0); FROM];
        for i in 0..FROM {
            column[i] = tile[i][j];
        }
        let values = A::map(simd, column);
        for i in 0..TO {
            result[i][j] = values[i];
        }
    }
    result
}

/// What a frame holds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Content {
    /// Images, in tiles that overlap.
    Inputs,
    /// What is computed from them, in tiles side by side.
    Outputs,
    /// Kernels: one is a tile.
    Taps,
}

/// Spreads a frame of kernels of size 3 or 5, or of their inputs or outputs.
pub(super) fn spread(
    content: Content,
    kernel: usize,
    frame: &[f32],
    tiling: Tiling,
    slabs: &mut [&mut [f32]; SLABS],
    (channels, channel): (usize, usize),
) {
    macro_rules! dispatch {
        ($axis:ident, $side:literal) => {{
            let axis = PhantomData::<$axis>;
            pulp::Arch::new().dispatch(Spread::<_, $side> { frame, tiling, slabs, channels, channel, axis });
        }};
    }
    match (content, kernel) {
        (Content::Inputs, _) => dispatch!(Inputs, 6),
        (Content::Outputs, 3) => dispatch!(Outputs, 4),
        (Content::Outputs, _) => dispatch!(Outputs, 2),
        (Content::Taps, 3) => dispatch!(Taps, 3),
        (Content::Taps, _) => dispatch!(Taps, 5),
    }
}

/// The transpose of [`spread`].
pub(super) fn collect(
    content: Content,
    kernel: usize,
    (slabs, stride): (&[f32], usize),
    (channels, channel): (usize, usize),
    tiling: Tiling,
    frame: &mut [f32],
) {
    macro_rules! dispatch {
        ($axis:ident, $side:literal, $add:literal) => {{
            let (add, axis) = ($add, PhantomData::<$axis>);
            let collect = Collect::<_, $side> { slabs, stride, channels, channel, tiling, frame, add, axis };
            pulp::Arch::new().dispatch(collect);
        }};
    }
    match (content, kernel) {
        (Content::Inputs, _) => dispatch!(InputsTransposed, 6, true),
        (Content::Outputs, 3) => dispatch!(OutputsTransposed, 4, false),
        (Content::Outputs, _) => dispatch!(OutputsTransposed, 2, false),
        (Content::Taps, 3) => dispatch!(TapsTransposed, 3, false),
        (Content::Taps, _) => dispatch!(TapsTransposed, 5, false),
    }
}
