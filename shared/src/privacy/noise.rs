//! The noise of a round, as accounts see it.

/// Noise that is added to a sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noise {
    /// z: its deviation, as a multiple of the longest update.
    pub multiplier: f64,
    /// q: the probability with which a round asks a device; 1 for all in every round.
    pub rate: f64,
}
