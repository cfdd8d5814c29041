//! Residual blocks.

use super::operator::{Backward, Forward, Operator, PassContext, Reads};
use super::parameter::Parameter;
use super::sequence::Sequence;
use crate::error::ModelError;
use crate::kernels::update::add_multiple;

/// `body(x) + shortcut(x)`.
pub(crate) struct Residual {
    pub(crate) body: Sequence,
    pub(crate) shortcut: Sequence,
}

impl Operator for Residual {
    fn forward(&mut self, parameters: &mut [Parameter], pass: Forward<'_>) -> Result<(), ModelError> {
        let Forward { x, y, n, mode } = pass;
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
        let Backward { x, dy, mut dx, n, update, free, .. } = pass;
        let further = dx.is_some();
        for (branch, first) in [(&mut self.body, true), (&mut self.shortcut, false)] {
            let mut gradient = free.pop().unwrap_or_default();
            gradient.clear();
            gradient.extend_from_slice(dy);
            let context = &mut PassContext { n, update, free };
            let gradient = branch.backward(parameters, x, gradient, further, context);
            match &mut dx {
                Some(dx) if first => dx.copy_from_slice(&gradient),
                Some(dx) => add_multiple(dx, 1.0, &gradient),
                None => {}
            }
            free.push(gradient);
        }
    }
}
