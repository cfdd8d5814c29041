//! What a validated configuration says, in the types that the program runs on.

use std::path::PathBuf;

use shared::aggregation::Mixture;
use shared::data::{DataSet, Partition, ReadOptions};

use crate::round::Plateau;

/// What is learned from, and who has it.
#[derive(Clone, Debug, PartialEq)]
pub struct DataPlan {
    /// Which data set: its name, shape and classes.
    pub set: &'static DataSet,
    /// Where its samples come from.
    pub source: Source,
    /// How they are read, where files leave something open.
    pub reading: ReadOptions,
    /// Clients in the federation, K; at least 1. With devices, how many are expected: more may join.
    pub clients: usize,
    /// How a simulation divides the training samples among them.
    pub partition: Partition,
    /// Seed of who has which samples; that of the run unless `data.seed` says otherwise.
    pub seed: u64,
    /// Training samples that the server keeps to choose models by, at least 1; `None` if it keeps none.
    pub validation: Option<usize>,
    /// Whether training and test samples are divided anew.
    pub pooled: bool,
}

/// What the server trains itself, and how what clients have learned is mixed with it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServerPlan {
    /// Training samples that it keeps with their labels, at least 1; `None` if it has none.
    pub labelled: Option<usize>,
    /// Epochs of its own training in a round; at least 1.
    pub epochs: u32,
    /// Samples in a batch of it; 0 for all at once.
    pub batch: u32,
    /// The weight of its loss; above 0.
    pub weight: f64,
    /// How its model is mixed with the others. Without a share it does not train.
    pub mixture: Mixture,
    /// When it trains on at a lower rate.
    pub plateau: Plateau,
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
    /// What the trainers of the clients read.
    Trainers,
    /// The files of the set.
    Files {
        /// The folder they are in; absolute, and not yet looked into.
        folder: PathBuf,
        /// Training samples to use at most; `None` uses all.
        limit: Option<usize>,
        /// Test samples to use at most; `None` uses all.
        test_limit: Option<usize>,
    },
}
