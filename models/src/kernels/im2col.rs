//! A convolution as a matrix product: the windows of images as columns, and back.

use std::ops::Range;

use candle_core::{Result, bail};

/// The sizes of a convolution of images `[channels, height, width]` with kernels `[channels, kernel, kernel]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(super) channels: usize,
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) kernel: usize,
    pub(super) stride: usize,
    pub(super) padding: usize,
    /// Rows and columns produced.
    pub(super) rows: usize,
    pub(super) columns: usize,
}

impl Geometry {
    /// The geometry for a batch of images `[n, channels, height, width]` and weights `[out, channels, kernel, kernel]`.
    pub(super) fn new(
        (_, channels, height, width): (usize, usize, usize, usize),
        (_, same_channels, kernel, same_kernel): (usize, usize, usize, usize),
        stride: usize,
        padding: usize,
    ) -> Result<Self> {
        if channels != same_channels || kernel != same_kernel || kernel == 0 || stride == 0 {
            bail!(
                "no convolution of {channels} channels by {same_channels} x {kernel} x {same_kernel}, stride {stride}"
            );
        }
        let extent = |input: usize| {
            let room = input.checked_add(padding.checked_mul(2)?)?.checked_sub(kernel)?;
            Some(room / stride + 1)
        };
        let (Some(rows), Some(columns)) = (extent(height), extent(width)) else {
            bail!("a kernel of {kernel} does not fit into {height} x {width} padded by {padding}");
        };
        Ok(Self { channels, height, width, kernel, stride, padding, rows, columns })
    }

    /// Values of one image.
    pub(super) fn image(&self) -> usize {
        self.channels * self.height * self.width
    }

    /// Inputs that one output sums over: the height of the column matrix.
    pub(super) fn taps(&self) -> usize {
        self.channels * self.kernel * self.kernel
    }

    /// Outputs per image and kernel: the width of the column matrix for one image.
    pub(super) fn places(&self) -> usize {
        self.rows * self.columns
    }

    /// The columns of `count` images, `[taps, count * places]`: column `(image, row, column)` holds the window that the
    /// kernel sees there. Zeros stand for the padding.
    pub(super) fn gather(&self, images: &[f32], count: usize) -> Vec<f32> {
        let mut columns = vec![0.0; self.taps() * count * self.places()];
        self.runs(count, |place, pixel, length| {
            let to = &mut columns[place..place + length];
            if self.stride == 1 {
                to.copy_from_slice(&images[pixel..pixel + length]);
            } else {
                let from = images[pixel..].iter().step_by(self.stride);
                to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
            }
        });
        columns
    }

    /// The transpose of [`Geometry::gather`]: adds each value of the columns to the pixel that it came from.
    pub(super) fn scatter(&self, columns: &[f32], count: usize, images: &mut [f32]) {
        self.runs(count, |place, pixel, length| {
            let from = &columns[place..place + length];
            if self.stride == 1 {
                images[pixel..pixel + length].iter_mut().zip(from).for_each(|(to, from)| *to += from);
            } else {
                let to = images[pixel..].iter_mut().step_by(self.stride);
                to.zip(from).for_each(|(to, from)| *to += from);
            }
        });
    }

    /// Calls `run(place, pixel, length)` for every stretch of the column matrix, from index `place`, that comes from one
    /// row of an image, from index `pixel` in steps of the stride.
    fn runs(&self, count: usize, mut run: impl FnMut(usize, usize, usize)) {
        let mut start = 0;
        for channel in 0..self.channels {
            for down in 0..self.kernel {
                let rows = self.inside(down, self.height, self.rows);
                for across in 0..self.kernel {
                    let columns = self.inside(across, self.width, self.columns);
                    for image in 0..count {
                        let plane = (image * self.channels + channel) * self.height * self.width;
                        for row in rows.clone().filter(|_| !columns.is_empty()) {
                            let y = row * self.stride + down - self.padding;
                            let x = columns.start * self.stride + across - self.padding;
                            let place = start + row * self.columns + columns.start;
                            run(place, plane + y * self.width + x, columns.len());
                        }
                        start += self.places();
                    }
                }
            }
        }
    }

    /// Along one axis, the outputs for which a tap of the kernel falls on the input and not on its padding.
    fn inside(&self, tap: usize, input: usize, outputs: usize) -> Range<usize> {
        let first = self.padding.saturating_sub(tap).div_ceil(self.stride);
        let end = (input + self.padding).saturating_sub(tap).div_ceil(self.stride).min(outputs);
        first.min(end)..end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry(input: usize, kernel: usize, stride: usize, padding: usize) -> Geometry {
        Geometry::new((1, 1, input, input), (1, 1, kernel, kernel), stride, padding).unwrap()
    }

    #[test]
    fn columns_are_windows() {
        // 1 2
        // 3 4   padded by 1, kernel 2, stride 2: windows (0 0 0 1), (0 0 2 0), (0 3 0 0), (4 0 0 0)
        let columns = geometry(2, 2, 2, 1).gather(&[1.0, 2.0, 3.0, 4.0], 1);
        assert_eq!(columns, [0.0, 0.0, 0.0, 4.0, 0.0, 0.0, 3.0, 0.0, 0.0, 2.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]);
        // Two images and two channels: the rows are the channels' taps, the columns first those of the first image.
        let geometry = Geometry::new((2, 2, 1, 2), (1, 2, 1, 1), 1, 0).unwrap();
        let columns = geometry.gather(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], 2);
        assert_eq!(columns, [1.0, 2.0, 5.0, 6.0, 3.0, 4.0, 7.0, 8.0]);
    }

    #[test]
    fn scattering_counts_the_windows_that_see_a_pixel() {
        let geometry = geometry(3, 2, 1, 0);
        let mut image = vec![0.0; 9];
        geometry.scatter(&geometry.gather(&[1.0; 9], 1), 1, &mut image);
        assert_eq!(image, [1.0, 2.0, 1.0, 2.0, 4.0, 2.0, 1.0, 2.0, 1.0]);
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        assert!(Geometry::new((1, 1, 2, 2), (1, 1, 3, 3), 1, 0).is_err());
        assert!(Geometry::new((1, 1, 2, 2), (1, 1, 3, 3), 1, 1).is_ok());
        assert!(Geometry::new((1, 1, 4, 4), (1, 2, 3, 3), 1, 0).is_err());
        assert!(Geometry::new((1, 1, 4, 4), (1, 1, 3, 2), 1, 0).is_err());
        assert!(Geometry::new((1, 1, 4, 4), (1, 1, 3, 3), 0, 0).is_err());
        assert!(Geometry::new((1, 1, 4, 4), (1, 1, 3, 3), 1, usize::MAX).is_err());
    }
}
