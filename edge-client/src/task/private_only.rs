//! What the owner of a device asks of the privacy of runs.

/// What the owner asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrivateOnly {
    /// The epsilon that no round may exceed, with all rounds before it.
    pub epsilon: f64,
    /// The probability with which it does not hold, between 0 and 1.
    pub delta: f64,
}
