//! What each kind of layer computes, in candle's operations.

use candle_core::{D, Result, Tensor, Var};

use crate::architecture::Layer;
use crate::kernels;

/// A layer with its variables.
#[derive(Debug)]
pub(crate) enum Step {
    Conv { weight: Var, bias: Option<Var>, stride: usize, padding: usize },
    Linear { weight: Var, bias: Option<Var> },
    Relu,
    MaxPool { size: usize },
    Flatten,
}

impl Step {
    /// Takes a layer's variables from `variable`, by their kind: `weight` or `bias`.
    pub(crate) fn new(layer: &Layer, variable: impl Fn(&str) -> Option<Var>) -> Self {
        let weight = || variable("weight").expect("the parameters were checked against the architecture");
        match *layer {
            Layer::Conv { stride, padding, .. } => {
                Self::Conv { weight: weight(), bias: variable("bias"), stride, padding }
            }
            Layer::Linear { .. } => Self::Linear { weight: weight(), bias: variable("bias") },
            Layer::Relu => Self::Relu,
            Layer::MaxPool { size, .. } => Self::MaxPool { size },
            Layer::Flatten => Self::Flatten,
        }
    }

    /// Moves rectifiers behind the pooling that follows them, where they have fewer values to go over. The rectifier keeps
    /// order, so values and gradients stay the same: the maximum of a window is found in the same place, and where it is
    /// not positive no gradient passes either way. (candle's rectifier, used off the CPU, lets one through at exactly 0.)
    pub(crate) fn pool_first(steps: &mut [Self]) {
        for second in 1..steps.len() {
            if matches!(steps[second - 1..=second], [Self::Relu, Self::MaxPool { .. }]) {
                steps.swap(second - 1, second);
            }
        }
    }

    pub(crate) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let cpu = x.device().is_cpu();
        match self {
            Self::Conv { weight, bias, stride, padding } if cpu => {
                kernels::conv2d(x, weight, bias.as_deref(), *stride, *padding)
            }
            Self::Conv { weight, bias, stride, padding } => {
                let y = x.conv2d(weight, *padding, *stride, 1, 1)?;
                match bias {
                    Some(bias) => y.broadcast_add(&bias.reshape((1, bias.elem_count(), 1, 1))?),
                    None => Ok(y),
                }
            }
            Self::Linear { weight, bias } if cpu => kernels::linear(x, weight, bias.as_deref()),
            Self::Linear { weight, bias } => {
                let y = x.matmul(&weight.t()?)?;
                match bias {
                    Some(bias) => y.broadcast_add(bias),
                    None => Ok(y),
                }
            }
            Self::Relu if cpu => kernels::relu(x),
            Self::Relu => x.relu(),
            Self::MaxPool { size } if cpu => kernels::max_pool(x, *size),
            Self::MaxPool { size } => max_pool(x, *size),
            Self::Flatten => x.flatten_from(1),
        }
    }
}

/// The maximum over windows of `size` x `size` that do not overlap.
///
/// Not candle's own `max_pool2d`: the backward pass of that (0.11.1) divides the gradient by the window's area, and loses
/// most of it if rows or columns are left over. Here the windows are made a dimension and the first maximum is gathered
/// from it, so that the gradient goes back whole to the one place it came from.
fn max_pool(x: &Tensor, size: usize) -> Result<Tensor> {
    let (n, c, h, w) = x.dims4()?;
    let (rows, columns) = (h / size, w / size);
    let windows = x
        .narrow(2, 0, rows * size)?
        .narrow(3, 0, columns * size)?
        .reshape((n * c, rows, size, columns, size))?
        .permute((0, 1, 3, 2, 4))?
        .reshape((n * c * rows * columns, size * size))?;
    let first = windows.argmax_keepdim(D::Minus1)?;
    windows.gather(&first, D::Minus1)?.reshape((n, c, rows, columns))
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    type Pool = fn(&Tensor, usize) -> Result<Tensor>;

    /// What runs on the CPU, and what runs elsewhere.
    const POOLS: [Pool; 2] = [kernels::max_pool, max_pool];

    /// Values and gradient, where each output weighs its position, counted from 1.
    fn pooled(
        pool: Pool,
        input: &[f32],
        shape: (usize, usize, usize, usize),
        size: usize,
    ) -> (Vec<f32>, Vec<f32>) {
        let x = Var::from_slice(input, shape, &Device::Cpu).unwrap();
        let y = pool(&x, size).unwrap().flatten_all().unwrap();
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
            let (values, gradient) = pooled(pool, &input, (1, 1, 3, 5), 2);
            assert_eq!(values, [12.0, 14.0]);
            let mut expected = vec![0.0; 15];
            (expected[6], expected[2]) = (1.0, 2.0);
            assert_eq!(gradient, expected);
        }
    }

    #[test]
    fn the_first_of_equal_maxima_gets_the_whole_gradient() {
        for pool in POOLS {
            let (values, gradient) = pooled(pool, &[1.0, 3.0, 3.0, 3.0, 0.0, 0.0, 0.0, 0.0], (1, 2, 2, 2), 2);
            assert_eq!(values, [3.0, 0.0]);
            assert_eq!(gradient, [0.0, 1.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0]);
        }
    }

    #[test]
    fn samples_and_channels_stay_apart() {
        let input: Vec<f32> = (0u8..32).map(f32::from).collect();
        for pool in POOLS {
            let (values, _) = pooled(pool, &input, (2, 2, 2, 4), 2);
            assert_eq!(values, [5.0, 7.0, 13.0, 15.0, 21.0, 23.0, 29.0, 31.0]);
        }
    }

    #[test]
    fn both_ways_to_pool_agree() {
        // Small integers, so that there are many equal maxima; every size and rest.
        for (size, height, width) in (1..=4).flat_map(|size| [(size, 8, 11), (size, 9, 4), (size, 7, 7)]) {
            let input: Vec<f32> = (0..2 * 3 * height * width).map(|i| (i * i * 31 % 7) as f32).collect();
            let [ours, theirs] = POOLS.map(|pool| pooled(pool, &input, (2, 3, height, width), size));
            assert_eq!(ours, theirs, "{size} {height} {width}");
        }
    }

    #[test]
    fn pooling_first_changes_neither_values_nor_gradients() {
        let pool = |size| Layer::MaxPool { size, stride: size };
        let layers = [Layer::Relu, pool(2), pool(3), Layer::Relu, Layer::Flatten];
        let mut steps = layers.map(|layer| Step::new(&layer, |_| None));
        let run = |steps: &[Step]| {
            // Integers around zero: windows without a positive value, and equal maxima.
            let input: Vec<f32> = (0..2 * 12 * 12).map(|i| (i * i * 17 % 11) as f32 - 8.0).collect();
            let x = Var::from_vec(input, (1, 2, 12, 12), &Device::Cpu).unwrap();
            let y = steps.iter().try_fold(x.as_tensor().clone(), |x, step| step.forward(&x)).unwrap();
            let gradients = y.sqr().unwrap().sum_all().unwrap().backward().unwrap();
            let list = |tensor: &Tensor| tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
            (list(&y), list(gradients.get(&x).unwrap()))
        };
        let before = run(&steps);
        assert!(before.1.iter().any(|&g| g != 0.0));
        Step::pool_first(&mut steps);
        let kinds = steps.each_ref().map(|step| matches!(step, Step::Relu));
        assert_eq!(kinds, [false, false, true, true, false]);
        assert_eq!(run(&steps), before);
    }
}
