//! Convolution in candle's operations.

use candle_core::{Result, Tensor};

/// The convolution of `[n, c, h, w]` with a weight `[out, c / groups, k, k]`, padded with zeros.
///
/// The backward pass of candle's `conv2d` (0.11.1) uses the number of rows that the stride leaves over for columns as well, and
/// subtracts it from the size of the image without its padding. If the two numbers differ or are too large for that, the
/// padding is made part of the image here and the rows and columns left over are cut off.
pub(super) fn convolution(
    x: &Tensor,
    weight: &Tensor,
    [stride, padding, groups]: [usize; 3],
) -> Result<Tensor> {
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

#[cfg(test)]
mod tests {
    use candle_core::{Device, Var};

    use super::*;

    /// The output and the gradients of image and weight, if each output weighs its position, counted from 1.
    fn convolved(
        (height, width): (usize, usize),
        kernel: usize,
        stride: usize,
        padding: usize,
    ) -> [Vec<f32>; 3] {
        let counted = |shape: (usize, usize, usize, usize)| {
            let count = shape.0 * shape.1 * shape.2 * shape.3;
            let values: Vec<f32> = (1..=count).map(|value| value as f32).collect();
            Var::from_slice(&values, shape, &Device::Cpu).unwrap()
        };
        let (x, weight) = (counted((1, 1, height, width)), counted((1, 1, kernel, kernel)));
        let y = convolution(&x, &weight, [stride, padding, 1]).unwrap().flatten_all().unwrap();
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
    fn padding_stays_where_rows_and_columns_differ() {
        // 1 2 / 3 4 / 5 6 in zeros is 5 x 4; windows of 3, two apart, leave a column over: 2 x 1 outputs.
        let [y, by_x, by_weight] = convolved((3, 2), 3, 2, 1);
        assert_eq!(y, [5.0 + 2.0 * 6.0 + 3.0 * 8.0 + 4.0 * 9.0, 79.0]);
        assert_eq!(by_x, [5.0, 6.0, 8.0 + 2.0 * 2.0, 9.0 + 2.0 * 3.0, 2.0 * 5.0, 2.0 * 6.0]);
        assert_eq!(by_weight, [0.0, 6.0, 8.0, 0.0, 1.0 + 10.0, 2.0 + 12.0, 0.0, 3.0, 4.0]);
    }
}
