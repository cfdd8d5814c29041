//! The tables of a store, and their versions.
//!
//! A store says two numbers: which version its tables have, and from which version on a program can work with them. A migration that
//! leaves to earlier programs all that they use keeps the second, so that programs of both versions share a store.

use postgres::error::SqlState;
use postgres::{Client, Error, GenericClient};

struct Migration {
    /// The version that the tables have then.
    version: i64,
    /// The earliest version of a program that can work with them.
    needs: i64,
    sql: &'static str,
}

/// What each version adds. A version that was released is never changed.
const MIGRATIONS: [Migration; 3] = [
    Migration { version: 1, needs: 1, sql: include_str!("schema/1.sql") },
    Migration { version: 2, needs: 1, sql: include_str!("schema/2.sql") },
    Migration { version: 3, needs: 1, sql: include_str!("schema/3.sql") },
];

const NEWEST: &Migration = &MIGRATIONS[MIGRATIONS.len() - 1];

/// The newest version.
pub const KNOWN: i64 = NEWEST.version;

/// The version of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// That of its tables.
    pub tables: i64,
    /// The earliest version of a program that can work with them.
    pub needs: i64,
}

/// Makes the tables, or brings them to the newest version, and returns the version that is there then. Several may try at once.
///
/// # Errors
/// Those of the database.
pub fn prepare(client: &mut Client) -> Result<Version, Error> {
    loop {
        match version(client) {
            Ok(found) if found.tables >= KNOWN || found.needs > KNOWN => return Ok(found),
            Ok(_) => migrate(client)?,
            Err(error) if is_absent(&error) => match create(client) {
                Err(error) if another_was_first(&error) => {}
                made => made?,
            },
            Err(error) => return Err(error),
        }
    }
}

/// The version that is there. Makes nothing.
///
/// # Errors
/// Those of the database; one that [`is_absent`] where nothing was made yet.
pub fn version(client: &mut impl GenericClient) -> Result<Version, Error> {
    // Programs of version 1 know the first of the two tables alone, and take what it says for the version of all.
    let row = client.query_one(
        "SELECT version, to_regclass('federation_tables') IS NOT NULL FROM federation_schema",
        &[],
    )?;
    let needs = row.get(0);
    let tables = if row.get(1) {
        client.query_one("SELECT version FROM federation_tables", &[])?.get(0)
    } else {
        needs
    };
    Ok(Version { tables, needs })
}

/// Whether an error says that no tables were made yet.
#[must_use]
pub fn is_absent(error: &Error) -> bool {
    error.code() == Some(&SqlState::UNDEFINED_TABLE)
}

fn create(client: &mut Client) -> Result<(), Error> {
    let mut transaction = client.transaction()?;
    // One row: the key holds one value.
    transaction.batch_execute(
        "CREATE TABLE federation_schema (one boolean PRIMARY KEY DEFAULT true CHECK (one), version bigint NOT NULL);
         INSERT INTO federation_schema (version) VALUES (0)",
    )?;
    transaction.commit()
}

fn migrate(client: &mut Client) -> Result<(), Error> {
    let mut transaction = client.transaction()?;
    transaction.query_one("SELECT version FROM federation_schema FOR UPDATE", &[])?;
    // Another process may have been at it.
    let found = version(&mut transaction)?.tables;
    if found < KNOWN {
        for migration in MIGRATIONS.iter().filter(|migration| migration.version > found) {
            transaction.batch_execute(migration.sql)?;
        }
        transaction.execute("UPDATE federation_schema SET version = $1", &[&NEWEST.needs])?;
        transaction.execute("UPDATE federation_tables SET version = $1", &[&KNOWN])?;
    }
    transaction.commit()
}

fn another_was_first(error: &Error) -> bool {
    // PostgreSQL says the second where two create a table in the same moment.
    error.code() == Some(&SqlState::DUPLICATE_TABLE) || error.code() == Some(&SqlState::UNIQUE_VIOLATION)
}
