//! Resource limits, and the arithmetic behind them.
//!
//! Anyone can connect, and [`enrolment`](crate::enrolment) decides only after the handshake, so every limit holds before
//! authentication as well. The most that any number of peers can make this process hold, with windows as on a network:
//!
//! | what | how many | each | together |
//! |---|---|---|---|
//! | received, not yet read | [`CONNECTIONS`] | [`IDLE_WINDOW`], 256 KiB | 256 MiB |
//! | received, of an upload that is being read | [`UPLOADS`] | [`STREAM_WINDOW`], 4 MiB | 128 MiB |
//! | sent, not yet acknowledged | [`CONNECTIONS`] | [`SEND_WINDOW`], 1 MiB | 1 GiB |
//! | datagrams, which are not used | [`CONNECTIONS`] | none | 0 |
//! | messages not yet handled by the driver | [`CONNECTIONS`] | [`UNHANDLED_MESSAGES`] of at most 64 KiB | 1 GiB |
//! | messages not yet sent | [`CONNECTIONS`] | [`UNSENT_MESSAGES`] of some 100 bytes | 6 MiB |
//! | uploads being written, or not yet handled by the driver | [`UPLOADS`] | one update | 32 updates, on disk |
//! | transfers being hashed in order to be resumed | 1 | a processor | 1 |
//! | partial uploads whose connection was cut | 64 | one update | 64 updates, on disk |
//!
//! The third line is reached only when a model that is too large to be shared in memory is sent to all clients at once. In a
//! federation of more clients than half of [`CONNECTIONS`], each line grows in proportion.

use std::time::Duration;

use tokio::sync::Semaphore;

/// Connections at a time, in a federation of up to half as many clients. A larger one has two per client, since the old
/// connection of a client that reconnects may linger. An admitted device never has more than two.
pub const CONNECTIONS: usize = 1024;
/// Connections at a time that are not admitted yet, for [`HANDSHAKE_TIMEOUT`] each. Half of the slots are reserved for
/// loopback and for networks from which a device was admitted lately.
pub const PREAUTH_CONNECTIONS: usize = 64;
/// Networks that are remembered for that, the newest.
pub const KNOWN_NETWORKS: usize = 4096;
/// Pre-auth connections per address (IPv6: per /64); at most half of them before the address is validated. Loopback is not
/// counted.
pub const PREAUTH_PER_ADDRESS: usize = 16;
/// Uploads at a time that are being read, or that the driver has not handled yet. Flow control holds the others back in
/// their clients.
pub const UPLOADS: usize = 32;
/// Unread bytes that are buffered for a connection without an upload: more than the largest message.
pub const IDLE_WINDOW: u32 = 256 << 10;
/// Unread bytes of one upload that are buffered. Bounds memory, and bandwidth to this much per round trip.
pub const STREAM_WINDOW: u32 = 4 << 20;
/// Sent bytes that are kept for retransmission, per connection. Bounds memory per client that is sent a large model, and
/// bandwidth to this much per round trip.
pub const SEND_WINDOW: u64 = 1 << 20;
/// Bytes of an upload or a task that a peer must transfer within the listener's timeout. A slower one would hold up the
/// others.
pub const MIN_PROGRESS: u64 = 16 << 10;
/// While others queue, an upload must complete within this many timeouts, regardless of its length, so that deliberately slow
/// peers cannot hold all turns for hours.
pub const UPLOAD_TIMEOUTS: u64 = 32;
/// Messages that are queued for a peer that does not read. An honest client is sent a few per round.
pub const UNSENT_MESSAGES: usize = 64;
/// Messages of a peer that are queued for the driver. While the queue is full, flow control holds the peer back.
pub const UNHANDLED_MESSAGES: usize = 16;
/// Time limit of the QUIC handshake, again of the hello, and again of receiving a refusal.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// The same for a connection from an unknown network, while more than half of the slots for such connections are taken.
pub const HANDSHAKE_TIMEOUT_CROWDED: Duration = Duration::from_secs(2);

/// The greatest number of connections in a federation of `clients` clients.
pub(super) fn connections(clients: usize) -> usize {
    CONNECTIONS.max(clients.saturating_mul(2)).min(Semaphore::MAX_PERMITS)
}
