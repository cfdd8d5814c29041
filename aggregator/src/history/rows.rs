//! Rows of the history, as they are written.

use std::collections::BTreeMap;

use rusqlite::{Result, Transaction, params};
use shared::id::{ClientId, RunId};

use crate::round::{RoundRecord, UpdateWork, jsonl};

/// Events of a run that are kept, and some more until the next clean-up.
const MAX_EVENTS: i64 = 10_000;
/// Names of metrics: what an accepted update of a device took.
pub(super) const TRAINING_SECONDS: &str = "training-seconds";
pub(super) const UPDATE_BYTES: &str = "update-bytes";

/// Enters a number of a round.
const METRIC: &str =
    "INSERT OR REPLACE INTO metrics (run, round, device, name, value) VALUES (?1, ?2, ?3, ?4, ?5)";
/// Events between two clean-ups.
const CLEAN_UP_INTERVAL: i64 = 256;

fn count(members: usize) -> u32 {
    u32::try_from(members).unwrap_or(u32::MAX)
}

/// Enters a round that was opened, with the size of its cohort.
pub(super) fn opened(
    transaction: &Transaction<'_>,
    run: RunId,
    round: u32,
    cohort: usize,
    at: Option<i64>,
) -> Result<()> {
    transaction
        .prepare(
            "INSERT INTO rounds (run, round, opened, cohort) VALUES (?1, ?2, ?3, ?4) \
             ON CONFLICT DO UPDATE SET opened = coalesce(opened, excluded.opened), cohort = excluded.cohort",
        )?
        .execute(params![run.to_string(), round, at, count(cohort)])
        .map(drop)
}

/// Enters a closed round with its metrics and its contributors. Idempotent.
pub(super) fn closed(
    transaction: &Transaction<'_>,
    run: RunId,
    record: &RoundRecord,
    contributors: &[ClientId],
    at: Option<i64>,
) -> Result<()> {
    let (name, round) = (run.to_string(), record.round);
    transaction
        .prepare(
            "INSERT INTO rounds (run, round, closed, cohort, record) VALUES (?1, ?2, ?3, ?4, ?5) \
             ON CONFLICT DO UPDATE SET closed = coalesce(closed, excluded.closed), cohort = excluded.cohort, \
             record = excluded.record",
        )?
        .execute(params![name, round, at, count(record.sampled), jsonl::object(record)])?;
    for client in contributors {
        accepted(transaction, run, round, *client, None)?;
    }
    let mut metric = transaction.prepare(METRIC)?;
    let global = [("accuracy", record.accuracy), ("loss", record.loss), ("train-loss", record.train_loss)];
    let global = global.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let measured = record.metrics.iter().map(|(name, &value)| (name.as_str(), value));
    for (what, value) in global.chain(measured).filter(|(_, value)| value.is_finite()) {
        metric.execute(params![name, round, "", what, value])?;
    }
    for (client, measured) in &record.clients {
        for (what, value) in measured.iter().filter(|(_, value)| value.is_finite()) {
            metric.execute(params![name, round, client.to_string(), what, value])?;
        }
    }
    Ok(())
}

/// Enters what accepted updates took. Idempotent.
pub(super) fn worked(
    transaction: &Transaction<'_>,
    run: RunId,
    round: u32,
    work: &BTreeMap<ClientId, UpdateWork>,
) -> Result<()> {
    let mut metric = transaction.prepare(METRIC)?;
    for (client, UpdateWork { seconds, bytes }) in work {
        let bytes = bytes.map(|bytes| bytes as f64);
        for (name, value) in [(TRAINING_SECONDS, Some(*seconds)), (UPDATE_BYTES, bytes)] {
            if let Some(value) = value {
                metric.execute(params![run.to_string(), round, client.to_string(), name, value])?;
            }
        }
    }
    Ok(())
}

/// Enters an accepted update. Idempotent.
pub(super) fn accepted(
    transaction: &Transaction<'_>,
    run: RunId,
    round: u32,
    client: ClientId,
    at: Option<i64>,
) -> Result<()> {
    transaction
        .prepare(
            "INSERT INTO arrivals (run, round, device, verdict, at, times) VALUES (?1, ?2, ?3, 'accepted', ?4, 1) \
             ON CONFLICT DO UPDATE SET at = coalesce(at, excluded.at)",
        )?
        .execute(params![run.to_string(), round, client.to_string(), at])
        .map(drop)
}

/// Enters another result of a device in a round.
pub(super) fn arrived(
    transaction: &Transaction<'_>,
    run: RunId,
    round: u32,
    client: ClientId,
    (verdict, reason): (&str, &str),
    at: i64,
) -> Result<()> {
    transaction
        .prepare(
            "INSERT INTO arrivals (run, round, device, verdict, at, times, reason) \
             VALUES (?1, ?2, ?3, ?4, ?5, 1, ?6) ON CONFLICT DO UPDATE SET at = excluded.at, times = times + 1, reason = excluded.reason",
        )?
        .execute(params![run.to_string(), round, client.to_string(), verdict, at, reason])
        .map(drop)
}

/// Enters a message for the operator, and deletes the oldest.
pub(super) fn event(
    transaction: &Transaction<'_>,
    run: RunId,
    alarm: bool,
    text: &str,
    at: i64,
) -> Result<()> {
    let run = run.to_string();
    transaction
        .prepare("INSERT INTO events (run, at, alarm, text) VALUES (?1, ?2, ?3, ?4)")?
        .execute(params![run, at, alarm, text])?;
    if transaction.last_insert_rowid() % CLEAN_UP_INTERVAL == 0 {
        transaction.execute(
            "DELETE FROM events WHERE run = ?1 AND id <= (SELECT id FROM events WHERE run = ?1 ORDER BY id DESC \
             LIMIT 1 OFFSET ?2)",
            params![run, MAX_EVENTS],
        )?;
    }
    Ok(())
}

/// Updates the status.
pub(super) fn status(transaction: &Transaction<'_>, run: RunId, status: &str, at: i64) -> Result<()> {
    transaction
        .prepare("UPDATE runs SET status = ?2, told = ?3 WHERE run = ?1")?
        .execute(params![run.to_string(), status, at])
        .map(drop)
}

/// Enters the end of the process.
pub(super) fn ended(transaction: &Transaction<'_>, run: RunId, outcome: &str, at: i64) -> Result<()> {
    transaction
        .execute(
            "UPDATE runs SET ended = ?2, outcome = ?3 WHERE run = ?1",
            params![run.to_string(), at, outcome],
        )
        .map(drop)
}
