//! The address that the server listened on last, for tickets that are made while it is down.

use std::net::SocketAddr;

use rusqlite::OptionalExtension as _;

use crate::database::{Database, DatabaseError};

/// The address that the server listened on last.
pub struct ListenAddress;

impl ListenAddress {
    /// Records it.
    pub fn note(database: &Database, address: SocketAddr) -> Result<(), DatabaseError> {
        database.write("note the address in", |transaction| {
            transaction.execute(
                "INSERT INTO listening (one, address) VALUES (1, ?1)
                 ON CONFLICT (one) DO UPDATE SET address = excluded.address",
                [address.to_string()],
            )?;
            Ok(())
        })
    }

    /// The last recorded address.
    pub fn last(database: &Database) -> Result<Option<SocketAddr>, DatabaseError> {
        let found: Option<String> = database.read("look for the address in", |connection| {
            connection.query_row("SELECT address FROM listening", [], |row| row.get(0)).optional()
        })?;
        Ok(found.and_then(|address| address.parse().ok()))
    }
}
