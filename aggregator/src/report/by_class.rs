//! Results by class: of the models that a run has left, on the server's test set.

use models::{Evaluation, PerClass};
use serde::{Deserialize, Serialize};

/// A model's results by class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelByClass {
    /// Whether it is the best of the models that were tested, and not the last.
    pub best: bool,
    /// The round that it was made in.
    pub round: u32,
    /// Loss and accuracy.
    pub evaluation: Evaluation,
    /// Confusion and calibration.
    pub found: PerClass,
}
