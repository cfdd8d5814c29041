//! How long a client waits before it connects again.

use std::time::Duration;

use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use shared::id::ClientId;
use shared::seed::Seed;

/// The first delay.
pub(super) const FIRST_DELAY: Duration = Duration::from_millis(250);
/// The longest delay.
pub(super) const MAX_DELAY: Duration = Duration::from_secs(30);

/// A server that has no room for an update cuts the connection on which it is offered: with a short delay after each welcome, a
/// client would offer it several times a second. A connection that has lasted so long was cut by something else.
pub(super) const LASTING: Duration = Duration::from_secs(5);

/// The delay before the next attempt. It doubles with every attempt, then half of it is drawn at random, so that a fleet that
/// lost its server does not come back in one instant.
#[derive(Debug)]
pub(super) struct Backoff {
    attempts: u32,
    /// When the server welcomed the client last.
    welcomed: Duration,
    jitter: ChaCha8Rng,
}

impl Backoff {
    pub(super) fn of(client: ClientId) -> Self {
        let jitter = Seed::root(0).derive_bytes("reconnect", client.as_bytes()).rng();
        Self { attempts: 0, welcomed: Duration::ZERO, jitter }
    }

    /// The server welcomes the client.
    pub(super) fn welcomed(&mut self, now: Duration) {
        self.welcomed = now;
    }

    /// A connection is gone on which the client was welcomed.
    pub(super) fn connected_until(&mut self, now: Duration) {
        if now >= self.welcomed + LASTING {
            self.shorten();
        }
    }

    /// Client and server get on: the next one is the first again.
    pub(super) fn shorten(&mut self) {
        self.attempts = 0;
    }

    pub(super) fn next(&mut self) -> Duration {
        let full = (FIRST_DELAY * 2u32.saturating_pow(self.attempts.min(16))).min(MAX_DELAY);
        self.attempts += 1;
        full.mul_f64(self.jitter.random_range(0.5..1.0))
    }
}
