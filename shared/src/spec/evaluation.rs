//! `[evaluate]`: tests of the global model, by the server and by the clients.
//!
//! Clients test the model that they are sent on samples of their own. That costs no broadcast: a client that is asked to train in a
//! round tests the model that it starts from, that of the round before. The last model is sent to all clients for it, in a closing
//! round.

use crate::settings::Kind;
use crate::share;

crate::section! {
    /// Tests of the global model.
    pub struct Evaluation {
        /// Rounds between tests of the global model; 0 is never
        pub every: u32 = 1, in Kind::COUNT;
        /// Test samples at once
        pub batch: u32 = 64, in Kind::POSITIVE;
        /// Rounds between tests by the clients, on samples of their own; 0 is never
        pub on_clients_every: u32 = 0, in Kind::COUNT, was "clients";
        /// Share of a client's samples to test on and not to train on; 0: it has a test split
        pub hold_out: f64 = 0.0, in Kind::SHARE;
        /// Whether clients also tell how their tests go class by class
        ///
        /// That says how many test samples of each class a client has.
        pub by_class: bool = false;
        /// Whether tests of an ensemble also say how far its members are from saying the same
        ///
        /// Each of two augmented views of a sample (`intra-inconsistency`, before training `intra-inconsistency-start`; it needs
        /// augment), and all of them of the same sample (`inter-inconsistency`): 0 is the same.
        pub inconsistency: bool = false;
        /// The program that tests a model of model.parameters here
        ///
        /// A trainer, as devices have: `python3 test.py`.
        pub command: Option<String> = None, in Kind::Text(4096), unset "nothing does";
    }
}

impl Evaluation {
    /// How many of a client's samples are held out: at least one is left to train on.
    #[must_use]
    pub fn held_out(&self, samples: usize) -> usize {
        share::of(self.hold_out, samples).min(samples.saturating_sub(1))
    }

    /// Whether the server tests the model after round `round` of `rounds`, counted from 1: every [`Self::every`] rounds, and after
    /// the last one unless never.
    #[must_use]
    pub fn after(&self, round: u32, rounds: u32) -> bool {
        self.every != 0 && (round.is_multiple_of(self.every) || round == rounds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evaluation_falls_on_multiples_and_the_last_round() {
        let after = |every, rounds| -> Vec<u32> {
            let evaluation = Evaluation { every, ..Evaluation::default() };
            (1..=rounds).filter(|&round| evaluation.after(round, rounds)).collect()
        };
        assert_eq!(after(3, 8), [3, 6, 8]);
        assert_eq!(after(1, 3), [1, 2, 3]);
        assert_eq!(after(0, 3), [0_u32; 0]);
    }
}
