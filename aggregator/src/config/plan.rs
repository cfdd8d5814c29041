//! What a validated configuration says, in the types that the program runs on.

use std::path::PathBuf;

use shared::aggregation::Mixture;
use shared::data::{Partition, ReadOptions};

use super::DataSet;

/// What is learned from, and who has it.
#[derive(Clone, Debug, PartialEq)]
pub struct DataPlan {
    /// Which data set: its name, shape and classes.
    pub set: DataSet,
    /// Where its samples come from.
    pub source: Source,
    /// How they are read, where files leave something open.
    pub reading: ReadOptions,
    /// Clients in the federation, K; at least 1. With devices, how many are expected: more may join.
    pub clients: usize,
    /// How a simulation divides the training samples among them.
    pub partition: Partition,
}

/// What the server trains itself, and how what clients have learned is mixed with it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServerPlan {
    /// Training samples that it keeps with their labels, at least 1; `None` if it has none.
    pub labelled: Option<usize>,
    /// Epochs of its own training in a round; at least 1.
    pub epochs: u32,
    /// The weight of its loss; above 0.
    pub weight: f64,
    /// What becomes of it. Where nothing of it counts, it does not train.
    pub mixture: Mixture,
}

/// Where samples come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Drawn from the run's seed, as many as asked for.
    Drawn {
        /// Training samples.
        train: usize,
        /// Test samples.
        test: usize,
    },
    /// The files of the set.
    Files {
        /// The folder they are in; absolute, and not yet looked into.
        folder: PathBuf,
        /// Training samples to use at most; `None` uses all.
        limit: Option<usize>,
    },
}

/// Testing of the global model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvaluatePlan {
    /// Rounds between evaluations; 0 is never.
    pub every: u32,
    /// Test samples at once; at least 1.
    pub batch: usize,
}

impl EvaluatePlan {
    /// Whether the model is tested after round `round` of `rounds`, counted from 1: every so many rounds, and after
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
            let plan = EvaluatePlan { every, batch: 500 };
            (1..=rounds).filter(|&round| plan.after(round, rounds)).collect()
        };
        assert_eq!(after(3, 8), [3, 6, 8]);
        assert_eq!(after(1, 3), [1, 2, 3]);
        assert_eq!(after(0, 3), [0_u32; 0]);
    }
}
