//! Exponential backoff with jitter, between attempts to connect.

use std::time::Duration;

use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use shared::id::ClientId;
use shared::seed::Seed;

/// The first delay.
pub(super) const FIRST_DELAY: Duration = Duration::from_millis(250);
/// The longest delay.
pub(super) const MAX_DELAY: Duration = Duration::from_secs(30);

/// A connection that lasted this long was not cut because of its client. A server without room for the update that the client offers
/// cuts the connection, and so does one that has the same identity connected twice: if each welcome reset the backoff, the client
/// would come again several times a second.
pub(super) const LASTING: Duration = Duration::from_secs(5);

/// The delay before the next attempt. It doubles with every attempt, and half of it is random, so that a fleet that lost its
/// server does not come back at once.
#[derive(Debug)]
pub(super) struct Backoff {
    attempts: u32,
    /// Connections in a row that were cut soon after their welcome.
    short: u32,
    /// When the server welcomed the client last.
    welcomed: Duration,
    jitter: ChaCha8Rng,
}

impl Backoff {
    /// The backoff of a client, whose id seeds its jitter.
    pub(super) fn of(client: ClientId) -> Self {
        let jitter = Seed::root(0).derive_bytes("reconnect", client.as_bytes()).rng();
        Self { attempts: 0, short: 0, welcomed: Duration::ZERO, jitter }
    }

    /// The server welcomed the client: what it took to reach the server does not count any more.
    pub(super) fn welcomed(&mut self, now: Duration) {
        self.welcomed = now;
        self.attempts = self.short;
    }

    /// A connection with a welcome was lost.
    pub(super) fn disconnected(&mut self, now: Duration) {
        if self.lasted(now) {
            self.reset();
        } else {
            self.short = self.short.saturating_add(1);
        }
    }

    /// Whether the connection with the last welcome has lasted until now.
    pub(super) fn lasted(&self, now: Duration) -> bool {
        now >= self.welcomed + LASTING
    }

    /// The next delay is the first one again.
    pub(super) fn reset(&mut self) {
        (self.attempts, self.short) = (0, 0);
    }

    /// The delay before the next attempt.
    pub(super) fn next(&mut self) -> Duration {
        let full = (FIRST_DELAY * 2u32.saturating_pow(self.attempts.min(16))).min(MAX_DELAY);
        self.attempts += 1;
        full.mul_f64(self.jitter.random_range(0.5..1.0))
    }
}
