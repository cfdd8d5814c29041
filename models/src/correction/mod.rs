//! Corrections of the gradient before the optimiser's step.

#[cfg(test)]
mod tests;

use crate::params::ParamSet;

/// A correction of every step's gradient, the same for all steps: with `g` the gradient of the loss with respect to a
/// parameter `w`,
///
/// ```text
/// g <- g + factor (w - anchor) + shift
/// ```
///
/// The first term is the gradient of `factor/2 ||w - anchor||^2` (`FedProx`), the second moves all steps by the same amount
/// (`SCAFFOLD`). Buffers are not corrected and need not be in the sets.
#[derive(Clone, Debug, Default)]
pub struct Correction {
    /// The factor and the anchor.
    pub anchor: Option<(f64, ParamSet)>,
    /// The shift.
    pub shift: Option<ParamSet>,
}

impl Correction {
    /// Whether nothing is corrected.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.anchor.is_none() && self.shift.is_none()
    }
}
