//! Tickets that several servers share.

use std::fmt::Debug;
use std::time::SystemTime;

use shared::identity::PublicKey;
use shared::message::Refusal;
use shared::ticket::TicketSecret;

/// Tickets that are good at several servers, which together admit no more devices with one than it was made for.
pub trait SharedTickets: Debug + Send + Sync {
    /// Uses a ticket once for the device that has proved `key`, durably and for all servers. A device that was admitted before costs no
    /// use. Blocks, for a few seconds at most.
    fn claim(&self, key: PublicKey, ticket: TicketSecret, now: SystemTime) -> Claim;
}

/// The answer to a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// All servers know the device as admitted.
    Granted,
    /// The ticket is not good, or the device was revoked.
    Refused(Refusal),
    /// It cannot be said now.
    Unavailable,
}
