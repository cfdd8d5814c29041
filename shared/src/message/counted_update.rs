//! Which update of a device was the last one that counted.

use flate2::Crc;
use serde::{Deserialize, Serialize};

use super::TrainReport;

/// The last update of a device that counted, as one side knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CountedUpdate {
    /// The round that it was trained in.
    pub round: u32,
    /// Its report's [fingerprint](TrainReport::fingerprint), which tells it from another update of the same round: a run that is put
    /// back to an earlier round has that round twice. `None` if it is not known any more.
    pub fingerprint: Option<u32>,
}

impl CountedUpdate {
    /// The update of this round with this report.
    #[must_use]
    pub fn of(round: u32, report: &TrainReport) -> Self {
        Self { round, fingerprint: Some(report.fingerprint()) }
    }
}

impl TrainReport {
    /// CRC-32 of the samples, the steps and the loss. Training that begins with another model or other client state gives another
    /// loss; the same training gives the same one, however long it takes.
    #[must_use]
    pub fn fingerprint(&self) -> u32 {
        let mut crc = Crc::new();
        crc.update(&self.samples.to_le_bytes());
        crc.update(&self.steps.to_le_bytes());
        crc.update(&self.loss.to_bits().to_le_bytes());
        crc.sum()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_same_training_has_the_same_fingerprint_however_long_it_takes() {
        let report = TrainReport { samples: 80, steps: 10, loss: 0.25, ..TrainReport::default() };
        let slow = TrainReport { duration: Duration::from_hours(1), ..report };
        assert_eq!(report.fingerprint(), slow.fingerprint());
        let other = TrainReport { loss: 0.25 + f64::EPSILON, ..report };
        assert_ne!(report.fingerprint(), other.fingerprint());
    }
}
