//! The tables, and how those of an older program become those of this one.

use rusqlite::{Connection, Result, TransactionBehavior};

/// What tells our files from other programs' databases: `FEDA`.
pub(super) const APPLICATION: i64 = 0x4645_4441;

/// What leads from each version to the next: the first makes an empty file version 1. Ones that were released are never
/// changed; new ones go last, and keep what is there.
pub(super) const STEPS: &[&str] = &[
    include_str!("migrations/1_runs.sql"),
    include_str!("migrations/2_devices.sql"),
    include_str!("migrations/3_left_out.sql"),
];

/// The version that this program works with.
#[expect(clippy::cast_possible_wrap, reason = "there are a few steps")]
pub(super) const VERSION: i64 = STEPS.len() as i64;

/// What is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) application: i64,
    pub(super) version: i64,
    /// Whether there is any table.
    pub(super) tables: bool,
}

pub(super) fn find(connection: &Connection) -> Result<Found> {
    let number = |pragma| connection.pragma_query_value(None, pragma, |row| row.get(0));
    let tables: i64 =
        connection
            .query_row("SELECT count(*) FROM sqlite_schema WHERE type = 'table'", [], |row| row.get(0))?;
    Ok(Found { application: number("application_id")?, version: number("user_version")?, tables: tables > 0 })
}

/// Makes the tables of this version out of those that are there. All steps, or none: a process that dies in between
/// leaves what it found, and of two that come at once the second finds the work done.
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
