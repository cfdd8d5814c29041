//! Reads the requests of a connection: how large one may be, how long it may take to arrive, and how many bytes the requests of
//! all connections may hold together.

use std::fmt;
use std::io::{self, BufRead};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The largest request, in bytes: room for a photograph in base64.
pub(super) const MAX_REQUEST: usize = 32 << 20;
/// What the requests of all connections may hold together, in bytes, beside what each holds freely.
pub(super) const TOGETHER: usize = 64 << 20;
/// What every request may hold regardless of the others, in bytes: more than a sample's numbers need.
const FREE: usize = 64 << 10;

/// How long a program is waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// Between its requests.
    pub(super) idle: Duration,
    /// From the first byte of a request to its last.
    pub(super) arrival: Duration,
}

/// The room that the large requests of all connections share.
#[derive(Clone, Debug, Default)]
pub(super) struct Room(Arc<AtomicUsize>);

/// The bytes of a request; the room that they take is free again when they are dropped.
#[derive(Debug)]
pub(super) struct Held {
    bytes: Vec<u8>,
    room: Room,
    /// Of the shared room.
    taken: usize,
}

/// Why a request was not read to its end.
#[derive(Debug)]
pub(super) enum Unread {
    /// The program has gone, or was silent for too long between two requests: there is no answer.
    Gone(io::Error),
    /// It is larger than this number of bytes.
    TooLarge(usize),
    /// It did not arrive in time.
    TooSlow(Duration),
    /// The requests of other connections take the room.
    NoRoom,
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone(error) => error.fmt(f),
            Self::TooLarge(limit) => write!(f, "a request has at most {limit} bytes"),
            Self::TooSlow(arrival) => {
                write!(f, "a request arrives within {} s of its first byte", arrival.as_secs())
            }
            Self::NoRoom => write!(
                f,
                "the requests of all connections hold {} MiB, which is the most: try again",
                TOGETHER >> 20
            ),
        }
    }
}

impl From<io::Error> for Unread {
    fn from(error: io::Error) -> Self {
        Self::Gone(error)
    }
}

impl Held {
    fn new(room: &Room) -> Self {
        Self { bytes: Vec::new(), room: room.clone(), taken: 0 }
    }

    fn extend(&mut self, more: &[u8]) -> Result<(), Unread> {
        let needed = (self.bytes.len() + more.len()).saturating_sub(FREE).max(self.taken) - self.taken;
        if self.room.0.fetch_add(needed, Ordering::Relaxed) + needed > TOGETHER {
            self.room.0.fetch_sub(needed, Ordering::Relaxed);
            return Err(Unread::NoRoom);
        }
        self.taken += needed;
        self.bytes.extend_from_slice(more);
        Ok(())
    }
}

impl std::ops::Deref for Held {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.room.0.fetch_sub(self.taken, Ordering::Relaxed);
    }
}

/// What a connection sends.
pub(super) struct Reader<'a, I> {
    input: I,
    room: Room,
    patience: Patience,
    /// Sets how long a read waits.
    wait_for: &'a dyn Fn(Duration) -> io::Result<()>,
    /// When the request that is being read began.
    begun: Instant,
}

impl<'a, I: BufRead> Reader<'a, I> {
    pub(super) fn new(
        input: I,
        room: Room,
        patience: Patience,
        wait_for: &'a dyn Fn(Duration) -> io::Result<()>,
    ) -> Self {
        Self { input, room, patience, wait_for, begun: Instant::now() }
    }

    /// The first line of the next request; `None` at the end of the connection.
    pub(super) fn first_line(&mut self, limit: usize) -> Result<Option<Held>, Unread> {
        (self.wait_for)(self.patience.idle)?;
        let ended = fill(&mut self.input)?.is_empty();
        self.begun = Instant::now();
        if ended { Ok(None) } else { self.line(limit).map(Some) }
    }

    /// A further line of the request, with the end of the line unless the connection ends before it.
    pub(super) fn line(&mut self, limit: usize) -> Result<Held, Unread> {
        let mut held = Held::new(&self.room);
        loop {
            let found = self.more()?;
            let end = found.iter().position(|&byte| byte == b'\n');
            let taken = end.map_or(found.len(), |at| at + 1);
            if held.len() + taken > limit {
                return Err(Unread::TooLarge(limit));
            }
            held.extend(&found[..taken])?;
            self.input.consume(taken);
            if end.is_some() || taken == 0 {
                return Ok(held);
            }
        }
    }

    /// The next `length` bytes of the request, or fewer if the connection ends before.
    pub(super) fn body(&mut self, length: usize) -> Result<Held, Unread> {
        let mut held = Held::new(&self.room);
        while held.len() < length {
            let missing = length - held.len();
            let found = self.more()?;
            let taken = found.len().min(missing);
            if taken == 0 {
                break;
            }
            held.extend(&found[..taken])?;
            self.input.consume(taken);
        }
        Ok(held)
    }

    /// The bytes that have arrived of a request that has begun; none at the end of the connection.
    fn more(&mut self) -> Result<&[u8], Unread> {
        let arrival = self.patience.arrival;
        let left = arrival.saturating_sub(self.begun.elapsed());
        if left.is_zero() {
            return Err(Unread::TooSlow(arrival));
        }
        (self.wait_for)(left)?;
        fill(&mut self.input).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Unread::TooSlow(arrival),
            _ => Unread::Gone(error),
        })
    }

    /// Reads what was sent and will not be answered, until the connection or this time ends.
    pub(super) fn discard(&mut self, time: Duration) -> io::Result<()> {
        let start = Instant::now();
        (self.wait_for)(time)?;
        while start.elapsed() < time {
            let unread = fill(&mut self.input)?.len();
            if unread == 0 {
                break;
            }
            self.input.consume(unread);
        }
        Ok(())
    }
}

/// Reads as `fill_buf` does; a signal does not interrupt it.
fn fill(input: &mut impl BufRead) -> io::Result<&[u8]> {
    while let Err(error) = input.fill_buf() {
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    // What has been filled is returned without another read; an end is found once more.
    input.fill_buf()
}
