//! Embedding and LSTM in candle's operations.

use candle_core::{Result, Tensor};

use super::{FAILED, linear};
use crate::error::ModelError;
use crate::token::check_token;

/// An embedding table: one vector per token.
#[derive(Debug)]
pub(crate) struct Embedding {
    pub(super) weight: Tensor,
    pub(super) vocabulary: usize,
}

impl Embedding {
    /// `[n, t]` of tokens to `[n, t, dim]`.
    pub(super) fn forward(&self, x: &Tensor) -> std::result::Result<Tensor, ModelError> {
        // On the host: a GPU would read out of bounds instead of failing.
        let tokens = x.flatten_all().and_then(|x| x.to_vec1::<f32>()).map_err(FAILED)?;
        let tokens = tokens
            .iter()
            .map(|&token| check_token(token, self.vocabulary))
            .collect::<std::result::Result<Vec<u32>, _>>()?;
        let look_up = || {
            let tokens = Tensor::from_vec(tokens, x.elem_count(), x.device())?;
            self.weight.index_select(&tokens, 0)?.reshape((x.dim(0)?, x.dim(1)?, self.weight.dim(1)?))
        };
        look_up().map_err(FAILED)
    }
}

/// An LSTM.
#[derive(Debug)]
pub(crate) struct Lstm {
    pub(super) weight_ih: Tensor,
    pub(super) weight_hh: Tensor,
    pub(super) bias: Tensor,
}

impl Lstm {
    /// `[n, t, d]` to `[n, t, hidden]`.
    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (n, positions, _) = x.dims3()?;
        let hidden = self.weight_hh.dim(1)?;
        let from_input = linear(x, &self.weight_ih, Some(&self.bias))?;
        let mut h = Tensor::zeros((n, hidden), x.dtype(), x.device())?;
        let mut c = h.clone();
        let mut states = Vec::with_capacity(positions);
        for position in 0..positions {
            let gates =
                (from_input.narrow(1, position, 1)?.squeeze(1)? + linear(&h, &self.weight_hh, None)?)?;
            let gate = |index: usize| gates.narrow(1, index * hidden, hidden);
            let [i, f, o] = [gate(0)?, gate(1)?, gate(3)?].map(|gate| candle_nn::ops::sigmoid(&gate));
            c = ((f? * &c)? + (i? * gate(2)?.tanh()?)?)?;
            h = (o? * c.tanh()?)?;
            states.push(h.clone());
        }
        Tensor::stack(&states, 1)
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{Device, Var};

    use super::*;

    #[test]
    fn tokens_look_up_rows_and_leave_their_gradient_there() {
        let weight = Var::new(&[[1.0f32, 2.0], [3.0, 4.0], [5.0, 6.0]], &Device::Cpu).unwrap();
        let embedding = Embedding { weight: weight.as_tensor().clone(), vocabulary: 3 };
        let x = Tensor::new(&[[2.0f32, 0.0], [2.0, 2.0]], &Device::Cpu).unwrap();
        let y = embedding.forward(&x).unwrap();
        assert_eq!(y.to_vec3::<f32>().unwrap(), [[[5.0, 6.0], [1.0, 2.0]], [[5.0, 6.0], [5.0, 6.0]]]);
        let weights = Tensor::arange(1.0f32, 9.0, &Device::Cpu).unwrap().reshape((2, 2, 2)).unwrap();
        let gradients = (y * weights).unwrap().sum_all().unwrap().backward().unwrap();
        let gradient = gradients.get(&embedding.weight).unwrap();
        assert_eq!(gradient.to_vec2::<f32>().unwrap(), [[3.0, 4.0], [0.0, 0.0], [13.0, 16.0]]);
    }

    #[test]
    fn a_memory_of_one_unit_by_hand() {
        // Two inputs, one unit, gates i, f, g, o.
        let weight_ih = [[0.5f32, -1.0], [0.25, 0.75], [1.5, 0.5], [-0.5, 1.0]];
        let (weight_hh, bias) = ([[0.3f32], [-0.6], [0.9], [0.2]], [0.1f32, 0.2, -0.3, 0.4]);
        let lstm = Lstm {
            weight_ih: Tensor::new(&weight_ih, &Device::Cpu).unwrap(),
            weight_hh: Tensor::new(&weight_hh, &Device::Cpu).unwrap(),
            bias: Tensor::new(&bias, &Device::Cpu).unwrap(),
        };
        let x = [[1.0f32, 2.0], [-0.5, 0.3], [0.7, -1.1]];
        let y = lstm.forward(&Tensor::new(&[x], &Device::Cpu).unwrap()).unwrap();
        assert_eq!(y.dims(), [1, 3, 1]);
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let (mut h, mut c) = (0.0f64, 0.0f64);
        for (x, found) in x.iter().zip(y.flatten_all().unwrap().to_vec1::<f32>().unwrap()) {
            let gate = |k: usize| {
                let [a, b] = weight_ih[k].map(f64::from);
                a * f64::from(x[0])
                    + b * f64::from(x[1])
                    + f64::from(weight_hh[k][0]) * h
                    + f64::from(bias[k])
            };
            let [i, f, g, o] = [gate(0), gate(1), gate(2), gate(3)];
            c = sigmoid(f) * c + sigmoid(i) * g.tanh();
            h = sigmoid(o) * c.tanh();
            assert!((f64::from(found) - h).abs() < 1e-6, "{found} {h}");
        }
    }
}
