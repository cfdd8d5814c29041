//! Uploads: from the wire to the spool.
//!
//! A connection brings one upload at a time, and of all connections [`UPLOADS`](super::limits::UPLOADS) are
//! read at a time. Whoever waits for its turn is held by flow control: until then it has credit for
//! [`IDLE_WINDOW`](super::limits::IDLE_WINDOW) bytes, which its upload may use up, so that not even a
//! heart-beat gets through. The driver is therefore told from here that the peer is alive; whether it is,
//! QUIC finds out by itself.

use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::sync::atomic::{AtomicUsize, Ordering};

use quinn::{RecvStream, VarInt};
use shared::frame::{self, FrameError};
use shared::id::ClientId;
use shared::message::ToServer;
use tokio::sync::OwnedSemaphorePermit;

use super::limits::{IDLE_WINDOW, STREAM_WINDOW};
use super::part::{self, Part};
use super::partials::{Begun, Partials};
use super::peer::{Peer, PeerError, within};
use crate::peer::FromPeer;
use crate::run::Upload;
use crate::run::directory::upload_of;
use crate::storage::ownership::chown_like_parent;

/// Bytes that are written to the spool at once.
const CHUNK: usize = 128 << 10;

/// An update that is coming in. When it ends too early, also with its connection, what is there of it is [kept](Partials) or
/// removed.
struct Incoming<'a> {
    partials: &'a Partials,
    client: ClientId,
    number: u64,
    part: Option<Part>,
}

impl Incoming<'_> {
    /// It is whole: its file is somebody else's.
    fn whole(mut self) {
        self.part = None;
    }
}

impl Drop for Incoming<'_> {
    fn drop(&mut self) {
        self.partials.end(self.client, self.number, self.part.take());
    }
}

/// Counted among those that wait for a turn as long as it lives.
struct Waits<'a>(&'a AtomicUsize);

impl<'a> Waits<'a> {
    fn new(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::Relaxed);
        Self(waiting)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Peer {
    /// Spools one update, as the frame that it came in. `begun` is what an earlier connection has brought of one.
    pub(super) async fn upload(
        &self,
        mut stream: RecvStream,
        client: ClientId,
        begun: &mut Begun<'_>,
    ) -> Result<(), PeerError> {
        let message = self.message(&mut stream, self.limits.max_payload);
        let (message, header, bytes) = within(self.limits.patience, PeerError::Halted, message).await?;
        let begun = begun.take();
        let part = match message {
            ToServer::Update(update) => {
                if let Some(begun) = begun {
                    part::remove(&begun);
                }
                let name = upload_of(client, &self.limits.partials.fresh_number());
                let frame = frame::encode(&ToServer::Update(update), header.payload);
                let path = self.limits.spool.join(name);
                Part { header: update, path, begins: frame.len() as u64, bytes: 0, total: header.payload }
            }
            ToServer::UpdateRest { header: update, offset } => {
                let begun = begun.ok_or(PeerError::Rest)?;
                let rest = begun.total - begun.bytes;
                if begun.header != update || begun.bytes != offset || rest != header.payload {
                    part::remove(&begun);
                    return Err(PeerError::Rest);
                }
                *begun
            }
            _ => return Err(PeerError::Payload),
        };
        let (update, path) = (part.header, part.path.clone());
        let (number, mut stopped) = self.limits.partials.begin(client);
        let mut incoming = Incoming { partials: &self.limits.partials, client, number, part: Some(part) };
        let spooled = async {
            let turn = self.turn().await?;
            self.spool(&mut incoming, &mut stream).await?;
            Ok(turn)
        };
        let spooled = tokio::select! {
            spooled = spooled => spooled,
            // The device has another connection; what has arrived on this one is of use there.
            Ok(()) = stopped.changed() => Err(PeerError::TakenOver),
        };
        let turn = match spooled {
            Ok(turn) => turn,
            Err(PeerError::Spool(error)) => {
                let _ = std::fs::remove_file(&path);
                incoming.whole();
                let text = error.to_string();
                self.tell(FromPeer::SpoolFailed { peer: self.id, path, error })?;
                return Err(PeerError::Spool(std::io::Error::other(text)));
            }
            Err(error) => return Err(error),
        };
        incoming.whole();
        // The turn is over when the driver has heard of it: one that stands still would have the disk filled.
        let (turn, upload) = (Some(turn), Upload::File(path));
        self.tell(FromPeer::Uploaded { peer: self.id, header: update, upload, turn, bytes })
    }

    /// Waits for a turn at uploading.
    async fn turn(&self) -> Result<OwnedSemaphorePermit, PeerError> {
        let _waits = Waits::new(&self.limits.waiting);
        let turn = self.limits.uploads.clone().acquire_owned();
        tokio::pin!(turn);
        let mut signs = tokio::time::interval(self.limits.patience / 4);
        loop {
            tokio::select! {
                biased;
                turn = &mut turn => return Ok(turn.expect("the semaphore is never closed")),
                _ = signs.tick() => self.tell(FromPeer::Waits { peer: self.id })?,
            }
        }
    }

    /// Writes go to the page cache and take microseconds, so they are made in place; the sync is not.
    async fn spool(&self, incoming: &mut Incoming<'_>, stream: &mut RecvStream) -> Result<(), PeerError> {
        let part = incoming.part.as_mut().expect("an update that is coming in has a file");
        let mut file = if part.bytes == 0 {
            let mut file = File::create(&part.path).map_err(PeerError::Spool)?;
            chown_like_parent(&file, &part.path);
            let frame = frame::encode(&ToServer::Update(part.header), part.total);
            file.write_all(&frame).map_err(PeerError::Spool)?;
            file
        } else {
            let mut file = File::options().write(true).open(&part.path).map_err(PeerError::Spool)?;
            file.seek(SeekFrom::Start(part.begins + part.bytes)).map_err(PeerError::Spool)?;
            file
        };
        let payload = part.total - part.bytes;
        // Credit for this payload and no more: bytes that are read while the window is small again pay it
        // back.
        let credit = payload.min(u64::from(STREAM_WINDOW));
        let window = VarInt::from_u32(IDLE_WINDOW + credit as u32);
        self.connection.set_receive_window(window);
        let mut left = payload;
        let mut narrow = false;
        while left > 0 {
            if left <= credit && !narrow {
                self.connection.set_receive_window(VarInt::from_u32(IDLE_WINDOW));
                narrow = true;
            }
            let until = left.saturating_sub(self.limits.progress(payload));
            within(self.limits.patience, PeerError::Halted, async {
                while left > until {
                    let want = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
                    let Some(chunk) = stream.read_chunk(want, true).await? else {
                        return Err(PeerError::Frame(FrameError::Truncated));
                    };
                    file.write_all(&chunk.bytes).map_err(PeerError::Spool)?;
                    left -= chunk.bytes.len() as u64;
                    part.bytes += chunk.bytes.len() as u64;
                }
                Ok(())
            })
            .await?;
        }
        let synced = tokio::task::spawn_blocking(move || file.sync_data()).await;
        synced.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic())).map_err(PeerError::Spool)
    }
}
