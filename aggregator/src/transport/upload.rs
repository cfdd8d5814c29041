//! Uploads: from the wire to the spool.
//!
//! A connection carries one upload at a time, and the listener reads [`UPLOADS`](super::limits::UPLOADS) at a time. Flow
//! control holds the others back: until its turn, a connection has credit for
//! [`IDLE_WINDOW`](super::limits::IDLE_WINDOW) bytes. Its upload may use that up, so that not even a heartbeat gets through;
//! the driver is therefore told from here that the peer waits. Whether it is alive is QUIC's own idle timeout to find out.

use std::fs::File;
use std::io::Write as _;

use quinn::{RecvStream, VarInt};
use shared::frame::{self, FrameError};
use shared::id::ClientId;
use shared::message::ToServer;
use tokio::sync::OwnedSemaphorePermit;

use super::connection::{Peer, PeerError, within};
use super::limits::{IDLE_WINDOW, STREAM_WINDOW};
use super::partial_upload::{self, PartialUpload};
use super::resume::{PartialUploads, Resumable};
use crate::peer::FromPeer;
use crate::run::Upload;
use crate::run::directory::upload_of;
use crate::storage::checksum::Checksum;
use shared::chown::chown_like_parent;

/// Bytes that are written to the spool at a time.
const CHUNK: usize = 128 << 10;

/// An upload in progress. If it ends early, with its connection for example, the part that has arrived is
/// [kept](PartialUploads) or removed.
struct Incoming<'a> {
    partials: &'a PartialUploads,
    client: ClientId,
    number: u64,
    part: Option<PartialUpload>,
}

impl Incoming<'_> {
    /// The upload is complete: its file is no longer ours to remove.
    fn complete(mut self) {
        self.part = None;
    }
}

impl Drop for Incoming<'_> {
    fn drop(&mut self) {
        self.partials.end(self.client, self.number, self.part.take());
    }
}

impl Peer {
    /// Writes one update to the spool, as the frame that it came in. `begun` is the part that an earlier connection has brought.
    pub(super) async fn upload(
        &self,
        mut stream: RecvStream,
        client: ClientId,
        begun: &mut Resumable<'_>,
    ) -> Result<(), PeerError> {
        let message = self.message(&mut stream, self.budget.max_payload);
        let (message, header, bytes) = within(self.budget.timeout, PeerError::Stalled, message).await?;
        let begun = begun.part.take();
        let part = match message {
            ToServer::Update(update) => {
                if let Some(begun) = begun {
                    partial_upload::remove(&begun);
                }
                let name = upload_of(client, &self.budget.partials.fresh_number());
                let frame = frame::encode(&ToServer::Update(update), header.payload);
                let path = self.budget.spool.join(name);
                PartialUpload {
                    header: update,
                    path,
                    begins: frame.len() as u64,
                    bytes: 0,
                    total: header.payload,
                }
            }
            ToServer::UpdateRest { header: update, offset } => {
                let begun = begun.ok_or(PeerError::NoSuchRest)?;
                let rest = begun.total - begun.bytes;
                if begun.header != update || begun.bytes != offset || rest != header.payload {
                    partial_upload::remove(&begun);
                    return Err(PeerError::NoSuchRest);
                }
                *begun
            }
            _ => return Err(PeerError::Payload),
        };
        let (update, path) = (part.header, part.path.clone());
        let (number, mut stopped) = self.budget.partials.begin(client);
        let mut incoming = Incoming { partials: &self.budget.partials, client, number, part: Some(part) };
        let spooled = async {
            let turn = self.turn().await?;
            self.spool(&mut incoming, &mut stream).await?;
            Ok(turn)
        };
        let spooled = tokio::select! {
            spooled = spooled => spooled,
            Ok(()) = stopped.changed() => Err(PeerError::ResumedElsewhere),
        };
        let turn = match spooled {
            Ok(turn) => turn,
            Err(PeerError::Spool(error)) => {
                let _ = std::fs::remove_file(&path);
                incoming.complete();
                let text = error.to_string();
                self.tell(FromPeer::SpoolFailed { peer: self.id, path, error })?;
                return Err(PeerError::Spool(std::io::Error::other(text)));
            }
            Err(error) => return Err(error),
        };
        incoming.complete();
        // The turn ends when the driver has handled the upload: while the driver is stalled, the disk must not fill up.
        let (turn, upload) = (Some(turn), Upload::File(path));
        self.tell(FromPeer::Uploaded { peer: self.id, header: update, upload, turn, bytes })
    }

    /// Waits for a turn at uploading.
    async fn turn(&self) -> Result<OwnedSemaphorePermit, PeerError> {
        let _waits = self.budget.load.wait();
        let turn = self.budget.load.uploads().acquire_owned();
        tokio::pin!(turn);
        let mut signs = tokio::time::interval(self.budget.timeout / 4);
        loop {
            tokio::select! {
                biased;
                turn = &mut turn => return Ok(turn.expect("the semaphore is never closed")),
                _ = signs.tick() => self.tell(FromPeer::Waits { peer: self.id })?,
            }
        }
    }

    /// Writes the payload to its file. Writes go to the page cache and take microseconds, so they are made in place; the sync
    /// is not.
    async fn spool(&self, incoming: &mut Incoming<'_>, stream: &mut RecvStream) -> Result<(), PeerError> {
        let part = incoming.part.as_mut().expect("an update that is coming in has a file");
        let mut sum = Checksum::default();
        let mut file = if part.bytes == 0 {
            let mut file = File::create(&part.path).map_err(PeerError::Spool)?;
            chown_like_parent(&file, &part.path);
            let frame = frame::encode(&ToServer::Update(part.header), part.total);
            file.write_all(&frame).map_err(PeerError::Spool)?;
            sum.update(&frame);
            file
        } else {
            let begun = part.clone();
            let opened = on_blocking_pool(move || begun.reopen(sum)).await;
            let (file, begun) = opened.map_err(PeerError::Spool)?;
            sum = begun;
            file
        };
        let payload = part.total - part.bytes;
        // Credit for this payload and no more: bytes that are read after the window is narrowed again pay it back.
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
            let until = left.saturating_sub(self.budget.progress(payload));
            within(self.budget.timeout, PeerError::Stalled, async {
                while left > until {
                    let want = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
                    let Some(chunk) = stream.read_chunk(want, true).await? else {
                        return Err(PeerError::Frame(FrameError::Truncated));
                    };
                    file.write_all(&chunk.bytes).map_err(PeerError::Spool)?;
                    sum.update(&chunk.bytes);
                    left -= chunk.bytes.len() as u64;
                    part.bytes += chunk.bytes.len() as u64;
                }
                Ok(())
            })
            .await?;
        }
        file.write_all(sum.trailer().as_bytes()).map_err(PeerError::Spool)?;
        on_blocking_pool(move || file.sync_data()).await.map_err(PeerError::Spool)
    }
}

/// Does what takes the disk's time where it keeps no connection waiting.
async fn on_blocking_pool<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}
