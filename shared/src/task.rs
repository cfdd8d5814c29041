//! What a client is asked to do in a round, and how far it is.

use serde::{Deserialize, Serialize};

/// What a client is asked to do with the model that it is sent; any of these together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskKind {
    /// Train it and send what was learned. Without this the update is an empty payload, and its report is what counts.
    pub train: bool,
    /// Test it, as it was sent, on the device's own test samples.
    pub evaluate: bool,
    /// Make personal models from it, as it was sent, and test them: as [`RunSpec::personalised`](crate::spec::RunSpec::personalised) says.
    pub personalise: bool,
}

impl TaskKind {
    /// Training alone.
    pub const TRAIN: Self = Self { train: true, evaluate: false, personalise: false };

    /// Whether anything is measured of the model that clients are sent.
    #[must_use]
    pub fn tests(self) -> bool {
        self.evaluate || self.personalise
    }

    /// What a person would say that it is about. Tests come along with training or personal models, and are it where they are
    /// alone.
    #[must_use]
    pub fn purpose(self) -> Purpose {
        match self {
            Self { train: true, .. } => Purpose::Training,
            Self { personalise: true, .. } => Purpose::Personalising,
            Self { .. } => Purpose::Testing,
        }
    }
}

/// What a client's [`TaskKind`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The model of all learns from the device's data.
    Training,
    /// The device makes models of its own.
    Personalising,
    /// The model is tested on the device.
    Testing,
}

/// How far local training is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The round in training, if any.
    pub round: Option<u32>,
    /// Optimiser steps done.
    pub done: u64,
    /// Optimiser steps to do.
    pub total: u64,
}
