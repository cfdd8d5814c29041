//! The register of this server, in its own database: what was changed here since the servers agreed, and what they agreed on.

use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, params};
use shared::id::ClientId;
use shared::identity::PublicKey;

use super::rows::{Changed, DeviceRow, Left, Place, Said, Stands, TicketRow};
use crate::database::{Database, DatabaseError};

/// How far this server has read the register of `lab`; `None` if it never has.
pub(super) fn place(database: &Database, lab: &[u8]) -> Result<Option<Place>, DatabaseError> {
    database.read("see what is agreed in", |connection| {
        connection
            .query_row("SELECT instance, revision FROM agreed_store WHERE lab = ?1", [lab], |row| {
                Ok(Place { instance: row.get(0)?, revision: row.get(1)? })
            })
            .optional()
    })
}

/// What was changed here since.
pub(super) fn changed(database: &Database) -> Result<Changed, DatabaseError> {
    database.read("look for changes in", |connection| {
        let devices = all(
            connection,
            "SELECT client, key, here.standing, here.name, since FROM devices AS here LEFT JOIN agreed_devices AS agreed USING (client)
             WHERE agreed.standing IS NOT here.standing OR agreed.name IS NOT here.name",
            |row| {
                let said = Said { standing: Stands(Some(row.get(2)?)), name: row.get(3)? };
                let client = ClientId::from_bytes(row.get(0)?);
                Ok(DeviceRow { client, key: PublicKey::from_bytes(row.get(1)?), said, since: row.get(4)? })
            },
        )?;
        let removed = all(
            connection,
            "SELECT client FROM agreed_devices WHERE standing <> 'removed' AND client NOT IN (SELECT client FROM devices)",
            |row| Ok(ClientId::from_bytes(row.get(0)?)),
        )?;
        let tickets = all(
            connection,
            "SELECT digest, uses, here.remaining, made, expires FROM tickets AS here LEFT JOIN agreed_tickets AS agreed USING (digest)
             WHERE agreed.remaining IS NOT here.remaining",
            |row| {
                let left = Left { remaining: row.get(2)?, withdrawn: false };
                Ok(TicketRow { digest: row.get(0)?, uses: row.get(1)?, left, made: row.get(3)?, expires: row.get(4)? })
            },
        )?;
        let withdrawn = all(
            connection,
            "SELECT digest FROM agreed_tickets WHERE NOT withdrawn AND digest NOT IN (SELECT digest FROM tickets)",
            |row| row.get(0),
        )?;
        Ok(Changed { devices, removed, tickets, withdrawn })
    })
}

fn all<T>(
    connection: &Connection,
    sql: &str,
    of: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    connection.prepare(sql)?.query_map([], of)?.collect()
}

/// Records that the store has these changes, with this revision. What was changed again meanwhile is still to go there.
pub(super) fn settle(
    database: &Database,
    lab: &[u8],
    changed: &Changed,
    place: &Place,
) -> Result<(), DatabaseError> {
    database.write("record what is agreed in", |transaction| {
        for device in &changed.devices {
            agree_on_device(transaction, device.client, &device.said, place.revision)?;
        }
        for client in &changed.removed {
            agree_on_device(transaction, *client, &Said::default(), place.revision)?;
        }
        for ticket in &changed.tickets {
            agree_on_ticket(transaction, &ticket.digest, ticket.left, place.revision)?;
        }
        for digest in &changed.withdrawn {
            let agreed = agreed_on_ticket(transaction, digest)?.map_or(0, |left| left.remaining);
            let left = Left { remaining: agreed, withdrawn: true };
            agree_on_ticket(transaction, digest, left, place.revision)?;
        }
        agree_up_to(transaction, lab, place)
    })
}

pub(super) fn agree_up_to(transaction: &Transaction<'_>, lab: &[u8], place: &Place) -> rusqlite::Result<()> {
    transaction
        .execute(
            "INSERT INTO agreed_store (one, lab, instance, revision) VALUES (1, ?1, ?2, ?3)
             ON CONFLICT (one) DO UPDATE SET lab = excluded.lab, instance = excluded.instance, revision = excluded.revision",
            params![lab, place.instance, place.revision],
        )
        .map(drop)
}

/// What was agreed on a device, and with which revision.
pub(super) fn agreed_on_device(
    transaction: &Transaction<'_>,
    client: ClientId,
) -> rusqlite::Result<Option<(Said, i64)>> {
    transaction
        .prepare("SELECT standing, name, revision FROM agreed_devices WHERE client = ?1")?
        .query_row([client.as_bytes()], |row| {
            Ok((Said { standing: row.get(0)?, name: row.get(1)? }, row.get(2)?))
        })
        .optional()
}

pub(super) fn agree_on_device(
    transaction: &Transaction<'_>,
    client: ClientId,
    said: &Said,
    revision: i64,
) -> rusqlite::Result<()> {
    transaction
        .prepare(
            "INSERT INTO agreed_devices (client, name, standing, revision) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (client) DO UPDATE SET name = excluded.name, standing = excluded.standing, revision = excluded.revision",
        )?
        .execute(params![client.as_bytes(), said.name, said.standing, revision])
        .map(drop)
}

/// What was agreed on a ticket.
pub(super) fn agreed_on_ticket(
    transaction: &Transaction<'_>,
    digest: &[u8],
) -> rusqlite::Result<Option<Left>> {
    transaction
        .prepare("SELECT remaining, withdrawn FROM agreed_tickets WHERE digest = ?1")?
        .query_row([digest], |row| Ok(Left { remaining: row.get(0)?, withdrawn: row.get(1)? }))
        .optional()
}

pub(super) fn agree_on_ticket(
    transaction: &Transaction<'_>,
    digest: &[u8],
    left: Left,
    revision: i64,
) -> rusqlite::Result<()> {
    transaction
        .prepare(
            "INSERT INTO agreed_tickets (digest, remaining, withdrawn, revision) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (digest) DO UPDATE
             SET remaining = excluded.remaining, withdrawn = excluded.withdrawn, revision = excluded.revision",
        )?
        .execute(params![digest, left.remaining, left.withdrawn, revision])
        .map(drop)
}
