//! The record of what was changed from the page: who, when, what.

use rusqlite::params;

use crate::database::{Database, DatabaseError};

/// A change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// In milliseconds since 1970.
    pub(super) at: i64,
    /// From where.
    pub(super) who: String,
    /// What, in a sentence.
    pub(super) what: String,
}

impl Change {
    /// Writes it down.
    pub(super) fn note(&self, database: &Database) -> Result<(), DatabaseError> {
        database.write("note a change in", |transaction| {
            transaction
                .execute(
                    "INSERT INTO changes (at, who, what) VALUES (?1, ?2, ?3)",
                    params![self.at, self.who, self.what],
                )
                .map(drop)
        })
    }

    /// The newest, the newest of them first; none in the database of an earlier program.
    pub(super) fn newest(database: &Database, count: u32) -> Result<Vec<Self>, DatabaseError> {
        database.read("read the changes in", |connection| {
            let known: bool = connection.query_row(
                "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'changes'",
                [],
                |row| row.get(0),
            )?;
            if !known {
                return Ok(Vec::new());
            }
            connection
                .prepare("SELECT at, who, what FROM changes ORDER BY id DESC LIMIT ?1")?
                .query_map([count], |row| Ok(Self { at: row.get(0)?, who: row.get(1)?, what: row.get(2)? }))?
                .collect()
        })
    }
}
