//! The policy for unknown devices.

/// How the server treats a device that it does not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Policy {
    /// It needs a ticket
    #[default]
    Ticket,
    /// It needs a ticket, or waits for `aggregator devices approve`
    Approve,
    /// It is let in
    Anyone,
}
