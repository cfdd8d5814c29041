//! A client's samples of each class of the network.

use super::{Client, TrainError};

impl Client<'_> {
    /// As many as the network has classes.
    ///
    /// # Errors
    /// [`TrainError::Broadcast`] if the samples are of another number of classes.
    pub(super) fn class_counts(&self) -> Result<Vec<usize>, TrainError> {
        let (counts, classes) = (self.data.histogram(), self.spec.architecture.classes);
        if counts.len() == classes {
            return Ok(counts);
        }
        Err(TrainError::Broadcast(format!(
            "its model has {classes} classes, and the samples have {}",
            counts.len()
        )))
    }
}
