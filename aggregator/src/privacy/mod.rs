//! Differential privacy of devices: what a run gives away of one device's participation, and what it may.
//!
//! The mechanism is [`shared::aggregation::Mechanism`]; here are its account and its budget.

pub mod account;
pub mod adaptive;
mod composition;
mod fourier;
mod gaussian;
mod losses;
pub mod plan;

use std::num::NonZeroU32;

use shared::aggregation::{AdaptiveClip, DeviceNoise, Mechanism};
use shared::privacy::{Noise, device_noise};

use account::{Account, Method, Spent};

/// What a private run promises.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Promise {
    /// How sums are made private: in the first round, if the bound adapts.
    pub mechanism: Mechanism,
    /// K: the rounds that ask a device at most, in a run whose account makes nothing of how devices are drawn; `None` for sampling.
    pub participations: Option<u32>,
    /// The noise that devices add, if they do and the server does not.
    pub device_noise: Option<DeviceNoise>,
    /// delta: the probability with which epsilon does not hold.
    pub delta: f64,
    /// The epsilon that is not exceeded; `None` if there is no budget.
    pub budget: Option<f64>,
}

impl Promise {
    /// The account of its rounds, which takes a while to make.
    #[must_use]
    pub fn account(&self) -> Account {
        let Mechanism { noise: multiplier, rate, .. } = self.mechanism;
        // A device that is part of K sums, each with an update of at most C, changes all of them together by sqrt(K) C at most: that is
        // what K rounds that ask every device give away. Where C differs from round to round so does the noise, in proportion: in
        // units of it a device changes each sum by 1 / z.
        let rate = if self.participations.is_some() { 1.0 } else { rate };
        Account::of(Noise { multiplier, rate })
    }

    /// What this number of rounds gives away of a device by an account: it was part of no more than K.
    fn spent(&self, account: &Account, rounds: u32) -> Spent {
        let rounds = self.participations.map_or(rounds, |most| most.min(rounds));
        match &self.device_noise {
            Some(noise) => {
                Spent { epsilon: device_noise(noise, rounds).epsilon(self.delta), method: Method::Renyi }
            }
            None => account.spent(rounds, self.delta),
        }
    }

    /// How the sum of a round is made private whose updates have this bound.
    #[must_use]
    pub(crate) fn mechanism_with(&self, clip: Option<f64>) -> Mechanism {
        Mechanism { clip: clip.unwrap_or(self.mechanism.clip), ..self.mechanism }
    }

    /// The bound on updates, for people.
    fn bound(&self) -> String {
        let Mechanism { clip, noise, adaptive, .. } = self.mechanism;
        let (Some(AdaptiveClip { quantile, noise: deviation, .. }), Some(of_sum)) =
            (adaptive, self.mechanism.noise_of_sum())
        else {
            return format!("updates clipped to {clip}, noise {noise}");
        };
        format!(
            "updates clipped to a bound that begins with {clip} and follows the {quantile} quantile of their lengths, noise {noise}, of which the \
             number of updates within the bound has its share (noise {deviation} on it, {of_sum:.4} on the sum)"
        )
    }

    /// The bound on participations.
    pub(crate) fn most(&self) -> NonZeroU32 {
        self.participations.and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MAX)
    }

    /// epsilon after this number of rounds with a result, for neighbours that differ by one device.
    #[must_use]
    pub fn epsilon(&self, rounds: u32) -> f64 {
        self.epsilon_by(&self.account(), rounds)
    }

    /// The same by its account.
    #[must_use]
    pub fn epsilon_by(&self, account: &Account, rounds: u32) -> f64 {
        self.spent(account, rounds).epsilon
    }

    /// How many of these rounds the budget allows.
    #[must_use]
    pub fn affordable(&self, rounds: u32) -> u32 {
        let Some(budget) = self.budget else { return rounds };
        let account = self.account();
        let stays = |rounds: u32| self.spent(&account, rounds).epsilon <= budget;
        if stays(rounds) {
            return rounds;
        }
        // `least` are affordable and `most` are not.
        let (mut least, mut most) = (0, rounds);
        while most - least > 1 {
            let middle = least + (most - least) / 2;
            if stays(middle) { least = middle } else { most = middle }
        }
        least
    }

    /// Says what is promised after this number of rounds, and under which assumptions, for people.
    #[must_use]
    pub fn said(&self, rounds: u32) -> String {
        let Self { mechanism: Mechanism { clip, noise, rate, .. }, delta, .. } = self;
        if let Some(DeviceNoise { devices, over, .. }) = self.device_noise {
            return format!(
                "epsilon {:.3} at delta {delta:e} after {rounds} rounds, for the update of one device or nothing in its place: updates \
                 clipped to {clip}, noise {noise} by the devices themselves in every sum of {devices} or more, sums divided by {over}; \
                 the server sees such sums alone, follows the protocol, and knows who takes part",
                self.epsilon(rounds)
            );
        }
        let asked = if *rate < 1.0 {
            format!("every device asked with probability {rate}")
        } else {
            "every device asked in every round".to_owned()
        };
        let bound = self
            .participations
            .map(|most| format!(" and in at most {most} rounds, no account taken of sampling"));
        let asked = asked + &bound.unwrap_or_default();
        let Spent { epsilon, method } = self.spent(&self.account(), rounds);
        format!(
            "epsilon {epsilon:.3} at delta {delta:e} after {rounds} rounds, for one device more or less: {}, {asked}, sums divided by {} \
             devices; the account is that {method}; the server is trusted, and who can take part does not depend on the data",
            self.bound(),
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
        let mechanism = Mechanism { clip: 1.0, noise: 1.0, rate: 0.1, devices: 1000, adaptive: None };
        Promise { mechanism, participations: None, device_noise: None, delta: 1e-5, budget: Some(budget) }
    }

    #[test]
    fn the_last_affordable_round_stays_within_the_budget_and_the_next_does_not() {
        for budget in [3.0, 5.0, 7.0475] {
            let promise = promise(budget);
            let rounds = promise.affordable(100_000);
            assert!(rounds > 0 && promise.epsilon(rounds) <= budget, "{rounds}");
            assert!(promise.epsilon(rounds + 1) > budget, "{rounds}");
        }
        assert_eq!(promise(7.0475).affordable(100_000), 100, "the golden number is 7.046603");
        assert_eq!(promise(7.0475).affordable(5), 5);
        assert_eq!(promise(0.001).affordable(5), 0);
        assert_eq!(Promise { budget: None, ..promise(1.0) }.affordable(5), 5);
    }

    #[test]
    fn what_a_bound_that_adapts_takes_is_part_of_the_same_noise() {
        let fixed = promise(8.0);
        let mechanism = Mechanism { adaptive: Some(adaptive::usual(1.0, 100.0)), ..fixed.mechanism };
        let adaptive = Promise { mechanism, ..fixed };
        assert_eq!(adaptive.epsilon(50).to_bits(), fixed.epsilon(50).to_bits());
        let said = adaptive.said(50);
        for part in
            ["begins with 1 ", "the 0.5 quantile", "noise 1, of which", "noise 5 on it, 1.0050 on the sum"]
        {
            assert!(said.contains(part), "{part:?} is not in {said:?}");
        }
        assert!(
            fixed.said(50).contains("updates clipped to 1, noise 1, every device asked"),
            "{}",
            fixed.said(50)
        );
        assert_eq!(adaptive.mechanism_with(Some(0.25)), Mechanism { clip: 0.25, ..mechanism });
        assert_eq!(fixed.mechanism_with(None), fixed.mechanism);
    }

    #[test]
    fn without_sampling_a_device_gives_away_its_participations() {
        // Golden numbers of `gaussian`: z = 5 and 20 participations at delta 1e-5.
        let mechanism = Mechanism { clip: 1.0, noise: 5.0, rate: 0.1, devices: 1000, adaptive: None };
        let promise = Promise {
            mechanism,
            participations: Some(20),
            device_noise: None,
            delta: 1e-5,
            budget: Some(3.849),
        };
        for (rounds, least, most) in
            [(20, 3.848_610, 3.848_611), (21, 3.848_610, 3.848_611), (5000, 3.848_610, 3.848_611)]
        {
            let epsilon = promise.epsilon(rounds);
            assert!(epsilon >= least && epsilon <= most, "{rounds}: {epsilon}");
        }
        assert!(promise.epsilon(19) < promise.epsilon(20));
        assert_eq!(promise.affordable(5000), 5000, "no round after the twentieth costs more");
        assert_eq!(Promise { budget: Some(3.848), ..promise }.affordable(5000), 19);
        let said = promise.said(5000);
        assert!(said.contains("in at most 20 rounds, no account taken of sampling"), "{said}");
        assert!(said.starts_with("epsilon 3.849 ") && said.contains("divided by 100 devices"), "{said}");
    }
}
