//! Stochastic gradient descent.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use candle_core::{Tensor, Var};
use serde::{Deserialize, Serialize};

use crate::kernels::{accumulate, descend};

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

    /// One step of one variable. `velocity` keeps what momentum needs; it stays empty without momentum.
    pub(crate) fn step(
        &self,
        name: &str,
        variable: &Var,
        gradient: &Tensor,
        velocity: &mut BTreeMap<String, Tensor>,
    ) -> candle_core::Result<()> {
        if variable.device().is_cpu() {
            return self.step_in_place(name, variable, gradient, velocity);
        }
        let mut direction = gradient.clone();
        if self.decay != 0.0 {
            direction = (direction + (variable.as_detached_tensor() * self.decay)?)?;
        }
        if self.momentum != 0.0 {
            if let Some(previous) = velocity.get(name) {
                direction = ((previous * self.momentum)? + direction)?;
            }
            // Nothing writes into this tensor later: every operation above makes a new one.
            velocity.insert(name.to_owned(), direction.clone());
        }
        variable.set(&(variable.as_detached_tensor() - (direction * self.rate)?)?)
    }

    /// The same on the CPU, where one pass instead of seven is most of the time of a large linear layer.
    fn step_in_place(
        &self,
        name: &str,
        variable: &Var,
        gradient: &Tensor,
        velocity: &mut BTreeMap<String, Tensor>,
    ) -> candle_core::Result<()> {
        if self.momentum == 0.0 {
            return descend(variable, gradient, self.rate, self.decay);
        }
        // The entry owns its memory: it starts as fresh zeros, and no tensor is ever made from it.
        let v = match velocity.entry(name.to_owned()) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(variable.zeros_like()?.detach()),
        };
        accumulate(v, gradient, variable, self.momentum, self.decay)?;
        descend(variable, v, self.rate, 0.0)
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    /// `f(w) = a/2 (w - c)^2`, whose gradient is `a (w - c)`, stepped in f32 by the code and in f64 by hand.
    fn follow(sgd: Sgd, steps: usize) -> Vec<(f64, f64)> {
        let (a, c) = (0.8, 3.0);
        let variable = Var::new(&[-1.0f32], &Device::Cpu).unwrap();
        let mut velocity = BTreeMap::new();
        let (mut w, mut v) = (-1.0f64, 0.0f64);
        (0..steps)
            .map(|_| {
                let gradient = ((variable.as_tensor() - c).unwrap() * a).unwrap().detach();
                sgd.step("w", &variable, &gradient, &mut velocity).unwrap();
                v = sgd.momentum * v + a * (w - c) + sgd.decay * w;
                w -= sgd.rate * v;
                (f64::from(variable.to_vec1::<f32>().unwrap()[0]), w)
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
        let variable = Var::zeros(1, candle_core::DType::F32, &Device::Cpu).unwrap();
        let one = Tensor::new(&[1.0f32], &Device::Cpu).unwrap();
        let mut velocity = BTreeMap::new();
        for _ in 0..3 {
            Sgd { rate: 1.0, momentum: 0.5, decay: 0.0 }.step("w", &variable, &one, &mut velocity).unwrap();
        }
        assert_eq!(variable.to_vec1::<f32>().unwrap(), [-4.25]);
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
