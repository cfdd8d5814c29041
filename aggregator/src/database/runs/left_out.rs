//! Samples that devices left out.
//!
//! Each device says at its coming how many it cannot use. What it said last counts, for the whole run: a device that has mended its
//! data since has trained without them before.

use rusqlite::{Result, Row, Transaction, params};
use serde::Serialize;
use shared::id::{ClientId, RunId};

use crate::database::{Database, DatabaseError};
use crate::report::units::counted;

pub(in crate::database) const TABLE: &str = "
    -- How many training samples each device of a run has left out, those that do leave some out.
    CREATE TABLE left_out (
        run     TEXT NOT NULL REFERENCES runs (run) ON DELETE CASCADE,
        device  TEXT NOT NULL,               -- 32 hexadecimal digits
        samples INTEGER NOT NULL,            -- as it said last
        PRIMARY KEY (run, device)
    ) STRICT, WITHOUT ROWID;
";

/// What a device has left out in a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StoredLeftOut {
    /// The device.
    pub device: String,
    /// What the operator calls it.
    pub name: Option<String>,
    /// Its training samples that it cannot use, as it said last.
    pub samples: u64,
}

impl StoredLeftOut {
    /// In words.
    #[must_use]
    pub fn words(&self) -> String {
        let samples = training_samples(self.samples);
        let short = self.device.get(..8).unwrap_or(&self.device);
        match &self.name {
            Some(name) => format!("{samples} on {name} ({short})"),
            None => format!("{samples} on device {short}"),
        }
    }
}

/// So many of them, in words.
pub(crate) fn training_samples(samples: u64) -> String {
    counted(usize::try_from(samples).unwrap_or(usize::MAX), "training sample")
}

impl Database {
    /// What devices have left out in a run, those that do, by their ids.
    pub fn left_out(&self, run: &str) -> Result<Vec<StoredLeftOut>, DatabaseError> {
        let left_out = |row: &Row<'_>| {
            let samples: i64 = row.get("samples")?;
            Ok(StoredLeftOut {
                device: row.get("device")?,
                name: row.get("name")?,
                samples: samples.max(0).unsigned_abs(),
            })
        };
        self.read("read what devices left out in", |connection| {
            connection
                .prepare(
                    "SELECT device, left_out.samples AS samples, devices.name AS name FROM left_out \
                     LEFT JOIN devices ON lower(hex(devices.client)) = device \
                     WHERE run = ?1 AND left_out.samples > 0 ORDER BY device",
                )?
                .query_map([run], left_out)?
                .collect()
        })
    }
}

/// Notes what a device has said.
pub(super) fn note(transaction: &Transaction<'_>, run: RunId, client: ClientId, samples: u64) -> Result<()> {
    let samples = i64::try_from(samples).unwrap_or(i64::MAX);
    transaction
        .prepare(
            "INSERT INTO left_out VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET samples = excluded.samples",
        )?
        .execute(params![run.to_string(), client.to_string(), samples])
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_device_said_last_counts_and_carries_its_name() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let database = Database::open(folder.path()).expect("made");
        let run = RunId::from_bytes([7; 8]);
        let [named, other, third] = [2, 1, 3].map(|byte| ClientId::from_bytes([byte; 16]));
        database
            .write("begin a run in", |transaction| {
                let run = run.to_string();
                transaction.execute(
                    "INSERT INTO runs VALUES (?1, 'runs/x', 5, 0, 0, 1, NULL, NULL, 0, '{}')",
                    [run],
                )?;
                transaction.execute(
                    "INSERT INTO devices (client, key, name, standing, since, seen) VALUES (?1, ?2, 'attic', 'in', 0, 0)",
                    params![named.as_bytes(), [2_u8; 32]],
                )
            })
            .expect("written");
        for (client, samples) in [(named, 3), (other, u64::MAX), (named, 12), (third, 0)] {
            database
                .write("note in", |transaction| note(transaction, run, client, samples))
                .expect("written");
        }
        let of = |client: ClientId, name: Option<&str>, samples| StoredLeftOut {
            device: client.to_string(),
            name: name.map(str::to_owned),
            samples,
        };
        let found = database.left_out(&run.to_string()).expect("read");
        assert_eq!(found, [of(other, None, i64::MAX as u64), of(named, Some("attic"), 12)]);
        let words: Vec<_> =
            found.iter().skip(1).chain([&of(other, None, 1)]).map(StoredLeftOut::words).collect();
        assert_eq!(
            words,
            ["12 training samples on attic (02020202)", "1 training sample on device 01010101"]
        );
        assert_eq!(database.left_out("00").expect("read"), []);
    }
}
