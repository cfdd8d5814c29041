//! The run specification as it travelled before protocol version 6: by position, in postcard. These types keep their bytes for as long
//! as version 5 is spoken; what came later has no place in them.

use std::time::Duration;

use models::{Initialisation, Layer, Precision, Sgd};
use serde::{Deserialize, Serialize};

use crate::data::preparation::{Normalisation, Padding};
use crate::id::RunId;
use crate::spec::personalisation::{Method, Mix, Reports, Tuning};
use crate::spec::{LabelsAt, Measures};

/// A specification by position.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PositionalSpec {
    /// `run.id`
    pub run: RunId,
    /// `run.name`
    pub name: String,
    /// `run.seed`
    pub seed: u64,
    /// `run.rounds`
    pub rounds: u32,
    /// `[data]`
    pub data: PositionalData,
    /// The network.
    pub architecture: PositionalArchitecture,
    /// `[training]`
    pub training: PositionalTraining,
    /// The algorithm's name, and its hyper-parameters by position.
    pub algorithm: (String, Vec<u8>),
    /// `[aggregation]`: weights, rule, server optimiser and buffers. Devices go by the last alone.
    pub aggregation: PositionalAggregation,
    /// `update.broadcast` and `update.precision`
    pub precision: (Precision, Precision),
    /// `evaluate.on-clients-every` and `evaluate.hold-out`
    pub evaluation: (u32, f64),
    /// `[personalisation]`
    pub personalisation: Option<Box<PositionalPersonalisation>>,
    /// `connection.heartbeat`
    pub heartbeat: Duration,
}

/// A network of which everything is learned, by position.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PositionalArchitecture {
    /// Its name.
    pub name: String,
    /// Shape of a prepared sample.
    pub input: Vec<usize>,
    /// Number of classes.
    pub classes: usize,
    /// What weights start as.
    pub initialisation: Initialisation,
    /// From samples to features.
    pub extractor: Vec<Layer>,
    /// From features to representations.
    pub projection: Vec<Layer>,
    /// From representations to logits.
    pub head: Vec<Layer>,
}

/// What samples are, by position.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PositionalData {
    /// Of a sample before it is prepared.
    pub shape: Vec<usize>,
    /// Empty where labels are numbers.
    pub class_names: Vec<String>,
    /// How samples are changed at random.
    pub augmentation: PositionalAugmentation,
    /// How samples are scaled.
    pub normalisation: Normalisation,
    /// Who has the labels.
    pub labels: LabelsAt,
}

/// Shift, padding, crop, flip, brightness, contrast, saturation and erasing.
pub type PositionalAugmentation = (u32, Padding, u32, f32, f32, f32, f32, f32);

/// Local training, by position.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PositionalTraining {
    /// E.
    pub epochs: u32,
    /// B.
    pub batch: u32,
    /// Whether a smaller last batch is left out.
    pub drop_last: bool,
    /// The optimiser.
    pub sgd: Sgd,
    /// How its rate falls.
    pub schedule: crate::schedule::Schedule,
    /// Greatest norm of a gradient.
    pub clip_norm: Option<f64>,
    /// What is measured.
    pub measure: Measures,
    /// Chunks of a client's data.
    pub chunks: u32,
}

/// What happens to the updates, by position.
pub type PositionalAggregation = (
    crate::aggregation::Weights,
    crate::aggregation::Rule,
    crate::aggregation::ServerOptimizer,
    crate::aggregation::Buffers,
);

/// Personal models, by position.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PositionalPersonalisation {
    /// The ways to a personal model.
    pub methods: Vec<Method>,
    /// Rounds between them.
    pub every: u32,
    /// The expert's share of the samples.
    pub expert_share: f64,
    /// What is mixed.
    pub mix: Mix,
    /// How FT's model learns.
    pub whole: Tuning,
    /// How FB's head learns.
    pub head: Tuning,
    /// How the gate learns: epochs, samples in a batch, rate.
    pub gate: (u32, u32, f64),
    /// What the server is told.
    pub report: Reports,
}
