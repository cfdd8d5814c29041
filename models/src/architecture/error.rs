//! What can be wrong with an architecture.

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
    /// More than [`MAX_ELEMENTS`] parameters or values at once.
    #[error("layer `{layer}` brings the model over {MAX_ELEMENTS} parameters or values at once")]
    TooLarge {
        /// The layer, as `part.name` or `part.kind-position`.
        layer: String,
    },
}
