//! What is known of a model's training: in sums over all clients, since a card may be published.

use models::{Evaluation, Measure, PerClass};

/// How a model was trained. It has no names of devices or machines and no paths.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Training {
    /// The run's name.
    pub run: String,
    /// The algorithm.
    pub algorithm: String,
    /// The data set.
    pub data: String,
    /// Who has trained.
    pub clients: Clients,
    /// The round of training that left the model.
    pub round: u32,
    /// When the run began, in UTC, if it is known.
    pub begun: Option<String>,
    /// The version of this program that the run was begun with, if it is known.
    pub version: Option<String>,
    /// Keys that have another value than by default, and their values.
    pub changed: Vec<(String, String)>,
    /// What the run promises of its devices' privacy, if it does.
    pub privacy: Option<String>,
    /// The fewest devices whose updates the server has learned the sum of, if it has seen no single update.
    pub hidden_among: Option<u32>,
    /// Updates that counted and bytes that clients have sent, over all rounds of the run, if that may be published.
    pub sent: Option<(usize, u64)>,
    /// How well the model does on the server's test set, if it was tested.
    pub tested: Option<Tested>,
}

/// The clients of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clients {
    /// How many it is for.
    pub count: u32,
    /// Whether they were simulated.
    pub simulated: bool,
    /// Samples of each class over all of them, if that is known and may be published.
    pub samples: Option<Vec<usize>>,
}

/// A model's test.
#[derive(Clone, Debug, PartialEq)]
pub struct Tested {
    /// From 0 to 1; `None` where numbers are predicted.
    pub accuracy: Option<f64>,
    /// The mean loss, if it is finite: the cross-entropy in nats for classification.
    pub loss: Option<f64>,
    /// What else was measured, if the task is not classification.
    pub measures: Vec<(Measure, f64)>,
    /// How it does class by class, and on how many samples, if that is known.
    pub by_class: Option<(Evaluation, PerClass)>,
}
