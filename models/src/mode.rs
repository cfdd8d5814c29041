//! What a network is run for.

use crate::masks::Masks;

/// What a network is run for, which makes a difference to batch normalisation and dropout alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// To learn from the batch: normalised by its statistics, which are also what the buffers move towards, and with some
    /// values left out, as the masks say.
    Training(Masks),
    /// To be judged or used: normalised by the buffers, which stay, and with all values. Samples do not depend on each
    /// other.
    Evaluation,
}
