//! Differential privacy of devices: what a run gives away of one device's participation, and what it may.
//!
//! The mechanism is [`shared::aggregation::Mechanism`]; here are its account and its budget.

pub mod account;
mod complementary;
pub mod plan;

use shared::aggregation::Mechanism;

use account::{Account, Noise};

/// What a private run promises.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Promise {
    /// How sums are made private.
    pub mechanism: Mechanism,
    /// delta: the probability with which epsilon does not hold.
    pub delta: f64,
    /// The epsilon that is not exceeded; `None` if there is no budget.
    pub budget: Option<f64>,
}

impl Promise {
    /// epsilon after this number of rounds with a result, for neighbours that differ by one device.
    #[must_use]
    pub fn epsilon(&self, rounds: u32) -> f64 {
        let Mechanism { noise: multiplier, rate, .. } = self.mechanism;
        Account::of(Noise { multiplier, rate }, rounds).epsilon(self.delta)
    }

    /// How many of these rounds the budget allows.
    #[must_use]
    pub fn affordable(&self, rounds: u32) -> u32 {
        let Some(budget) = self.budget else { return rounds };
        if self.epsilon(rounds) <= budget {
            return rounds;
        }
        // `least` are affordable and `most` are not.
        let (mut least, mut most) = (0, rounds);
        while most - least > 1 {
            let middle = least + (most - least) / 2;
            if self.epsilon(middle) <= budget { least = middle } else { most = middle }
        }
        least
    }

    /// Says what is promised after this number of rounds, and under which assumptions, for people.
    #[must_use]
    pub fn said(&self, rounds: u32) -> String {
        let Self { mechanism: Mechanism { clip, noise, rate, .. }, delta, .. } = self;
        let asked = if *rate < 1.0 {
            format!("every device asked with probability {rate}")
        } else {
            "every device asked in every round".to_owned()
        };
        format!(
            "epsilon {:.3} at delta {delta:e} after {rounds} rounds, for one device more or less: updates clipped to {clip}, noise {noise}, \
             {asked}, sums divided by {} devices; the server is trusted, and who can take part does not depend on the data",
            self.epsilon(rounds),
            self.mechanism.expected()
        )
    }
}

/// Whether this delta is no promise among this number of devices: with it even the publication of a whole update of one of them at
/// random would count as private.
#[must_use]
pub fn is_no_promise(delta: f64, devices: u32) -> bool {
    delta * f64::from(devices) >= 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn promise(budget: f64) -> Promise {
        let mechanism = Mechanism { clip: 1.0, noise: 1.0, rate: 0.1, devices: 1000 };
        Promise { mechanism, delta: 1e-5, budget: Some(budget) }
    }

    #[test]
    fn the_last_affordable_round_stays_within_the_budget_and_the_next_does_not() {
        for budget in [3.0, 5.0, 7.903_851] {
            let promise = promise(budget);
            let rounds = promise.affordable(100_000);
            assert!(rounds > 0 && promise.epsilon(rounds) <= budget, "{rounds}");
            assert!(promise.epsilon(rounds + 1) > budget, "{rounds}");
        }
        assert_eq!(promise(7.903_851).affordable(100_000), 100, "the golden number of the account");
        assert_eq!(promise(7.903_851).affordable(5), 5);
        assert_eq!(promise(0.001).affordable(5), 0);
        assert_eq!(Promise { budget: None, ..promise(1.0) }.affordable(5), 5);
    }
}
