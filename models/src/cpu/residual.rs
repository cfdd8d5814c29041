//! Two branches that are added up.

use super::operator::{Backward, Operator, Outcome, Reads};
use super::parameter::Parameter;
use super::sequence::Sequence;
use crate::kernels::update::add_multiple;
use crate::mode::Mode;

/// `body(x) + shortcut(x)`.
pub(crate) struct Residual {
    pub(crate) body: Sequence,
    pub(crate) shortcut: Sequence,
    /// The gradient by the sum, and then by `x`, for one branch.
    pub(crate) gradient: Vec<f32>,
}

impl Operator for Residual {
    fn forward(
        &mut self,
        parameters: &mut [Parameter],
        x: &[f32],
        y: &mut [f32],
        n: usize,
        mode: Mode,
    ) -> Outcome {
        self.body.forward(parameters, x, n, mode)?;
        self.shortcut.forward(parameters, x, n, mode)?;
        y.copy_from_slice(self.body.output(x));
        add_multiple(y, 1.0, self.shortcut.output(x));
        Ok(())
    }

    fn reads(&self) -> Reads {
        Reads { input: true, output: false }
    }

    fn backward(&mut self, parameters: &mut [Parameter], pass: Backward<'_>) {
        let Backward { x, dy, mut dx, n, descent, .. } = pass;
        let further = dx.is_some();
        for (branch, first) in [(&mut self.body, true), (&mut self.shortcut, false)] {
            self.gradient.clear();
            self.gradient.extend_from_slice(dy);
            branch.backward(parameters, x, &mut self.gradient, n, further, descent);
            match &mut dx {
                Some(dx) if first => dx.copy_from_slice(&self.gradient),
                Some(dx) => add_multiple(dx, 1.0, &self.gradient),
                None => {}
            }
        }
    }
}
