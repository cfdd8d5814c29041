//! Enrolment: which devices may take part.
//!
//! A device proves in the handshake that it holds a key ([`shared::identity`]). Whether it may take part is decided here, before
//! the coordinator knows of it:
//!
//! | the server knows the device as | it has a valid ticket | result, by [`Policy`] |
//! |---|---|---|
//! | admitted | | welcome |
//! | revoked | | refused for good |
//! | pending approval | yes | admitted |
//! | pending approval | no | refused for now: it tries again by itself |
//! | unknown | yes | admitted; the ticket has one use less |
//! | unknown | no | refused (`ticket`); pending, and refused for now (`approve`); admitted (`anyone`) |
//!
//! Devices and tickets are in the [database](crate::database), which commands of other processes change (`aggregator
//! devices`, `aggregator ticket`). [`Admission::watch`] notices such changes: a revoked device is disconnected at once and leaves
//! the roster, so that no round waits for it. The database holds the digest of a ticket, not its secret. A device that was
//! admitted without learning of it shows its ticket again, which costs no further use.
//!
//! Where several servers have one register ([`SharedTickets`]), a ticket is used at all of them at once, before the device is admitted.
//! While that is not possible, devices with a ticket are told to try again, and known ones are admitted as before.

mod admission;
mod devices;
mod listening;
mod live;
mod name;
mod network;
mod pending;
mod policy;
mod shared_tickets;
mod tickets;

pub use admission::{Admission, Changes, Denied, Register};
pub use devices::{Admittance, Device, Seen, Standing};
pub use listening::ListenAddress;
pub use name::{DeviceName, DeviceNameError, ENOUGH};
pub(crate) use network::network;
pub use policy::Policy;
pub use shared_tickets::{Claim, SharedTickets};
pub use tickets::IssuedTicket;

#[cfg(test)]
mod tests;
