//! Batch, group, layer and local response normalisation and cosines with a simplex in candle's operations.

use candle_core::{D, Result, Tensor, Var};

use super::FAILED;
use crate::error::ModelError;
use crate::kernels::normalisation::{EPSILON, simplex};
use crate::mode::Mode;

/// Batch normalisation. Candle's own divides by n-1, so that one-sample batches give NaN.
#[derive(Debug)]
pub(crate) struct BatchNorm {
    pub(super) label: String,
    pub(super) weight: Tensor,
    pub(super) bias: Tensor,
    pub(super) running_mean: Var,
    pub(super) running_var: Var,
    /// Whether the running statistics do not follow the batches, and are what training goes by.
    pub(super) frozen: bool,
    pub(super) epsilon: f64,
    pub(super) momentum: f64,
}

impl BatchNorm {
    pub(super) fn forward(&self, x: &Tensor, mode: Mode) -> std::result::Result<Tensor, ModelError> {
        let channels = self.weight.elem_count();
        let mode = if self.frozen { Mode::Evaluation } else { mode };
        if matches!(mode, Mode::Training(_)) && x.elem_count() == channels {
            return Err(ModelError::OneValue { layer: self.label.clone() });
        }
        match mode {
            Mode::Training(_) => self.train(x),
            Mode::Evaluation => self.evaluate(x),
        }
        .map_err(FAILED)
    }

    fn train(&self, x: &Tensor) -> Result<Tensor> {
        let (n, channels, pixels) = planes(x)?;
        let flat = x.reshape((n, channels, pixels))?;
        // In two steps, which keeps the single-precision sums short.
        let mean = |x: &Tensor| x.mean_keepdim(2)?.mean_keepdim(0);
        let center = mean(&flat)?;
        let centered = flat.broadcast_sub(&center)?;
        let variance = mean(&centered.sqr()?)?;
        let count = (n * pixels) as f64;
        follow(&self.running_mean, &center.flatten_all()?, self.momentum, 1.0)?;
        follow(&self.running_var, &variance.flatten_all()?, self.momentum, count / (count - 1.0))?;
        let normal = centered.broadcast_div(&(variance + self.epsilon)?.sqrt()?)?;
        scaled(&normal, &self.weight, &self.bias)?.reshape(x.shape())
    }

    fn evaluate(&self, x: &Tensor) -> Result<Tensor> {
        let (n, channels, pixels) = planes(x)?;
        let column = |buffer: &Var| buffer.as_detached_tensor().reshape((1, channels, 1));
        let centered = x.reshape((n, channels, pixels))?.broadcast_sub(&column(&self.running_mean)?)?;
        // A variance that was sent as a difference in 16 bits may be slightly negative by rounding.
        let variance = column(&self.running_var)?.relu()?;
        let normal = centered.broadcast_div(&(variance + self.epsilon)?.sqrt()?)?;
        scaled(&normal, &self.weight, &self.bias)?.reshape(x.shape())
    }
}

/// Group normalisation.
#[derive(Debug)]
pub(crate) struct GroupNorm {
    pub(super) weight: Tensor,
    pub(super) bias: Tensor,
    pub(super) groups: usize,
}

impl GroupNorm {
    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (n, channels, pixels) = planes(x)?;
        let groups = x.reshape((n, self.groups, channels / self.groups * pixels))?;
        let centered = groups.broadcast_sub(&groups.mean_keepdim(D::Minus1)?)?;
        let variance = centered.sqr()?.mean_keepdim(D::Minus1)?;
        let normal = centered.broadcast_div(&(variance + EPSILON)?.sqrt()?)?;
        scaled(&normal.reshape((n, channels, pixels))?, &self.weight, &self.bias)?.reshape(x.shape())
    }
}

/// Layer normalisation.
#[derive(Debug)]
pub(crate) struct LayerNorm {
    pub(super) weight: Tensor,
    pub(super) bias: Tensor,
    pub(super) epsilon: f64,
}

impl LayerNorm {
    /// Of the last dimension.
    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let centered = x.broadcast_sub(&x.mean_keepdim(D::Minus1)?)?;
        let variance = centered.sqr()?.mean_keepdim(D::Minus1)?;
        let normal = centered.broadcast_div(&(variance + self.epsilon)?.sqrt()?)?;
        normal.broadcast_mul(&self.weight)?.broadcast_add(&self.bias)
    }
}

/// The cosines of the last dimension with the vertices of a regular simplex, times one factor.
pub(super) fn simplex_etf(x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    let length = (x.sqr()?.sum_keepdim(D::Minus1)? + simplex::EPSILON)?.sqrt()?;
    let direction = x.broadcast_div(&length)?;
    let centred = direction.broadcast_sub(&direction.mean_keepdim(D::Minus1)?)?;
    (centred * simplex::vertex_scale(x.dim(D::Minus1)?))?.broadcast_mul(weight)
}

/// Local response normalisation.
#[derive(Debug)]
pub(crate) struct LocalResponseNorm {
    pub(super) size: usize,
    pub(super) alpha: f64,
    pub(super) beta: f64,
    pub(super) k: f64,
}

impl LocalResponseNorm {
    pub(super) fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let channels = x.dim(1)?;
        let squares = x.sqr()?.pad_with_zeros(1, self.size / 2, (self.size - 1) / 2)?;
        let mut sum = squares.narrow(1, 0, channels)?;
        for place in 1..self.size {
            sum = (sum + squares.narrow(1, place, channels)?)?;
        }
        let divisor = sum.affine(self.alpha / self.size as f64, self.k)?;
        x * divisor.powf(-self.beta)?
    }
}

/// Samples, channels and pixels of `[n, c, h, w]` or `[n, c]`.
fn planes(x: &Tensor) -> Result<(usize, usize, usize)> {
    let (n, channels) = (x.dim(0)?, x.dim(1)?);
    Ok((n, channels, x.dims()[2..].iter().product()))
}

/// `x w + b` for each channel of `[n, c, pixels]`.
fn scaled(x: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<Tensor> {
    let channels = weight.elem_count();
    x.broadcast_mul(&weight.reshape((1, channels, 1))?)?.broadcast_add(&bias.reshape((1, channels, 1))?)
}

/// Moves a buffer by the share `momentum` towards `factor` times a statistic.
fn follow(buffer: &Var, statistic: &Tensor, momentum: f64, factor: f64) -> Result<()> {
    let kept = (buffer.as_detached_tensor() * (1.0 - momentum))?;
    buffer.set(&(kept + (statistic.detach() * (momentum * factor))?)?)
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::dropout_masks::Masks;
    use crate::kernels::normalisation::MOMENTUM;

    const TRAINING: Mode = Mode::Training(Masks::new([0; 32], 0));

    fn vector(values: &[f32]) -> Tensor {
        Tensor::new(values, &Device::Cpu).unwrap()
    }

    fn list(tensor: &Tensor) -> Vec<f32> {
        tensor.flatten_all().unwrap().to_vec1().unwrap()
    }

    fn assert_close(found: &Tensor, expected: &[f64]) {
        let found = list(found);
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!((f64::from(*found) - expected).abs() < 1e-5, "{found} {expected}");
        }
    }

    fn batch_norm() -> BatchNorm {
        BatchNorm {
            label: "extractor.n".into(),
            weight: vector(&[2.0, 3.0]),
            bias: vector(&[0.5, -0.5]),
            running_mean: Var::new(&[0.0f32, 10.0], &Device::Cpu).unwrap(),
            running_var: Var::new(&[1.0f32, 4.0], &Device::Cpu).unwrap(),
            epsilon: EPSILON,
            momentum: MOMENTUM,
            frozen: false,
        }
    }

    #[test]
    fn batch_normalisation_in_closed_form() {
        // Channel 0 is 1, 3, 5, 7: mean 4, biased variance 5, unbiased 20/3. Channel 1 is always 6.
        let norm = batch_norm();
        let x = Tensor::new(&[[[[1.0f32, 3.0]], [[6.0, 6.0]]], [[[5.0, 7.0]], [[6.0, 6.0]]]], &Device::Cpu)
            .unwrap();
        let y = norm.forward(&x, TRAINING).unwrap();
        assert_eq!(y.dims(), x.dims());
        let scale = 2.0 / 5.00001f64.sqrt();
        let at = |x: f64| (x - 4.0) * scale + 0.5;
        assert_close(&y, &[at(1.0), at(3.0), -0.5, -0.5, at(5.0), at(7.0), -0.5, -0.5]);
        assert_close(&norm.running_mean, &[0.4, 9.6]);
        assert_close(&norm.running_var, &[0.9 + 2.0 / 3.0, 3.6]);
        // Evaluation uses the buffers, and leaves them.
        let before = (list(&norm.running_mean), list(&norm.running_var));
        let y = norm.forward(&x.narrow(0, 0, 1).unwrap(), Mode::Evaluation).unwrap();
        let at = |x: f64| (x - 0.4) * 2.0 / (0.9 + 2.0 / 3.0 + 1e-5f64).sqrt() + 0.5;
        let flat = (6.0 - 9.6) * 3.0 / 3.60001f64.sqrt() - 0.5;
        assert_close(&y, &[at(1.0), at(3.0), flat, flat]);
        assert_eq!((list(&norm.running_mean), list(&norm.running_var)), before);
    }

    #[test]
    fn one_value_per_channel_cannot_be_trained_on() {
        let norm = batch_norm();
        let one = Tensor::new(&[[1.0f32, 2.0]], &Device::Cpu).unwrap();
        let error = norm.forward(&one, TRAINING).unwrap_err();
        assert!(error.to_string().contains("`extractor.n`"), "{error}");
        assert_eq!(list(&norm.running_mean), [0.0, 10.0]);
        assert!(norm.forward(&one, Mode::Evaluation).is_ok());
        let two = Tensor::new(&[[1.0f32, 2.0], [3.0, 4.0]], &Device::Cpu).unwrap();
        assert!(norm.forward(&two, TRAINING).is_ok());
    }

    #[test]
    fn group_normalisation_in_closed_form() {
        let norm = GroupNorm {
            weight: vector(&[1.0, 2.0, 3.0, 4.0]),
            bias: vector(&[0.0, 0.0, 0.0, 1.0]),
            groups: 2,
        };
        // The groups of the sample are 1, 3 (mean 2, variance 1) and 2, 8 (mean 5, variance 9).
        let x = Tensor::new(&[[1.0f32, 3.0, 2.0, 8.0], [0.0; 4]], &Device::Cpu).unwrap();
        let (a, b) = (1.0 / 1.00001f64.sqrt(), 3.0 / 9.00001f64.sqrt());
        let expected = [-a, 2.0 * a, -3.0 * b, 4.0 * b + 1.0, 0.0, 0.0, 0.0, 1.0];
        assert_close(&norm.forward(&x).unwrap(), &expected);
        // Pixels belong to their channel's group.
        let norm = GroupNorm { weight: vector(&[1.0, 2.0]), bias: vector(&[0.0, 1.0]), groups: 2 };
        let x = Tensor::new(&[[[[1.0f32, 3.0]], [[2.0, 8.0]]]], &Device::Cpu).unwrap();
        assert_close(&norm.forward(&x).unwrap(), &[-a, a, 1.0 - 2.0 * b, 1.0 + 2.0 * b]);
    }
}
