//! Stochastic gradient descent.

use serde::{Deserialize, Serialize};

/// Stochastic gradient descent with momentum and weight decay, as `torch.optim.SGD` defines it.
///
/// ```text
/// g <- g + decay w        v <- momentum v + g        w <- w - rate v
/// ```
///
/// with `v = g` in the first step. The velocity is not scaled by the rate, so changing the rate takes effect at once.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Sgd {
    /// The learning rate, eta.
    pub rate: f64,
    /// The share of the velocity kept from step to step; 0 for none.
    pub momentum: f64,
    /// The weight decay, which is the factor of an L2 penalty `decay/2 ||w||^2`; 0 for none.
    pub decay: f64,
}

impl Sgd {
    /// Without momentum or weight decay.
    #[must_use]
    pub fn plain(rate: f64) -> Self {
        Self { rate, momentum: 0.0, decay: 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Parameter;
    use crate::params::Array;

    /// `f(w) = a/2 (w - c)^2`, whose gradient is `a (w - c)`, stepped in f32 by the code and in f64 by hand.
    fn follow(sgd: Sgd, steps: usize) -> Vec<(f64, f64)> {
        let (a, c) = (0.8, 3.0);
        let mut parameter = Parameter::new("w".into(), Array::new([1], vec![-1.0]).unwrap(), false);
        let (mut w, mut v) = (-1.0f64, 0.0f64);
        (0..steps)
            .map(|_| {
                let gradient = a as f32 * (parameter.values.values()[0] - c as f32);
                parameter.descend_along(&sgd, &[gradient]);
                v = sgd.momentum * v + a * (w - c) + sgd.decay * w;
                w -= sgd.rate * v;
                (f64::from(parameter.values.values()[0]), w)
            })
            .collect()
    }

    #[test]
    fn momentum_and_decay_follow_the_update_equation() {
        for (momentum, decay) in [(0.0, 0.0), (0.9, 0.0), (0.0, 0.1), (0.9, 0.1)] {
            for (step, (found, expected)) in follow(Sgd { rate: 0.1, momentum, decay }, 12).iter().enumerate()
            {
                assert!(
                    (found - expected).abs() < 1e-5,
                    "{momentum} {decay} step {step}: {found} {expected}"
                );
            }
        }
    }

    #[test]
    fn plain_descent_on_a_quadratic_is_geometric() {
        // w_t - c = (1 - rate a)^t (w_0 - c)
        let (found, _) = follow(Sgd::plain(0.25), 10)[9];
        assert!((found - (3.0 - 4.0 * 0.8f64.powi(10))).abs() < 1e-5);
    }

    #[test]
    fn constant_gradients_build_up_a_geometric_sum() {
        // After t steps of gradient 1: w = -rate * sum_{i<t} (1 - m^(i+1)) / (1 - m), here 1 + 1.5 + 1.75.
        let mut parameter = Parameter::new("w".into(), Array::zeros([1]), false);
        for _ in 0..3 {
            parameter.descend_along(&Sgd { rate: 1.0, momentum: 0.5, decay: 0.0 }, &[1.0]);
        }
        assert_eq!(parameter.values.values(), [-4.25]);
    }

    #[test]
    fn the_configuration_names_unknown_keys() {
        let sgd: Sgd = serde_json::from_str(r#"{"rate":0.1,"momentum":0.9,"decay":0}"#).unwrap();
        assert_eq!(sgd, Sgd { rate: 0.1, momentum: 0.9, decay: 0.0 });
        let error =
            serde_json::from_str::<Sgd>(r#"{"rate":0.1,"momentum":0.9,"decay":0,"lr":1}"#).unwrap_err();
        assert!(error.to_string().contains("lr"), "{error}");
    }
}
