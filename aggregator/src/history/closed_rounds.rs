//! The log of closed rounds.

use std::collections::{BTreeSet, VecDeque};
use std::time::SystemTime;

use rusqlite::{Connection, Transaction, params};
use shared::id::{ClientId, RunId};

use super::{Health, rows};
use crate::coordinator::Resume;
use crate::database::{Database, DatabaseError, moment};
use crate::round::ClosedRound;
use crate::run::{Run, RunError};

/// Enters closed rounds in the database, on the thread that makes the run's durable steps.
#[derive(Debug)]
pub struct RoundLog {
    database: Database,
    run: RunId,
    health: Health,
    pending: Pending,
}

/// Closed rounds that could not be entered yet, and when they were closed.
#[derive(Debug, Default)]
struct Pending(VecDeque<(ClosedRound, i64)>);

impl Pending {
    /// Rounds of a large federation are large, with what each client measured. While the database cannot be written, older ones
    /// are dropped: the next process enters them from the run's own file.
    const MAX_PENDING_ROUNDS: usize = 64;

    fn push(&mut self, round: ClosedRound, at: i64) {
        self.0.push_back((round, at));
        if self.0.len() > Self::MAX_PENDING_ROUNDS {
            self.0.pop_front();
        }
    }
}

/// Why a run's rounds cannot be entered when it starts.
#[derive(Debug, thiserror::Error)]
pub enum RoundLogError {
    /// The database.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The run's own files.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl RoundLog {
    /// Enters the run, and makes its rows agree with its files.
    ///
    /// Rounds that only the files hold are entered. Later rounds of the database were not durable: they are deleted, and so are
    /// accepted updates of the open round that must be sent again.
    pub fn begin(
        database: Database,
        run: &Run,
        resume: &Resume,
        health: Health,
        now: SystemTime,
    ) -> Result<Self, RoundLogError> {
        let (id, closed) = (run.spec().run, run.closed());
        let newest: Vec<ClientId> = run.contributors_of_last()?.into_iter().collect();
        let records = run.written_records()?;
        let directory = std::path::absolute(run.directory().root());
        let directory = directory.unwrap_or_else(|_| run.directory().root().to_owned());
        let (name, now) = (id.to_string(), moment(now));
        database.write("begin a run in", |transaction| {
            transaction.execute(
                "INSERT INTO runs (run, directory, rounds, begun, served, process, told, status) \
                 VALUES (?1, ?2, ?3, ?4, ?4, ?5, ?4, 'null') ON CONFLICT DO UPDATE SET directory = excluded.directory, \
                 rounds = excluded.rounds, served = excluded.served, process = excluded.process, ended = NULL, outcome = NULL, \
                 told = excluded.told, status = excluded.status",
                params![name, directory.to_string_lossy(), run.spec().rounds, now, std::process::id()],
            )?;
            let entered = rounds_entered(transaction, id)?;
            for record in records.iter().filter(|record| record.round <= closed) {
                if record.round == closed {
                    rows::closed(transaction, id, record, &newest, None)?;
                } else if !entered.contains(&record.round) {
                    rows::closed(transaction, id, record, &[], None)?;
                }
            }
            delete_lost(transaction, id, closed, resume)
        })?;
        Ok(Self { database, run: id, health, pending: Pending::default() })
    }

    /// Enters a closed round, and those that could not be entered before. If the database cannot be written, the round is
    /// entered with the next one: the run does not wait.
    pub fn enter(&mut self, round: ClosedRound) {
        self.pending.push(round, moment(SystemTime::now()));
        let (run, pending) = (self.run, &self.pending);
        let written = self.database.write("enter a round in", |transaction| {
            pending.0.iter().try_for_each(|(round, at)| {
                rows::closed(transaction, run, &round.record, &round.contributors, Some(*at))?;
                rows::worked(transaction, run, round.record.round, &round.work)
            })
        });
        self.health.note(&written);
        if written.is_ok() {
            self.pending.0.clear();
        }
    }
}

/// Writes the closed rounds that the run's own file lacks again, as the database knows them; gives how many those are.
pub fn restore_rounds(database: &Database, run: &mut Run) -> Result<usize, RoundLogError> {
    if run.missing_rounds().is_empty() {
        return Ok(0);
    }
    let stored = database.rounds(&run.spec().run.to_string(), u32::MAX)?;
    let records = stored.into_iter().filter_map(|round| round.record).collect();
    Ok(run.restore_rounds(records)?)
}

fn rounds_entered(connection: &Connection, run: RunId) -> rusqlite::Result<BTreeSet<u32>> {
    let mut rounds = connection.prepare("SELECT round FROM rounds WHERE run = ?1 AND record IS NOT NULL")?;
    rounds.query_map([run.to_string()], |row| row.get(0))?.collect()
}

fn delete_lost(
    transaction: &Transaction<'_>,
    run: RunId,
    closed: u32,
    resume: &Resume,
) -> rusqlite::Result<()> {
    let name = run.to_string();
    let open = resume.open.as_ref();
    let newest = closed + u32::from(open.is_some());
    for table in ["rounds", "arrivals"] {
        transaction
            .execute(&format!("DELETE FROM {table} WHERE run = ?1 AND round > ?2"), params![name, newest])?;
    }
    transaction.execute("DELETE FROM metrics WHERE run = ?1 AND round > ?2", params![name, closed])?;
    transaction.execute(
        "UPDATE rounds SET record = NULL, closed = NULL WHERE run = ?1 AND round > ?2",
        params![name, closed],
    )?;
    let Some(open) = open else { return Ok(()) };
    rows::opened(transaction, run, newest, open.opening.cohort.len(), None)?;
    let said: Vec<String> = transaction
        .prepare("SELECT device FROM arrivals WHERE run = ?1 AND round = ?2 AND verdict = 'accepted'")?
        .query_map(params![name, newest], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    let durable: BTreeSet<String> = open.accepted.iter().map(ToString::to_string).collect();
    for device in said.iter().filter(|device| !durable.contains(*device)) {
        transaction.execute(
            "DELETE FROM arrivals WHERE run = ?1 AND round = ?2 AND device = ?3 AND verdict = 'accepted'",
            params![name, newest, device],
        )?;
    }
    open.accepted.iter().try_for_each(|client| rows::accepted(transaction, run, newest, *client, None))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::round::RoundRecord;

    #[test]
    fn of_a_database_that_stays_broken_the_newest_rounds_wait() {
        let mut pending = Pending::default();
        for round in 1..=100 {
            let record = RoundRecord { round, ..RoundRecord::default() };
            pending.push(
                ClosedRound { record, contributors: Vec::new(), work: BTreeMap::new() },
                i64::from(round),
            );
        }
        let waiting: Vec<u32> = pending.0.iter().map(|(round, _)| round.record.round).collect();
        assert_eq!(waiting, (37..=100).collect::<Vec<_>>());
    }
}
