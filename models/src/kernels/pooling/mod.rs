//! Pooling of images over windows without padding.
//!
//! Rows and columns at the end that fill no window are left out, as in `PyTorch`, or form partial windows, as in `PyTorch`
//! with `ceil_mode`.

mod maximum;
mod mean;
#[cfg(test)]
mod tests;

pub(crate) use maximum::{MAX_WINDOW, MaxPool};
pub(crate) use mean::AveragePool;

use super::batch_groups::groups;

/// The sizes of a pooling of images `[channels, height, width]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Windows {
    pub(crate) channels: usize,
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) size: usize,
    pub(crate) stride: usize,
    /// Whether windows that begin in the image and reach beyond it count, over the pixels inside.
    pub(crate) partial: bool,
}

impl Windows {
    /// Rows of windows; 0 if no window fits.
    pub(crate) fn rows(&self) -> usize {
        self.along(self.height)
    }

    /// Columns of windows; 0 if no window fits.
    pub(crate) fn columns(&self) -> usize {
        self.along(self.width)
    }

    fn along(&self, input: usize) -> usize {
        along(input, self.size, self.stride, self.partial)
    }

    /// Whether some windows reach beyond the image.
    fn overhangs(&self) -> bool {
        let beyond = |count: usize, input| count > 0 && (count - 1) * self.stride + self.size > input;
        beyond(self.rows(), self.height) || beyond(self.columns(), self.width)
    }

    /// Values of one image.
    pub(crate) fn image(&self) -> usize {
        self.channels * self.height * self.width
    }

    /// Values of the output for one image.
    pub(crate) fn pooled(&self) -> usize {
        self.channels * self.rows() * self.columns()
    }

    /// The groups for `n` images. A value takes about as long as ten multiplications of a convolution.
    fn groups(&self, n: usize) -> usize {
        groups(n, 10 * self.image())
    }

    /// The index in a plane of the first pixel of a window.
    fn corner(&self, row: usize, column: usize) -> usize {
        (row * self.width + column) * self.stride
    }
}

/// Windows along an axis of `input` pixels; 0 if no window fits.
pub(crate) fn along(input: usize, size: usize, stride: usize, partial: bool) -> usize {
    match input.checked_sub(size) {
        None => 0,
        Some(room) if !partial => room / stride + 1,
        // The last one begins in the image.
        Some(room) => (room.div_ceil(stride) + 1).min(input.div_ceil(stride)),
    }
}
