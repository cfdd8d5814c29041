//! The queue of devices that wait for approval. Anyone can enter it, under any number of keys.

use std::collections::BTreeMap;

use rusqlite::Transaction;
use shared::id::ClientId;

use super::network;

/// The greatest length of the queue.
const MAX_PENDING_DEVICES: usize = 1000;
/// A network with more pending devices than this is taken to make them up.
const MAX_PENDING_PER_NETWORK: usize = MAX_PENDING_DEVICES / 10;

/// Makes room for one more device. When the queue is full, it evicts the oldest request of the network with the most requests,
/// so that one network cannot crowd out others; or the oldest of all if no network has more than [`MAX_PENDING_PER_NETWORK`],
/// since a lab's devices share a network too, and ask again in a while.
pub(super) fn evict_pending(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    let mut waiting = transaction
        .prepare("SELECT client, address FROM devices WHERE standing = 'waiting' ORDER BY since, client")?;
    let waiting = waiting.query_map([], |row| {
        let address: Option<String> = row.get(1)?;
        let from = address.and_then(|address| address.parse().ok()).map(network);
        Ok((ClientId::from_bytes(row.get(0)?), from))
    })?;
    let mut waiting = waiting.collect::<rusqlite::Result<Vec<_>>>()?;
    while waiting.len() >= MAX_PENDING_DEVICES {
        let mut from = BTreeMap::<_, usize>::new();
        for (_, address) in &waiting {
            *from.entry(*address).or_default() += 1;
        }
        let most = from.values().copied().max().filter(|&most| most > MAX_PENDING_PER_NETWORK);
        let first =
            waiting.iter().position(|(_, address)| most.is_none() || from.get(address).copied() == most);
        let (client, _) = waiting.remove(first.unwrap_or_default());
        transaction.execute("DELETE FROM devices WHERE client = ?1", [client.as_bytes()])?;
    }
    Ok(())
}
