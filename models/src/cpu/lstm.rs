//! LSTM layers.

use super::operator::{Backward, Forward, Operator, Reads};
use super::parameter::Parameter;
use crate::error::ModelError;
use crate::kernels::lstm::{self, LstmGradients, LstmWeights};

/// An LSTM over `positions`.
#[derive(Debug)]
pub(crate) struct Lstm {
    /// The indices of `weight-ih`, `weight-hh` and `bias`.
    pub(crate) parameters: [usize; 3],
    pub(crate) positions: usize,
    pub(crate) kernel: lstm::Lstm,
}

impl Operator for Lstm {
    fn forward(&mut self, parameters: &mut [Parameter], pass: Forward<'_>) -> Result<(), ModelError> {
        let Forward { x, y, n, .. } = pass;
        let [weight_ih, weight_hh, bias] = self.parameters.map(|index| parameters[index].values.values());
        self.kernel.forward(LstmWeights { weight_ih, weight_hh, bias }, x, y, n, self.positions);
        Ok(())
    }

    fn reads(&self) -> Reads {
        Reads { input: true, output: true }
    }

    fn backward(&mut self, parameters: &mut [Parameter], pass: Backward<'_>) {
        let parameters =
            parameters.get_disjoint_mut(self.parameters).expect("the names of the three parameters differ");
        let [(weight_ih, w_ih), (weight_hh, w_hh), (bias, b)] = parameters.map(Parameter::new_gradient);
        let weights = LstmWeights { weight_ih: w_ih, weight_hh: w_hh, bias: b };
        let gradients = LstmGradients { weight_ih, weight_hh, bias };
        let Backward { x, y, dy, dx, n, .. } = pass;
        self.kernel.backward(weights, (x, y, dy), (n, self.positions), gradients, dx);
    }
}
