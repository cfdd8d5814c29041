//! Pooling of images by windows without padding. Rows and columns that fill no window are left out, as in `PyTorch`, or make
//! partial windows, as in `PyTorch` with `ceil_mode`.

mod maximum;
mod mean;
#[cfg(test)]
mod tests;

pub(crate) use maximum::{MAX_WINDOW, MaxPool};
pub(crate) use mean::AveragePool;

use super::groups::groups;

/// The sizes of a pooling of images `[channels, height, width]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Windows {
    pub(crate) channels: usize,
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) size: usize,
    pub(crate) stride: usize,
    /// Whether windows that begin in the image and reach beyond it count, with the pixels that they have.
    pub(crate) partial: bool,
}

impl Windows {
    /// Rows of windows; none if none fits.
    pub(crate) fn rows(&self) -> usize {
        self.along(self.height)
    }

    /// Columns of windows; none if none fits.
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

    /// Values that one image is pooled to.
    pub(crate) fn pooled(&self) -> usize {
        self.channels * self.rows() * self.columns()
    }

    /// The groups for `n` images: a value takes about as long as ten multiplications of a convolution.
    fn groups(&self, n: usize) -> usize {
        groups(n, 10 * self.image())
    }

    /// The index in a plane of the first pixel of a window.
    fn corner(&self, row: usize, column: usize) -> usize {
        (row * self.width + column) * self.stride
    }
}

/// Windows along an axis of `input` pixels; none if none fits.
pub(crate) fn along(input: usize, size: usize, stride: usize, partial: bool) -> usize {
    match input.checked_sub(size) {
        None => 0,
        Some(room) if !partial => room / stride + 1,
        // The last one begins in the image.
        Some(room) => (room.div_ceil(stride) + 1).min(input.div_ceil(stride)),
    }
}
