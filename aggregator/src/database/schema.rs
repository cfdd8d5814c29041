//! The schema and its migrations.

use rusqlite::{Connection, Result, Row, TransactionBehavior};

use super::checksums;

/// The application id that marks our databases: `FEDA`.
pub(super) const APPLICATION: i64 = 0x4645_4441;

/// The migration from each version to the next; the first makes an empty file version 1. Released migrations are never
/// changed; new ones are appended, and keep the data.
pub(super) const STEPS: &[&str] = &[
    include_str!("migrations/1_runs.sql"),
    include_str!("migrations/2_devices.sql"),
    include_str!("migrations/3_left_out.sql"),
    include_str!("migrations/4_changes.sql"),
    include_str!("migrations/5_checksums.sql"),
    include_str!("migrations/6_agreed.sql"),
];

/// The version of this program.
#[expect(clippy::cast_possible_wrap, reason = "there are a few steps")]
pub(super) const VERSION: i64 = STEPS.len() as i64;

/// What a database file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) application: i64,
    pub(super) version: i64,
    /// Whether there are tables.
    pub(super) tables: bool,
}

pub(super) fn find(connection: &Connection) -> Result<Found> {
    let number = |pragma| connection.pragma_query_value(None, pragma, |row| row.get(0));
    let tables: i64 =
        connection
            .query_row("SELECT count(*) FROM sqlite_schema WHERE type = 'table'", [], |row| row.get(0))?;
    Ok(Found { application: number("application_id")?, version: number("user_version")?, tables: tables > 0 })
}

/// An empty database in memory.
pub(super) fn fresh() -> Result<Connection> {
    let mut fresh = Connection::open_in_memory()?;
    checksums::register(&fresh)?;
    migrate(&mut fresh)?;
    Ok(fresh)
}

/// Whether all tables and triggers of `fresh` are there, up to comments and blanks. Others are of other programs.
pub(super) fn holds(connection: &Connection, fresh: &Connection) -> Result<bool> {
    let text = |connection: &Connection| -> Result<Vec<(String, String, Option<String>)>> {
        let mut all = connection.prepare("SELECT type, name, sql FROM sqlite_schema ORDER BY type, name")?;
        let row = |row: &Row<'_>| {
            Ok((row.get(0)?, row.get(1)?, row.get::<_, Option<String>>(2)?.map(|sql| bare(&sql))))
        };
        all.query_map([], row)?.collect()
    };
    let found = text(connection)?;
    Ok(text(fresh)?.iter().all(|wanted| found.contains(wanted)))
}

/// A statement without its comments, and with one blank between words.
fn bare(sql: &str) -> String {
    let words = sql.lines().flat_map(|line| line.split("--").next().unwrap_or_default().split_whitespace());
    words.collect::<Vec<_>>().join(" ")
}

/// Migrates the database to this program's version in one transaction: a crash leaves it unchanged, and of two concurrent
/// processes the second finds the migration done.
pub(super) fn migrate(connection: &mut Connection) -> Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let version = find(&transaction)?.version;
    for step in STEPS.iter().skip(version.max(0) as usize) {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "user_version", VERSION.max(version))?;
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.commit()
}
