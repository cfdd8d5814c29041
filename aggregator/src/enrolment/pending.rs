//! Devices that wait for approval. Anybody can be one, under any number of keys.

use std::collections::BTreeMap;

use rusqlite::Transaction;
use shared::id::ClientId;

use super::network;

/// So many wait at a time.
const MOST: usize = 1000;
/// More than so many from one network are made up.
const FROM_ONE: usize = MOST / 10;

/// Makes room for one more. If there are too many, those go that came first from where most of them are: whoever makes up a
/// thousand keys in one place pushes out his own, and not the one device that waits elsewhere. Where no place has that many, those
/// go that came first of all: a lab's devices are many in one place too, and knock again in a while.
pub(super) fn make_room(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    let mut waiting = transaction
        .prepare("SELECT client, address FROM devices WHERE standing = 'waiting' ORDER BY since, client")?;
    let waiting = waiting.query_map([], |row| {
        let address: Option<String> = row.get(1)?;
        let from = address.and_then(|address| address.parse().ok()).map(network);
        Ok((ClientId::from_bytes(row.get(0)?), from))
    })?;
    let mut waiting = waiting.collect::<rusqlite::Result<Vec<_>>>()?;
    while waiting.len() >= MOST {
        let mut from = BTreeMap::<_, usize>::new();
        for (_, address) in &waiting {
            *from.entry(*address).or_default() += 1;
        }
        let most = from.values().copied().max().filter(|&most| most > FROM_ONE);
        let first =
            waiting.iter().position(|(_, address)| most.is_none() || from.get(address).copied() == most);
        let (client, _) = waiting.remove(first.unwrap_or_default());
        transaction.execute("DELETE FROM devices WHERE client = ?1", [client.as_bytes()])?;
    }
    Ok(())
}
