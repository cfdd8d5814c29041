//! Normalisation layers.

use super::operator::{Backward, Forward, Operator, Reads};
use super::parameter::Parameter;
use crate::error::ModelError;
use crate::kernels::normalisation::{self, LocalResponseNorm, NormGradients};
use crate::mode::Mode;

/// Batch normalisation, with the indices of its parameters and buffers. The kernel applies a rectifier that follows.
#[derive(Debug)]
pub(crate) struct BatchNorm {
    /// The layer, for errors.
    pub(crate) label: String,
    pub(crate) weight: usize,
    pub(crate) bias: usize,
    pub(crate) running_mean: usize,
    pub(crate) running_var: usize,
    pub(crate) kernel: normalisation::BatchNorm,
}

impl Operator for BatchNorm {
    fn forward(&mut self, parameters: &mut [Parameter], pass: Forward<'_>) -> Result<(), ModelError> {
        let Forward { x, y, n, mode } = pass;
        let indices = [self.weight, self.bias, self.running_mean, self.running_var];
        let frozen = parameters[self.running_mean].frozen || parameters[self.running_var].frozen;
        let mode = if frozen { Mode::Evaluation } else { mode };
        let parameters =
            parameters.get_disjoint_mut(indices).expect("the names of the four parameters differ");
        let [weight, bias, mean, var] = parameters.map(|parameter| &mut parameter.values);
        let affine = (weight.values(), bias.values());
        match mode {
            Mode::Training(_) if x.len() <= weight.len() => {
                return Err(ModelError::OneValue { layer: self.label.clone() });
            }
            Mode::Training(_) => self.kernel.train(affine, (mean.values_mut(), var.values_mut()), x, y, n),
            Mode::Evaluation => self.kernel.evaluate(affine, (mean.values(), var.values()), x, y),
        }
        Ok(())
    }

    fn reads(&self) -> Reads {
        Reads { input: true, output: self.kernel.reads_output() }
    }

    fn backward(&mut self, parameters: &mut [Parameter], pass: Backward<'_>) {
        let parameters = parameters
            .get_disjoint_mut([self.weight, self.bias])
            .expect("the names of the two parameters differ");
        let [(weight, w), (bias, _)] = parameters.map(Parameter::new_gradient);
        self.kernel.backward(w, (pass.x, pass.y, pass.dy), NormGradients { weight, bias }, pass.dx);
    }
}

/// Group normalisation, with the indices of its parameters. The kernel applies a rectifier that follows.
#[derive(Debug)]
pub(crate) struct GroupNorm {
    pub(crate) weight: usize,
    pub(crate) bias: usize,
    pub(crate) kernel: normalisation::GroupNorm,
}

impl Operator for GroupNorm {
    fn forward(&mut self, parameters: &mut [Parameter], pass: Forward<'_>) -> Result<(), ModelError> {
        let Forward { x, y, n, .. } = pass;
        let [weight, bias] = [self.weight, self.bias].map(|index| parameters[index].values.values());
        self.kernel.forward((weight, bias), x, y, n);
        Ok(())
    }

    fn reads(&self) -> Reads {
        Reads { input: true, output: self.kernel.reads_output() }
    }

    fn backward(&mut self, parameters: &mut [Parameter], pass: Backward<'_>) {
        let parameters = parameters
            .get_disjoint_mut([self.weight, self.bias])
            .expect("the names of the two parameters differ");
        let [(weight, w), (bias, _)] = parameters.map(Parameter::new_gradient);
        self.kernel.backward(w, (pass.x, pass.y, pass.dy), NormGradients { weight, bias }, pass.dx);
    }
}

/// Layer normalisation, with the indices of its parameters.
#[derive(Debug)]
pub(crate) struct LayerNorm {
    pub(crate) weight: usize,
    pub(crate) bias: usize,
    pub(crate) kernel: normalisation::LayerNorm,
}

impl Operator for LayerNorm {
    fn forward(&mut self, parameters: &mut [Parameter], pass: Forward<'_>) -> Result<(), ModelError> {
        let [weight, bias] = [self.weight, self.bias].map(|index| parameters[index].values.values());
        self.kernel.forward((weight, bias), pass.x, pass.y);
        Ok(())
    }

    fn reads(&self) -> Reads {
        Reads { input: true, output: false }
    }

    fn backward(&mut self, parameters: &mut [Parameter], pass: Backward<'_>) {
        let parameters = parameters
            .get_disjoint_mut([self.weight, self.bias])
            .expect("the names of the two parameters differ");
        let [(weight, w), (bias, _)] = parameters.map(Parameter::new_gradient);
        self.kernel.backward(w, (pass.x, pass.dy), NormGradients { weight, bias }, pass.dx);
    }
}

/// Cosines with the vertices of a simplex, with the index of their factor.
#[derive(Debug)]
pub(crate) struct SimplexEtf {
    pub(crate) weight: usize,
    pub(crate) kernel: normalisation::SimplexEtf,
}

impl Operator for SimplexEtf {
    fn forward(&mut self, parameters: &mut [Parameter], pass: Forward<'_>) -> Result<(), ModelError> {
        self.kernel.forward(parameters[self.weight].values.values()[0], pass.x, pass.y);
        Ok(())
    }

    fn reads(&self) -> Reads {
        Reads { input: true, output: false }
    }

    fn backward(&mut self, parameters: &mut [Parameter], pass: Backward<'_>) {
        let (gradient, weight) = parameters[self.weight].new_gradient();
        gradient[0] = self.kernel.backward(weight[0], (pass.x, pass.dy), pass.dx);
    }
}

impl Operator for LocalResponseNorm {
    fn forward(&mut self, _: &mut [Parameter], pass: Forward<'_>) -> Result<(), ModelError> {
        LocalResponseNorm::forward(self, pass.x, pass.y);
        Ok(())
    }

    fn reads(&self) -> Reads {
        Reads { input: true, output: false }
    }

    fn backward(&mut self, _: &mut [Parameter], pass: Backward<'_>) {
        if let Some(dx) = pass.dx {
            LocalResponseNorm::backward(self, pass.x, pass.dy, dx);
        }
    }
}
