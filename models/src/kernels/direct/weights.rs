//! The gradient of the weights of a direct convolution: dot products of runs.

use pulp::Simd;

use crate::kernels::lanes::{self, LANES};
use crate::kernels::padded::PaddedLayout;

/// Taps whose sums are in registers at the same time.
const TAPS: usize = 4;

/// Some images and the gradients of their outputs, in the padded layout.
#[derive(Clone, Copy)]
pub(super) struct PaddedImages<'a> {
    pub(super) frame: &'a PaddedLayout,
    pub(super) images: &'a [f32],
    pub(super) gradients: &'a [f32],
    pub(super) out: usize,
}

/// Adds to `weight` `[out, taps]`, for each output channel and tap, the sum over images and places of the gradient times
/// the image at the tap's offset. The sums of a few channels and taps stay in registers through all images.
#[inline(always)]
pub(super) fn add_products<S: Simd>(simd: S, frames: PaddedImages, offsets: &[usize], weight: &mut [f32]) {
    let mut first = 0;
    while first < frames.out {
        let left = (frames.out - first).min(if S::REGISTER_COUNT >= 32 { 6 } else { 2 });
        let weight = &mut weight[first * offsets.len()..];
        first += match left {
            6.. => channels::<S, 6>(simd, frames, first, offsets, weight),
            4.. => channels::<S, 4>(simd, frames, first, offsets, weight),
            2.. => channels::<S, 2>(simd, frames, first, offsets, weight),
            _ => channels::<S, 1>(simd, frames, first, offsets, weight),
        };
    }
}

/// `O` channels from `first`.
#[inline(always)]
fn channels<S: Simd, const O: usize>(
    simd: S,
    frames: PaddedImages,
    first: usize,
    offsets: &[usize],
    weight: &mut [f32],
) -> usize {
    let (groups, rest) = offsets.as_chunks::<TAPS>();
    for (index, group) in groups.iter().enumerate() {
        tile::<S, O, TAPS>(simd, frames, first, group, &mut weight[index * TAPS..], offsets.len());
    }
    for (index, tap) in rest.iter().enumerate() {
        let weight = &mut weight[groups.len() * TAPS + index..];
        tile::<S, O, 1>(simd, frames, first, &[*tap], weight, offsets.len());
    }
    O
}

/// `O` channels and `T` taps. Runs are read to the end of their last lanes, where the gradient is zero.
#[inline(always)]
fn tile<S: Simd, const O: usize, const T: usize>(
    simd: S,
    frames: PaddedImages,
    first: usize,
    offsets: &[usize; T],
    weight: &mut [f32],
    taps: usize,
) {
    let PaddedImages { frame, images, gradients, out } = frames;
    let length = frame.span.next_multiple_of(LANES);
    let mut lanes = [[[0.0; LANES]; T]; O];
    for part in 0..lanes::parts::<S>() {
        let mut sums = [[simd.splat_f32s(0.0); T]; O];
        let pairs =
            images.chunks_exact(frame.image_size()).zip(gradients.chunks_exact(frame.gradient_size(out)));
        for (image, gradient) in pairs {
            let gradient: [&[S::f32s]; O] = std::array::from_fn(|o| {
                S::as_simd_f32s(&gradient[frame.gradient_start(first + o)..][..length]).0
            });
            let image: [&[S::f32s]; T] =
                std::array::from_fn(|t| S::as_simd_f32s(&image[offsets[t]..][..length]).0);
            let mut place = part;
            while place < length / S::F32_LANES {
                let image: [S::f32s; T] = std::array::from_fn(|t| image[t][place]);
                for o in 0..O {
                    let gradient = gradient[o][place];
                    for t in 0..T {
                        sums[o][t] = simd.mul_add_e_f32s(gradient, image[t], sums[o][t]);
                    }
                }
                place += lanes::parts::<S>();
            }
        }
        for o in 0..O {
            for t in 0..T {
                *lanes::part::<S>(&mut lanes[o][t], part) = sums[o][t];
            }
        }
    }
    for o in 0..O {
        for t in 0..T {
            weight[o * taps + t] += lanes::sum(simd, &lanes[o][t]);
        }
    }
}
