//! Training or evaluation mode.

use crate::dropout_masks::Masks;

/// The mode of a forward pass. Only batch normalisation and dropout depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Batch normalisation uses the statistics of the batch and updates its running statistics; dropout applies these masks.
    Training(Masks),
    /// Batch normalisation uses its running statistics and dropout does nothing, so that samples do not affect each other.
    Evaluation,
}
