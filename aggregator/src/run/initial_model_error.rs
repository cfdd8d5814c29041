//! Why a run cannot begin with the model that `model.from` names.

use std::path::{Path, PathBuf};

use super::foreign::NamesError;
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
         classes, or have what differs drawn anew (model.fresh = [\"head.*\"])",
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
    /// It is not safetensors, but what `torch.save` writes.
    #[error(
        "the model to begin with, {}, is a file of torch.save, which is a program and is not run here; make it safetensors where PyTorch \
         is installed: {}",
        place.display(), conversion(place)
    )]
    Pickle {
        /// What was named.
        place: PathBuf,
    },
    /// Tensors of another library cannot be found by its names.
    #[error(transparent)]
    Names(#[from] NamesError),
    /// A pattern of `model.fresh` stands for no tensor of the network.
    #[error("model.fresh = {pattern:?} stands for no tensor of the network {network}; nearest are {}", nearest.join(", "))]
    NothingFresh {
        /// The pattern.
        pattern: String,
        /// The network's name.
        network: String,
        /// Names of its tensors that are nearest to the pattern.
        nearest: Vec<String>,
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

/// One line of Python that makes safetensors of what `torch.save` has written.
fn conversion(place: &Path) -> String {
    let made = place.with_extension("safetensors");
    format!(
        "python3 -c \"import torch, safetensors.torch as s; m = torch.load('{}', map_location='cpu', weights_only=True); \
         s.save_file({{k: v.clone().contiguous() for k, v in m.items()}}, '{}')\"",
        place.display(),
        made.display()
    )
}

impl InitialModelError {
    /// Whether the configuration asks for something that makes no sense, and not something on this machine is in the way.
    #[must_use]
    pub fn is_of_configuration(&self) -> bool {
        match self {
            Self::Misfit { .. }
            | Self::Pickle { .. }
            | Self::Names(_)
            | Self::NothingFresh { .. }
            | Self::NotOne { .. }
            | Self::OtherRound { .. }
            | Self::OtherParameters { .. } => true,
            Self::Absent { .. } | Self::Unreadable { .. } | Self::NotFinite { .. } => false,
        }
    }
}
