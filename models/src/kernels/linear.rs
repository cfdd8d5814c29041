//! Fully connected layers.

use candle_core::{CpuStorage, CustomOp3, Layout, Result, Shape, Tensor};

use super::values;

/// `y = x W^T + b` on the CPU, for `x` of `[n, in]`, `W` of `[out, in]` and `b` of `[out]`.
///
/// candle differentiates the product and its transposition one by one. That adds up the gradient of the weights across
/// their rows, and computes one for samples, which nobody wants.
pub(crate) fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    // Computed outside of the graph, from the weights where they are: inside of an operation they would have to be copied.
    let product = x.detach().matmul(&weight.detach().t()?)?;
    let y = product.apply_op3(x, weight, Linear)?;
    match bias {
        Some(bias) => y.broadcast_add(bias),
        None => Ok(y),
    }
}

/// Gives the product `x W^T` a gradient.
struct Linear;

impl CustomOp3 for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn cpu_fwd(
        &self,
        product: &CpuStorage,
        layout: &Layout,
        _x: &CpuStorage,
        _x_layout: &Layout,
        _weight: &CpuStorage,
        _weight_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        Ok((CpuStorage::F32(values(product, layout)?.to_vec()), layout.shape().clone()))
    }

    /// With `G` the gradient of the result: `G W` for `x`, if anything before it learns, and `G^T x` for the weights.
    fn bwd(
        &self,
        _product: &Tensor,
        x: &Tensor,
        weight: &Tensor,
        _result: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let for_x = if x.track_op() { Some(gradient.matmul(&weight.detach())?) } else { None };
        let for_weight = gradient.t()?.matmul(&x.detach())?;
        Ok((None, for_x, Some(for_weight)))
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{Device, Var};

    use super::*;

    #[test]
    fn values_and_gradients_are_those_of_candle() {
        let variable = |shape: &[usize], factor: f32| {
            let count = shape.iter().product::<usize>() as u8;
            let values = (0..count).map(|i| (f32::from(i) * 37.0 % 101.0) * factor - 1.0).collect();
            Var::from_vec(values, shape, &Device::Cpu).unwrap()
        };
        let (x, weight, bias) = (variable(&[3, 5], 0.02), variable(&[4, 5], 0.03), variable(&[4], 0.01));
        let run = |y: Tensor| {
            // The square makes the gradient depend on the result.
            let gradients = y.sqr().unwrap().sum_all().unwrap().backward().unwrap();
            let list = |tensor: &Tensor| tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
            [&x, &weight, &bias].map(|variable| list(gradients.get(variable).unwrap())).concat()
        };
        let theirs = x.matmul(&weight.t().unwrap()).unwrap().broadcast_add(&bias).unwrap();
        let ours = linear(&x, &weight, Some(&bias)).unwrap();
        assert_eq!(ours.to_vec2::<f32>().unwrap(), theirs.to_vec2::<f32>().unwrap());
        for (ours, theirs) in run(ours).iter().zip(run(theirs)) {
            assert!((ours - theirs).abs() < 1e-5, "{ours} {theirs}");
        }
    }

    #[test]
    fn samples_get_no_gradient() {
        let weight = Var::new(&[[1.0f32, 2.0]], &Device::Cpu).unwrap();
        let x = Tensor::new(&[[3.0f32, 4.0]], &Device::Cpu).unwrap();
        let gradient = Tensor::new(&[[1.0f32]], &Device::Cpu).unwrap();
        let (product, for_x, for_weight) = Linear.bwd(&gradient, &x, &weight, &gradient, &gradient).unwrap();
        assert!(product.is_none() && for_x.is_none());
        assert_eq!(for_weight.unwrap().to_vec2::<f32>().unwrap(), [[3.0, 4.0]]);
    }
}
