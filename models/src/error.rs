//! Errors of networks and training.

use crate::architecture::ArchitectureError;
use crate::params::Mismatch;
use crate::shape::spelled;

/// Why a network could not be built, run or trained.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// Parameters or gradients do not fit the architecture.
    #[error("the parameters do not fit the architecture")]
    Mismatch(#[from] Mismatch),
    /// The architecture is not valid.
    #[error("the architecture is not valid")]
    Architecture(#[from] ArchitectureError),
    /// The samples do not have the shape that the architecture takes.
    #[error("the model takes samples of shape {} and was given {}", spelled(.expected), spelled(.found))]
    Input {
        /// The shape of one sample in the architecture.
        expected: Vec<usize>,
        /// The shape of one sample in the batch.
        found: Vec<usize>,
    },
    /// A label is not one of the classes.
    #[error("the label {label} is not one of the {classes} classes, which are counted from 0")]
    Label {
        /// The label.
        label: u32,
        /// The number of classes.
        classes: usize,
    },
    /// A batch has too few or too many labels for the predictions that the model makes.
    #[error("the model makes {predictions} predictions for the batch, which has {labels} labels")]
    Labels {
        /// The number of predictions: one per sample, or one per position of each.
        predictions: usize,
        /// The number of labels.
        labels: usize,
    },
    /// The batch has targets of another task.
    #[error("a model for {task} learns from {needs}, and the batch has other targets")]
    OtherTask {
        /// The model's task.
        task: &'static str,
        /// The targets of that task.
        needs: &'static str,
    },
    /// A number that is no target of the task.
    #[error("{value} is no target for {task}, which takes {}", if *.task == "multi-label" { "0 and 1" } else { "finite numbers" })]
    Target {
        /// The number.
        value: f32,
        /// The model's task.
        task: &'static str,
    },
    /// A value is not a token of the vocabulary.
    #[error(
        "the token {token} is not one of the {vocabulary} in the vocabulary, which are whole numbers from 0"
    )]
    Token {
        /// The value.
        token: f32,
        /// The number of different tokens.
        vocabulary: usize,
    },
    /// A batch that gives batch normalisation a single value per channel, which has no variance.
    #[error(
        "the batch normalisation `{layer}` cannot learn from a single value per channel, as of one sample that is left over: \
         set training.drop-last = true, which leaves such batches out, or a batch size that leaves none over on any device"
    )]
    OneValue {
        /// The layer, as `part.name`.
        layer: String,
    },
    /// A quantised network was asked for what only a network with its parameters in `f32` can do: a mistake of the program.
    #[error(
        "a quantised network only predicts; {operation} takes the network with its parameters as they were"
    )]
    Quantised {
        /// What was asked for.
        operation: &'static str,
    },
    /// A network with dropout cannot be trained without a seed for its masks: a mistake of the program.
    #[error("the network has dropout, and no seed was set for its masks")]
    NoSeed,
    /// The loss became infinite or NaN, and the parameters are useless from here on. Usually the learning rate is too high.
    #[error("training diverged at step {step}: the loss is {loss}; lower the learning rate")]
    Diverged {
        /// The step, counted from 0 since the parameters were loaded.
        step: u64,
        /// The loss.
        loss: f32,
    },
    /// The tensor library failed: out of memory, a lost device, or a mistake of this program.
    #[error("{operation} failed")]
    Candle {
        /// The operation that failed.
        operation: &'static str,
        /// The library's error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

#[cfg(any(test, feature = "cuda"))]
impl ModelError {
    /// Attaches the operation to an error of the tensor library, for `map_err`.
    pub(crate) fn candle(operation: &'static str) -> impl FnOnce(candle_core::Error) -> Self {
        move |source| Self::Candle { operation, source: source.into() }
    }
}
