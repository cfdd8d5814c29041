//! Tickets: how many devices each lets in, and until when.

use std::time::{Duration, SystemTime};

use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, params};
use shared::message::Refusal;
use shared::ticket::TicketSecret;

use crate::database::{Database, DatabaseError, moment};

/// Number of newest tickets that are kept regardless of the clock, so that an expired ticket is told from an unknown one.
const MAX_TICKETS: i64 = 1000;

/// Uses a ticket once, if it is valid.
pub(super) fn redeem(
    transaction: &Transaction<'_>,
    ticket: TicketSecret,
    now: SystemTime,
) -> rusqlite::Result<Result<(), Refusal>> {
    let found: Option<(i64, i64, i64)> = transaction
        .query_row(
            "SELECT number, remaining, expires FROM tickets WHERE digest = ?1",
            [ticket.digest()],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .optional()?;
    let Some((number, left, expires)) = found else { return Ok(Err(Refusal::TicketUnknown)) };
    if moment(now) >= expires {
        return Ok(Err(Refusal::TicketExpired));
    }
    if left <= 0 {
        return Ok(Err(Refusal::TicketUsedUp));
    }
    transaction.execute("UPDATE tickets SET remaining = remaining - 1 WHERE number = ?1", [number])?;
    Ok(Ok(()))
}

/// A ticket as the database knows it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct IssuedTicket {
    /// Its number, for the operator.
    pub number: i64,
    /// How many devices it was made for.
    pub uses: i64,
    /// How many more it lets in.
    pub left: i64,
    /// When it was made, milliseconds since 1970.
    pub made: i64,
    /// Until when it lets devices in.
    pub expires: i64,
}

impl IssuedTicket {
    /// Makes a ticket with this secret for `uses` devices. Beyond the newest `MAX_TICKETS`, tickets that are no longer valid are
    /// deleted; not by age, since a clock that is wrong for a day makes all of them old.
    pub fn make(
        database: &Database,
        secret: TicketSecret,
        uses: u32,
        lasts: Duration,
        now: SystemTime,
    ) -> Result<Self, DatabaseError> {
        let (made, expires) = (moment(now), moment(now + lasts));
        database.write("make a ticket in", |transaction| {
            transaction.execute(
                "INSERT INTO tickets (digest, uses, remaining, made, expires) VALUES (?1, ?2, ?2, ?3, ?4)",
                params![secret.digest(), uses, made, expires],
            )?;
            let number = transaction.last_insert_rowid();
            transaction.execute(
                "DELETE FROM tickets WHERE number <= ?1 AND (expires <= ?2 OR remaining <= 0)",
                params![number - MAX_TICKETS, made],
            )?;
            Ok(Self { number, uses: uses.into(), left: uses.into(), made, expires })
        })
    }

    /// When the newest one was made.
    pub fn newest(database: &Database) -> Result<Option<i64>, DatabaseError> {
        database.read("look for the newest ticket in", |connection| {
            connection.query_row("SELECT max(made) FROM tickets", [], |row| row.get(0))
        })
    }

    /// The tickets that are valid at `now`.
    pub fn good(database: &Database, now: SystemTime) -> Result<Vec<Self>, DatabaseError> {
        database.read("list the tickets of", |connection: &Connection| {
            let mut good = connection.prepare(
                "SELECT number, uses, remaining, made, expires FROM tickets WHERE remaining > 0 AND expires > ?1 ORDER BY number",
            )?;
            let ticket = |row: &Row<'_>| {
                Ok(Self {
                    number: row.get(0)?,
                    uses: row.get(1)?,
                    left: row.get(2)?,
                    made: row.get(3)?,
                    expires: row.get(4)?,
                })
            };
            good.query_map([moment(now)], ticket)?.collect()
        })
    }

    /// Makes it good for nothing. False if there is no such ticket.
    pub fn withdraw(database: &Database, number: i64) -> Result<bool, DatabaseError> {
        database.write("withdraw a ticket from", |transaction| {
            Ok(transaction.execute("DELETE FROM tickets WHERE number = ?1", [number])? > 0)
        })
    }
}
