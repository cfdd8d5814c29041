//! What each kind of layer computes, in candle's operations.

use candle_core::{D, Result, Tensor, Var};

use crate::architecture::Layer;
use crate::cpu::Mode;

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

    pub(super) fn forward(&self, x: &Tensor, _mode: Mode) -> Result<Tensor> {
        match self {
            Self::Conv { weight, bias, stride, padding } => {
                let y = x.conv2d(weight, *padding, *stride, 1, 1)?;
                match bias {
                    Some(bias) => y.broadcast_add(&bias.reshape((1, bias.elem_count(), 1, 1))?),
                    None => Ok(y),
                }
            }
            Self::Linear { weight, bias } => {
                let y = x.matmul(&weight.t()?)?;
                match bias {
                    Some(bias) => y.broadcast_add(bias),
                    None => Ok(y),
                }
            }
            Self::Relu => x.relu(),
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

    const POOLS: [Pool; 1] = [max_pool];

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
}
