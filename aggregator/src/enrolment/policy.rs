//! Who is let in without being known.

/// What becomes of a device that the server does not know.
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
