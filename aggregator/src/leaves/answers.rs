//! What leaves say of updates, to the root's disk worker, which waits for it.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use shared::id::ClientId;
use shared::message::Rejection;

use crate::run::HeldUpdate;

/// What a leaf says of updates.
#[derive(Debug)]
pub enum Answer {
    /// It is here.
    Joined {
        /// Its link.
        link: u64,
        /// Its name.
        leaf: String,
    },
    /// It has the round open.
    Opened {
        /// Its link.
        link: u64,
        /// Which round.
        round: u32,
        /// The updates that it accepted in it before.
        held: Vec<HeldUpdate>,
    },
    /// It has accepted updates, or not.
    Accepted {
        /// Its link.
        link: u64,
        /// Into which round.
        round: u32,
        /// What came of each. `None` of one that it does not have.
        outcomes: Vec<Option<Result<HeldUpdate, Rejection>>>,
    },
    /// A sum.
    Summed {
        /// Its link.
        link: u64,
        /// Of which round.
        round: u32,
        /// `None` if it lacks an update.
        sum: Option<Bytes>,
    },
    /// An update.
    Fetched {
        /// Its link.
        link: u64,
        /// Of which round.
        round: u32,
        /// Whose.
        client: ClientId,
        /// Empty if it lacks it.
        update: Bytes,
    },
    /// It has left.
    Left {
        /// Its link.
        link: u64,
    },
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// None has come in this time.
    Late,
    /// None will come.
    Ended,
}

/// Where answers come from, and the time in which they are waited for.
pub trait Answers: std::fmt::Debug + Send {
    /// The time since some moment.
    fn now(&self) -> Duration;
    /// The next answer, which is waited for as long as this.
    ///
    /// # Errors
    /// There is none.
    fn next(&mut self, most: Duration) -> Result<Answer, NoAnswer>;
}

/// The answers of a queue between threads.
#[derive(Debug)]
pub struct Queue {
    receiver: Receiver<Answer>,
    begun: Instant,
}

impl Queue {
    /// Those that come out of `receiver`.
    #[must_use]
    pub fn new(receiver: Receiver<Answer>) -> Self {
        Self { receiver, begun: Instant::now() }
    }
}

impl Answers for Queue {
    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    fn next(&mut self, most: Duration) -> Result<Answer, NoAnswer> {
        self.receiver.recv_timeout(most).map_err(|error| match error {
            RecvTimeoutError::Timeout => NoAnswer::Late,
            RecvTimeoutError::Disconnected => NoAnswer::Ended,
        })
    }
}
