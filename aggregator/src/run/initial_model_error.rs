//! Why a run cannot begin with the model that `model.from` names.

use std::path::PathBuf;

use super::misfit::{Misfit, listed};

/// Why a run cannot begin with the model that `model.from` names.
#[derive(Debug, thiserror::Error)]
pub enum InitialModelError {
    /// Nothing is there that could be it.
    #[error("there is no model to begin with in {}: {reason}; --from (model.from) takes the directory of a run, or a model's file", place.display())]
    Absent {
        /// What was named.
        place: PathBuf,
        /// What is missing.
        reason: String,
    },
    /// It cannot be read.
    #[error("the model to begin with, {}, cannot be read: {reason}", place.display())]
    Unreadable {
        /// What was named.
        place: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Its run leaves no single model that was learned.
    #[error("{} has no model to begin with: {reason}", place.display())]
    NotOne {
        /// What was named.
        place: PathBuf,
        /// What it has instead.
        reason: String,
    },
    /// It has a value that is not a number.
    #[error(
        "the model to begin with, {}, has a value in `{tensor}` that is not a number: its training diverged; begin with another one",
        place.display()
    )]
    NotFinite {
        /// What was named.
        place: PathBuf,
        /// The tensor.
        tensor: String,
    },
    /// Its tensors are not those of the network.
    #[error(
        "the model to begin with, {}, does not fit the network {network}: {}; begin with a model of the same network, with as many \
         classes",
        place.display(), listed(misfits)
    )]
    Misfit {
        /// What was named.
        place: PathBuf,
        /// The network's name.
        network: String,
        /// Every tensor that does not fit.
        misfits: Vec<Misfit>,
    },
    /// The model of another round is there.
    #[error("{} has no model of round {asked} (model.from.in-round), but {there}", place.display())]
    OtherRound {
        /// What was named.
        place: PathBuf,
        /// The round that was asked for.
        asked: u32,
        /// What was found there.
        there: String,
    },
    /// Other parameters are there.
    #[error(
        "{} holds another model by now: its parameters have the digest {found}, and model.from.digest asks for {asked}; name the place \
         of that one, or leave model.from.digest out",
        place.display()
    )]
    OtherParameters {
        /// What was named.
        place: PathBuf,
        /// The digest that was asked for.
        asked: String,
        /// The digest of what was found there.
        found: String,
    },
}

impl InitialModelError {
    /// Whether the configuration asks for something that makes no sense, and not something on this machine is in the way.
    #[must_use]
    pub fn is_of_configuration(&self) -> bool {
        match self {
            Self::Misfit { .. }
            | Self::NotOne { .. }
            | Self::OtherRound { .. }
            | Self::OtherParameters { .. } => true,
            Self::Absent { .. } | Self::Unreadable { .. } | Self::NotFinite { .. } => false,
        }
    }
}
