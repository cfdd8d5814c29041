//! Samples that devices skip as unusable.
//!
//! Each device reports their number when it connects. The last report counts, so that a device whose data were repaired is no
//! longer listed.

use rusqlite::{Result, Row, Transaction, params};
use serde::Serialize;
use shared::id::{ClientId, RunId};

use super::read::short;
use crate::database::{Database, DatabaseError};
use crate::report::units::{counted, training_samples};

/// Devices that are named in texts for people.
const MAX_NAMED: usize = 10;

/// The samples that a device skips in a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StoredSkipped {
    /// The device.
    pub device: String,
    /// What the operator calls it.
    pub name: Option<String>,
    /// Number of unusable training samples, by its last report.
    pub samples: u64,
}

impl StoredSkipped {
    /// A text for people: the devices that skip most samples, and the others together.
    #[must_use]
    pub fn in_words(devices: &[Self]) -> Vec<String> {
        let mut devices: Vec<_> = devices.iter().collect();
        devices.sort_by(|a, b| b.samples.cmp(&a.samples).then_with(|| a.device.cmp(&b.device)));
        let (most, others) = devices.split_at(MAX_NAMED.min(devices.len()));
        let mut words: Vec<_> = most.iter().map(|device| device.words()).collect();
        if !others.is_empty() {
            let samples = others.iter().fold(0, |sum: u64, device| sum.saturating_add(device.samples));
            let devices = counted(others.len(), "other device");
            words.push(format!("{} on {devices}", training_samples(samples)));
        }
        words
    }

    fn words(&self) -> String {
        let samples = training_samples(self.samples);
        let short = short(&self.device);
        match &self.name {
            Some(name) => format!("{samples} on {name} ({short})"),
            None => format!("{samples} on device {short}"),
        }
    }
}

impl Database {
    /// The devices that skip samples in a run, by their ids.
    pub fn left_out(&self, run: &str) -> Result<Vec<StoredSkipped>, DatabaseError> {
        let left_out = |row: &Row<'_>| {
            let samples: i64 = row.get("samples")?;
            Ok(StoredSkipped {
                device: row.get("device")?,
                name: row.get("name")?,
                samples: samples.max(0).unsigned_abs(),
            })
        };
        self.read("read what devices left out in", |connection| {
            connection
                .prepare(
                    "SELECT device, left_out.samples AS samples, devices.name AS name FROM left_out \
                     LEFT JOIN devices ON devices.client = unhex(device) \
                     WHERE run = ?1 ORDER BY device",
                )?
                .query_map([run], left_out)?
                .collect()
        })
    }
}

/// Records the report of a device.
pub(super) fn note(transaction: &Transaction<'_>, run: RunId, client: ClientId, samples: u64) -> Result<()> {
    let (run, device) = (run.to_string(), client.to_string());
    if samples == 0 {
        let mut mended = transaction.prepare("DELETE FROM left_out WHERE run = ?1 AND device = ?2")?;
        return mended.execute(params![run, device]).map(drop);
    }
    let samples = i64::try_from(samples).unwrap_or(i64::MAX);
    let note = "INSERT INTO left_out (run, device, samples) VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET samples = excluded.samples";
    transaction.prepare(note)?.execute(params![run, device, samples]).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_device_said_last_counts_and_carries_its_name() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let database = Database::open(folder.path()).expect("made");
        let run = RunId::from_bytes([7; 8]);
        let [named, other, mended] = [2, 1, 3].map(|byte| ClientId::from_bytes([byte; 16]));
        database
            .write("begin a run in", |transaction| {
                let run = run.to_string();
                transaction.execute(
                    "INSERT INTO runs (run, directory, rounds, begun, served, process, ended, outcome, told, status) \
                     VALUES (?1, 'runs/x', 5, 0, 0, 1, NULL, NULL, 0, '{}')",
                    [run],
                )?;
                transaction.execute(
                    "INSERT INTO devices (client, key, name, standing, since, seen) VALUES (?1, ?2, 'attic', 'in', 0, 0)",
                    params![named.as_bytes(), [2_u8; 32]],
                )
            })
            .expect("written");
        for (client, samples) in [(named, 3), (mended, 5), (other, u64::MAX), (named, 12), (mended, 0)] {
            database
                .write("note in", |transaction| note(transaction, run, client, samples))
                .expect("written");
        }
        let of = |client: ClientId, name: Option<&str>, samples| StoredSkipped {
            device: client.to_string(),
            name: name.map(str::to_owned),
            samples,
        };
        let found = database.left_out(&run.to_string()).expect("read");
        assert_eq!(found, [of(other, None, i64::MAX as u64), of(named, Some("attic"), 12)]);
        assert_eq!(database.left_out("00").expect("read"), []);
    }

    #[test]
    fn people_read_of_those_that_leave_out_most() {
        let device = |byte: u8, name: Option<&str>, samples| StoredSkipped {
            device: ClientId::from_bytes([byte; 16]).to_string(),
            name: name.map(str::to_owned),
            samples,
        };
        let few = vec![device(1, None, 1), device(2, Some("attic"), 12)];
        let words = ["12 training samples on attic (02020202)", "1 training sample on device 01010101"];
        assert_eq!(StoredSkipped::in_words(&few), words);
        let many: Vec<_> = (1..=20).map(|byte| device(byte, None, 1000 + u64::from(byte))).collect();
        let words = StoredSkipped::in_words(&many);
        assert_eq!((words.len(), &words[0][..]), (11, "1,020 training samples on device 14141414"));
        assert_eq!(words[10], "10,055 training samples on 10 other devices");
        assert_eq!(StoredSkipped::in_words(&[]), [""; 0]);
    }
}
