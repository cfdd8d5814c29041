//! What the devices of one run have done in it.

use rusqlite::{Row, params};
use shared::id::{ClientId, RunId};

use super::rows::{TRAINING_SECONDS, UPDATE_BYTES};
use crate::database::{Database, DatabaseError};
use crate::report::devices::{DeviceRow, Trouble};

impl Database {
    /// The devices that have answered in a round of a run, and those that were last heard while it was served; by their ids.
    pub fn devices_of(&self, run: RunId) -> Result<Vec<DeviceRow>, DatabaseError> {
        self.read("read what the devices of a run have done in", |connection| {
            connection
                .prepare(DEVICES_OF_RUN)?
                .query_map(params![run.to_string(), TRAINING_SECONDS, UPDATE_BYTES], row)?
                .collect()
        })
    }
}

fn row(row: &Row<'_>) -> rusqlite::Result<DeviceRow> {
    let trouble = match row.get::<_, Option<String>>("verdict")? {
        Some(verdict) => Some(Trouble {
            round: row.get("round")?,
            verdict,
            reason: row.get::<_, Option<String>>("reason")?.unwrap_or_default(),
        }),
        None => None,
    };
    let tested: Option<u32> = row.get("tested")?;
    let samples: Option<i64> = row.get("samples")?;
    Ok(DeviceRow {
        device: ClientId::from_bytes(row.get("client")?),
        name: row.get("name")?,
        rounds: row.get("rounds")?,
        accepted: row.get("accepted")?,
        rejected: row.get("rejected")?,
        late: row.get("discarded")?,
        failed: row.get("failed")?,
        not_now: row.get("not_now")?,
        trouble,
        seconds: row.get("seconds")?,
        bytes: row.get("bytes")?,
        own_accuracy: row.get::<_, Option<f64>>("own_accuracy")?.zip(tested),
        samples: samples.map(|samples| samples.max(0).unsigned_abs()),
        software: row.get("software")?,
        heard: row.get("seen")?,
    })
}

/// Every table is read once, for any number of devices. Where `max` is the only aggregate, `SQLite` takes the other columns from
/// the row that has it.
const DEVICES_OF_RUN: &str = "
WITH answered AS (
    SELECT device, count(DISTINCT round) AS rounds, sum(verdict = 'accepted') AS accepted,
        sum(CASE verdict WHEN 'rejected' THEN times ELSE 0 END) AS rejected,
        sum(CASE verdict WHEN 'discarded' THEN times ELSE 0 END) AS discarded,
        sum(verdict = 'failed') AS failed, sum(verdict = 'not-now') AS not_now
    FROM arrivals WHERE run = ?1 GROUP BY device),
trouble AS (
    SELECT device, max(round) AS round, verdict, reason FROM arrivals
    WHERE run = ?1 AND verdict <> 'accepted' GROUP BY device),
work AS (
    SELECT device, sum(CASE name WHEN ?2 THEN value END) AS seconds, sum(CASE name WHEN ?3 THEN value END) AS bytes
    FROM metrics WHERE run = ?1 AND name IN (?2, ?3) GROUP BY device),
own AS (
    SELECT device, max(round) AS tested, value AS own_accuracy FROM metrics
    WHERE run = ?1 AND name = 'own-accuracy' AND device <> '' GROUP BY device),
everyone AS (
    SELECT device FROM answered
    UNION SELECT lower(hex(client)) FROM devices
    WHERE standing = 'in' AND seen >= (SELECT begun FROM runs WHERE run = ?1)
        AND seen <= (SELECT coalesce(ended, seen) FROM runs WHERE run = ?1))
SELECT unhex(everyone.device) AS client, devices.name AS name, coalesce(rounds, 0) AS rounds,
    coalesce(accepted, 0) AS accepted, coalesce(rejected, 0) AS rejected, coalesce(discarded, 0) AS discarded,
    coalesce(failed, 0) AS failed, coalesce(not_now, 0) AS not_now, trouble.round AS round, verdict, reason,
    seconds, bytes, tested, own_accuracy, samples, software, seen
FROM everyone
LEFT JOIN answered USING (device) LEFT JOIN trouble USING (device) LEFT JOIN work USING (device)
LEFT JOIN own USING (device) LEFT JOIN devices ON devices.client = unhex(everyone.device)
ORDER BY everyone.device";

#[cfg(test)]
mod tests {
    use super::*;

    /// A database with a run of two rounds: `aa..` is named and was rejected once, `bb..` is forgotten by the operator, `cc..` has only
    /// connected, `dd..` was here before.
    fn database(folder: &std::path::Path) -> Database {
        let database = Database::open(folder).expect("made");
        database
            .write("fill", |transaction| {
                transaction.execute_batch(&format!(
                    "INSERT INTO runs (run, directory, rounds, begun, served, process, ended, outcome, told, status)
                        VALUES ('0707070707070707', 'runs/x', 5, 100, 100, 1, NULL, NULL, 0, '{{}}');
                     INSERT INTO devices (client, key, name, standing, since, seen, software, samples) VALUES
                        (unhex('{a}'), x'01', 'attic', 'in', 0, 250, 'edge-client 0.1.0', 80),
                        (unhex('{c}'), x'02', NULL, 'in', 0, 260, NULL, NULL),
                        (unhex('{d}'), x'03', NULL, 'in', 0, 99, NULL, NULL);
                     INSERT INTO arrivals (run, round, device, verdict, at, times, reason) VALUES
                        ('0707070707070707', 1, '{a}', 'accepted', 1, 1, NULL),
                        ('0707070707070707', 1, '{a}', 'discarded', 1, 3, 'sent twice'),
                        ('0707070707070707', 2, '{a}', 'rejected', 2, 1, 'not finite'),
                        ('0707070707070707', 2, '{b}', 'accepted', 2, 1, NULL);
                     INSERT INTO metrics (run, round, device, name, value) VALUES
                        ('0707070707070707', 1, '{a}', '{TRAINING_SECONDS}', 1.5),
                        ('0707070707070707', 1, '{a}', '{UPDATE_BYTES}', 1000),
                        ('0707070707070707', 1, '{a}', 'own-accuracy', 0.25),
                        ('0707070707070707', 2, '{a}', 'own-accuracy', 0.75),
                        ('0707070707070707', 2, '', 'own-accuracy', 0.5);",
                    a = "aa".repeat(16),
                    b = "bb".repeat(16),
                    c = "cc".repeat(16),
                    d = "dd".repeat(16),
                ))
            })
            .expect("filled");
        database
    }

    #[test]
    fn every_device_of_a_run_has_its_figures() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let written = database(folder.path());
        // As the page reads them beside the server.
        let read = Database::open_to_read(folder.path()).expect("it is there");
        let found = read.devices_of(RunId::from_bytes([7; 8])).expect("read");
        assert_eq!(found, written.devices_of(RunId::from_bytes([7; 8])).expect("read"));
        let none = DeviceRow {
            device: ClientId::from_bytes([0xaa; 16]),
            name: None,
            rounds: 0,
            accepted: 0,
            rejected: 0,
            late: 0,
            failed: 0,
            not_now: 0,
            trouble: None,
            seconds: None,
            bytes: None,
            own_accuracy: None,
            samples: None,
            software: None,
            heard: None,
        };
        let trouble = Trouble { round: 2, verdict: "rejected".to_owned(), reason: "not finite".to_owned() };
        let attic = DeviceRow {
            name: Some("attic".to_owned()),
            rounds: 2,
            accepted: 1,
            rejected: 1,
            late: 3,
            trouble: Some(trouble),
            seconds: Some(1.5),
            bytes: Some(1000.0),
            own_accuracy: Some((0.75, 2)),
            samples: Some(80),
            software: Some("edge-client 0.1.0".to_owned()),
            heard: Some(250),
            ..none.clone()
        };
        let forgotten =
            DeviceRow { device: ClientId::from_bytes([0xbb; 16]), rounds: 1, accepted: 1, ..none.clone() };
        let idle = DeviceRow { device: ClientId::from_bytes([0xcc; 16]), heard: Some(260), ..none };
        assert_eq!(found, [attic, forgotten, idle]);
        assert_eq!(written.devices_of(RunId::from_bytes([8; 8])).expect("read"), []);
    }

    #[test]
    fn devices_of_a_later_run_are_not_those_of_this_one() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let database = database(folder.path());
        let end = |at: u32| {
            let sql = format!("UPDATE runs SET ended = {at}, outcome = 'completed'");
            database.write("end", |transaction| transaction.execute_batch(&sql)).expect("ended");
            database.devices_of(RunId::from_bytes([7; 8])).expect("read").len()
        };
        // The idle one was heard at 260; the others have answered.
        assert_eq!([end(270), end(259)], [3, 2]);
    }

    #[test]
    fn a_database_that_is_only_read_is_neither_made_nor_changed() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        assert!(Database::open_to_read(folder.path()).is_err(), "there is none");
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 0);
        let _written = database(folder.path());
        let read = Database::open_to_read(folder.path()).expect("it is there");
        let refused = read.write("write", |transaction| transaction.execute("DELETE FROM runs", []));
        assert!(refused.is_err(), "{refused:?}");
    }
}
