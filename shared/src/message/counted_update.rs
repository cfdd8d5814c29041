//! Which update of a device was the last one that counted.

use std::collections::BTreeMap;

use flate2::Crc;
use serde::{Deserialize, Deserializer, Serialize};

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
    /// CRC-32 of the samples, the steps and the loss. Training that begins with another model gives another loss, and so does training
    /// with other client state from its second step on; the same training gives the same one, however long it takes.
    #[must_use]
    pub fn fingerprint(&self) -> u32 {
        let mut crc = Crc::new();
        crc.update(&self.samples.to_le_bytes());
        crc.update(&self.steps.to_le_bytes());
        crc.update(&self.loss.to_bits().to_le_bytes());
        crc.sum()
    }
}

/// Entries of a ledger in JSON: before fingerprints an entry was the round's number alone.
///
/// # Errors
/// The deserializer's.
pub fn ledger<'de, D: Deserializer<'de>, K: Deserialize<'de> + Ord>(
    from: D,
) -> Result<Option<BTreeMap<K, CountedUpdate>>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Entry {
        Round(u32),
        Update(CountedUpdate),
    }
    let entries: Option<BTreeMap<K, Entry>> = Option::deserialize(from)?;
    let update = |entry| match entry {
        Entry::Round(round) => CountedUpdate { round, fingerprint: None },
        Entry::Update(update) => update,
    };
    Ok(entries.map(|entries| entries.into_iter().map(|(key, entry)| (key, update(entry))).collect()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_ledger_without_fingerprints_is_read() {
        let read = |text: &str| {
            let mut json = serde_json::Deserializer::from_str(text);
            ledger::<_, String>(&mut json).expect("JSON")
        };
        let old = CountedUpdate { round: 5, fingerprint: None };
        let new = CountedUpdate { round: 6, fingerprint: Some(7) };
        let entries = BTreeMap::from([("a".to_owned(), old), ("b".to_owned(), new)]);
        assert_eq!(read(r#"{"a":5,"b":{"round":6,"fingerprint":7}}"#), Some(entries));
        assert_eq!(read("null"), None);
    }

    #[test]
    fn the_same_training_has_the_same_fingerprint_however_long_it_takes() {
        let report = TrainReport { samples: 80, steps: 10, loss: 0.25, ..TrainReport::default() };
        let slow = TrainReport { duration: Duration::from_hours(1), ..report };
        assert_eq!(report.fingerprint(), slow.fingerprint());
        let other = TrainReport { loss: 0.25 + f64::EPSILON, ..report };
        assert_ne!(report.fingerprint(), other.fingerprint());
    }
}
