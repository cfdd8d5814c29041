//! Differential privacy of devices: what a run gives away of one device's participation, and what it may.
//!
//! The mechanism is [`shared::aggregation::Mechanism`]; here are its account and its budget.

pub mod account;
mod complementary;
mod composition;
mod fourier;
mod gaussian;
mod losses;
pub mod noise;
pub mod plan;
mod renyi;
mod skellam;

use std::num::NonZeroU32;

use shared::aggregation::{DeviceNoise, Mechanism};

use account::{Account, Method, Spent};
use noise::Noise;

/// What a private run promises.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Promise {
    /// How sums are made private.
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
    /// The account of its rounds.
    #[must_use]
    fn account(&self) -> Account {
        let Mechanism { noise: multiplier, rate, .. } = self.mechanism;
        // A device that is part of K sums, each with an update of at most C, changes all of them together by sqrt(K) C at most: that is
        // what K rounds that ask every device give away.
        let rate = if self.participations.is_some() { 1.0 } else { rate };
        Account::of(Noise { multiplier, rate })
    }

    /// What this number of rounds gives away of a device by an account: it was part of no more than K.
    fn spent(&self, account: &Account, rounds: u32) -> Spent {
        let rounds = self.participations.map_or(rounds, |most| most.min(rounds));
        match &self.device_noise {
            Some(noise) => {
                Spent { epsilon: skellam::account(noise, rounds).epsilon(self.delta), method: Method::Renyi }
            }
            None => account.spent(rounds, self.delta),
        }
    }

    /// The bound on participations.
    pub(crate) fn most(&self) -> NonZeroU32 {
        self.participations.and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MAX)
    }

    /// epsilon after this number of rounds with a result, for neighbours that differ by one device.
    #[must_use]
    pub fn epsilon(&self, rounds: u32) -> f64 {
        self.spent(&self.account(), rounds).epsilon
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
            "epsilon {epsilon:.3} at delta {delta:e} after {rounds} rounds, for one device more or less: updates clipped to {clip}, noise {noise}, \
             {asked}, sums divided by {} devices; the account is that {method}; the server is trusted, and who can take part does not \
             depend on the data",
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
    fn without_sampling_a_device_gives_away_its_participations() {
        // Golden numbers of `gaussian`: z = 5 and 20 participations at delta 1e-5.
        let mechanism = Mechanism { clip: 1.0, noise: 5.0, rate: 0.1, devices: 1000 };
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
