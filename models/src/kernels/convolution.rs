//! Two-dimensional convolution as matrix products over small groups of images.
//!
//! The columns of all images at once would be larger than the images by the area of the kernel, and leave every cache.
//! So a group of images is taken through all its passes at a time, and the backward pass makes the columns again: that
//! costs less than to keep and fetch them.

use candle_core::{CpuStorage, CustomOp2, CustomOp3, Device, Layout, Result, Shape, Tensor};

use super::im2col::Geometry;
use super::{sum, values, with_values};

/// The most values in the columns of a group of more than one image: 1 MiB, about what a core has for itself.
const GROUP: usize = 1 << 18;

/// The convolution of images `[n, channels, height, width]` with weights `[out, channels, kernel, kernel]`, on the CPU:
/// `[n, out, rows, columns]`, plus a bias `[out]` per channel.
pub(crate) fn conv2d(
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    stride: usize,
    padding: usize,
) -> Result<Tensor> {
    let (samples, kernels) = (x.dims4()?, weight.dims4()?);
    let geometry = Geometry::new(samples, kernels, stride, padding)?;
    let convolution = Convolution { geometry, samples: samples.0, out: kernels.0 };
    let (x, weight) = (x.contiguous()?, weight.contiguous()?);
    match bias {
        Some(bias) => x.apply_op3(&weight, &bias.contiguous()?, convolution),
        None => x.apply_op2(&weight, convolution),
    }
}

#[derive(Clone, Copy, Debug)]
struct Convolution {
    geometry: Geometry,
    samples: usize,
    out: usize,
}

/// What flows back to the arguments.
struct Gradients {
    /// Absent if nothing before the convolution has parameters.
    x: Option<Tensor>,
    weight: Tensor,
    bias: Tensor,
}

impl Convolution {
    /// The groups as their first image and their number of images. They depend on nothing but the shapes, and with them
    /// the order of all sums.
    fn groups(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let samples = self.samples;
        let size = (GROUP / (self.geometry.taps() * self.geometry.places()).max(1)).max(1);
        (0..samples).step_by(size).map(move |first| (first, size.min(samples - first)))
    }

    /// The columns of a group, `[taps, count * places]`.
    fn columns(&self, x: &[f32], first: usize, count: usize) -> Result<Tensor> {
        let image = self.geometry.image();
        let columns = self.geometry.gather(&x[first * image..(first + count) * image], count);
        Tensor::from_vec(columns, (self.geometry.taps(), count * self.geometry.places()), &Device::Cpu)
    }

    /// Where the places of one image and channel begin in `[n, out, places]` and in the `[out, count * places]` of a
    /// group, for each in turn, with the channel.
    fn planes(&self, first: usize, count: usize) -> impl Iterator<Item = (usize, usize, usize)> + use<> {
        let (out, places) = (self.out, self.geometry.places());
        (0..out).flat_map(move |channel| {
            (0..count).map(move |image| {
                let in_batch = (first + image) * out + channel;
                (channel, in_batch * places, (channel * count + image) * places)
            })
        })
    }

    fn forward(&self, x: &[f32], weight: &[f32], bias: Option<&[f32]>) -> Result<(CpuStorage, Shape)> {
        let places = self.geometry.places();
        let weight = Tensor::from_slice(weight, (self.out, self.geometry.taps()), &Device::Cpu)?;
        let mut y = vec![0.0f32; self.samples * self.out * places];
        for (first, count) in self.groups() {
            let product = weight.matmul(&self.columns(x, first, count)?)?;
            with_values(&product, |product| {
                for (channel, to, from) in self.planes(first, count) {
                    let bias = bias.map_or(0.0, |bias| bias[channel]);
                    let from = &product[from..from + places];
                    y[to..to + places].iter_mut().zip(from).for_each(|(to, from)| *to = from + bias);
                }
            })?;
        }
        let shape = (self.samples, self.out, self.geometry.rows, self.geometry.columns);
        Ok((CpuStorage::F32(y), shape.into()))
    }

    /// With `C` the columns, `W` the weights and `G` the gradient of the result: `G C^T` for the weights, the sums of the
    /// rows of `G` for the bias, and `W^T G`, scattered, for the images.
    fn backward(&self, x: &Tensor, weight: &Tensor, gradient: &Tensor) -> Result<Gradients> {
        let (geometry, places) = (self.geometry, self.geometry.places());
        let image = geometry.image();
        let matrix = weight.detach().reshape((self.out, geometry.taps()))?;
        let mut for_weight: Option<Tensor> = None;
        let mut for_bias = vec![0.0f32; self.out];
        let mut for_x = x.track_op().then(|| vec![0.0f32; self.samples * image]);
        for (first, count) in self.groups() {
            let gradient = with_values(gradient, |gradient| {
                let mut group = vec![0.0f32; self.out * count * places];
                for (channel, from, to) in self.planes(first, count) {
                    let from = &gradient[from..from + places];
                    group[to..to + places].copy_from_slice(from);
                    for_bias[channel] += sum(from);
                }
                Tensor::from_vec(group, (self.out, count * places), &Device::Cpu)
            })??;
            let columns = with_values(x, |x| self.columns(x, first, count))??;
            let part = gradient.matmul(&columns.t()?)?;
            for_weight = Some(match for_weight {
                Some(sum) => (sum + part)?,
                None => part,
            });
            if let Some(for_x) = &mut for_x {
                let images = &mut for_x[first * image..(first + count) * image];
                let columns = matrix.t()?.matmul(&gradient)?;
                with_values(&columns, |columns| geometry.scatter(columns, count, images))?;
            }
        }
        let weight = match for_weight {
            Some(sum) => sum.reshape(weight.shape())?,
            None => weight.zeros_like()?,
        };
        Ok(Gradients {
            x: for_x.map(|values| Tensor::from_vec(values, x.shape(), &Device::Cpu)).transpose()?,
            weight,
            bias: Tensor::from_vec(for_bias, self.out, &Device::Cpu)?,
        })
    }
}

impl CustomOp2 for Convolution {
    fn name(&self) -> &'static str {
        "convolution"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_layout: &Layout,
        weight: &CpuStorage,
        weight_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        self.forward(values(x, x_layout)?, values(weight, weight_layout)?, None)
    }

    fn bwd(
        &self,
        x: &Tensor,
        weight: &Tensor,
        _result: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let gradients = self.backward(x, weight, gradient)?;
        Ok((gradients.x, Some(gradients.weight)))
    }
}

impl CustomOp3 for Convolution {
    fn name(&self) -> &'static str {
        "convolution with bias"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        x_layout: &Layout,
        weight: &CpuStorage,
        weight_layout: &Layout,
        bias: &CpuStorage,
        bias_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let bias = values(bias, bias_layout)?;
        self.forward(values(x, x_layout)?, values(weight, weight_layout)?, Some(bias))
    }

    fn bwd(
        &self,
        x: &Tensor,
        weight: &Tensor,
        _bias: &Tensor,
        _result: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let gradients = self.backward(x, weight, gradient)?;
        Ok((gradients.x, Some(gradients.weight), Some(gradients.bias)))
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Var;
    use proptest::prelude::*;

    use super::*;

    /// Deterministic values without pattern in [-1, 1).
    fn noise(count: usize, seed: u32) -> Vec<f32> {
        let mut state = seed.wrapping_mul(2_654_435_769).wrapping_add(1);
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        (0..count).map(|_| next()).collect()
    }

    fn variable(shape: &[usize], seed: u32) -> Var {
        Var::from_vec(noise(shape.iter().product(), seed), shape, &Device::Cpu).unwrap()
    }

    /// The result and the gradients of `sum(result * weights)` by some variables.
    fn run(y: &Tensor, by: &[&Var]) -> Vec<Vec<f32>> {
        let weights = Tensor::from_vec(noise(y.elem_count(), 99), y.shape(), &Device::Cpu).unwrap();
        let gradients = (y * weights).unwrap().sum_all().unwrap().backward().unwrap();
        let list = |tensor: &Tensor| tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        let mut lists = vec![list(y)];
        lists.extend(by.iter().map(|variable| list(gradients.get(variable).unwrap())));
        lists
    }

    fn assert_close(found: &[Vec<f32>], expected: &[Vec<f32>]) {
        for (found, expected) in found.iter().zip(expected) {
            assert_eq!(found.len(), expected.len());
            for (found, expected) in found.iter().zip(expected) {
                assert!((found - expected).abs() < 1e-4 * (1.0 + expected.abs()), "{found} {expected}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn values_and_gradients_are_those_of_candle(
            samples in 1usize..4, channels in 1usize..4, out in 1usize..5, kernel in 1usize..6, stride in 1usize..4,
            padding in 0usize..5, rows in 1usize..5, columns in 1usize..5, left in 0usize..3, with_bias: bool,
        ) {
            // candle's backward pass wants the same rest on both axes, less than the stride and than the input.
            let (padding, left) = (padding.min(kernel - 1), left.min(stride - 1));
            let extent = |outputs: usize| ((outputs - 1) * stride + kernel + left).checked_sub(2 * padding);
            let (Some(height @ 1..), Some(width @ 1..)) = (extent(rows), extent(columns)) else {
                return Err(TestCaseError::reject("nothing but padding"));
            };
            prop_assume!(left < height && left < width);
            let x = variable(&[samples, channels, height, width], 1);
            let weight = variable(&[out, channels, kernel, kernel], 2);
            let bias = variable(&[out], 3);
            let ours = conv2d(&x, &weight, with_bias.then_some(&bias), stride, padding).unwrap();
            prop_assert_eq!(ours.dims(), [samples, out, rows, columns]);
            let mut theirs = x.conv2d(&weight, padding, stride, 1, 1).unwrap();
            let mut by = vec![&x, &weight];
            if with_bias {
                theirs = theirs.broadcast_add(&bias.reshape((1, out, 1, 1)).unwrap()).unwrap();
                by.push(&bias);
            }
            assert_close(&run(&ours, &by), &run(&theirs, &by));
        }
    }

    #[test]
    fn gradients_are_central_differences() {
        // Unlike candle's own, with different rests on the two axes. The result is linear in each argument, so that
        // wide steps are exact but for rounding.
        let shapes: [&[usize]; 3] = [&[2, 2, 6, 5], &[3, 2, 3, 3], &[3]];
        let variables: Vec<Var> = shapes.iter().zip(1..).map(|(shape, seed)| variable(shape, seed)).collect();
        let result = |variables: &[Var]| {
            let y = conv2d(&variables[0], &variables[1], Some(&variables[2]), 2, 1).unwrap();
            run(&y, &variables.iter().collect::<Vec<_>>())
        };
        let lists = result(&variables);
        let weights = noise(lists[0].len(), 99);
        for (which, shape) in shapes.iter().enumerate() {
            let values = noise(shape.iter().product(), which as u32 + 1);
            for index in 0..values.len() {
                let at = |offset: f32| {
                    let mut moved = values.clone();
                    moved[index] += offset;
                    let mut variables = variables.clone();
                    variables[which] = Var::from_vec(moved, *shape, &Device::Cpu).unwrap();
                    result(&variables)[0].iter().zip(&weights).map(|(y, w)| f64::from(y * w)).sum::<f64>()
                };
                let expected = (at(0.5) - at(-0.5)) as f32;
                let found = lists[which + 1][index];
                assert!((found - expected).abs() < 1e-4, "argument {which}[{index}]: {found} {expected}");
            }
        }
    }

    #[test]
    fn groups_do_not_show() {
        // 900 places and 75 taps: three images to a group, so seven make groups of 3, 3 and 1.
        let (x, weight, bias) = (variable(&[7, 3, 30, 30], 1), variable(&[4, 3, 5, 5], 2), variable(&[4], 3));
        let whole = conv2d(&x, &weight, Some(&bias), 1, 2).unwrap();
        let operation = Convolution {
            geometry: Geometry::new((7, 3, 30, 30), (4, 3, 5, 5), 1, 2).unwrap(),
            samples: 7,
            out: 4,
        };
        assert_eq!(operation.groups().collect::<Vec<_>>(), [(0, 3), (3, 3), (6, 1)]);
        let theirs = x.conv2d(&weight, 2, 1, 1, 1).unwrap();
        let theirs = theirs.broadcast_add(&bias.reshape((1, 4, 1, 1)).unwrap()).unwrap();
        let by = [&x, &weight, &bias];
        assert_close(&run(&whole, &by), &run(&theirs, &by));
    }

    #[test]
    fn samples_get_no_gradient_unless_something_before_them_learns() {
        let (x, weight, bias) = (variable(&[1, 1, 4, 4], 1), variable(&[1, 1, 3, 3], 2), variable(&[1], 3));
        let sample = x.as_detached_tensor();
        let operation = Convolution {
            geometry: Geometry::new((1, 1, 4, 4), (1, 1, 3, 3), 1, 0).unwrap(),
            samples: 1,
            out: 1,
        };
        let gradient = Tensor::ones((1, 1, 2, 2), candle_core::DType::F32, &Device::Cpu).unwrap();
        assert!(operation.backward(&sample, &weight, &gradient).unwrap().x.is_none());
        assert!(operation.backward(&x, &weight, &gradient).unwrap().x.is_some());
        // A view is as good as a copy.
        let turned = |x: &Tensor| x.t().unwrap();
        let view = conv2d(&turned(&sample), &weight, Some(&bias), 1, 0).unwrap();
        let copy = conv2d(&turned(&sample).force_contiguous().unwrap(), &weight, Some(&bias), 1, 0).unwrap();
        let list = |tensor: Tensor| tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        assert_eq!(list(view), list(copy));
    }
}
