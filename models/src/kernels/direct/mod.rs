//! Convolution without columns, for few channels and any kernel, stride and padding.
//!
//! Each image is copied into a [`Frame`], in which every tap of the kernel sees all its pixels as one run. The output is then
//! a sum of shifted runs ([`correlate`]), the gradient of the image is another one over the frame of the gradient, and the
//! gradient of the weights are products of runs ([`weights`]).

mod correlate;
mod weights;

use pulp::{Arch, Simd, WithSimd};

use self::correlate::Filter;
use self::weights::Partial;
use super::frame::{Frame, OVERRUN, Phase};
use super::groups::{for_groups, groups};
use super::im2col::Geometry;

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
    groups: Vec<Group>,
}

/// What one group of images works with.
struct Group {
    /// The image being worked on.
    image: Vec<f32>,
    /// The gradient of its output.
    gradient: Vec<f32>,
    /// Results before they are cropped.
    runs: Vec<f32>,
    partial: Partial,
    /// The group's share of the gradient of the weights.
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
        Self { arch: Arch::new(), frame, out, taps, forward, backward, groups: Vec::new() }
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
        let count = self.prepare(n);
        self.forward.load(weight);
        let (arch, frame, filter, out) = (self.arch, &self.frame, &self.forward, self.out);
        let (image, image_output) = (frame.geometry.image(), out * frame.geometry.places());
        for_groups(&mut self.groups[..count], n, y, image_output, &|group, images, y| {
            let x = &x[images.start * image..images.end * image];
            arch.dispatch(Forward { frame, filter, group, x, y, finish: &finish });
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
        let count = self.prepare(n);
        if dx.is_some() {
            self.backward.iter_mut().for_each(|(_, filter)| filter.load(weight));
        }
        let (arch, frame, taps) = (self.arch, &self.frame, &self.taps[..]);
        let filters = dx.is_some().then_some(&self.backward[..]);
        let (image, image_output) = (frame.geometry.image(), self.out * frame.geometry.places());
        let for_x = dx.unwrap_or_default();
        let per_image = if filters.is_some() { image } else { 0 };
        for_groups(&mut self.groups[..count], n, for_x, per_image, &|group, images, dx| {
            let x = &x[images.start * image..images.end * image];
            let dy = &dy[images.start * image_output..images.end * image_output];
            arch.dispatch(Backward { frame, taps, filters, group, x, dy, dx });
        });
        sum_shares(self.groups[..count].iter().map(|group| &group.weight[..]), dweight);
    }

    /// Makes the groups for a batch of `n` and returns their number.
    fn prepare(&mut self, n: usize) -> usize {
        let (frame, out) = (self.frame, self.out);
        let geometry = frame.geometry;
        let count = groups(n, out * geometry.taps() * geometry.places());
        let block =
            self.backward.iter().map(|(_, filter)| filter.block()).chain([self.forward.block()]).max();
        let span = self.backward.iter().map(|(phase, _)| frame.phase_span(phase)).chain([frame.span]).max();
        let run = span.unwrap_or(0) + OVERRUN;
        while self.groups.len() < count {
            self.groups.push(Group {
                image: vec![0.0; frame.image_size()],
                gradient: vec![0.0; frame.gradient_size(out)],
                runs: vec![0.0; block.unwrap_or(0) * run],
                partial: Partial::new(out),
                weight: vec![0.0; out * geometry.taps()],
            });
        }
        count
    }
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
    group: &'a mut Group,
    x: &'a [f32],
    y: &'a mut [f32],
    finish: &'a F,
}

impl<F: Fn(&mut [f32])> WithSimd for Forward<'_, F> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { frame, filter, group, x, y, finish } = self;
        let geometry = frame.geometry;
        let (image, places) = (geometry.image().max(1), geometry.places());
        let image_output = y.len() / (x.len() / image).max(1);
        for (x, y) in x.chunks_exact(image).zip(y.chunks_exact_mut(image_output.max(1))) {
            frame.embed(x, &mut group.image);
            filter.apply(simd, &group.image, frame.span, &mut group.runs, |channel, run| {
                frame.crop(run, &mut y[channel * places..(channel + 1) * places]);
            });
            finish(y);
        }
    }
}

struct Backward<'a> {
    frame: &'a Frame,
    taps: &'a [usize],
    /// Absent if the gradient of the images is not wanted.
    filters: Option<&'a [(Phase, Filter)]>,
    group: &'a mut Group,
    x: &'a [f32],
    dy: &'a [f32],
    dx: &'a mut [f32],
}

impl WithSimd for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { frame, taps, filters, group, x, dy, dx } = self;
        let geometry = frame.geometry;
        let image = geometry.image().max(1);
        let images = x.len() / image;
        let image_output = (dy.len() / images.max(1)).max(1);
        group.partial.clear(simd, taps.len());
        for (index, (x, dy)) in x.chunks_exact(image).zip(dy.chunks_exact(image_output)).enumerate() {
            frame.embed(x, &mut group.image);
            frame.embed_gradient(dy, &mut group.gradient);
            let starts = |channel| frame.gradient_start(channel);
            group.partial.add(simd, &group.gradient, starts, &group.image, taps, frame.span);
            if let Some(filters) = filters {
                let dx = &mut dx[index * image..(index + 1) * image];
                if geometry.stride > 1 {
                    dx.fill(0.0); // No output sees some of the pixels.
                }
                for (phase, filter) in filters {
                    let span = frame.phase_span(phase);
                    filter.apply(simd, &group.gradient, span, &mut group.runs, |channel, run| {
                        frame.crop_phase(phase, run, channel, dx);
                    });
                }
            }
        }
        group.partial.finish(simd, &mut group.weight);
    }
}
