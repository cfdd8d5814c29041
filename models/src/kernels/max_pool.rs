//! The maximum over windows.

use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor, bail};

use super::{values, with_values};

/// The maximum over windows of `size` x `size`, `stride` apart, on the CPU: `[n, c, h, w]` to `[n, c, h', w']` with
/// `h' = (h - size) / stride + 1` rounded down, and 0 if no window fits. The first of equal maxima, by rows, gets the
/// gradient. NaN is larger than all.
///
/// Nothing is kept for the backward pass but the input, in which the maxima are searched again.
pub(crate) fn max_pool(x: &Tensor, size: usize, stride: usize) -> Result<Tensor> {
    if size == 0 || stride == 0 {
        bail!("windows without pixels have no maximum, and windows in one place no end");
    }
    x.contiguous()?.apply_op1(MaxPool { size, stride })
}

struct MaxPool {
    size: usize,
    stride: usize,
}

impl MaxPool {
    /// Calls `found` with the index of each window's maximum, by planes, rows and columns of windows.
    fn maxima(&self, x: &[f32], (height, width): (usize, usize), found: impl FnMut(usize)) {
        // The usual sizes are known to the compiler, which unrolls them.
        match (self.size, self.stride) {
            (2, 2) => maxima(x, height, width, 2, 2, found),
            (3, 3) => maxima(x, height, width, 3, 3, found),
            (size, stride) => maxima(x, height, width, size, stride, found),
        }
    }
}

/// The windows that fit along an axis.
fn windows(extent: usize, size: usize, stride: usize) -> usize {
    extent.checked_sub(size).map_or(0, |room| room / stride + 1)
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "a size known to the compiler makes it three times as fast")]
fn maxima(x: &[f32], height: usize, width: usize, size: usize, stride: usize, mut found: impl FnMut(usize)) {
    let (rows, columns) = (windows(height, size, stride), windows(width, size, stride));
    for (plane, pixels) in x.chunks_exact((height * width).max(1)).enumerate() {
        for row in 0..rows {
            for column in 0..columns {
                let corner = (row * width + column) * stride;
                let (mut best, mut maximum) = (corner, pixels[corner]);
                for down in 0..size {
                    let start = corner + down * width;
                    for (across, &value) in pixels[start..start + size].iter().enumerate() {
                        if value > maximum || value.is_nan() {
                            (best, maximum) = (start + across, value);
                        }
                    }
                }
                found(plane * height * width + best);
            }
        }
    }
}

impl CustomOp1 for MaxPool {
    fn name(&self) -> &'static str {
        "max-pool"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let (n, c, height, width) = layout.shape().dims4()?;
        let x = values(x, layout)?;
        let windows = |extent| windows(extent, self.size, self.stride);
        let shape = (n, c, windows(height), windows(width));
        let mut y = Vec::with_capacity(n * c * shape.2 * shape.3);
        self.maxima(x, (height, width), |index| y.push(x[index]));
        Ok((CpuStorage::F32(y), shape.into()))
    }

    fn bwd(&self, x: &Tensor, _result: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        let (_, _, height, width) = x.dims4()?;
        let mut for_x = vec![0.0f32; x.elem_count()];
        with_values(x, |x| {
            with_values(gradient, |gradient| {
                let mut gradient = gradient.iter();
                self.maxima(x, (height, width), |index| {
                    for_x[index] += *gradient.next().expect("there are as many gradients as windows");
                });
            })
        })??;
        Tensor::from_vec(for_x, x.shape(), x.device()).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    #[test]
    fn nan_does_not_hide() {
        for place in 0..9 {
            let mut input = [0.0f32, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
            input[place] = f32::NAN;
            let x = Tensor::from_slice(&input, (1, 1, 3, 3), &Device::Cpu).unwrap();
            let y = max_pool(&x, 3, 3).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
            assert!(y[0].is_nan(), "{place}");
        }
    }

    #[test]
    fn windows_must_have_pixels() {
        let x = Tensor::new(&[[[[1.0f32]]]], &Device::Cpu).unwrap();
        assert!(max_pool(&x, 0, 1).is_err());
        assert!(max_pool(&x, 1, 0).is_err());
        // No window fits: nothing comes out.
        assert_eq!(max_pool(&x, 2, 1).unwrap().dims(), [1, 1, 0, 0]);
    }
}
