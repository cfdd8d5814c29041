//! Residual blocks.

use super::operator::{Backward, Forward, Operator, PassContext, Reads};
use super::parameter::Parameter;
use super::sequence::Sequence;
use crate::error::ModelError;
use crate::kernels::rectifier::{self, Rectifier};

/// `body(x) + shortcut(x)`, then the rectifier if there is one.
pub(crate) struct Residual {
    pub(crate) body: Sequence,
    pub(crate) shortcut: Sequence,
    pub(crate) rectifier: Option<Rectifier>,
}

impl Operator for Residual {
    fn forward(&mut self, parameters: &mut [Parameter], pass: Forward<'_>) -> Result<(), ModelError> {
        let Forward { x, y, n, mode } = pass;
        self.body.forward(parameters, x, n, mode)?;
        self.shortcut.forward(parameters, x, n, mode)?;
        rectifier::sum(self.body.output(x), self.shortcut.output(x), y, self.rectifier);
        Ok(())
    }

    fn reads(&self) -> Reads {
        Reads { input: true, output: self.rectifier.is_some() }
    }

    fn backward(&mut self, parameters: &mut [Parameter], pass: Backward<'_>) {
        let Backward { x, y, dy, dx, n, update, free } = pass;
        if let Some(rectifier) = self.rectifier {
            rectifier.backward(dy, y);
        }
        let further = dx.is_some();
        let mut branch = |branch: &mut Sequence| {
            let mut gradient = free.pop().unwrap_or_default();
            gradient.clear();
            gradient.extend_from_slice(dy);
            branch.backward(parameters, x, gradient, further, &mut PassContext { n, update, free })
        };
        let from_body = branch(&mut self.body);
        // Without layers the gradient is the same behind the shortcut as before it.
        let from_shortcut = (!self.shortcut.is_empty()).then(|| branch(&mut self.shortcut));
        if let Some(dx) = dx {
            rectifier::sum(&from_body, from_shortcut.as_deref().unwrap_or(dy), dx, None);
        }
        free.extend([Some(from_body), from_shortcut].into_iter().flatten());
    }
}
