//! What peers may take of this machine, and the arithmetic behind it.
//!
//! Anybody may connect, and is a stranger until [`enrolment`](crate::enrolment) has let the device in, so every bound holds
//! for strangers too. The worst that any
//! number of peers can make this process hold, with windows as on a network:
//!
//! | what | how many | each | together |
//! |---|---|---|---|
//! | received, not yet read | [`CONNECTIONS`] | [`IDLE_WINDOW`], 256 KiB | 256 MiB |
//! | received, of an upload that is being read | [`UPLOADS`] | [`STREAM_WINDOW`], 4 MiB | 128 MiB |
//! | sent, not yet acknowledged | [`CONNECTIONS`] | [`SEND_WINDOW`], 1 MiB | 1 GiB |
//! | datagrams, which nobody reads | [`CONNECTIONS`] | none is allowed | 0 |
//! | messages that wait for the driver | [`CONNECTIONS`] | [`UNHEARD`] of at most 64 KiB | 1 GiB |
//! | messages that wait for the line | [`CONNECTIONS`] | [`MESSAGES`] of some 100 bytes | 6 MiB |
//! | files that are being written, or that the driver has not heard of | [`UPLOADS`] | one update | 32 updates, on disk |
//! | models that are read and hashed, for connections that go on where others ended | 1 | a processor | 1 |
//! | parts of updates whose connection was cut, on disk | 64 | one update | 64 updates |
//!
//! The third line is reached only when a model that is too large to be shared in memory goes to all of them
//! at the same moment. A federation of more than half of [`CONNECTIONS`] clients has proportionally more of
//! each.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;

use super::partials::Partials;
use super::strangers::Strangers;

/// Connections at a time, in a federation of up to half as many clients; a larger one has two per client,
/// since a client that comes back may be here twice for a while. No device that was let in has more than those two.
pub const CONNECTIONS: usize = 1024;
/// Connections at a time that were not welcomed yet. Each has [`GREETING`] to change that. Half of the places are for those that
/// come from where a device was let in lately, or from this very machine.
pub const STRANGERS: usize = 64;
/// Addresses that are remembered for that, those of late.
pub const FAMILIAR: usize = 4096;
/// Of these, so many from one address (of IPv6: one network of 64 bits), so that nobody alone takes all. Half of them without
/// having shown that the address is its own. Connections of this machine to itself are not counted.
pub const FROM_ONE_ADDRESS: usize = 16;
/// Uploads that are read at a time, or were read and wait for the driver to hear of them. The others wait in their clients, held there by QUIC's flow control.
pub const UPLOADS: usize = 32;
/// Unread bytes that are buffered for a connection on which nothing large is being read: room for the largest
/// message and then some.
pub const IDLE_WINDOW: u32 = 256 << 10;
/// Unread bytes of one upload that are buffered while it is being read. Bounds memory, and bandwidth to this
/// much per round trip.
pub const STREAM_WINDOW: u32 = 4 << 20;
/// Sent bytes that are kept for retransmission, per connection: memory grows by this with every client that
/// is sent a large model, bandwidth is bounded to this per round trip.
pub const SEND_WINDOW: u64 = 1 << 20;
/// Bytes that a peer must bring, of an upload, or take, of a task, within the listener's patience. One that
/// brings less keeps others from their turn.
pub const PROGRESS: u64 = 16 << 10;
/// Within so many times the listener's patience an upload must be over, whatever its length, as long as somebody waits
/// for a turn: peers that are slow on purpose cannot keep all turns for hours.
pub const SPANS: u64 = 32;
/// Messages that may wait for a peer that does not read. An honest client is sent a few per round.
pub const MESSAGES: usize = 64;
/// Messages of a peer that may wait for the driver. The next one is left on the line, so that nobody talks faster
/// than this machine listens.
pub const UNHEARD: usize = 16;
/// A peer must be connected within this time, and have said hello within as much again. If it may not take part, it must have
/// taken that in within as much again.
pub const GREETING: Duration = Duration::from_secs(10);
/// One that comes from elsewhere has so long for each, while more than half of the places for such ones are taken.
pub const HURRY: Duration = Duration::from_secs(2);

/// What the peers of one listener share.
pub(super) struct Limits {
    /// Where updates are written as they arrive.
    pub(super) spool: PathBuf,
    /// The largest payload of an update.
    pub(super) max_payload: u64,
    /// A peer that takes or brings nothing for so long, in the middle of something, is lost.
    pub(super) patience: Duration,
    /// Places for connections.
    pub(super) connections: Arc<Semaphore>,
    /// Places for those among them that were not welcomed yet.
    pub(super) strangers: Strangers,
    /// Turns at uploading, given in the order in which they were asked for.
    pub(super) uploads: Arc<Semaphore>,
    /// What is here of uploads that were cut off.
    pub(super) partials: Partials,
    /// The turn at reading and hashing what may be a whole model.
    hashing: Arc<Semaphore>,
    /// Peers that wait for a turn.
    pub(super) waiting: AtomicUsize,
}

impl Limits {
    pub(super) fn new(
        spool: PathBuf,
        max_payload: u64,
        patience: Duration,
        connections: usize,
        over: Arc<AtomicBool>,
    ) -> Self {
        Self {
            spool,
            max_payload,
            patience,
            connections: Arc::new(Semaphore::new(connections)),
            strangers: Strangers::new(connections),
            uploads: Arc::new(Semaphore::new(UPLOADS)),
            partials: Partials::new(over),
            hashing: Arc::new(Semaphore::new(1)),
            waiting: AtomicUsize::new(0),
        }
    }

    /// What comes of reading and hashing what may be a whole model. Anybody who connects can ask for it, and it cannot be
    /// stopped once it has begun: one is done at a time, and none for a connection that is gone when its turn comes.
    pub(super) async fn hashed<T: Send + 'static>(&self, hash: impl FnOnce() -> T + Send + 'static) -> T {
        let turn = self.hashing.clone().acquire_owned().await.expect("the semaphore is never closed");
        let hashed = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            hash()
        });
        hashed.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
    }

    /// The bytes of an upload of `payload` that must arrive within the listener's patience from now on.
    pub(super) fn progress(&self, payload: u64) -> u64 {
        match self.waiting.load(Ordering::Relaxed) {
            0 => PROGRESS,
            _ => PROGRESS.max(payload.div_ceil(SPANS)),
        }
    }
}

/// Places for connections in a federation of `clients`.
pub(super) fn connections(clients: usize) -> usize {
    CONNECTIONS.max(clients.saturating_mul(2)).min(Semaphore::MAX_PERMITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn models_are_hashed_one_at_a_time_and_not_for_those_that_are_gone() {
        let limits = Limits::new(PathBuf::new(), u64::MAX, Duration::from_secs(1), 1, Arc::default());
        let (go, waits) = std::sync::mpsc::channel::<()>();
        let begun = Arc::new(AtomicUsize::new(0));
        let count = || {
            let begun = begun.clone();
            move || begun.fetch_add(1, Ordering::Relaxed)
        };
        let mut first = std::pin::pin!(limits.hashed(move || waits.recv().is_ok()));
        let mut last = std::pin::pin!(limits.hashed(count()));
        {
            let mut gone = std::pin::pin!(limits.hashed(count()));
            tokio::select! {
                biased;
                _ = &mut first => panic!("it waits"),
                _ = &mut gone => panic!("it is not its turn"),
                _ = &mut last => panic!("it is not its turn"),
                () = std::future::ready(()) => {}
            }
        }
        go.send(()).expect("it waits for this");
        assert!(first.await);
        last.await;
        assert_eq!(begun.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn whoever_has_a_turn_must_hurry_while_others_wait() {
        let limits = Limits::new(PathBuf::new(), u64::MAX, Duration::from_secs(1), 1, Arc::default());
        assert_eq!(limits.progress(100 << 20), PROGRESS);
        limits.waiting.store(1, Ordering::Relaxed);
        assert_eq!(limits.progress(100 << 20) * SPANS, 100 << 20);
        // A small one is over sooner anyway.
        assert_eq!(limits.progress(1), PROGRESS);
    }
}
