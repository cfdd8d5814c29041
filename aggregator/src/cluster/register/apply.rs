//! What the store says, merged into the register of this server in one transaction.

use std::collections::BTreeSet;
use std::time::SystemTime;

use rusqlite::{OptionalExtension as _, Transaction, params};
use shared::id::ClientId;
use tracing::warn;

use super::local::{agree_on_device, agree_on_ticket, agree_up_to, agreed_on_device, agreed_on_ticket};
use super::merge;
use super::rows::{DeviceRow, Digest, Extent, Left, Pulled, Said, Stands, TheirDevice, TheirTicket};
use crate::database::{Database, DatabaseError, moment};

/// Merges what was pulled.
pub(super) fn apply(
    database: &Database,
    lab: &[u8],
    pulled: &Pulled,
    now: SystemTime,
) -> Result<(), DatabaseError> {
    database.write("merge what other servers say into", |transaction| {
        if pulled.extent == Extent::Another {
            transaction.execute_batch("DELETE FROM agreed_devices; DELETE FROM agreed_tickets")?;
        }
        devices(transaction, pulled)?;
        for ticket in &pulled.tickets {
            self::ticket(transaction, ticket, now)?;
        }
        if pulled.extent == Extent::Whole {
            forget_purged(transaction, pulled)?;
        }
        let purged = [pulled.purged];
        transaction
            .execute("DELETE FROM agreed_devices WHERE standing = 'removed' AND revision <= ?1", purged)?;
        transaction.execute("DELETE FROM agreed_tickets WHERE withdrawn AND revision <= ?1", purged)?;
        agree_up_to(transaction, lab, &pulled.place)
    })
}

fn devices(transaction: &Transaction<'_>, pulled: &Pulled) -> rusqlite::Result<()> {
    let mut merged = Vec::new();
    for TheirDevice { row, stood, revision } in &pulled.devices {
        let agreed = agreed_on_device(transaction, row.client)?;
        let here = here(transaction, row.client)?;
        let stood = agreed.as_ref().is_none_or(|(_, known)| stood > known);
        let said = merge::device(agreed.as_ref().map(|(said, _)| said), &here, &row.said, stood);
        agree_on_device(transaction, row.client, &row.said, *revision)?;
        if said != here {
            merged.push((here, DeviceRow { said, ..row.clone() }));
        }
    }
    // No two devices have one name at any moment, and names may have been exchanged.
    for (here, device) in &merged {
        if here.name.is_some() && here.name != device.said.name {
            rename(transaction, device.client, None)?;
        }
    }
    for (_, device) in &merged {
        write(transaction, device)?;
    }
    Ok(())
}

/// What this server says of a device.
fn here(transaction: &Transaction<'_>, client: ClientId) -> rusqlite::Result<Said> {
    let found = transaction
        .prepare("SELECT standing, name FROM devices WHERE client = ?1")?
        .query_row([client.as_bytes()], |row| {
            Ok(Said { standing: Stands(Some(row.get(0)?)), name: row.get(1)? })
        })
        .optional()?;
    Ok(found.unwrap_or_default())
}

fn rename(transaction: &Transaction<'_>, client: ClientId, name: Option<&str>) -> rusqlite::Result<()> {
    transaction
        .prepare("UPDATE devices SET name = ?2 WHERE client = ?1")?
        .execute(params![client.as_bytes(), name])
        .map(drop)
}

fn write(transaction: &Transaction<'_>, device: &DeviceRow) -> rusqlite::Result<()> {
    let Some(standing) = device.said.standing.0 else {
        return transaction
            .prepare("DELETE FROM devices WHERE client = ?1")?
            .execute([device.client.as_bytes()])
            .map(drop);
    };
    if let Some(name) = &device.said.name {
        // Another device was given that name here, and the store heard of this one first.
        let lost = transaction
            .prepare("UPDATE devices SET name = NULL WHERE name = ?1 AND client <> ?2")?
            .execute(params![name, device.client.as_bytes()])?;
        if lost > 0 {
            warn!(
                "at another server, device {} was named {name:?}: the one that has the name here has none now",
                device.client
            );
        }
    }
    transaction
        .prepare(
            "INSERT INTO devices (client, key, name, standing, since, seen) VALUES (?1, ?2, ?3, ?4, ?5, ?5)
             ON CONFLICT (client) DO UPDATE SET name = excluded.name, standing = excluded.standing",
        )?
        .execute(params![
            device.client.as_bytes(),
            device.key.as_bytes(),
            device.said.name,
            standing,
            device.since
        ])
        .map(drop)
}

fn ticket(transaction: &Transaction<'_>, theirs: &TheirTicket, now: SystemTime) -> rusqlite::Result<()> {
    let row = &theirs.row;
    let agreed = agreed_on_ticket(transaction, &row.digest)?;
    let remaining: Option<i64> = transaction
        .prepare("SELECT remaining FROM tickets WHERE digest = ?1")?
        .query_row([&row.digest], |row| row.get(0))
        .optional()?;
    let here = match (remaining, &agreed) {
        (Some(remaining), _) => Left { remaining, withdrawn: false },
        (None, Some(agreed)) => Left { withdrawn: true, ..*agreed },
        // It is new here.
        (None, None) => row.left,
    };
    let left = merge::ticket(agreed.as_ref(), &here, &row.left);
    let good = !left.withdrawn && left.remaining > 0 && row.expires > moment(now);
    // One that is good for nothing is not entered only to be kept.
    if remaining.is_none() && agreed.is_none() && !good {
        return Ok(());
    }
    agree_on_ticket(transaction, &row.digest, row.left, theirs.revision)?;
    if left.withdrawn {
        transaction.execute("DELETE FROM tickets WHERE digest = ?1", [&row.digest])?;
    } else if remaining != Some(left.remaining) {
        transaction.execute(
            "INSERT INTO tickets (digest, uses, remaining, made, expires) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (digest) DO UPDATE SET remaining = excluded.remaining",
            params![row.digest, row.uses, left.remaining, row.made, row.expires],
        )?;
    }
    Ok(())
}

/// Removes what was agreed on and is not in the store any more: what was removed or withdrawn long ago.
fn forget_purged(transaction: &Transaction<'_>, pulled: &Pulled) -> rusqlite::Result<()> {
    let there: BTreeSet<ClientId> = pulled.devices.iter().map(|device| device.row.client).collect();
    let mut agreed = transaction.prepare("SELECT client FROM agreed_devices")?;
    let agreed: Vec<ClientId> = agreed
        .query_map([], |row| Ok(ClientId::from_bytes(row.get(0)?)))?
        .collect::<rusqlite::Result<_>>()?;
    for client in agreed.into_iter().filter(|client| !there.contains(client)) {
        let here = here(transaction, client)?;
        let known = agreed_on_device(transaction, client)?.map(|(said, _)| said);
        let stood = known.as_ref().is_some_and(|known| known.standing != Stands::REMOVED);
        let said = merge::device(known.as_ref(), &here, &Said::default(), stood);
        if said.standing == Stands::REMOVED {
            transaction.execute("DELETE FROM devices WHERE client = ?1", [client.as_bytes()])?;
        }
        transaction.execute("DELETE FROM agreed_devices WHERE client = ?1", [client.as_bytes()])?;
    }
    let there: BTreeSet<&Digest> = pulled.tickets.iter().map(|ticket| &ticket.row.digest).collect();
    let mut agreed = transaction.prepare("SELECT digest FROM agreed_tickets")?;
    let agreed: Vec<Digest> = agreed.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    for digest in agreed.iter().filter(|digest| !there.contains(digest)) {
        transaction.execute("DELETE FROM tickets WHERE digest = ?1", [digest])?;
        transaction.execute("DELETE FROM agreed_tickets WHERE digest = ?1", [digest])?;
    }
    Ok(())
}
