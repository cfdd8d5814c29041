//! Convolution in candle's operations.
//!
//! Candle's `conv2d` (0.11.1) makes one convolution of each group. Where each channel is a group, a sum over the places of the window is
//! far faster: the image shifted to a place, times the weights of that place. That keeps two images for each place until the backward
//! pass, so that it is done for small windows alone. And of a window of one place a convolution is a matrix product.

use candle_core::{Error, Result, Tensor};

/// The largest window of which a sum over its places is kept: of 3x3 there are 17 images.
const SMALL: usize = 3;

/// The convolution of `[n, c, h, w]` with a weight `[out, c / groups, k, k]`, padded with zeros.
pub(super) fn convolution(
    x: &Tensor,
    weight: &Tensor,
    [stride, padding, groups]: [usize; 3],
) -> Result<Tensor> {
    let (channels, (out, _, kernel, _)) = (x.dim(1)?, weight.dims4()?);
    if groups == channels && out == channels && kernel <= SMALL {
        depthwise(&Shifts::of(x, kernel, stride, padding)?, weight)
    } else if kernel == 1 && groups == 1 {
        pointwise(&Shifts::of(x, kernel, stride, padding)?, weight)
    } else {
        any(x, weight, [stride, padding, groups])
    }
}

/// Any convolution.
///
/// The backward pass of candle's `conv2d` uses the number of rows that the stride leaves over for columns as well, and subtracts it from
/// the size of the image without its padding. If the two numbers differ or are too large for that, the padding is made part of the
/// image here and the rows and columns left over are cut off.
fn any(x: &Tensor, weight: &Tensor, [stride, padding, groups]: [usize; 3]) -> Result<Tensor> {
    let (_, _, height, width) = x.dims4()?;
    let kernel = weight.dim(2)?;
    let left_over = |input: usize| (input + 2 * padding - kernel) % stride;
    let (rows, columns) = (left_over(height), left_over(width));
    if rows == columns && rows <= height.min(width) {
        return x.conv2d(weight, padding, stride, 1, groups);
    }
    x.pad_with_zeros(2, padding, padding)?
        .pad_with_zeros(3, padding, padding)?
        .narrow(2, 0, height + 2 * padding - rows)?
        .narrow(3, 0, width + 2 * padding - columns)?
        .conv2d(weight, 0, stride, 1, groups)
}

/// The convolution whose window is a pixel: a matrix product for each sample's pixels.
fn pointwise(shifts: &Shifts, weight: &Tensor) -> Result<Tensor> {
    // With channels before samples, a matrix has a row for each channel and a column for each pixel of all samples.
    let pixels = shifts.to(0, 0)?.transpose(0, 1)?.contiguous()?;
    let (channels, samples, height, width) = pixels.dims4()?;
    let out = weight.dim(0)?;
    let y = weight.reshape((out, channels))?.matmul(&pixels.reshape((channels, ()))?)?;
    y.reshape((out, samples, height, width))?.transpose(0, 1)?.contiguous()
}

/// The convolution of each channel with a weight of its own.
fn depthwise(shifts: &Shifts, weight: &Tensor) -> Result<Tensor> {
    let channels = weight.dim(0)?;
    let mut sum: Option<Tensor> = None;
    for (row, column) in shifts.places() {
        let factors = weight.narrow(2, row, 1)?.narrow(3, column, 1)?.reshape((1, channels, 1, 1))?;
        let product = shifts.to(row, column)?.broadcast_mul(&factors)?;
        sum = Some(match sum {
            Some(sum) => (sum + product)?,
            None => product,
        });
    }
    sum.ok_or_else(|| Error::Msg("a window has a place at least".to_owned()))
}

/// Images `[n, c, h, w]`, to be shifted to each place of a window.
struct Shifts {
    /// Padded, as `[n, c, rows, stride, columns, stride]`.
    image: Tensor,
    kernel: usize,
    stride: usize,
    /// The size of the result.
    height: usize,
    width: usize,
}

impl Shifts {
    fn of(x: &Tensor, kernel: usize, stride: usize, padding: usize) -> Result<Self> {
        let (samples, channels, height, width) = x.dims4()?;
        let size = |input: usize| (input + 2 * padding - kernel) / stride + 1;
        let (rows, columns) = (size(height), size(width));
        // Shifted by the whole window, a multiple of the stride is needed: zeros fill it up, and what is left over is cut off.
        let whole = |result: usize| (result + (kernel - 1) / stride) * stride;
        let fitted = |x: Tensor, dimension: usize, whole: usize| -> Result<Tensor> {
            let has = x.dim(dimension)?;
            if has < whole {
                x.pad_with_zeros(dimension, 0, whole - has)
            } else {
                x.narrow(dimension, 0, whole)
            }
        };
        let padded = x.pad_with_zeros(2, padding, padding)?.pad_with_zeros(3, padding, padding)?;
        let image = fitted(fitted(padded, 2, whole(rows))?, 3, whole(columns))?.contiguous()?;
        let parts = (samples, channels, whole(rows) / stride, stride, whole(columns) / stride, stride);
        Ok(Self { image: image.reshape(parts)?, kernel, stride, height: rows, width: columns })
    }

    /// The rows and columns of the window.
    fn places(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let kernel = self.kernel;
        (0..kernel).flat_map(move |row| (0..kernel).map(move |column| (row, column)))
    }

    /// What is seen at this place of the window: `[n, c, height, width]`.
    fn to(&self, row: usize, column: usize) -> Result<Tensor> {
        let stride = self.stride;
        let rows = self.image.narrow(3, row % stride, 1)?.narrow(2, row / stride, self.height)?;
        let seen = rows.narrow(5, column % stride, 1)?.narrow(4, column / stride, self.width)?;
        seen.squeeze(5)?.squeeze(3)
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{Device, Var};

    use super::*;

    /// The output and the gradients of image and weight, if each output weighs its position, counted from 1. One channel is a group of
    /// its own as well, so that both ways lead there.
    fn convolved(size: (usize, usize), kernel: usize, stride: usize, padding: usize) -> [Vec<f32>; 3] {
        let found = by(&any, size, kernel, [stride, padding, 1]);
        assert_eq!(found, by(&convolution, size, kernel, [stride, padding, 1]));
        found
    }

    type Convolution = dyn Fn(&Tensor, &Tensor, [usize; 3]) -> Result<Tensor>;

    fn by(
        convolution: &Convolution,
        (height, width): (usize, usize),
        kernel: usize,
        settings: [usize; 3],
    ) -> [Vec<f32>; 3] {
        let counted = |shape: (usize, usize, usize, usize)| {
            let count = shape.0 * shape.1 * shape.2 * shape.3;
            let values: Vec<f32> = (1..=count).map(|value| value as f32).collect();
            Var::from_slice(&values, shape, &Device::Cpu).unwrap()
        };
        let (x, weight) = (counted((1, 1, height, width)), counted((1, 1, kernel, kernel)));
        let y = convolution(&x, &weight, settings).unwrap().flatten_all().unwrap();
        let weights = Tensor::arange(1.0f32, y.elem_count() as f32 + 1.0, &Device::Cpu).unwrap();
        let gradients = (&y * weights).unwrap().sum_all().unwrap().backward().unwrap();
        let values = |tensor: &Tensor| tensor.flatten_all().unwrap().to_vec1().unwrap();
        [values(&y), values(gradients.get(&x).unwrap()), values(gradients.get(&weight).unwrap())]
    }

    #[test]
    fn what_the_stride_leaves_over_gets_no_gradient() {
        // 1 2 3 / 4 5 6 with windows of 2, two apart: a column is left over and no row.
        let [y, by_x, by_weight] = convolved((2, 3), 2, 2, 0);
        assert_eq!(y, [1.0 + 4.0 + 12.0 + 20.0]);
        assert_eq!(by_x, [1.0, 2.0, 0.0, 3.0, 4.0, 0.0]);
        assert_eq!(by_weight, [1.0, 2.0, 4.0, 5.0]);
    }

    #[test]
    fn more_may_be_left_over_than_the_image_has() {
        // One pixel in two zeros on each side is 5 x 5; windows of 3, three apart, leave two over.
        let [y, by_x, by_weight] = convolved((1, 1), 3, 3, 2);
        assert_eq!(y, [9.0]);
        assert_eq!(by_x, [9.0]);
        assert_eq!(by_weight, [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
    }

    #[test]
    fn a_window_of_one_pixel_is_a_product() {
        let values = |shape: (usize, usize, usize, usize)| {
            let count = shape.0 * shape.1 * shape.2 * shape.3;
            let values: Vec<f32> = (0..count).map(|value| (value % 7) as f32 - 3.0).collect();
            Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
        };
        let (x, weight) = (values((2, 3, 5, 4)), values((6, 3, 1, 1)));
        for settings in [[1, 0, 1], [2, 0, 1], [3, 1, 1]] {
            let [found, expected] =
                [&convolution as &Convolution, &any].map(|by| by(&x, &weight, settings).unwrap());
            assert_eq!(found.dims(), expected.dims());
            let values = |tensor: &Tensor| tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
            assert_eq!(values(&found), values(&expected), "{settings:?}");
        }
    }

    #[test]
    fn padding_stays_where_rows_and_columns_differ() {
        // 1 2 / 3 4 / 5 6 in zeros is 5 x 4; windows of 3, two apart, leave a column over: 2 x 1 outputs.
        let [y, by_x, by_weight] = convolved((3, 2), 3, 2, 1);
        assert_eq!(y, [5.0 + 2.0 * 6.0 + 3.0 * 8.0 + 4.0 * 9.0, 79.0]);
        assert_eq!(by_x, [5.0, 6.0, 8.0 + 2.0 * 2.0, 9.0 + 2.0 * 3.0, 2.0 * 5.0, 2.0 * 6.0]);
        assert_eq!(by_weight, [0.0, 6.0, 8.0, 0.0, 1.0 + 10.0, 2.0 + 12.0, 0.0, 3.0, 4.0]);
    }
}
