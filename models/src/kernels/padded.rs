//! A padded layout of images in which each tap of a kernel reads one contiguous run of pixels.
//!
//! An image is copied into a frame: rows of equal length, with zeros for the padding. Output `(row, column)` has the index
//! `row * row_length + column`, and the pixel that a tap reads for it has that index plus an offset that depends on the tap
//! alone. So a convolution is a sum of shifted runs, without im2col. The outputs between the end of a row and the start of
//! the next are meaningless and never read.
//!
//! With a stride `s > 1`, the frame holds `s * s` phases of the image, each with every `s`-th pixel of every `s`-th row;
//! within a phase the stride is one. With stride 1, the zeros to the right of a row are also those to the left of the next.

use super::copy::copy_row;
use super::geometry::Geometry;

/// Values that may be read beyond the end of a run: the length of the longest vector of any instruction set.
pub(super) const OVERRUN: usize = 16;

/// The layout of one padded image and of the gradient of its output.
#[derive(Clone, Copy, Debug)]
pub(super) struct PaddedLayout {
    pub(super) geometry: Geometry,
    /// Values from one row to the next.
    pub(super) row_length: usize,
    /// Values from the first output of a channel to its last.
    pub(super) span: usize,
    /// Distance from the first tap of a phase to the last, in rows and in columns.
    reach: usize,
    /// Rows and columns of phases that taps read.
    phases: usize,
    /// Values of one phase of one channel of the image.
    plane: usize,
    /// Zeros before the first value of one channel of the gradient.
    lead: usize,
    /// Values of one channel of the gradient.
    gradient_plane: usize,
}

/// One phase of the image, and its rectangle without padding.
#[derive(Clone, Copy, Debug)]
pub(super) struct Phase {
    pub(super) down: usize,
    pub(super) across: usize,
    first_row: usize,
    end_row: usize,
    first_column: usize,
    end_column: usize,
}

impl PaddedLayout {
    pub(super) fn new(geometry: Geometry) -> Self {
        let Geometry { kernel, stride, padding, rows, columns, width, .. } = geometry;
        let reach = (kernel - 1) / stride;
        let row_length = if stride == 1 { (width + padding).max(columns) } else { columns + reach };
        let frame_rows = rows + reach;
        let lead = reach * row_length + reach;
        Self {
            geometry,
            row_length,
            span: if rows == 0 { 0 } else { (rows - 1) * row_length + columns },
            reach,
            phases: kernel.min(stride),
            plane: frame_rows * row_length + padding,
            lead,
            gradient_plane: lead + frame_rows * row_length + OVERRUN,
        }
    }

    /// Values of the frame of an image.
    pub(super) fn image_size(&self) -> usize {
        self.geometry.channels * self.phases * self.phases * self.plane + OVERRUN
    }

    /// Values of the frame of a gradient with `out` channels.
    pub(super) fn gradient_size(&self, out: usize) -> usize {
        out * self.gradient_plane + OVERRUN
    }

    /// The index of a channel's first gradient in the frame.
    pub(super) fn gradient_start(&self, channel: usize) -> usize {
        channel * self.gradient_plane + self.lead
    }

    /// The offset of each tap in the frame of the image, in the order `[channels, kernel, kernel]`.
    pub(super) fn taps(&self) -> Vec<usize> {
        let Geometry { channels, kernel, stride, .. } = self.geometry;
        let mut offsets = Vec::with_capacity(self.geometry.taps());
        for channel in 0..channels {
            for down in 0..kernel {
                for across in 0..kernel {
                    let phase = (channel * self.phases + down % stride) * self.phases + across % stride;
                    offsets.push(phase * self.plane + down / stride * self.row_length + across / stride);
                }
            }
        }
        offsets
    }

    /// The phases of the image that taps read.
    pub(super) fn phases(&self) -> impl Iterator<Item = Phase> + use<> {
        let (phases, frame) = (self.phases, *self);
        (0..phases).flat_map(move |down| (0..phases).map(move |across| frame.phase(down, across)))
    }

    fn phase(&self, down: usize, across: usize) -> Phase {
        let Geometry { stride, padding, height, width, rows, columns, .. } = self.geometry;
        // Along one axis, the range of the phase from the first pixel of the image to the last that an output reads.
        let inside = |phase: usize, input: usize, outputs: usize| {
            let first = padding.saturating_sub(phase).div_ceil(stride);
            let end = (input + padding).saturating_sub(phase).div_ceil(stride).min(outputs + self.reach);
            (first.min(end), end)
        };
        let (first_row, end_row) = inside(down, height, rows);
        let (first_column, end_column) = inside(across, width, columns);
        // Without columns there are no rows either.
        let end_row = if first_column == end_column { first_row } else { end_row };
        Phase { down, across, first_row, end_row, first_column, end_column }
    }

    /// Copies an image into its frame. The other values of the frame have to be zero and are left alone.
    #[inline(always)]
    pub(super) fn embed(&self, image: &[f32], frame: &mut [f32]) {
        let Geometry { channels, stride, width, .. } = self.geometry;
        for channel in 0..channels {
            for phase in self.phases() {
                let plane = (channel * self.phases + phase.down) * self.phases + phase.across;
                for row in phase.first_row..phase.end_row {
                    let length = phase.end_column - phase.first_column;
                    let to = plane * self.plane + row * self.row_length + phase.first_column;
                    let from = self.pixel(channel, &phase, row);
                    let to = &mut frame[to..to + length];
                    if stride == 1 {
                        copy_row(&image[from..from + width], to);
                    } else {
                        let from = image[from..].iter().step_by(stride);
                        to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
                    }
                }
            }
        }
    }

    /// The index in the image of the first pixel of a row of a phase.
    #[inline(always)]
    fn pixel(&self, channel: usize, phase: &Phase, row: usize) -> usize {
        let Geometry { stride, padding, height, width, .. } = self.geometry;
        let y = row * stride + phase.down - padding;
        let x = phase.first_column * stride + phase.across - padding;
        (channel * height + y) * width + x
    }

    /// Copies the gradient of one image's output into its frame. The other values of the frame have to be zero and are left
    /// alone.
    #[inline(always)]
    pub(super) fn embed_gradient(&self, gradient: &[f32], frame: &mut [f32]) {
        let Geometry { rows, columns, .. } = self.geometry;
        for (channel, plane) in gradient.chunks_exact((rows * columns).max(1)).enumerate() {
            let start = self.gradient_start(channel);
            for (row, from) in plane.chunks_exact(columns).enumerate() {
                let to = start + row * self.row_length;
                copy_row(from, &mut frame[to..to + columns]);
            }
        }
    }

    /// The terms of the gradient of a pixel of a phase: offsets in the frame of the output's gradient, in the order of output
    /// channels, rows and columns of the kernel, each with the index of its weight in `[out, channels, kernel, kernel]` for
    /// the image's first channel.
    pub(super) fn gradient_taps(&self, phase: &Phase, out: usize) -> Vec<(usize, usize)> {
        let Geometry { channels, kernel, stride, .. } = self.geometry;
        let corner = phase.first_row * self.row_length + phase.first_column;
        let mut taps = Vec::new();
        for channel in 0..out {
            for down in (phase.down..kernel).step_by(stride) {
                for across in (phase.across..kernel).step_by(stride) {
                    let back = down / stride * self.row_length + across / stride;
                    let source = (channel * channels * kernel + down) * kernel + across;
                    taps.push((self.gradient_start(channel) + corner - back, source));
                }
            }
        }
        taps
    }

    /// Values from the first pixel of a phase to its last.
    pub(super) fn phase_span(&self, phase: &Phase) -> usize {
        let (rows, columns) = (phase.end_row - phase.first_row, phase.end_column - phase.first_column);
        if rows == 0 { 0 } else { (rows - 1) * self.row_length + columns }
    }

    /// Copies the outputs of one channel out of their run.
    #[inline(always)]
    pub(super) fn crop(&self, run: &[f32], plane: &mut [f32]) {
        let columns = self.geometry.columns;
        for (to, from) in plane.chunks_exact_mut(columns).zip(run.chunks(self.row_length)) {
            copy_row(&from[..columns], to);
        }
    }

    /// Copies the pixels of one channel of a phase out of their run into the image.
    #[inline(always)]
    pub(super) fn crop_phase(&self, phase: &Phase, run: &[f32], channel: usize, image: &mut [f32]) {
        let stride = self.geometry.stride;
        let length = phase.end_column - phase.first_column;
        for (row, from) in (phase.first_row..phase.end_row).zip(run.chunks(self.row_length)) {
            let to = self.pixel(channel, phase, row);
            if stride == 1 {
                copy_row(&from[..length], &mut image[to..to + length]);
            } else {
                let to = image[to..].iter_mut().step_by(stride);
                to.zip(&from[..length]).for_each(|(to, from)| *to = *from);
            }
        }
    }

    /// Copies the pixels of an image out of their frame.
    #[inline(always)]
    pub(super) fn extract(&self, frame: &[f32], image: &mut [f32]) {
        if self.geometry.stride > 1 {
            image.fill(0.0); // Some pixels are read by no output.
        }
        for channel in 0..self.geometry.channels {
            for phase in self.phases() {
                let plane = (channel * self.phases + phase.down) * self.phases + phase.across;
                let first = plane * self.plane + phase.first_row * self.row_length + phase.first_column;
                self.crop_phase(&phase, &frame[first..], channel, image);
            }
        }
    }
}
