//! What a network is run for.

/// What a network is run for, which makes a difference to batch normalisation alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// To learn from the batch: normalised by its statistics, which are also what the buffers move towards.
    Training,
    /// To be judged or used: normalised by the buffers, which stay. Samples do not depend on each other.
    Evaluation,
}
