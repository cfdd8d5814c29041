//! Depthwise convolution: each channel with a kernel of its own, for any kernel, stride and padding.
//!
//! Each channel of an image is a plane of its own, which is copied into a [`PaddedLayout`] of one channel. There each tap of the
//! kernel reads one contiguous run, so that a plane of outputs is a sum of shifted runs, its gradient another one over the
//! padded gradient, and the gradient of a weight the product of two runs. Planes are independent of each other, and so are the
//! gradients of the kernels of two channels: threads share both out.

use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::batch_groups::{for_groups, groups};
use super::geometry::Geometry;
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
        for v in 0..V {
            sums[v] = simd.mul_add_e_f32s(weight, x[v], sums[v]);
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
    let length = span.next_multiple_of(S::F32_LANES);
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
    let mut sums = [simd.splat_f32s(0.0); T];
    for (place, &dy) in dy.iter().enumerate() {
        for t in 0..T {
            sums[t] = simd.mul_add_e_f32s(dy, runs[t][place], sums[t]);
        }
    }
    for (sum, dweight) in sums.into_iter().zip(dweight) {
        *dweight += simd.reduce_sum_f32s(sum);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kernels::reference::Case;

    /// The output, the gradient of the weights, and that of the images.
    fn run(depthwise: &mut Depthwise, case: &Case, channels: usize) -> [Vec<f32>; 3] {
        // NaN shows values that are read before they are written.
        let area = case.geometry.kernel * case.geometry.kernel;
        let (mut y, mut dx) = (vec![f32::NAN; case.dy.len()], vec![f32::NAN; case.x.len()]);
        let mut dweight = vec![f32::NAN; channels * area];
        depthwise.forward(&case.weight, &case.x, &mut y, case.n, |_, _| {});
        depthwise.backward(&case.weight, &case.x, &case.dy, case.n, &mut dweight, Some(&mut dx));
        [y, dweight, dx]
    }

    /// A depthwise convolution of `n` images is one of `n * channels` images of one channel, but for the kernels.
    fn check(
        (channels, height, width): (usize, usize, usize),
        kernel: usize,
        stride: usize,
        padding: usize,
        n: usize,
    ) {
        let whole = Case::new((channels, height, width), channels, kernel, stride, padding, n);
        let area = kernel * kernel;
        let mut depthwise = Depthwise::new(whole.geometry);
        let case = Case { weight: whole.weight[..channels * area].to_vec(), ..whole };
        let found = run(&mut depthwise, &case, channels);
        // Of each channel on its own.
        for channel in 0..channels {
            let of = |values: &[f32], size: usize| -> Vec<f32> {
                values.chunks(size).skip(channel).step_by(channels).flatten().copied().collect()
            };
            let (plane, places) = (height * width, case.geometry.places());
            let single = Case {
                geometry: Geometry { channels: 1, ..case.geometry },
                out: 1,
                n,
                weight: of(&case.weight, area),
                x: of(&case.x, plane),
                dy: of(&case.dy, places),
            };
            let (y, dweight, dx) = single.expected();
            y.assert_near("y", &of(&found[0], places));
            dweight.assert_near("the weights' gradient", &of(&found[1], area));
            dx.assert_near("the images' gradient", &of(&found[2], plane));
        }
        assert_eq!(run(&mut depthwise, &case, channels), found, "a later batch depends on an earlier one");
    }

    proptest! {
        #[test]
        fn any_sizes(
            image in (1..5usize, 1..12usize, 1..20usize),
            kernel in 1..6usize, stride in 1..4usize, padding in 0..4usize, n in 1..4usize,
        ) {
            prop_assume!(image.1.min(image.2) + 2 * padding >= kernel);
            check(image, kernel, stride, padding, n);
        }
    }

    #[test]
    fn the_models_sizes() {
        for (image, kernel, stride) in [
            ((32, 48, 48), 3, 1),
            ((96, 48, 48), 3, 2),
            ((144, 24, 24), 3, 2),
            ((960, 3, 3), 3, 1),
            ((72, 12, 12), 5, 2),
            ((120, 7, 7), 5, 1),
        ] {
            check(image, kernel, stride, kernel / 2, 2);
        }
    }

    #[test]
    fn planes_are_finished_when_they_are_complete() {
        let case = Case::new((3, 5, 4), 3, 3, 1, 1, 2);
        let mut y = vec![f32::NAN; case.dy.len()];
        Depthwise::new(case.geometry).forward(&case.weight[..27], &case.x, &mut y, 2, |channel, plane| {
            assert!(plane.len() == 20 && plane.iter().all(|value| value.is_finite()));
            plane.fill(channel as f32);
        });
        let expected: Vec<f32> = (0..120).map(|index| (index / 20 % 3) as f32).collect();
        assert_eq!(y, expected);
    }

    #[test]
    fn the_same_bits_for_any_number_of_threads() {
        for (image, kernel, stride) in [((40, 24, 24), 3, 1), ((64, 20, 21), 5, 2)] {
            let case = Case::new(image, image.0, kernel, stride, kernel / 2, 9);
            let case = Case { weight: case.weight[..image.0 * kernel * kernel].to_vec(), ..case };
            let with = |threads: usize| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
                pool.install(|| run(&mut Depthwise::new(case.geometry), &case, image.0))
            };
            let one = with(1);
            assert_eq!(with(2), one);
            assert_eq!(with(3), one);
        }
    }

    #[test]
    fn an_empty_batch_has_no_gradient() {
        let case = Case::new((2, 5, 5), 2, 3, 1, 1, 0);
        let case = Case { weight: case.weight[..18].to_vec(), ..case };
        let [y, dweight, dx] = run(&mut Depthwise::new(case.geometry), &case, 2);
        assert!(y.is_empty() && dx.is_empty() && dweight.iter().all(|value| *value == 0.0));
    }
}
