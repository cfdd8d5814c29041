//! Stochastic gradient descent.

use serde::{Deserialize, Serialize};

/// Stochastic gradient descent with momentum and weight decay, as `torch.optim.SGD` defines it.
///
/// ```text
/// g <- g + decay w        v <- momentum v + g        w <- w - rate v
/// ```
///
/// with `v = g` in the first step. The velocity is not scaled by the rate, so that a change of the rate takes effect at once.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Sgd {
    /// The learning rate, eta.
    pub rate: f64,
    /// The fraction of the velocity kept from step to step; 0 for none.
    pub momentum: f64,
    /// The weight decay, which is the factor of an L2 penalty `decay/2 ||w||^2`; 0 for none.
    pub decay: f64,
}

impl Sgd {
    /// SGD without momentum or weight decay.
    #[must_use]
    pub fn plain(rate: f64) -> Self {
        Self { rate, momentum: 0.0, decay: 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_names_unknown_keys() {
        let sgd: Sgd = serde_json::from_str(r#"{"rate":0.1,"momentum":0.9,"decay":0}"#).unwrap();
        assert_eq!(sgd, Sgd { rate: 0.1, momentum: 0.9, decay: 0.0 });
        let error =
            serde_json::from_str::<Sgd>(r#"{"rate":0.1,"momentum":0.9,"decay":0,"lr":1}"#).unwrap_err();
        assert!(error.to_string().contains("lr"), "{error}");
    }
}
