//! A convolution as a matrix product: the windows of images as columns, and back.

use std::ops::Range;

/// The sizes of a convolution of images `[channels, height, width]` with kernels `[channels, kernel, kernel]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    pub(crate) channels: usize,
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) kernel: usize,
    pub(crate) stride: usize,
    pub(crate) padding: usize,
    /// Rows and columns produced.
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

impl Geometry {
    /// The geometry for images of a shape, `[channels, height, width]`, that the kernel fits into.
    pub(crate) fn of(shape: &[usize], kernel: usize, stride: usize, padding: usize) -> Self {
        let &[channels, height, width] = shape else {
            panic!("the architecture was checked: images have three dimensions");
        };
        let extent = |input: usize| (input + 2 * padding - kernel) / stride + 1;
        let (rows, columns) = (extent(height), extent(width));
        Self { channels, height, width, kernel, stride, padding, rows, columns }
    }

    /// Values of one image.
    pub(crate) fn image(&self) -> usize {
        self.channels * self.height * self.width
    }

    /// Inputs that one output sums over: the height of the column matrix.
    pub(crate) fn taps(&self) -> usize {
        self.channels * self.kernel * self.kernel
    }

    /// Outputs per image and kernel: the width of the column matrix for one image.
    pub(crate) fn places(&self) -> usize {
        self.rows * self.columns
    }

    /// The columns of `count` images, `[taps, count * places]`: column `(image, row, column)` holds the window that the
    /// kernel sees there. Zeros stand for the padding.
    pub(crate) fn gather(&self, images: &[f32], count: usize) -> Vec<f32> {
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
    pub(crate) fn scatter(&self, columns: &[f32], count: usize, images: &mut [f32]) {
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
        Geometry::of(&[1, input, input], kernel, stride, padding)
    }

    #[test]
    fn columns_are_windows() {
        // 1 2
        // 3 4   padded by 1, kernel 2, stride 2: windows (0 0 0 1), (0 0 2 0), (0 3 0 0), (4 0 0 0)
        let columns = geometry(2, 2, 2, 1).gather(&[1.0, 2.0, 3.0, 4.0], 1);
        assert_eq!(columns, [0.0, 0.0, 0.0, 4.0, 0.0, 0.0, 3.0, 0.0, 0.0, 2.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]);
        // Two images and two channels: the rows are the channels' taps, the columns first those of the first image.
        let geometry = Geometry::of(&[2, 1, 2], 1, 1, 0);
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
}
