//! Direct convolution without im2col, for few channels and any kernel, stride and padding.
//!
//! Each image is copied into a [`PaddedLayout`], in which each tap of the kernel reads one contiguous run. The output is a sum
//! of shifted runs ([`correlate`]), the gradient of the image another one over the padded gradient, and the gradient of the
//! weights consists of products of runs ([`weights`]).

mod correlate;
mod weights;

use self::correlate::Filter;
use self::weights::{PaddedImages, add_products};
use super::batch_groups::{for_groups, groups, groups_of};
use super::geometry::Geometry;
use super::padded::{OVERRUN, PaddedLayout, Phase};
use crate::kernels::arch;
use pulp::{Arch, Simd, WithSimd};

/// Values that may be processed together: 512 KiB, half of a core's own cache.
const MAX_CACHED_VALUES: usize = 1 << 17;
/// The least values that a sum for the gradient of the weights runs over before it leaves its register.
const MIN_SUM_LENGTH: usize = 512;

/// A convolution with its scratch memory.
pub(crate) struct Direct {
    arch: Arch,
    frame: PaddedLayout,
    out: usize,
    /// The offsets of the taps in the frame of an image.
    taps: Vec<usize>,
    forward: Filter,
    /// For each phase of the image, the filter that computes its gradient.
    backward: Vec<(Phase, Filter)>,
    scratch: Vec<Scratch>,
    partials: Vec<PartialGradient>,
}

/// The scratch memory of one group of images.
#[derive(Default)]
struct Scratch {
    image: Vec<f32>,
    gradient: Vec<f32>,
    /// Results before they are cropped.
    runs: Vec<f32>,
}

/// One group's sum for the gradient of the weights, with its scratch memory.
#[derive(Default)]
struct PartialGradient {
    images: Vec<f32>,
    gradients: Vec<f32>,
    weight: Vec<f32>,
}

impl Direct {
    pub(crate) fn new(geometry: Geometry, out: usize) -> Self {
        let frame = PaddedLayout::new(geometry);
        let taps = frame.taps();
        let forward = Filter::new(out, taps.iter().copied().zip(0..).collect(), geometry.taps());
        let area = geometry.kernel * geometry.kernel;
        let backward = frame
            .phases()
            .map(|phase| (phase, Filter::new(geometry.channels, frame.gradient_taps(&phase, out), area)))
            .collect();
        let (scratch, partials) = (Vec::new(), Vec::new());
        Self { arch: arch(), frame, out, taps, forward, backward, scratch, partials }
    }

    /// Whether this is faster than im2col, by measurement: if an image, its gradient and the weights fit into the cache of a
    /// core. With more channels, [`super::im2col::Im2col`] reuses its weights for several images.
    pub(crate) fn suits(geometry: Geometry, out: usize) -> bool {
        let frame = PaddedLayout::new(geometry);
        frame.image_size() + frame.gradient_size(out) <= MAX_CACHED_VALUES
            && out * geometry.taps() <= MAX_CACHED_VALUES / 2
    }

    /// The values of scratch memory for batches of `n`, at most; `learns` if there is a backward pass too. Only for sizes that it
    /// [suits](Self::suits), which all fit into a cache.
    pub(crate) fn scratch(geometry: Geometry, out: usize, n: usize, learns: bool) -> u64 {
        /// The most output channels that a [`Filter`] computes together.
        const CHANNELS: usize = 8;
        let frame = PaddedLayout::new(geometry);
        let weight = out * geometry.taps();
        let groups = groups(n, weight.saturating_mul(frame.span));
        let (image, gradient) = (frame.image_size(), frame.gradient_size(out));
        let runs = CHANNELS * (frame.span + OVERRUN);
        let each = if learns {
            image
                + gradient
                + runs
                + (image + gradient).max(MAX_CACHED_VALUES.min(n.saturating_mul(image + gradient)))
                + weight
        } else {
            image + runs
        };
        (groups * each + 3 * weight) as u64
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
        self.forward.load(weight);
        let (arch, frame, filter) = (self.arch, &self.frame, &self.forward);
        let (image, image_output) = (frame.geometry.image(), self.out * frame.geometry.places());
        let scratch = first_groups(&mut self.scratch, groups(n, self.out * self.taps.len() * frame.span));
        for_groups(scratch, n, y, image_output, &|scratch, images, y| {
            let x = &x[images.start * image..images.end * image];
            scratch.image.resize(frame.image_size(), 0.0);
            scratch.runs.resize(scratch.runs.len().max(filter.block() * (frame.span + OVERRUN)), 0.0);
            arch.dispatch(Forward { frame, filter, scratch, x, y, image_output, finish: &finish });
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
        self.backward.iter_mut().for_each(|(_, filter)| filter.load(weight));
        let (arch, frame, filters, out) = (self.arch, &self.frame, &self.backward[..], self.out);
        let (image, image_output) = (frame.geometry.image(), out * frame.geometry.places());
        let runs = filters.iter().map(|(phase, filter)| filter.block() * (frame.phase_span(phase) + OVERRUN));
        let runs = runs.max().unwrap_or(0);
        let scratch = first_groups(&mut self.scratch, groups(n, out * self.taps.len() * frame.span));
        for_groups(scratch, n, dx, image, &|scratch, images, dx| {
            let dy = &dy[images.start * image_output..images.end * image_output];
            scratch.gradient.resize(frame.gradient_size(out), 0.0);
            scratch.runs.resize(scratch.runs.len().max(runs), 0.0);
            arch.dispatch(BackwardImages { frame, filters, scratch, dy, dx, image_output });
        });
    }

    fn backward_weights(&mut self, x: &[f32], dy: &[f32], n: usize, dweight: &mut [f32]) {
        let (arch, frame, taps, out) = (self.arch, &self.frame, &self.taps[..], self.out);
        let size = MIN_SUM_LENGTH.div_ceil(frame.span.max(1));
        let count = groups_of(size, n, out * taps.len() * frame.span);
        let partials = first_groups(&mut self.partials, count);
        for_groups(partials, n, &mut [], 0, &|partial, images, _| {
            partial.weight.clear();
            partial.weight.resize(out * taps.len(), 0.0);
            let (image, image_output) = (frame.geometry.image(), out * frame.geometry.places());
            let x = &x[images.start * image..images.end * image];
            let dy = &dy[images.start * image_output..images.end * image_output];
            arch.dispatch(BackwardWeights { frame, taps, out, partial, x, dy });
        });
        sum_partials(partials.iter().map(|partial| &partial.weight[..]), dweight);
    }
}

/// The first `count` groups, created on first use.
fn first_groups<G: Default>(groups: &mut Vec<G>, count: usize) -> &mut [G] {
    if groups.len() < count {
        groups.resize_with(count, G::default);
    }
    &mut groups[..count]
}

/// The sum over the groups, in their order.
fn sum_partials<'a>(mut partials: impl Iterator<Item = &'a [f32]>, sum: &mut [f32]) {
    match partials.next() {
        Some(first) => sum.copy_from_slice(first),
        None => sum.fill(0.0),
    }
    for partial in partials {
        sum.iter_mut().zip(partial).for_each(|(sum, partial)| *sum += partial);
    }
}

struct Forward<'a, F> {
    frame: &'a PaddedLayout,
    filter: &'a Filter,
    scratch: &'a mut Scratch,
    x: &'a [f32],
    y: &'a mut [f32],
    image_output: usize,
    finish: &'a F,
}

impl<F: Fn(&mut [f32])> WithSimd for Forward<'_, F> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { frame, filter, scratch, x, y, image_output, finish } = self;
        let (image, places) = (frame.geometry.image(), frame.geometry.places());
        for (x, y) in x.chunks_exact(image).zip(y.chunks_exact_mut(image_output)) {
            frame.embed(x, &mut scratch.image);
            filter.apply(simd, &scratch.image, frame.span, &mut scratch.runs, |channel, run| {
                frame.crop(run, &mut y[channel * places..(channel + 1) * places]);
            });
            finish(y);
        }
    }
}

struct BackwardImages<'a> {
    frame: &'a PaddedLayout,
    filters: &'a [(Phase, Filter)],
    scratch: &'a mut Scratch,
    dy: &'a [f32],
    dx: &'a mut [f32],
    image_output: usize,
}

impl WithSimd for BackwardImages<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { frame, filters, scratch, dy, dx, image_output } = self;
        if frame.geometry.stride > 1 {
            dx.fill(0.0); // Some pixels are read by no output.
        }
        let image = frame.geometry.image();
        for (dx, dy) in dx.chunks_exact_mut(image).zip(dy.chunks_exact(image_output)) {
            frame.embed_gradient(dy, &mut scratch.gradient);
            for (phase, filter) in filters {
                let span = frame.phase_span(phase);
                filter.apply(simd, &scratch.gradient, span, &mut scratch.runs, |channel, run| {
                    frame.crop_phase(phase, run, channel, dx);
                });
            }
        }
    }
}

struct BackwardWeights<'a> {
    frame: &'a PaddedLayout,
    taps: &'a [usize],
    out: usize,
    partial: &'a mut PartialGradient,
    x: &'a [f32],
    dy: &'a [f32],
}

impl WithSimd for BackwardWeights<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { frame, taps, out, partial, x, dy } = self;
        let PartialGradient { images, gradients, weight } = partial;
        let (image, image_output) = (frame.geometry.image(), out * frame.geometry.places());
        let (image_size, gradient_size) = (frame.image_size(), frame.gradient_size(out));
        let images_per_block =
            (MAX_CACHED_VALUES / (image_size + gradient_size)).clamp(1, (x.len() / image).max(1));
        if images.len() < images_per_block * image_size {
            images.resize(images_per_block * image_size, 0.0);
            gradients.resize(images_per_block * gradient_size, 0.0);
        }
        for (x, dy) in x.chunks(images_per_block * image).zip(dy.chunks(images_per_block * image_output)) {
            for (x, to) in x.chunks_exact(image).zip(images.chunks_exact_mut(image_size)) {
                frame.embed(x, to);
            }
            for (dy, to) in dy.chunks_exact(image_output).zip(gradients.chunks_exact_mut(gradient_size)) {
                frame.embed_gradient(dy, to);
            }
            let count = x.len() / image;
            let (images, gradients) = (&images[..count * image_size], &gradients[..count * gradient_size]);
            add_products(simd, PaddedImages { frame, images, gradients, out }, taps, weight);
        }
    }
}

#[cfg(test)]
mod tests {
    crate::kernels::reference::convolution_tests!(Direct);
}
