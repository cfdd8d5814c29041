//! The Winograd transforms of the tiles of a frame into slabs, one per pair of points, and back.

use std::marker::PhantomData;

use pulp::{Simd, WithSimd};

use super::points::{
    Axis, Inputs, InputsTransposed, Outputs, OutputsTransposed, POINTS, Taps, TapsTransposed,
};
use crate::kernels::arch;

/// The number of slabs: one per row of a transformed tile.
pub(super) const SLABS: usize = POINTS;

/// The strides of a slab, `[tiles, points, channels]`. A row of a slab is a row of a transformed tile, so that tiles are written
/// in few pieces, and the matrix `[tiles, channels]` of a point has the row's stride.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    /// Distance from a point to the next: all channels, in whole vectors.
    pub(super) point: usize,
    /// Distance from a tile to the next.
    pub(super) tile: usize,
}

/// The positions of the tiles of a frame, in pixels of the frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tiling {
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// Distance from a tile to the one below it, and to the one on its right.
    pub(super) down: usize,
    pub(super) across: usize,
    /// Distance from a pixel to the one below it.
    pub(super) line: usize,
}

impl Tiling {
    pub(super) fn tiles(&self) -> usize {
        self.rows * self.columns
    }
}

/// Tiles of `SIDE` x `SIDE` pixels of a frame, transformed along both axes by `A` into slabs.
pub(super) struct Spread<'a, A, const SIDE: usize> {
    pub(super) frame: &'a [f32],
    pub(super) width: usize,
    /// How many of the frame's channels are used.
    pub(super) used: usize,
    pub(super) tiling: Tiling,
    /// From the first tile and the frame's first channel on.
    pub(super) slabs: [&'a mut [f32]; SLABS],
    pub(super) row: Row,
    pub(super) axis: PhantomData<A>,
}

/// Tiles of slabs, transformed along both axes by `A` to `SIDE` x `SIDE` pixels of a frame.
pub(super) struct Collect<'a, A, const SIDE: usize, const ADD: bool> {
    /// From the first tile and the frame's first channel on.
    pub(super) slabs: [&'a [f32]; SLABS],
    pub(super) row: Row,
    pub(super) tiling: Tiling,
    /// Overwritten, or added to if tiles overlap (`ADD`).
    pub(super) frame: &'a mut [f32],
    pub(super) width: usize,
    /// How many of the frame's channels are used.
    pub(super) used: usize,
    pub(super) axis: PhantomData<A>,
}

impl<A: Axis<SIDE, POINTS>, const SIDE: usize> WithSimd for Spread<'_, A, SIDE> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { frame, width, used, tiling, slabs, row, .. } = self;
        let (width, point) = (width / S::F32_LANES, row.point / S::F32_LANES);
        let (frame, _) = S::as_simd_f32s(frame);
        for down in 0..tiling.rows {
            for across in 0..tiling.columns {
                let first = (down * tiling.down + across * tiling.across) * width;
                let to = (down * tiling.columns + across) * row.tile;
                for part in 0..used / S::F32_LANES {
                    let mut tile = [[simd.splat_f32s(0.0); SIDE]; SIDE];
                    for i in 0..SIDE {
                        let line = &frame[first + i * tiling.line * width + part..];
                        let line = &line[..=(SIDE - 1) * width];
                        for j in 0..SIDE {
                            tile[i][j] = line[j * width];
                        }
                    }
                    let half = columns::<S, A, SIDE, POINTS>(simd, &tile);
                    for i in 0..POINTS {
                        let values = A::map(simd, half[i]);
                        let (points, _) = S::as_mut_simd_f32s(&mut slabs[i][to..]);
                        let points = &mut points[part..][..=(POINTS - 1) * point];
                        for j in 0..POINTS {
                            points[j * point] = values[j];
                        }
                    }
                }
            }
        }
    }
}

impl<A: Axis<POINTS, SIDE>, const SIDE: usize, const ADD: bool> WithSimd for Collect<'_, A, SIDE, ADD> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { slabs, row, tiling, frame, width, used, .. } = self;
        let (width, point) = (width / S::F32_LANES, row.point / S::F32_LANES);
        let (frame, _) = S::as_mut_simd_f32s(frame);
        for down in 0..tiling.rows {
            for across in 0..tiling.columns {
                let first = (down * tiling.down + across * tiling.across) * width;
                let from = (down * tiling.columns + across) * row.tile;
                for part in 0..used / S::F32_LANES {
                    let mut tile = [[simd.splat_f32s(0.0); POINTS]; POINTS];
                    for i in 0..POINTS {
                        let (points, _) = S::as_simd_f32s(&slabs[i][from..]);
                        let points = &points[part..][..=(POINTS - 1) * point];
                        for j in 0..POINTS {
                            tile[i][j] = points[j * point];
                        }
                    }
                    let half = columns::<S, A, POINTS, SIDE>(simd, &tile);
                    for i in 0..SIDE {
                        let values = A::map(simd, half[i]);
                        let line = &mut frame[first + i * tiling.line * width + part..];
                        let line = &mut line[..=(SIDE - 1) * width];
                        for j in 0..SIDE {
                            let pixel = &mut line[j * width];
                            *pixel = if ADD { simd.add_f32s(*pixel, values[j]) } else { values[j] };
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

/// The operand of the convolution that a frame holds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Operand {
    /// Images, in overlapping tiles.
    Inputs,
    /// Outputs, in adjacent tiles.
    Outputs,
    /// Kernels, each of which is a tile.
    Taps,
}

/// Transforms the tiles of a frame into slabs, for kernels of size 3 or 5.
pub(super) fn spread(
    operand: Operand,
    kernel: usize,
    (frame, width, used): (&[f32], usize, usize),
    tiling: Tiling,
    slabs: [&mut [f32]; SLABS],
    row: Row,
) {
    macro_rules! dispatch {
        ($axis:ident, $side:literal) => {{
            let axis = PhantomData::<$axis>;
            arch().dispatch(Spread::<_, $side> { frame, width, used, tiling, slabs, row, axis });
        }};
    }
    match (operand, kernel) {
        (Operand::Inputs, _) => dispatch!(Inputs, 6),
        (Operand::Outputs, 3) => dispatch!(Outputs, 4),
        (Operand::Outputs, _) => dispatch!(Outputs, 2),
        (Operand::Taps, 3) => dispatch!(Taps, 3),
        (Operand::Taps, _) => dispatch!(Taps, 5),
    }
}

/// The transpose of [`spread`]; adds to a frame of inputs and overwrites others.
pub(super) fn collect(
    operand: Operand,
    kernel: usize,
    slabs: [&[f32]; SLABS],
    row: Row,
    tiling: Tiling,
    (frame, width, used): (&mut [f32], usize, usize),
) {
    macro_rules! dispatch {
        ($axis:ident, $side:literal, $add:literal) => {{
            let axis = PhantomData::<$axis>;
            let collect = Collect::<_, $side, $add> { slabs, row, tiling, frame, width, used, axis };
            arch().dispatch(collect);
        }};
    }
    match (operand, kernel) {
        (Operand::Inputs, _) => dispatch!(InputsTransposed, 6, true),
        (Operand::Outputs, 3) => dispatch!(OutputsTransposed, 4, false),
        (Operand::Outputs, _) => dispatch!(OutputsTransposed, 2, false),
        (Operand::Taps, 3) => dispatch!(TapsTransposed, 3, false),
        (Operand::Taps, _) => dispatch!(TapsTransposed, 5, false),
    }
}

#[cfg(test)]
mod tests {
    use super::super::interleave::LANES;
    use super::*;

    /// Two tiles of a frame in slabs, and back in a frame.
    fn there_and_back<S: Simd>(simd: S) -> (Vec<f32>, Vec<f32>) {
        let tiling = Tiling { rows: 1, columns: 2, down: 0, across: 4, line: 10 };
        let (width, row) = (2 * LANES, Row { point: 2 * LANES, tile: 13 * LANES });
        let frame: Vec<f32> = (0..60 * width).map(|i| (i * i % 101) as f32 - 50.0).collect();
        let mut values = vec![0.0; SLABS * 2 * row.tile];
        let mut slabs = values.chunks_mut(2 * row.tile);
        let slabs = std::array::from_fn(|_| slabs.next().expect("as many slabs as chunks"));
        let (used, axis) = (width, PhantomData::<Inputs>);
        simd.vectorize(Spread::<_, 6> { frame: &frame, width, used, tiling, slabs, row, axis });
        let slabs = std::array::from_fn(|slab| &values[slab * 2 * row.tile..][..2 * row.tile]);
        let (mut frame, axis) = (vec![0.0; frame.len()], PhantomData::<InputsTransposed>);
        let to = &mut frame[..];
        simd.vectorize(Collect::<_, 6, true> { slabs, row, tiling, frame: to, width, used, axis });
        (values, frame)
    }

    #[test]
    fn all_instructions_do_the_same() {
        let expected = there_and_back(pulp::Scalar);
        let close = |(values, frame): (Vec<f32>, Vec<f32>)| {
            let near = |(a, b): (&f32, &f32)| (a - b).abs() < 0.05;
            values.iter().zip(&expected.0).all(near) && frame.iter().zip(&expected.1).all(near)
        };
        assert!(expected.1.iter().any(|value| value.abs() > 100.0));
        assert!(close(there_and_back(pulp::Scalar128b)) && close(there_and_back(pulp::Scalar256b)));
        #[cfg(target_arch = "x86_64")]
        {
            assert!(pulp::x86::V3::try_new().is_none_or(|simd| close(there_and_back(simd))));
            assert!(pulp::x86::V4::try_new().is_none_or(|simd| close(there_and_back(simd))));
        }
    }
}
