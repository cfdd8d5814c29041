//! Conversion of images from channels-first planes to a channels-last frame, and back.
//!
//! A frame is `[pixels, width]`, with `width` channels, a multiple of [`LANES`].

#![expect(clippy::needless_range_loop, reason = "squares are indexed by row and column, as in the formulas")]

use pulp::{Simd, WithSimd};

/// Channels converted at a time: the lanes of one vector of AVX-512, or of several smaller vectors.
pub(super) const LANES: usize = 16;

/// Copies up to [`LANES`] planes into a frame, from their first channel on. Lanes without a plane become zero; pixels of the
/// frame that are not in `places` keep their values.
pub(super) struct Interleave<'a> {
    /// The values from the first plane on.
    pub(super) planes: &'a [f32],
    /// Distance from the start of a plane to the next.
    pub(super) stride: usize,
    pub(super) count: usize,
    /// For each pixel of a plane, its place in the frame.
    pub(super) places: &'a [u32],
    pub(super) frame: &'a mut [f32],
    pub(super) width: usize,
}

/// The reverse of [`Interleave`].
pub(super) struct Separate<'a> {
    pub(super) frame: &'a [f32],
    pub(super) width: usize,
    pub(super) places: &'a [u32],
    pub(super) planes: &'a mut [f32],
    pub(super) stride: usize,
    pub(super) count: usize,
}

/// The first pixels of the runs of `side` pixels that cover a plane; the last run may overlap the one before.
fn squares(pixels: usize, side: usize) -> impl Iterator<Item = usize> {
    let last = pixels.checked_sub(side);
    (0..pixels).step_by(side).filter_map(move |first| Some(first.min(last?)))
}

impl WithSimd for Interleave<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { planes, stride, count, places, frame, width } = self;
        let side = S::F32_LANES;
        if places.len() < side {
            for (pixel, &place) in places.iter().enumerate() {
                for lane in 0..LANES {
                    frame[place as usize * width + lane] =
                        if lane < count { planes[lane * stride + pixel] } else { 0.0 };
                }
            }
            return;
        }
        let masks = masks(simd);
        let (frame, _) = S::as_mut_simd_f32s(frame);
        for part in 0..LANES / side {
            for first in squares(places.len(), side) {
                let mut square = [simd.splat_f32s(0.0); LANES];
                for row in 0..side {
                    let plane = part * side + row;
                    if plane < count {
                        let values = &planes[plane * stride + first..][..side];
                        square[row] = S::as_simd_f32s(values).0[0];
                    }
                }
                transpose(simd, &masks, &mut square);
                let places = &places[first..first + side];
                for column in 0..side {
                    frame[places[column] as usize * (width / side) + part] = square[column];
                }
            }
        }
    }
}

impl WithSimd for Separate<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { frame, width, places, planes, stride, count } = self;
        let side = S::F32_LANES;
        if places.len() < side {
            for (pixel, &place) in places.iter().enumerate() {
                for lane in 0..count {
                    planes[lane * stride + pixel] = frame[place as usize * width + lane];
                }
            }
            return;
        }
        let masks = masks(simd);
        let (frame, _) = S::as_simd_f32s(frame);
        for part in 0..LANES / side {
            for first in squares(places.len(), side) {
                let mut square = [simd.splat_f32s(0.0); LANES];
                let places = &places[first..first + side];
                for row in 0..side {
                    square[row] = frame[places[row] as usize * (width / side) + part];
                }
                transpose(simd, &masks, &mut square);
                for column in 0..side {
                    let plane = part * side + column;
                    if plane < count {
                        let values = &mut planes[plane * stride + first..][..side];
                        S::as_mut_simd_f32s(values).0[0] = square[column];
                    }
                }
            }
        }
    }
}

/// For the distances 8, 4, 2 and 1, the lanes whose number does not have that bit set.
#[inline(always)]
fn masks<S: Simd>(simd: S) -> [S::m32s; 4] {
    const NUMBERS: [u32; LANES] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
    let numbers = S::as_simd_u32s(&NUMBERS).0[0];
    let mask = |distance: u32| {
        let bit = simd.and_u32s(numbers, simd.splat_u32s(distance));
        simd.equal_u32s(bit, simd.splat_u32s(0))
    };
    [mask(8), mask(4), mask(2), mask(1)]
}

/// Transposes the first vectors, as many as a vector has lanes. Each step exchanges one bit of the row's number with the same
/// bit of the column's (J. O. Eklundh, *A Fast Computer Method for Matrix Transposing*, 1972).
#[inline(always)]
fn transpose<S: Simd>(simd: S, masks: &[S::m32s; 4], square: &mut [S::f32s; LANES]) {
    exchange::<S, 8>(simd, masks[0], square);
    exchange::<S, 4>(simd, masks[1], square);
    exchange::<S, 2>(simd, masks[2], square);
    exchange::<S, 1>(simd, masks[3], square);
}

#[inline(always)]
fn exchange<S: Simd, const DISTANCE: usize>(simd: S, mask: S::m32s, square: &mut [S::f32s; LANES]) {
    if DISTANCE >= S::F32_LANES {
        return;
    }
    for row in 0..S::F32_LANES {
        if row & DISTANCE == 0 {
            let (upper, lower) = (square[row], square[row + DISTANCE]);
            square[row] = simd.select_f32s(mask, upper, simd.rotate_right_f32s(lower, DISTANCE));
            square[row + DISTANCE] = simd.select_f32s(mask, simd.rotate_left_f32s(upper, DISTANCE), lower);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::arch;

    /// Checks both ways with one set of instructions.
    fn check(dispatch: &dyn Fn(Result<Interleave, Separate>)) {
        for (pixels, count) in [(1, 1), (3, 16), (7, 5), (16, 16), (17, 16), (40, 3), (196, 13)] {
            let stride = pixels + 3;
            let planes: Vec<f32> = (0..stride * count).map(|i| i as f32 + 1.0).collect();
            let places: Vec<u32> = (0..pixels as u32).map(|pixel| 2 * pixel + 1).collect();
            let (places, width) = (&places[..], 2 * LANES);
            let mut frame = vec![-1.0; (2 * pixels + 1) * width];
            let beginning = &mut frame[LANES..];
            dispatch(Ok(Interleave { planes: &planes, stride, count, places, frame: beginning, width }));
            for (at, value) in frame.iter().enumerate() {
                let (place, channel) = (at / width, (at % width).checked_sub(LANES));
                let expected = match channel {
                    Some(channel) if place % 2 == 1 && channel < count => {
                        planes[channel * stride + place / 2]
                    }
                    Some(_) if place % 2 == 1 => 0.0,
                    _ => -1.0,
                };
                assert_eq!(*value, expected, "{pixels} pixels, place {place}, channel {channel:?}");
            }
            let mut back = vec![-2.0; planes.len()];
            let frame = &frame[LANES..];
            dispatch(Err(Separate { frame, width, places, planes: &mut back, stride, count }));
            for (at, value) in back.iter().enumerate() {
                let expected = if at % stride < pixels { planes[at] } else { -2.0 };
                assert_eq!(*value, expected, "{pixels} pixels, at {at}");
            }
        }
    }

    fn with<S: Simd>(simd: S, way: Result<Interleave, Separate>) {
        match way {
            Ok(interleave) => simd.vectorize(interleave),
            Err(separate) => simd.vectorize(separate),
        }
    }

    #[test]
    fn channels_become_neighbours_and_planes_again() {
        check(&|way| match way {
            Ok(interleave) => arch().dispatch(interleave),
            Err(separate) => arch().dispatch(separate),
        });
        check(&|way| with(pulp::Scalar, way));
        check(&|way| with(pulp::Scalar128b, way));
        check(&|way| with(pulp::Scalar256b, way));
        #[cfg(target_arch = "x86_64")]
        if let Some(simd) = pulp::x86::V3::try_new() {
            check(&|way| with(simd, way));
        }
    }
}
