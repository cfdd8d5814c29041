//! Queries of the history.

use rusqlite::{OptionalExtension as _, Row, params};
use serde::Serialize;

use crate::coordinator::Status;
use crate::database::{Database, DatabaseError};
use crate::round::RoundRecord;

/// A run that was served. Moments are milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StoredRun {
    /// Its identity.
    pub run: String,
    /// Where its files are.
    pub directory: String,
    /// Planned rounds of training.
    pub rounds: u32,
    /// When it was first served.
    pub begun: i64,
    /// When the newest process began to serve it.
    pub served: i64,
    /// The id of that process.
    pub process: u32,
    /// When that process stopped serving it; `None` if it still serves it, or died.
    pub ended: Option<i64>,
    /// How it ended: `completed`, `stopped`, `fruitless` or `failed`.
    pub outcome: Option<String>,
    /// When the status was recorded.
    pub told: i64,
    /// The last status.
    pub status: Option<Status<i64>>,
}

/// A round that was opened.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StoredRound {
    /// Its number, from 1.
    pub round: u32,
    /// When it was opened, if known.
    pub opened: Option<i64>,
    /// When it was closed, if it is closed and the time is known.
    pub closed: Option<i64>,
    /// Members.
    pub cohort: Option<u32>,
    /// Its line of `rounds.jsonl`, if it is closed.
    pub record: Option<RoundRecord>,
}

/// The result of a device in a round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StoredArrival {
    /// The round.
    pub round: u32,
    /// The device.
    pub device: String,
    /// `accepted`, `rejected`, `discarded`, `failed`, `not-now`.
    pub verdict: String,
    /// When it last occurred, if known.
    pub at: Option<i64>,
    /// How often it was recorded. Repetitions are recorded at a limited rate.
    pub times: u32,
    /// The last reason.
    pub reason: Option<String>,
}

/// A message for the operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StoredEvent {
    /// When, in milliseconds since 1970.
    pub at: i64,
    /// Whether the operator had to act.
    pub alarm: bool,
    /// The message.
    pub text: String,
}

/// The first digits of a device's id, as it is stored: those of [`ClientId::short`](shared::id::ClientId::short).
pub(crate) fn short(device: &str) -> &str {
    device.get(..8).unwrap_or(device)
}

fn stored_run(row: &Row<'_>) -> rusqlite::Result<StoredRun> {
    let status: String = row.get("status")?;
    Ok(StoredRun {
        run: row.get("run")?,
        directory: row.get("directory")?,
        rounds: row.get("rounds")?,
        begun: row.get("begun")?,
        served: row.get("served")?,
        process: row.get("process")?,
        ended: row.get("ended")?,
        outcome: row.get("outcome")?,
        told: row.get("told")?,
        status: serde_json::from_str(&status).unwrap_or(None),
    })
}

fn stored_round(row: &Row<'_>) -> rusqlite::Result<StoredRound> {
    let record: Option<String> = row.get("record")?;
    Ok(StoredRound {
        round: row.get("round")?,
        opened: row.get("opened")?,
        closed: row.get("closed")?,
        cohort: row.get("cohort")?,
        record: record.and_then(|record| serde_json::from_str(&record).ok()),
    })
}

impl Database {
    /// All runs that were served, the newest first.
    pub fn runs(&self) -> Result<Vec<StoredRun>, DatabaseError> {
        self.read("read the runs in", |connection| {
            let mut all = connection.prepare("SELECT * FROM runs ORDER BY served DESC, run")?;
            all.query_map([], stored_run)?.collect()
        })
    }

    /// The run of this id, if it was served.
    pub fn run(&self, id: &str) -> Result<Option<StoredRun>, DatabaseError> {
        self.read("read the runs in", |connection| {
            connection.query_row("SELECT * FROM runs WHERE run = ?1", [id], stored_run).optional()
        })
    }

    /// The newest rounds of a run, the oldest of them first.
    pub fn rounds(&self, run: &str, newest: u32) -> Result<Vec<StoredRound>, DatabaseError> {
        let mut rounds: Vec<_> = self.read("read the rounds in", |connection| {
            connection
                .prepare("SELECT * FROM rounds WHERE run = ?1 ORDER BY round DESC LIMIT ?2")?
                .query_map(params![run, newest], stored_round)?
                .collect::<rusqlite::Result<_>>()
        })?;
        rounds.reverse();
        Ok(rounds)
    }

    /// One round of a run; `None` if it was not opened.
    pub fn round(&self, run: &str, number: u32) -> Result<Option<StoredRound>, DatabaseError> {
        self.read("read a round in", |connection| {
            connection
                .prepare("SELECT * FROM rounds WHERE run = ?1 AND round = ?2")?
                .query_row(params![run, number], stored_round)
                .optional()
        })
    }

    /// What arrived in a round of a run, by device.
    pub fn arrivals(&self, run: &str, round: u32) -> Result<Vec<StoredArrival>, DatabaseError> {
        let arrival = |row: &Row<'_>| {
            Ok(StoredArrival {
                round: row.get("round")?,
                device: row.get("device")?,
                verdict: row.get("verdict")?,
                at: row.get("at")?,
                times: row.get("times")?,
                reason: row.get("reason")?,
            })
        };
        self.read("read the arrivals in", |connection| {
            connection
                .prepare("SELECT * FROM arrivals WHERE run = ?1 AND round = ?2 ORDER BY device, verdict")?
                .query_map(params![run, round], arrival)?
                .collect()
        })
    }

    /// The newest events of a run, the oldest of them first.
    pub fn events(&self, run: &str, newest: u32) -> Result<Vec<StoredEvent>, DatabaseError> {
        let event = |row: &Row<'_>| {
            Ok(StoredEvent { at: row.get("at")?, alarm: row.get("alarm")?, text: row.get("text")? })
        };
        let mut events: Vec<_> = self.read("read the events in", |connection| {
            connection
                .prepare("SELECT at, alarm, text FROM events WHERE run = ?1 ORDER BY id DESC LIMIT ?2")?
                .query_map(params![run, newest], event)?
                .collect::<rusqlite::Result<_>>()
        })?;
        events.reverse();
        Ok(events)
    }
}
