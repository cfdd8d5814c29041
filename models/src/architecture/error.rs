//! What can be wrong with an architecture.

use std::fmt;

use super::MAX_ELEMENTS;

/// Why an architecture cannot exist: a mistake of whoever wrote or chose it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArchitectureError {
    /// No built-in has this name.
    #[error("there is no model `{name}`; known are {}", .known.join(", "))]
    UnknownModel {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: Vec<&'static str>,
    },
    /// A normalisation was chosen for a model that has none to choose.
    #[error("`{name}` has no normalisation to choose; {} have", .have.join(" and "))]
    NoNorm {
        /// The model.
        name: String,
        /// The models that have one.
        have: Vec<&'static str>,
    },
    /// A layer cannot take what the layer before it gives.
    #[error("layer `{layer}` needs {needs} and gets the shape {got:?}")]
    Input {
        /// The layer, as `part.name` or `part.kind-position`.
        layer: String,
        /// What it needs, in words.
        needs: String,
        /// The shape it gets, without the batch.
        got: Vec<usize>,
    },
    /// A layer's own settings make no sense.
    #[error("layer `{layer}`: {problem}")]
    Layer {
        /// The layer, as `part.name` or `part.kind-position`.
        layer: String,
        /// What is wrong, in words.
        problem: &'static str,
    },
    /// The two branches of a residual block give different shapes, which cannot be added.
    #[error(
        "layer `{layer}` adds its body, which gives the shape {body:?}, to its shortcut, which gives {shortcut:?}"
    )]
    Residual {
        /// The layer, as `part.residual-position`.
        layer: String,
        /// The shape the body gives.
        body: Vec<usize>,
        /// The shape the shortcut gives; without one, the shape of the input.
        shortcut: Vec<usize>,
    },
    /// The last layer does not give one logit per class.
    #[error(
        "the head gives the shape {got:?} and {classes} classes need [{classes}] or [positions, {classes}]"
    )]
    Output {
        /// The shape the last layer gives.
        got: Vec<usize>,
        /// The number of classes.
        classes: usize,
    },
    /// More of something than [`MAX_ELEMENTS`](super::MAX_ELEMENTS).
    #[error(
        "layer `{layer}` brings the model to {} {quantity}; {MAX_ELEMENTS} are the limit",
        .count.map_or_else(|| format!("more than {}", usize::MAX), |count| count.to_string())
    )]
    TooLarge {
        /// The layer, as `part.name` or `part.kind-position`.
        layer: String,
        /// Of what.
        quantity: Quantity,
        /// How many; none if that is more than a `usize` holds.
        count: Option<usize>,
    },
}

impl ArchitectureError {
    /// The layer that it is about, as `part.name` or `part.kind-position`.
    #[must_use]
    pub fn layer(&self) -> Option<&str> {
        match self {
            Self::Input { layer, .. }
            | Self::Layer { layer, .. }
            | Self::Residual { layer, .. }
            | Self::TooLarge { layer, .. } => Some(layer),
            Self::UnknownModel { .. } | Self::NoNorm { .. } | Self::Output { .. } => None,
        }
    }
}

/// What an architecture can have too much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Values of parameters and buffers.
    Parameters,
    /// Values at once, between two layers or within one.
    Values,
    /// Values that a pass of one sample keeps.
    Activations,
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Parameters => "parameters",
            Self::Values => "values at once",
            Self::Activations => "values that a pass of one sample keeps",
        })
    }
}
