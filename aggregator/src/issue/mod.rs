//! New tickets: what `aggregator ticket` and the live page make.

mod addresses;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, SystemTime};

use qrcode::{EcLevel, QrCode};
use shared::identity::PublicKey;
use shared::ticket::{MAX_ADDRESSES, Ticket, TicketSecret};

use crate::database::{Database, DatabaseError};
use crate::enrolment::{IssuedTicket, ListenAddress};
use crate::history::{RunLock, StoredRun};
use crate::run::directory::RunDirectory;

/// Where `serve` listens unless it is told.
const PORT: u16 = 4433;

/// The greatest number of devices of one ticket.
pub const MAX_USES: u32 = 1_000_000;

/// A ticket that is asked for.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// How many devices it lets in.
    pub uses: u32,
    /// For how long it does.
    pub lasts: Duration,
    /// Where devices reach the server; empty for this machine's own addresses.
    pub addresses: Vec<String>,
}

/// A ticket that was made.
#[derive(Clone, Debug)]
pub struct NewTicket {
    /// What a device is given.
    pub ticket: Ticket,
    /// What the server knows of it.
    pub issued: IssuedTicket,
}

/// Why no ticket was made.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// The database.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The system gives no random numbers.
    #[error("no random numbers: {0}")]
    Random(getrandom::Error),
    /// The server has no address that devices could reach.
    #[error(
        "this machine has no network address that devices could reach it at{why}: say which with --address HOST:PORT"
    )]
    NoAddress {
        /// Why not, after a space; empty if that is not known.
        why: String,
    },
    /// A ticket has no room for this number of addresses.
    #[error("a ticket has room for {MAX_ADDRESSES} addresses")]
    TooManyAddresses,
}

/// Makes a ticket of the server with this key.
///
/// # Errors
/// [`IssueError`]
pub fn issue(
    database: &Database,
    server: PublicKey,
    wanted: Wanted,
    now: SystemTime,
) -> Result<NewTicket, IssueError> {
    let Wanted { uses, lasts, addresses } = wanted;
    let addresses = if addresses.is_empty() { own_addresses(listening(database)?)? } else { addresses };
    if addresses.len() > MAX_ADDRESSES {
        return Err(IssueError::TooManyAddresses);
    }
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(IssueError::Random)?;
    let secret = TicketSecret::from_bytes(bytes);
    let issued = IssuedTicket::make(database, secret, uses, lasts, now)?;
    Ok(NewTicket { ticket: Ticket { server, secret, addresses }, issued })
}

/// The ticket for a camera; `None` if it does not fit into a code.
#[must_use]
pub fn code(ticket: &Ticket) -> Option<QrCode> {
    // Capitals alone make the smaller code.
    QrCode::with_error_correction_level(ticket.to_string().to_uppercase(), EcLevel::L).ok()
}

/// Where a server listens: one that serves a run now, or one that died and is waited for, or the one that was started last.
fn listening(database: &Database) -> Result<Option<SocketAddr>, DatabaseError> {
    let runs = database.runs()?;
    let place = |run: &StoredRun| RunDirectory::new(&run.directory);
    let serving = runs.iter().find(|run| RunLock::in_place(&place(run)));
    let run = serving.or_else(|| runs.iter().filter(|run| run.ended.is_none()).max_by_key(|run| run.told));
    let address = run.and_then(|run| RunLock::address(&place(run)));
    Ok(match address {
        Some(address) => Some(address),
        None => ListenAddress::last(database)?,
    })
}

/// Where a server that listens at this address is reached from the networks of this machine.
///
/// # Errors
/// [`IssueError::NoAddress`]
pub fn own_addresses(listening: Option<SocketAddr>) -> Result<Vec<String>, IssueError> {
    let port = listening.map_or(PORT, |address| address.port());
    let bound = listening.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |address| address.ip());
    let (own, why) = match bound {
        one if !one.is_unspecified() => (vec![one], String::new()),
        all => match addresses::own(all.is_ipv6()) {
            Ok(own) => (own, String::new()),
            Err(error) => (Vec::new(), format!(" (its interfaces cannot be listed: {error})")),
        },
    };
    if own.is_empty() {
        return Err(IssueError::NoAddress { why });
    }
    Ok(own.into_iter().map(|own| SocketAddr::from((own, port)).to_string()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_at_one_address_is_reached_there() {
        let at = "192.0.2.7:5000".parse().unwrap();
        assert_eq!(own_addresses(Some(at)).unwrap(), ["192.0.2.7:5000"]);
    }
}
