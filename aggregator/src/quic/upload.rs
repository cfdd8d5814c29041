//! Uploads: from the wire to the spool.
//!
//! A connection brings one upload at a time, and of all connections [`UPLOADS`](super::limits::UPLOADS) are
//! read at a time. Whoever waits for its turn is held by flow control: until then it has credit for
//! [`IDLE_WINDOW`](super::limits::IDLE_WINDOW) bytes, which its upload may use up, so that not even a
//! heart-beat gets through. The driver is therefore told from here that the peer is alive; whether it is,
//! QUIC finds out by itself.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use quinn::{RecvStream, VarInt};
use shared::frame::{self, FrameError};
use shared::message::ToServer;
use tokio::sync::SemaphorePermit;

use super::limits::{IDLE_WINDOW, STREAM_WINDOW};
use super::peer::{Peer, PeerError, within};
use crate::driver::FromPeer;
use crate::run::Upload;

/// Bytes that are written to the spool at once.
const CHUNK: usize = 128 << 10;

/// A file in the spool that is of no use unless it becomes whole: removed when its upload fails, or is
/// dropped with the connection.
struct Unfinished(Option<PathBuf>);

impl Unfinished {
    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // What cannot be removed now is removed by a restart, which empties the spool.
            let _ = std::fs::remove_file(path);
        }
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
    /// Spools one update, as the frame that it came in.
    pub(super) async fn upload(&self, mut stream: RecvStream) -> Result<(), PeerError> {
        let message = self.message(&mut stream, self.limits.max_payload);
        let (message, header, bytes) = within(self.limits.patience, PeerError::Halted, message).await?;
        let ToServer::Update(update) = message else { return Err(PeerError::Payload) };
        let _turn = self.turn().await?;
        let path = self.limits.spool.join(format!("{}-{}.upload", self.id.0, stream.id().index()));
        let unfinished = Unfinished(Some(path.clone()));
        match self.spool(&path, &ToServer::Update(update), header.payload, &mut stream).await {
            Ok(()) => unfinished.keep(),
            Err(PeerError::Spool(error)) => {
                let text = error.to_string();
                self.tell(FromPeer::SpoolFailed { peer: self.id, path, error })?;
                return Err(PeerError::Spool(std::io::Error::other(text)));
            }
            Err(error) => return Err(error),
        }
        self.tell(FromPeer::Uploaded { peer: self.id, header: update, upload: Upload::File(path), bytes })
    }

    /// Waits for a turn at uploading.
    async fn turn(&self) -> Result<SemaphorePermit<'_>, PeerError> {
        let _waits = Waits::new(&self.limits.waiting);
        let turn = self.limits.uploads.acquire();
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
    async fn spool(
        &self,
        path: &Path,
        message: &ToServer,
        payload: u64,
        stream: &mut RecvStream,
    ) -> Result<(), PeerError> {
        let mut file = File::create(path).map_err(PeerError::Spool)?;
        file.write_all(&frame::encode(message, payload)).map_err(PeerError::Spool)?;
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
                }
                Ok(())
            })
            .await?;
        }
        let synced = tokio::task::spawn_blocking(move || file.sync_data()).await;
        synced.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic())).map_err(PeerError::Spool)
    }
}
