//! `[training]`: E epochs over shuffled data in batches of B, on every client.

use models::{AdamSettings, DecayOn, Sgd};

use crate::schedule::Schedule;
use crate::settings::Kind;

crate::named!(DecayOn);

crate::section! {
    /// Local training.
    #[derive(Copy)]
    pub struct Training {
        /// Local epochs E; 0 trains nothing, to measure the system alone
        pub epochs: u32 = 1, in Kind::COUNT;
        /// Batch size B; 0 is all local data at once (B = infinity in the paper)
        pub batch: u32 = 16, in Kind::COUNT;
        /// Leave out an epoch's last batch if it is smaller than the others
        ///
        /// A client with fewer samples than a batch still trains: on all of them at once.
        pub drop_last: bool = false;
        /// The local optimiser, with the learning rate of the first round
        pub optimizer: Optimizer = Optimizer::default();
        /// Keep the optimiser's state on the device from round to round
        ///
        /// Its velocity, or Adam's moments and number of steps. Each round begins without it otherwise.
        pub keep_optimizer: bool = false;
        /// What weight decay takes from: all; weights, not biases and normalisation; hidden-linear
        ///
        /// The last is the weights of linear layers but the last one, as in `TensorFlow`'s tutorial on CIFAR-10.
        pub decay_on: DecayOn = DecayOn::All;
        /// How the learning rate falls from round to round
        pub schedule: Schedule = Schedule::default();
        /// Rounds over which the learning rate rises linearly to the schedule's; 0 is none
        pub warmup: u32 = 0, in Kind::COUNT;
        /// Move on in schedule and warm-up with every step of a client, not from round to round
        pub schedule_by_step: bool = false;
        /// Greatest norm of a batch's gradient; longer ones are shortened to it
        ///
        /// Of all parameters together, before corrections and weight decay.
        pub clip_norm: Option<f64> = None, in Kind::RATE, unset "no bound", was "clip";
        /// What clients measure beside the loss
        pub measure: Measures = Measures::default();
        /// Chunks of a client's data, one of which it trains on in each round; 1 is all of it
        pub chunks: u32 = 1, in Kind::POSITIVE, was "data.slices";
    }
}

crate::choice! {
    /// The local optimiser.
    pub enum Optimizer {
        /// Stochastic gradient descent
        Sgd {
            /// Learning rate
            learning_rate: f64 = 0.2, in Kind::RATE, was "rate";
            /// Share of the velocity that is kept from step to step; 0 is plain SGD
            momentum: f64 = 0.0, in Kind::SHARE;
            /// Weight decay (L2)
            weight_decay: f64 = 0.0, in Kind::NOT_NEGATIVE, was "decay";
        }
        /// Stochastic gradient descent with Nesterov's momentum
        Nesterov {
            /// Learning rate
            learning_rate: f64 = 0.1, in Kind::RATE;
            /// Share of the velocity that is kept from step to step
            momentum: f64 = 0.9, in Kind::SHARE;
            /// Weight decay (L2)
            weight_decay: f64 = 0.0, in Kind::NOT_NEGATIVE;
        }
        /// Adam (Kingma and Ba 2015); its weight decay is a part of the gradient
        Adam {
            /// Learning rate
            learning_rate: f64 = 1e-3, in Kind::RATE;
            /// Share of the mean gradient that is kept from step to step
            beta1: f64 = 0.9, in Kind::SHARE;
            /// Share of the mean squared gradient that is kept from step to step
            beta2: f64 = 0.999, in Kind::SHARE;
            /// What is added to the root of the mean squared gradient
            epsilon: f64 = 1e-8, in Kind::RATE;
            /// Weight decay (L2)
            weight_decay: f64 = 0.0, in Kind::NOT_NEGATIVE;
        }
        /// Adam with decoupled weight decay (Loshchilov and Hutter 2019)
        Adamw {
            /// Learning rate
            learning_rate: f64 = 1e-3, in Kind::RATE;
            /// Share of the mean gradient that is kept from step to step
            beta1: f64 = 0.9, in Kind::SHARE;
            /// Share of the mean squared gradient that is kept from step to step
            beta2: f64 = 0.999, in Kind::SHARE;
            /// What is added to the root of the mean squared gradient
            epsilon: f64 = 1e-8, in Kind::RATE;
            /// Weight decay: the share of the parameters, times the learning rate, that each step takes away
            weight_decay: f64 = 0.01, in Kind::NOT_NEGATIVE;
        }
    }
}

crate::section! {
    /// What clients measure of their training beside the loss, for any algorithm: each is a
    /// [`Metric`](crate::message::Metric) of the report.
    #[derive(Copy, Eq)]
    pub struct Measures {
        /// Report how alike local and global representations are; two forward passes over 256 samples
        pub alignment: bool = false;
        /// Report how far local training has moved the model; costs next to nothing
        pub drift: bool = false;
    }
}

impl Optimizer {
    /// Its settings as the engine takes them.
    #[must_use]
    pub fn to_engine(self) -> models::Optimizer {
        match self {
            Self::Sgd { learning_rate: rate, momentum, weight_decay: decay } => {
                models::Optimizer::Sgd(Sgd { rate, momentum, decay })
            }
            Self::Nesterov { learning_rate: rate, momentum, weight_decay: decay } => {
                models::Optimizer::Nesterov(Sgd { rate, momentum, decay })
            }
            Self::Adam { learning_rate: rate, beta1, beta2, epsilon, weight_decay: decay } => {
                models::Optimizer::Adam(AdamSettings { rate, beta1, beta2, epsilon, decay })
            }
            Self::Adamw { learning_rate: rate, beta1, beta2, epsilon, weight_decay: decay } => {
                models::Optimizer::AdamW(AdamSettings { rate, beta1, beta2, epsilon, decay })
            }
        }
    }

    /// The weight decay.
    #[must_use]
    pub fn decay(self) -> f64 {
        match self {
            Self::Sgd { weight_decay, .. }
            | Self::Nesterov { weight_decay, .. }
            | Self::Adam { weight_decay, .. }
            | Self::Adamw { weight_decay, .. } => weight_decay,
        }
    }
}

impl From<models::Optimizer> for Optimizer {
    fn from(optimizer: models::Optimizer) -> Self {
        match optimizer {
            models::Optimizer::Sgd(Sgd { rate, momentum, decay }) => {
                Self::Sgd { learning_rate: rate, momentum, weight_decay: decay }
            }
            models::Optimizer::Nesterov(Sgd { rate, momentum, decay }) => {
                Self::Nesterov { learning_rate: rate, momentum, weight_decay: decay }
            }
            models::Optimizer::Adam(AdamSettings { rate, beta1, beta2, epsilon, decay }) => {
                Self::Adam { learning_rate: rate, beta1, beta2, epsilon, weight_decay: decay }
            }
            models::Optimizer::AdamW(AdamSettings { rate, beta1, beta2, epsilon, decay }) => {
                Self::Adamw { learning_rate: rate, beta1, beta2, epsilon, weight_decay: decay }
            }
        }
    }
}

impl From<Sgd> for Optimizer {
    fn from(sgd: Sgd) -> Self {
        models::Optimizer::from(sgd).into()
    }
}

impl Training {
    /// The share of the learning rate in round `round`, counted from 1, of `rounds`.
    #[must_use]
    pub fn rate_share(&self, round: u32, rounds: u32) -> f64 {
        self.share_between(f64::from(round.saturating_sub(1)), f64::from(round), rounds)
    }

    /// [`Training::rate_share`] in step `step`, counted from 0, of the `steps` that a client takes in that round.
    #[must_use]
    pub fn rate_share_in_step(&self, round: u32, rounds: u32, (step, steps): (u64, u64)) -> f64 {
        if !self.schedule_by_step {
            return self.rate_share(round, rounds);
        }
        let passed = |steps_done: u64| f64::from(round.saturating_sub(1)) + steps_done as f64 / steps as f64;
        self.share_between(passed(step), passed(step + 1), rounds)
    }

    /// The share from where `begun` rounds have passed to where `done` have.
    fn share_between(&self, begun: f64, done: f64, rounds: u32) -> f64 {
        let warmup = f64::from(self.warmup);
        let warm = if done < warmup { done / warmup } else { 1.0 };
        warm * self.schedule.share(begun, rounds)
    }

    /// Whether the optimiser keeps anything from round to round.
    #[must_use]
    pub fn keeps_optimizer(&self) -> bool {
        self.keep_optimizer && self.optimizer.to_engine().moments() > 0
    }

    /// The size of the batches of a client with this number of samples.
    #[must_use]
    pub fn batch_of(&self, samples: u64) -> u64 {
        if self.batch == 0 { samples } else { u64::from(self.batch).min(samples) }
    }

    /// Steps that a client with this number of samples takes in a round, `tau_k`.
    #[must_use]
    pub fn steps(&self, samples: u64) -> u64 {
        let size = self.batch_of(samples).max(1);
        let batches = if self.drop_last { samples / size } else { samples.div_ceil(size) };
        u64::from(self.epochs) * batches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::float_cmp, reason = "powers of two are exact")]
    fn a_warmup_rises_linearly_to_what_the_schedule_gives() {
        let training =
            Training { warmup: 4, schedule: Schedule::Exponential { gamma: 0.5 }, ..Training::default() };
        let shares = [1, 2, 3, 4, 5].map(|round| training.rate_share(round, 5));
        assert_eq!(shares, [0.25, 0.25, 0.1875, 0.125, 0.0625]);
        assert_eq!([1, 2].map(|round| Training { warmup: 0, ..training }.rate_share(round, 2)), [1.0, 0.5]);
    }

    #[test]
    fn within_a_round_the_rate_changes_only_if_it_is_to() {
        let schedule = Schedule::Cosine { min_factor: 0.0 };
        let by_round = Training { warmup: 2, schedule, ..Training::default() };
        let by_step = Training { schedule_by_step: true, ..by_round };
        for round in 1..=5 {
            let shares = |training: Training| {
                [0, 1, 2, 3].map(|step| training.rate_share_in_step(round, 5, (step, 4)))
            };
            let same = by_round.rate_share(round, 5).to_bits();
            assert!(shares(by_round).iter().all(|share| share.to_bits() == same), "round {round}");
            for (step, found) in shares(by_step).into_iter().enumerate() {
                let begun = f64::from(round - 1) + step as f64 / 4.0;
                let warm = (0.5 * begun + 0.125).min(1.0);
                let expected = warm * 0.5 * (1.0 + (std::f64::consts::PI * begun / 5.0).cos());
                assert!((found - expected).abs() < 1e-15, "round {round}, step {step}: {found} {expected}");
            }
        }
    }
}
