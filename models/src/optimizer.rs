//! Optimisers: what a step of a network's parameters along their gradients is.

use serde::{Deserialize, Serialize};

use crate::params::ParamSet;
use crate::sgd::Sgd;

/// An optimiser with its settings.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Optimizer {
    /// Stochastic gradient descent, with or without momentum.
    Sgd(Sgd),
    /// Stochastic gradient descent whose step looks ahead along the velocity (Sutskever et al., ICML 2013), as `torch.optim.SGD`
    /// with `nesterov=True` defines it.
    ///
    /// ```text
    /// g <- g + decay w        v <- momentum v + g        w <- w - rate (g + momentum v)
    /// ```
    Nesterov(Sgd),
    /// Adam. Its weight decay is part of the gradient, an L2 penalty.
    Adam(AdamSettings),
    /// Adam with decoupled weight decay (Loshchilov and Hutter, ICLR 2019, arXiv 1711.05101): `w <- w - rate decay w` before the
    /// step, as `torch.optim.AdamW` defines it.
    AdamW(AdamSettings),
}

/// The settings of Adam (Kingma and Ba, ICLR 2015, arXiv 1412.6980, Algorithm 1), as `torch.optim.Adam` defines them.
///
/// ```text
/// m <- beta1 m + (1 - beta1) g        v <- beta2 v + (1 - beta2) g^2
/// w <- w - rate m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon)        t = 1, 2, ...
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct AdamSettings {
    /// The learning rate.
    pub rate: f64,
    /// What is left of the mean of gradients after each step.
    pub beta1: f64,
    /// What is left of the mean of their squares after each step.
    pub beta2: f64,
    /// The term that keeps the denominator above 0.
    pub epsilon: f64,
    /// The weight decay; 0 for none.
    pub decay: f64,
}

/// What an optimiser keeps from step to step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OptimizerState {
    /// Steps taken.
    pub steps: u32,
    /// The velocity, or the first and the second moment, under the names and in the shapes of the parameters; a parameter is
    /// missing where nothing is kept for it.
    pub moments: [ParamSet; 2],
}

impl AdamSettings {
    /// The values of Kingma and Ba and the defaults of `torch.optim.Adam`, without weight decay.
    #[must_use]
    pub fn with_rate(rate: f64) -> Self {
        Self { rate, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, decay: 0.0 }
    }
}

impl Optimizer {
    /// The learning rate.
    #[must_use]
    pub fn rate(&self) -> f64 {
        match self {
            Self::Sgd(sgd) | Self::Nesterov(sgd) => sgd.rate,
            Self::Adam(adam) | Self::AdamW(adam) => adam.rate,
        }
    }

    /// The same optimiser at another learning rate.
    #[must_use]
    pub fn at_rate(self, rate: f64) -> Self {
        match self {
            Self::Sgd(sgd) => Self::Sgd(Sgd { rate, ..sgd }),
            Self::Nesterov(sgd) => Self::Nesterov(Sgd { rate, ..sgd }),
            Self::Adam(adam) => Self::Adam(AdamSettings { rate, ..adam }),
            Self::AdamW(adam) => Self::AdamW(AdamSettings { rate, ..adam }),
        }
    }

    /// The settings of stochastic gradient descent, with any momentum; `None` if it is adaptive.
    #[must_use]
    pub fn descent(&self) -> Option<Sgd> {
        match *self {
            Self::Sgd(sgd) | Self::Nesterov(sgd) => Some(sgd),
            Self::Adam(_) | Self::AdamW(_) => None,
        }
    }

    /// The optimiser that takes on a loss the steps that this one takes on `factor` times that loss.
    #[must_use]
    pub fn with_loss_scaled(self, factor: f64) -> Self {
        let scaled = |sgd: Sgd| Sgd { rate: sgd.rate * factor, decay: sgd.decay / factor, ..sgd };
        match self {
            Self::Sgd(sgd) => Self::Sgd(scaled(sgd)),
            Self::Nesterov(sgd) => Self::Nesterov(scaled(sgd)),
            // Both moments grow with the loss, and the steps stay as they are.
            Self::Adam(adam) => {
                let (epsilon, decay) = (adam.epsilon / factor, adam.decay / factor);
                Self::Adam(AdamSettings { epsilon, decay, ..adam })
            }
            Self::AdamW(adam) => Self::AdamW(AdamSettings { epsilon: adam.epsilon / factor, ..adam }),
        }
    }

    /// The same optimiser without weight decay.
    #[must_use]
    pub fn without_decay(self) -> Self {
        match self {
            Self::Sgd(sgd) => Self::Sgd(Sgd { decay: 0.0, ..sgd }),
            Self::Nesterov(sgd) => Self::Nesterov(Sgd { decay: 0.0, ..sgd }),
            Self::Adam(adam) => Self::Adam(AdamSettings { decay: 0.0, ..adam }),
            Self::AdamW(adam) => Self::AdamW(AdamSettings { decay: 0.0, ..adam }),
        }
    }

    /// How many values it keeps for each parameter from step to step.
    #[must_use]
    pub fn moments(&self) -> usize {
        match self {
            Self::Sgd(sgd) | Self::Nesterov(sgd) => usize::from(sgd.momentum != 0.0),
            Self::Adam(_) | Self::AdamW(_) => 2,
        }
    }

    /// The rate, if a step subtracts the gradient times the rate and nothing else.
    pub(crate) fn plain_rate(&self) -> Option<f32> {
        match self {
            Self::Sgd(sgd) | Self::Nesterov(sgd) if sgd.momentum == 0.0 && sgd.decay == 0.0 => {
                Some(sgd.rate as f32)
            }
            _ => None,
        }
    }
}

impl From<Sgd> for Optimizer {
    fn from(sgd: Sgd) -> Self {
        Self::Sgd(sgd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_changes_nothing_else() {
        let (sgd, adam) = (Sgd { momentum: 0.9, ..Sgd::plain(0.1) }, AdamSettings::with_rate(0.1));
        for optimizer in
            [Optimizer::Sgd(sgd), Optimizer::Nesterov(sgd), Optimizer::Adam(adam), Optimizer::AdamW(adam)]
        {
            let changed = optimizer.at_rate(0.5);
            assert!((changed.rate() - 0.5).abs() < f64::EPSILON);
            assert_eq!(changed.at_rate(0.1), optimizer);
            assert_eq!(changed.moments(), optimizer.moments());
        }
    }

    #[test]
    fn plain_descent_keeps_nothing() {
        assert_eq!(Optimizer::from(Sgd::plain(0.25)).plain_rate(), Some(0.25));
        for sgd in [Sgd { momentum: 0.9, ..Sgd::plain(0.1) }, Sgd { decay: 0.1, ..Sgd::plain(0.1) }] {
            assert_eq!(Optimizer::Sgd(sgd).plain_rate(), None);
        }
        assert_eq!(Optimizer::Adam(AdamSettings::with_rate(0.1)).plain_rate(), None);
    }
}
