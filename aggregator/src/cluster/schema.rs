//! The tables of a store, and their versions.

use postgres::error::SqlState;
use postgres::{Client, Error};

/// What each version adds. A version that was released is never changed.
const MIGRATIONS: [(i64, &str); 1] = [(1, include_str!("schema/1.sql"))];

/// The newest version.
pub const KNOWN: i64 = MIGRATIONS[MIGRATIONS.len() - 1].0;

/// Makes the tables, or brings them to the newest version, and returns the version that is there then. Several may try at once.
///
/// # Errors
/// Those of the database.
pub fn prepare(client: &mut Client) -> Result<i64, Error> {
    loop {
        match version(client) {
            Ok(found) if found >= KNOWN => return Ok(found),
            Ok(found) => migrate(client, found)?,
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
pub fn version(client: &mut Client) -> Result<i64, Error> {
    Ok(client.query_one("SELECT version FROM federation_schema", &[])?.get(0))
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

fn migrate(client: &mut Client, from: i64) -> Result<(), Error> {
    let mut transaction = client.transaction()?;
    let found: i64 = transaction.query_one("SELECT version FROM federation_schema FOR UPDATE", &[])?.get(0);
    // Another process may have been at it.
    if found == from {
        for (_, migration) in MIGRATIONS.iter().filter(|(version, _)| *version > from) {
            transaction.batch_execute(migration)?;
        }
        transaction.execute("UPDATE federation_schema SET version = $1", &[&KNOWN])?;
    }
    transaction.commit()
}

fn another_was_first(error: &Error) -> bool {
    // PostgreSQL says the second where two create a table in the same moment.
    error.code() == Some(&SqlState::DUPLICATE_TABLE) || error.code() == Some(&SqlState::UNIQUE_VIOLATION)
}
