//! Convolution without columns, for few channels and any kernel, stride and padding.
//!
//! Each image is copied into a [`Frame`], in which every tap of the kernel sees all its pixels as one run. The output is then
//! a sum of shifted runs ([`correlate`]), the gradient of the image is another one over the frame of the gradient, and the
//! gradient of the weights are products of runs ([`weights`]).

mod correlate;
mod weights;

use self::correlate::Filter;
use self::weights::{Frames, add_products};
use super::frame::{Frame, OVERRUN, Phase};
use super::geometry::Geometry;
use super::groups::{for_groups, groups, groups_of};
use crate::kernels::arch;
use pulp::{Arch, Simd, WithSimd};

/// For the gradient of the weights, images are taken together up to so many values, 512 KiB: half of what a core has for
/// itself.
const TOGETHER: usize = 1 << 17;
/// Places that the sums for the gradient of the weights should at least run over before they leave their registers.
const LONG: usize = 512;

/// A convolution with its scratch memory.
pub(crate) struct Direct {
    arch: Arch,
    frame: Frame,
    out: usize,
    /// The offsets of the taps in the frame of an image.
    taps: Vec<usize>,
    forward: Filter,
    /// For each phase of the image, what its gradient is made of.
    backward: Vec<(Phase, Filter)>,
    scratch: Vec<Scratch>,
    shares: Vec<Share>,
}

/// What one group of images works with, one after the other.
#[derive(Default)]
struct Scratch {
    image: Vec<f32>,
    gradient: Vec<f32>,
    /// Results before they are cropped.
    runs: Vec<f32>,
}

/// One group's share of the gradient of the weights.
#[derive(Default)]
struct Share {
    images: Vec<f32>,
    gradients: Vec<f32>,
    weight: Vec<f32>,
}

impl Direct {
    pub(crate) fn new(geometry: Geometry, out: usize) -> Self {
        let frame = Frame::new(geometry);
        let taps = frame.taps();
        let forward = Filter::new(out, taps.iter().copied().zip(0..).collect(), geometry.taps());
        let area = geometry.kernel * geometry.kernel;
        let backward = frame
            .phases()
            .map(|phase| (phase, Filter::new(geometry.channels, frame.gradient_taps(&phase, out), area)))
            .collect();
        let (scratch, shares) = (Vec::new(), Vec::new());
        Self { arch: arch(), frame, out, taps, forward, backward, scratch, shares }
    }

    /// Whether this is the faster way, as far as measured: if an image and its gradient stay in the cache of a core, and the
    /// weights beside them. With more channels, [`super::columns::Columns`] reads its weights for several images at once.
    pub(crate) fn suits(geometry: Geometry, out: usize) -> bool {
        let frame = Frame::new(geometry);
        frame.image_size() + frame.gradient_size(out) <= TOGETHER && out * geometry.taps() <= TOGETHER / 2
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
        let scratch = for_each_group(&mut self.scratch, groups(n, self.out * self.taps.len() * frame.span));
        for_groups(scratch, n, y, image_output, &|scratch, images, y| {
            let x = &x[images.start * image..images.end * image];
            scratch.image.resize(frame.image_size(), 0.0);
            scratch.runs.resize(scratch.runs.len().max(filter.block() * (frame.span + OVERRUN)), 0.0);
            arch.dispatch(Forward { frame, filter, scratch, x, y, image_output, finish: &finish });
        });
    }

    /// With `dy` the gradient of the output, writes that of the weights to `dweight` and, if wanted, that of the images to
    /// `dx`.
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
        let scratch = for_each_group(&mut self.scratch, groups(n, out * self.taps.len() * frame.span));
        for_groups(scratch, n, dx, image, &|scratch, images, dx| {
            let dy = &dy[images.start * image_output..images.end * image_output];
            scratch.gradient.resize(frame.gradient_size(out), 0.0);
            scratch.runs.resize(scratch.runs.len().max(runs), 0.0);
            arch.dispatch(BackwardImages { frame, filters, scratch, dy, dx, image_output });
        });
    }

    fn backward_weights(&mut self, x: &[f32], dy: &[f32], n: usize, dweight: &mut [f32]) {
        let (arch, frame, taps, out) = (self.arch, &self.frame, &self.taps[..], self.out);
        let size = LONG.div_ceil(frame.span.max(1));
        let count = groups_of(size, n, out * taps.len() * frame.span);
        let shares = for_each_group(&mut self.shares, count);
        for_groups(shares, n, &mut [], 0, &|share, images, _| {
            share.weight.clear();
            share.weight.resize(out * taps.len(), 0.0);
            let (image, image_output) = (frame.geometry.image(), out * frame.geometry.places());
            let x = &x[images.start * image..images.end * image];
            let dy = &dy[images.start * image_output..images.end * image_output];
            arch.dispatch(BackwardWeights { frame, taps, out, share, x, dy });
        });
        sum_shares(shares.iter().map(|share| &share.weight[..]), dweight);
    }
}

/// The first `count` of what groups have, made if they are not there yet.
fn for_each_group<G: Default>(groups: &mut Vec<G>, count: usize) -> &mut [G] {
    if groups.len() < count {
        groups.resize_with(count, G::default);
    }
    &mut groups[..count]
}

/// The sum of the groups' shares, in their order.
fn sum_shares<'a>(mut shares: impl Iterator<Item = &'a [f32]>, sum: &mut [f32]) {
    match shares.next() {
        Some(first) => sum.copy_from_slice(first),
        None => sum.fill(0.0),
    }
    for share in shares {
        sum.iter_mut().zip(share).for_each(|(sum, share)| *sum += share);
    }
}

struct Forward<'a, F> {
    frame: &'a Frame,
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
    frame: &'a Frame,
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
            dx.fill(0.0); // No output sees some of the pixels.
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
    frame: &'a Frame,
    taps: &'a [usize],
    out: usize,
    share: &'a mut Share,
    x: &'a [f32],
    dy: &'a [f32],
}

impl WithSimd for BackwardWeights<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { frame, taps, out, share, x, dy } = self;
        let Share { images, gradients, weight } = share;
        let (image, image_output) = (frame.geometry.image(), out * frame.geometry.places());
        let (image_size, gradient_size) = (frame.image_size(), frame.gradient_size(out));
        let together = (TOGETHER / (image_size + gradient_size)).clamp(1, (x.len() / image).max(1));
        if images.len() < together * image_size {
            images.resize(together * image_size, 0.0);
            gradients.resize(together * gradient_size, 0.0);
        }
        for (x, dy) in x.chunks(together * image).zip(dy.chunks(together * image_output)) {
            for (x, to) in x.chunks_exact(image).zip(images.chunks_exact_mut(image_size)) {
                frame.embed(x, to);
            }
            for (dy, to) in dy.chunks_exact(image_output).zip(gradients.chunks_exact_mut(gradient_size)) {
                frame.embed_gradient(dy, to);
            }
            let count = x.len() / image;
            let (images, gradients) = (&images[..count * image_size], &gradients[..count * gradient_size]);
            add_products(simd, Frames { frame, images, gradients, out }, taps, weight);
        }
    }
}

#[cfg(test)]
mod tests {
    crate::kernels::reference::convolution_tests!(Direct);
}
