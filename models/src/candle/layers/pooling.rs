//! Pooling in candle's operations.

use candle_core::{D, Result, Shape, Tensor};

use crate::kernels::pooling::along;

/// The maximum over windows of `size` x `size`, `stride` apart.
///
/// The backward pass of candle's own `max_pool2d` (0.11.1) divides the gradient by the window's area, and loses most of it if
/// rows or columns are left over. Here the windows become a dimension from which the first maximum is gathered, so that the
/// whole gradient goes to that one pixel.
///
/// If `partial`, windows that reach beyond the image repeat its last row and column. That changes no maximum, and the first of
/// equal values, which gets the gradient, is inside the image.
pub(super) fn max(x: &Tensor, size: usize, stride: usize, partial: bool) -> Result<Tensor> {
    let (windows, shape) = windows(x, size, stride, partial)?;
    let first = windows.argmax_keepdim(D::Minus1)?;
    windows.gather(&first, D::Minus1)?.reshape(shape)
}

/// The mean over windows of `size` x `size`, `stride` apart.
pub(super) fn mean(x: &Tensor, size: usize, stride: usize) -> Result<Tensor> {
    let (windows, shape) = windows(x, size, stride, false)?;
    windows.mean(D::Minus1)?.reshape(shape)
}

/// The windows of `[n, c, h, w]` as `[n * c * rows * columns, size * size]`, with the shape they are pooled to.
fn windows(x: &Tensor, size: usize, stride: usize, partial: bool) -> Result<(Tensor, Shape)> {
    let (n, c, height, width) = x.dims4()?;
    let (rows, columns) = (along(height, size, stride, partial), along(width, size, stride, partial));
    let apart = if size == stride && rows * size <= height && columns * size <= width {
        x.narrow(2, 0, rows * size)?.narrow(3, 0, columns * size)?
    } else {
        // Copies every row of every window, then every column, so that overlapping windows become adjacent.
        let places = |count: usize, last: usize| {
            let place =
                move |window: usize| (0..size).map(move |place| (window * stride + place).min(last) as u32);
            Tensor::from_iter((0..count).flat_map(place), x.device())
        };
        let (down, across) = (places(rows, height - 1)?, places(columns, width - 1)?);
        x.contiguous()?.index_select(&down, 2)?.index_select(&across, 3)?
    };
    let windows = apart
        .reshape((n * c, rows, size, columns, size))?
        .permute((0, 1, 3, 2, 4))?
        .reshape((n * c * rows * columns, size * size))?;
    Ok((windows, (n, c, rows, columns).into()))
}

#[cfg(test)]
mod tests {
    use candle_core::{Device, Var};

    use super::*;

    type Pool = fn(&Tensor, usize, usize) -> Result<Tensor>;

    /// What runs on the CPU, and what runs elsewhere.
    const POOLS: [Pool; 1] = [whole];

    fn whole(x: &Tensor, size: usize, stride: usize) -> Result<Tensor> {
        max(x, size, stride, false)
    }

    /// Values and gradient, where each output weighs its position, counted from 1.
    fn pooled(
        pool: Pool,
        input: &[f32],
        shape: (usize, usize, usize, usize),
        (size, stride): (usize, usize),
    ) -> (Vec<f32>, Vec<f32>) {
        let x = Var::from_slice(input, shape, &Device::Cpu).unwrap();
        let y = pool(&x, size, stride).unwrap().flatten_all().unwrap();
        let weights = Tensor::arange(1.0f32, y.elem_count() as f32 + 1.0, &Device::Cpu).unwrap();
        let gradients = (&y * weights).unwrap().sum_all().unwrap().backward().unwrap();
        let gradient = gradients.get(&x).unwrap().flatten_all().unwrap();
        (y.to_vec1().unwrap(), gradient.to_vec1().unwrap())
    }

    #[test]
    fn pooling_takes_maxima_and_drops_what_is_left_over() {
        let input: Vec<f32> = (0u8..15).map(|i| f32::from(i * 7 % 15)).collect();
        // 0 7 14 | 6 13      two windows and a column dropped, a row dropped
        // 5 12 4 | 11 3
        // 10 2 9 | 1 8
        for pool in POOLS {
            let (values, gradient) = pooled(pool, &input, (1, 1, 3, 5), (2, 2));
            assert_eq!(values, [12.0, 14.0]);
            let mut expected = vec![0.0; 15];
            (expected[6], expected[2]) = (1.0, 2.0);
            assert_eq!(gradient, expected);
        }
    }

    #[test]
    fn the_first_of_equal_maxima_gets_the_whole_gradient() {
        for pool in POOLS {
            let (values, gradient) =
                pooled(pool, &[1.0, 3.0, 3.0, 3.0, 0.0, 0.0, 0.0, 0.0], (1, 2, 2, 2), (2, 2));
            assert_eq!(values, [3.0, 0.0]);
            assert_eq!(gradient, [0.0, 1.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0]);
        }
    }

    #[test]
    fn samples_and_channels_stay_apart() {
        let input: Vec<f32> = (0u8..32).map(f32::from).collect();
        for pool in POOLS {
            let (values, _) = pooled(pool, &input, (2, 2, 2, 4), (2, 2));
            assert_eq!(values, [5.0, 7.0, 13.0, 15.0, 21.0, 23.0, 29.0, 31.0]);
        }
    }

    #[test]
    fn windows_that_overlap_add_up_their_gradients() {
        // 0 9 1 2 8 in windows of 3, one apart: 9, 9, 8 with weights 1, 2, 3.
        for pool in POOLS {
            let input = [0.0, 9.0, 1.0, 2.0, 8.0].repeat(3);
            let (values, gradient) = pooled(pool, &input, (1, 1, 3, 5), (3, 1));
            assert_eq!(values, [9.0, 9.0, 8.0]);
            assert_eq!(gradient[..5], [0.0, 3.0, 0.0, 0.0, 3.0]);
            assert!(gradient[5..].iter().all(|&g| g == 0.0));
        }
    }

    #[test]
    fn partial_windows_have_what_there_is_of_them() {
        // -1 -2 -3 / -4 -5 -6 / -7 -8 -9: the last row and column of windows have one pixel or two.
        let input: Vec<f32> = (1u8..10).map(|i| -f32::from(i)).collect();
        let partial: Pool = |x, size, stride| max(x, size, stride, true);
        let (values, gradient) = pooled(partial, &input, (1, 1, 3, 3), (2, 2));
        assert_eq!(values, [-1.0, -3.0, -7.0, -9.0]);
        assert_eq!(gradient, [1.0, 0.0, 2.0, 0.0, 0.0, 0.0, 3.0, 0.0, 4.0]);
    }

    #[test]
    fn means_spread_their_gradients() {
        let input: Vec<f32> = (0u8..15).map(f32::from).collect();
        // 0 1 2 3 4 / 5 6 7 8 9 / ...: windows of 2, two apart, then one row of windows of 3, one apart.
        let (values, gradient) = pooled(mean, &input, (1, 1, 3, 5), (2, 2));
        assert_eq!(values, [3.0, 5.0]);
        let expected = [0.25, 0.25, 0.5, 0.5, 0.0, 0.25, 0.25, 0.5, 0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        assert_eq!(gradient, expected);
        let (values, gradient) = pooled(mean, &input, (1, 1, 3, 5), (3, 1));
        assert_eq!(values, [6.0, 7.0, 8.0]);
        for (found, expected) in gradient.iter().zip([1.0, 3.0, 6.0, 5.0, 3.0].repeat(3)) {
            assert!((found - expected / 9.0).abs() < 1e-6);
        }
    }
}
