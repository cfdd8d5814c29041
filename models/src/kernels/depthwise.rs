//! Depthwise convolution: each channel with a kernel of its own, for any kernel, stride and padding.
//!
//! Each channel of an image is a plane of its own, which is copied into a [`PaddedLayout`] of one channel. There each tap of the
//! kernel reads one contiguous run, so that a plane of outputs is a sum of shifted runs, its gradient another one over the
//! padded gradient, and the gradient of a weight the product of two runs. Planes are independent of each other, and so are the
//! gradients of the kernels of two channels: threads share both out.

#[cfg(test)]
mod tests;

use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::batch_groups::{for_groups, groups};
use super::geometry::Geometry;
use super::lanes::{self, LANES};
use super::padded::{OVERRUN, PaddedLayout, Phase};
use crate::kernels::arch;

/// A depthwise convolution with its scratch memory.
pub(crate) struct Depthwise {
    channels: usize,
    /// The frame of one plane.
    frame: PaddedLayout,
    taps: Vec<Tap>,
    /// For each phase of a plane, what the gradient of its pixels sums over.
    backward: Vec<(Phase, Vec<Tap>)>,
    scratch: Vec<Scratch>,
}

/// A term of a sum of runs: the offset of its run, and the index of its weight in the kernel.
type Tap = (usize, usize);

/// The scratch memory of one group of planes.
#[derive(Default)]
struct Scratch {
    plane: Vec<f32>,
    gradient: Vec<f32>,
    /// Results before they are cropped.
    run: Vec<f32>,
}

impl Scratch {
    /// Makes room. Frames are zero outside the pixels that they take.
    fn fit(&mut self, frame: &PaddedLayout, run: usize) {
        self.plane.resize(frame.image_size(), 0.0);
        self.gradient.resize(frame.gradient_size(1), 0.0);
        self.run.resize(self.run.len().max(run + OVERRUN), 0.0);
    }
}

impl Depthwise {
    /// For images of this geometry, with as many output channels.
    pub(crate) fn new(geometry: Geometry) -> Self {
        let frame = PaddedLayout::new(Geometry { channels: 1, ..geometry });
        let taps = frame.taps().into_iter().zip(0..).collect();
        let backward = frame.phases().map(|phase| (phase, frame.gradient_taps(&phase, 1))).collect();
        Self { channels: geometry.channels, frame, taps, backward, scratch: Vec::new() }
    }

    /// The values of scratch memory for batches of `n`, at most; `learns` if there is a backward pass too.
    pub(crate) fn scratch(geometry: Geometry, n: usize, learns: bool) -> u64 {
        let frame = PaddedLayout::new(Geometry { channels: 1, ..geometry });
        let each = frame.image_size() + frame.gradient_size(1) + frame.image_size().max(frame.span) + OVERRUN;
        let work = frame.geometry.taps() * frame.span;
        let planes = groups(n.saturating_mul(geometry.channels), work);
        let count =
            if learns { planes.max(groups(geometry.channels, n.saturating_mul(work))) } else { planes };
        (count as u64).saturating_mul(each as u64)
    }

    /// `y` `[n, channels, rows, columns]` from `x` `[n, channels, height, width]` and `weight` `[channels, 1, kernel, kernel]`.
    /// `finish` is called with the number of each channel and its complete plane, possibly in parallel.
    pub(crate) fn forward(
        &mut self,
        weight: &[f32],
        x: &[f32],
        y: &mut [f32],
        n: usize,
        finish: impl Fn(usize, &mut [f32]) + Sync,
    ) {
        let Self { channels, ref frame, ref taps, .. } = *self;
        let (plane, places) = (frame.geometry.image(), frame.geometry.places());
        assert!(x.len() == n * channels * plane && y.len() == n * channels * places);
        let scratch = first_groups(&mut self.scratch, groups(n * channels, taps.len() * frame.span));
        for_groups(scratch, n * channels, y, places, &|scratch, planes: Range<usize>, y| {
            scratch.fit(frame, frame.span);
            let x = &x[planes.start * plane..planes.end * plane];
            arch().dispatch(Forward { frame, taps, weight, scratch, x, y, first: planes.start % channels });
            for (number, y) in planes.zip(y.chunks_exact_mut(places)) {
                finish(number % channels, y);
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
        let Self { channels, ref frame, ref backward, .. } = *self;
        let (plane, places) = (frame.geometry.image(), frame.geometry.places());
        let scratch = first_groups(&mut self.scratch, groups(n * channels, self.taps.len() * frame.span));
        for_groups(scratch, n * channels, dx, plane, &|scratch, planes: Range<usize>, dx| {
            let longest = backward.iter().map(|(phase, _)| frame.phase_span(phase)).max();
            scratch.fit(frame, longest.unwrap_or(0));
            let dy = &dy[planes.start * places..planes.end * places];
            let first = planes.start % channels;
            arch().dispatch(BackwardImages { frame, phases: backward, weight, scratch, dy, dx, first });
        });
    }

    fn backward_weights(&mut self, x: &[f32], dy: &[f32], n: usize, dweight: &mut [f32]) {
        let Self { channels, ref frame, ref taps, .. } = *self;
        let work = n.saturating_mul(taps.len() * frame.span);
        let scratch = first_groups(&mut self.scratch, groups(channels, work));
        for_groups(scratch, channels, dweight, taps.len(), &|scratch, range: Range<usize>, dweight| {
            scratch.fit(frame, 0);
            arch().dispatch(BackwardWeights { frame, taps, channels, range, scratch, x, dy, dweight });
        });
    }
}

/// The first `count` groups, created on first use.
fn first_groups(groups: &mut Vec<Scratch>, count: usize) -> &mut [Scratch] {
    if groups.len() < count {
        groups.resize_with(count, Scratch::default);
    }
    &mut groups[..count]
}

/// The kernels of the channels of planes that follow each other, from channel `first` on.
fn kernels(weight: &[f32], area: usize, first: usize) -> impl Iterator<Item = &[f32]> {
    weight.chunks_exact(area).cycle().skip(first)
}

struct Forward<'a> {
    frame: &'a PaddedLayout,
    taps: &'a [Tap],
    weight: &'a [f32],
    scratch: &'a mut Scratch,
    x: &'a [f32],
    y: &'a mut [f32],
    first: usize,
}

impl WithSimd for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { frame, taps, weight, scratch, x, y, first } = self;
        let (plane, places) = (frame.geometry.image(), frame.geometry.places());
        let planes = x.chunks_exact(plane).zip(y.chunks_exact_mut(places));
        for ((x, y), kernel) in planes.zip(kernels(weight, taps.len(), first)) {
            frame.embed(x, &mut scratch.plane);
            sum_runs(simd, taps, kernel, &scratch.plane, frame.span, &mut scratch.run);
            frame.crop(&scratch.run[..frame.span], y);
        }
    }
}

struct BackwardImages<'a> {
    frame: &'a PaddedLayout,
    phases: &'a [(Phase, Vec<Tap>)],
    weight: &'a [f32],
    scratch: &'a mut Scratch,
    dy: &'a [f32],
    dx: &'a mut [f32],
    first: usize,
}

impl WithSimd for BackwardImages<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { frame, phases, weight, scratch, dy, dx, first } = self;
        let Geometry { kernel, stride, .. } = frame.geometry;
        if stride > 1 {
            dx.fill(0.0); // Some pixels are read by no output.
        }
        let planes =
            dx.chunks_exact_mut(frame.geometry.image()).zip(dy.chunks_exact(frame.geometry.places()));
        for ((dx, dy), kernel) in planes.zip(kernels(weight, kernel * kernel, first)) {
            frame.embed_gradient(dy, &mut scratch.gradient);
            for (phase, taps) in phases {
                let span = frame.phase_span(phase);
                sum_runs(simd, taps, kernel, &scratch.gradient, span, &mut scratch.run);
                frame.crop_phase(phase, &scratch.run[..span], 0, dx);
            }
        }
    }
}

struct BackwardWeights<'a> {
    frame: &'a PaddedLayout,
    taps: &'a [Tap],
    channels: usize,
    range: Range<usize>,
    scratch: &'a mut Scratch,
    x: &'a [f32],
    dy: &'a [f32],
    dweight: &'a mut [f32],
}

impl WithSimd for BackwardWeights<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { frame, taps, channels, range, scratch, x, dy, dweight } = self;
        let (plane, places) = (frame.geometry.image(), frame.geometry.places());
        dweight.fill(0.0);
        for (channel, dweight) in range.zip(dweight.chunks_exact_mut(taps.len())) {
            let planes = x.chunks_exact(plane).zip(dy.chunks_exact(places));
            for (x, dy) in planes.skip(channel).step_by(channels) {
                frame.embed(x, &mut scratch.plane);
                frame.embed_gradient(dy, &mut scratch.gradient);
                let gradient = &scratch.gradient[frame.gradient_start(0)..];
                add_products(simd, taps, &scratch.plane, gradient, frame.span, dweight);
            }
        }
    }
}

/// Writes to `run`, at the indices `0..span`, the sum over the taps of a weight times `x` at that index plus the tap's offset. `x`
/// and `run` are longer by an overrun than the last result needs.
#[inline(always)]
fn sum_runs<S: Simd>(simd: S, taps: &[Tap], kernel: &[f32], x: &[f32], span: usize, run: &mut [f32]) {
    let length = span.next_multiple_of(S::F32_LANES);
    let mut place = 0;
    while place + 4 * S::F32_LANES <= length {
        tile::<S, 4>(simd, taps, kernel, &x[place..], &mut run[place..]);
        place += 4 * S::F32_LANES;
    }
    while place < length {
        tile::<S, 1>(simd, taps, kernel, &x[place..], &mut run[place..]);
        place += S::F32_LANES;
    }
}

/// `V` vectors of results, all in registers.
#[inline(always)]
fn tile<S: Simd, const V: usize>(simd: S, taps: &[Tap], kernel: &[f32], x: &[f32], run: &mut [f32]) {
    let mut sums = [simd.splat_f32s(0.0); V];
    for &(offset, source) in taps {
        let weight = simd.splat_f32s(kernel[source]);
        let (x, _) = S::as_simd_f32s(&x[offset..offset + V * S::F32_LANES]);
        let x: &[S::f32s; V] = x.first_chunk().expect("V vectors of values were cut out");
        for (sum, &x) in sums.iter_mut().zip(x) {
            *sum = simd.mul_add_e_f32s(weight, x, *sum);
        }
    }
    let (run, _) = S::as_mut_simd_f32s(&mut run[..V * S::F32_LANES]);
    run.copy_from_slice(&sums);
}

/// Adds to each weight the product of the gradient's run and the plane's at the tap's offset. Runs are read to the end of their
/// last vector, where the gradient is zero.
#[inline(always)]
fn add_products<S: Simd>(simd: S, taps: &[Tap], x: &[f32], dy: &[f32], span: usize, dweight: &mut [f32]) {
    /// Taps whose sums are in registers at the same time.
    const TAPS: usize = 5;
    let length = span.next_multiple_of(LANES);
    for (taps, dweight) in taps.chunks(TAPS).zip(dweight.chunks_mut(TAPS)) {
        if let Some(taps) = taps.first_chunk::<TAPS>() {
            products(simd, taps, x, &dy[..length], dweight);
        } else if let Some((taps, rest)) = taps.split_first_chunk::<4>() {
            products(simd, taps, x, &dy[..length], dweight);
            debug_assert!(rest.is_empty(), "a fifth would be a whole group");
        } else {
            for (tap, dweight) in taps.iter().zip(dweight) {
                products(simd, &[*tap], x, &dy[..length], std::slice::from_mut(dweight));
            }
        }
    }
}

#[inline(always)]
fn products<S: Simd, const T: usize>(simd: S, taps: &[Tap; T], x: &[f32], dy: &[f32], dweight: &mut [f32]) {
    let (dy, _) = S::as_simd_f32s(dy);
    let runs: [&[S::f32s]; T] =
        std::array::from_fn(|t| S::as_simd_f32s(&x[taps[t].0..][..dy.len() * S::F32_LANES]).0);
    let mut lanes = [[0.0; LANES]; T];
    for part in 0..lanes::parts::<S>() {
        let mut sums = [simd.splat_f32s(0.0); T];
        let mut place = part;
        while place < dy.len() {
            for (sum, run) in sums.iter_mut().zip(&runs) {
                *sum = simd.mul_add_e_f32s(dy[place], run[place], *sum);
            }
            place += lanes::parts::<S>();
        }
        for (lanes, sum) in lanes.iter_mut().zip(sums) {
            *lanes::part::<S>(lanes, part) = sum;
        }
    }
    for (lanes, dweight) in lanes.iter().zip(dweight) {
        *dweight += lanes::sum(simd, lanes);
    }
}
