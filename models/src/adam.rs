//! The Adam optimiser.

use serde::{Deserialize, Serialize};

use crate::optimizer::AdamSettings;

/// Adam as [`AdamSettings`] defines it, with its weight decay as a part of the gradient.
///
/// For small models beside a network, such as the gate of a mixture of experts: one vector with its gradient, in double
/// precision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Adam {
    settings: AdamSettings,
    /// Steps taken.
    steps: i32,
    first: Vec<f64>,
    second: Vec<f64>,
}

impl Adam {
    /// The state before the first step, for a vector of `values` values.
    #[must_use]
    pub fn new(settings: AdamSettings, values: usize) -> Self {
        Self { settings, steps: 0, first: vec![0.0; values], second: vec![0.0; values] }
    }

    /// One step.
    ///
    /// # Panics
    /// If `values` or `gradient` is not as long as [`Adam::new`] was told.
    pub fn descend(&mut self, values: &mut [f32], gradient: &[f64]) {
        assert_eq!(
            (values.len(), gradient.len()),
            (self.first.len(), self.first.len()),
            "a gradient for each"
        );
        self.steps = self.steps.saturating_add(1);
        let AdamSettings { rate, beta1, beta2, epsilon, decay } = self.settings;
        let corrections = [beta1, beta2].map(|beta| 1.0 - beta.powi(self.steps));
        let moments = self.first.iter_mut().zip(&mut self.second);
        for ((value, &gradient), (first, second)) in values.iter_mut().zip(gradient).zip(moments) {
            let gradient = gradient + decay * f64::from(*value);
            *first = beta1 * *first + (1.0 - beta1) * gradient;
            *second = beta2 * *second + (1.0 - beta2) * gradient * gradient;
            let step = *first / corrections[0] / ((*second / corrections[1]).sqrt() + epsilon);
            *value = (f64::from(*value) - rate * step) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_along_a_gradient_that_does_not_change_are_as_long_as_the_rate() {
        // Both moments are then those of the gradient itself, once they are corrected.
        let (mut values, mut adam) = ([1.0f32, 1.0, 1.0], Adam::new(AdamSettings::with_rate(0.125), 3));
        for step in 1..=4 {
            adam.descend(&mut values, &[3.0, -0.5, 0.0]);
            let moved = 0.125 * step as f32;
            for (found, expected) in values.iter().zip([1.0 - moved, 1.0 + moved, 1.0]) {
                assert!((found - expected).abs() < 1e-6, "{values:?}");
            }
        }
    }
}
