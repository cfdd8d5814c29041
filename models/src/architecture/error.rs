//! Errors in architectures.

use std::fmt;

use super::MAX_ELEMENTS;

/// A mistake in an architecture, or in the choice of one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArchitectureError {
    /// No built-in has this name.
    #[error("there is no model `{name}`; known are {}", .known.join(", "))]
    UnknownModel {
        /// The name asked for.
        name: String,
        /// The known names.
        known: Vec<&'static str>,
    },
    /// A normalisation was chosen for a model without that choice.
    #[error("`{name}` has no normalisation to choose; {} have", .have.join(" and "))]
    NoNorm {
        /// The model.
        name: String,
        /// The models with that choice.
        have: Vec<&'static str>,
    },
    /// A vocabulary was given to a model that reads no tokens.
    #[error("`{name}` reads no text; {} do", .have.join(" and "))]
    NoVocabulary {
        /// The model.
        name: String,
        /// The models that do.
        have: Vec<&'static str>,
    },
    /// A projection was asked for of features that are not one list of numbers.
    #[error("`{name}` has features of the shape {features:?}, and a projection takes one list of numbers")]
    NoProjection {
        /// The model.
        name: String,
        /// The shape of its features.
        features: Vec<usize>,
    },
    /// A layer cannot take the shape of the previous layer's output.
    #[error("layer `{layer}` needs {needs} and gets the shape {got:?}")]
    Input {
        /// The layer, as `part.name` or `part.kind-position`.
        layer: String,
        /// What the layer needs, in words.
        needs: String,
        /// The shape of its input, without the batch.
        got: Vec<usize>,
    },
    /// A layer's settings are not valid.
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
        /// The shape of the body's output.
        body: Vec<usize>,
        /// The shape of the shortcut's output; without a shortcut, the shape of the input.
        shortcut: Vec<usize>,
    },
    /// The body of a squeeze-and-excitation block gives no factor for each channel.
    #[error(
        "layer `{layer}` scales {channels} channels by what its body gives, which has the shape {body:?}"
    )]
    SqueezeExcite {
        /// The layer, as `part.squeeze-excite-position`.
        layer: String,
        /// The channels of its input.
        channels: usize,
        /// The shape of the body's output.
        body: Vec<usize>,
    },
    /// The last layer's output is not one logit per class.
    #[error(
        "the head gives the shape {got:?} and {classes} classes need [{classes}] or [positions, {classes}]"
    )]
    Output {
        /// The shape of the last layer's output.
        got: Vec<usize>,
        /// The number of classes.
        classes: usize,
    },
    /// Only classes can be predicted at several positions of a sample.
    #[error("the head gives the shape {got:?}: for {task} it has to give one prediction for each sample")]
    Positions {
        /// The shape of the last layer's output.
        got: Vec<usize>,
        /// The task.
        task: &'static str,
    },
    /// Huber's loss has no square and no line.
    #[error("Huber's loss needs a number above 0 at which it goes over from a square to a line")]
    Huber,
    /// Tensors stand for a network without layers, and this one has both, or samples with a shape or classes.
    #[error("the network has layers or samples of its own, and tensors as well, which are for one without")]
    LayersAndTensors,
    /// A network without layers was to be run.
    #[error(
        "the network {name} has no layers that could be run here: it is trained and tested by programs of its own \
         (model.parameters)"
    )]
    Opaque {
        /// The network.
        name: String,
    },
    /// The architecture exceeds [`MAX_ELEMENTS`](super::MAX_ELEMENTS).
    #[error(
        "layer `{layer}` brings the model to {} {quantity}; {MAX_ELEMENTS} are the limit",
        .count.map_or_else(|| format!("more than {}", usize::MAX), |count| count.to_string())
    )]
    TooLarge {
        /// The layer, as `part.name` or `part.kind-position`.
        layer: String,
        /// The quantity that exceeds it.
        quantity: Quantity,
        /// How many; `None` if the number overflows.
        count: Option<usize>,
    },
}

impl ArchitectureError {
    /// The layer with the mistake, as `part.name` or `part.kind-position`.
    #[must_use]
    pub fn layer(&self) -> Option<&str> {
        match self {
            Self::Input { layer, .. }
            | Self::Layer { layer, .. }
            | Self::Residual { layer, .. }
            | Self::SqueezeExcite { layer, .. }
            | Self::TooLarge { layer, .. } => Some(layer),
            Self::UnknownModel { .. }
            | Self::NoNorm { .. }
            | Self::NoVocabulary { .. }
            | Self::NoProjection { .. }
            | Self::Output { .. }
            | Self::Positions { .. }
            | Self::Huber
            | Self::LayersAndTensors
            | Self::Opaque { .. } => None,
        }
    }
}

/// A limited quantity of an architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Values of parameters and buffers.
    Parameters,
    /// Values between two layers, or within one.
    Values,
    /// Values that a training pass of one sample stores.
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
