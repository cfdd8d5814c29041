//! Enrolment: which devices may take part.
//!
//! A device proves in the handshake that it has a key ([`shared::identity`]); who may take part is decided here, before
//! the coordinator hears of it:
//!
//! | the server knows the device as | it has a good ticket | then, by [`Policy`] |
//! |---|---|---|
//! | let in | | welcome |
//! | revoked | | refused for good |
//! | waiting for approval | yes | let in |
//! | waiting for approval | no | refused for now: it comes again by itself |
//! | nobody | yes | let in; the ticket has one use less |
//! | nobody | no, or none | refused (`ticket`); noted, and refused for now (`approve`); let in (`anyone`) |
//!
//! Devices and tickets are in the [database](crate::database), which commands of other processes change (`aggregator
//! devices`, `aggregator ticket`): [`Admission::watch`] notices, and a revoked device is cut off at once, and the
//! coordinator forgets it, so that no round waits for it. A ticket's secret is
//! not there, its digest is. A device that was let in and did not hear of it shows its ticket again, which then has no use
//! less.

mod admission;
mod devices;
mod listening;
mod live;
mod network;
mod pending;
mod policy;
mod tickets;

pub use admission::{Admission, Changes, Denied, Register};
pub use devices::{Device, Seen, Standing, Weighed};
pub use listening::Listening;
pub(crate) use network::network;
pub use policy::Policy;
pub use tickets::Issued;

#[cfg(test)]
mod tests;
