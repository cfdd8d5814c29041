//! The rectifier, `max(x, 0)`.

use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor};

use super::{values, with_values};

/// `max(x, 0)` on the CPU. The gradient at 0 is 0, as in `PyTorch`, and NaN stays NaN.
///
/// candle's own (0.11.1) takes six passes for the gradient, and lets it through at 0.
pub(crate) fn relu(x: &Tensor) -> Result<Tensor> {
    x.contiguous()?.apply_op1(Relu)
}

struct Relu;

impl CustomOp1 for Relu {
    fn name(&self) -> &'static str {
        "relu"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let y = values(x, layout)?.iter().map(|&x| if x < 0.0 { 0.0 } else { x }).collect();
        Ok((CpuStorage::F32(y), layout.shape().clone()))
    }

    fn bwd(&self, _x: &Tensor, result: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        let for_x = with_values(result, |y| {
            with_values(gradient, |gradient| {
                y.iter().zip(gradient).map(|(&y, &g)| if y > 0.0 { g } else { 0.0 }).collect::<Vec<f32>>()
            })
        })??;
        Tensor::from_vec(for_x, result.shape(), result.device()).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{Device, Var};

    use super::*;

    #[test]
    fn the_gradient_passes_where_the_input_is_positive() {
        let x = Var::new(&[[-1.0f32, 2.0], [0.0, 0.5], [f32::NEG_INFINITY, f32::INFINITY]], &Device::Cpu)
            .unwrap();
        let weights = Tensor::new(&[[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]], &Device::Cpu).unwrap();
        let y = relu(&x.t().unwrap()).unwrap();
        let list = |tensor: &Tensor| tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        assert_eq!(list(&y), [0.0, 0.0, 0.0, 2.0, 0.5, f32::INFINITY]);
        let gradients =
            (relu(&x.t().unwrap()).unwrap() * weights).unwrap().sum_all().unwrap().backward().unwrap();
        assert_eq!(list(gradients.get(&x).unwrap()), [0.0, 4.0, 0.0, 5.0, 0.0, 6.0]);
    }

    #[test]
    fn nan_does_not_hide() {
        let y = relu(&Tensor::new(&[f32::NAN], &Device::Cpu).unwrap()).unwrap();
        assert!(y.to_vec1::<f32>().unwrap()[0].is_nan());
    }
}
