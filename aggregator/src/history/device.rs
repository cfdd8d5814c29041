//! What one device has done in the runs that were served.

use rusqlite::{Row, params};
use serde::Serialize;

use super::rows::{TRAINING_SECONDS, UPDATE_BYTES};
use crate::database::{Database, DatabaseError};

/// The updates of a device, and what is known of its work, in one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceRecord {
    /// The run's identity.
    pub run: String,
    /// Where its files are.
    pub directory: String,
    /// Rounds that it has answered in.
    pub rounds: u32,
    /// Updates that count.
    pub accepted: u32,
    /// Updates that failed the checks.
    pub rejected: u32,
    /// Updates that were late, or sent twice.
    pub discarded: u32,
    /// Rounds in which it could not train.
    pub failed: u32,
    /// Rounds in which it was not in a state to train.
    pub not_now: u32,
    /// Seconds of training of its accepted updates, as it says; `None` of rounds of earlier programs.
    pub seconds: Option<f64>,
    /// Bytes of these updates.
    pub bytes: Option<f64>,
    /// The newest accuracy that it has found on its own samples.
    pub own_accuracy: Option<f64>,
}

impl Database {
    /// What a device has done, by run, the newest first.
    pub fn device_records(&self, device: &str) -> Result<Vec<DeviceRecord>, DatabaseError> {
        let record = |row: &Row<'_>| {
            Ok(DeviceRecord {
                run: row.get("run")?,
                directory: row.get("directory")?,
                rounds: row.get("rounds")?,
                accepted: row.get("accepted")?,
                rejected: row.get("rejected")?,
                discarded: row.get("discarded")?,
                failed: row.get("failed")?,
                not_now: row.get("not_now")?,
                seconds: row.get("seconds")?,
                bytes: row.get("bytes")?,
                own_accuracy: row.get("own_accuracy")?,
            })
        };
        self.read("read what a device has done in", |connection| {
            connection
                .prepare(DEVICE_RECORDS)?
                .query_map(params![device, TRAINING_SECONDS, UPDATE_BYTES], record)?
                .collect()
        })
    }
}

const DEVICE_RECORDS: &str = "
SELECT arrivals.run AS run, runs.directory AS directory, count(DISTINCT round) AS rounds,
    sum(verdict = 'accepted') AS accepted,
    sum(CASE verdict WHEN 'rejected' THEN times ELSE 0 END) AS rejected,
    sum(CASE verdict WHEN 'discarded' THEN times ELSE 0 END) AS discarded,
    sum(verdict = 'failed') AS failed, sum(verdict = 'not-now') AS not_now,
    (SELECT sum(value) FROM metrics WHERE run = arrivals.run AND device = ?1 AND name = ?2) AS seconds,
    (SELECT sum(value) FROM metrics WHERE run = arrivals.run AND device = ?1 AND name = ?3) AS bytes,
    (SELECT value FROM metrics WHERE run = arrivals.run AND device = ?1 AND name = 'own-accuracy'
        ORDER BY round DESC LIMIT 1) AS own_accuracy
FROM arrivals JOIN runs ON runs.run = arrivals.run WHERE arrivals.device = ?1
GROUP BY arrivals.run ORDER BY runs.served DESC";
