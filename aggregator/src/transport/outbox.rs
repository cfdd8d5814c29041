//! What a peer is sent: messages in their order on the control stream, and the newest task on a stream of its
//! own.
//!
//! The driver's commands are taken at once, whatever the line does. So a peer that reads nothing costs a
//! bounded number of messages and one task, hears of no round that has closed meanwhile, and is sent away at
//! the first word of the driver, or when it has taken nothing for the listener's patience.

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::time::Duration;

use bytes::Bytes;
use quinn::{SendStream, VarInt};
use shared::frame;
use shared::message::{ResumePoint, ToClient};
use tokio::sync::{mpsc, watch};

use super::limits::{MESSAGES, PROGRESS, SEND_WINDOW};
use super::part::digest;
use super::peer::{Peer, PeerError, within};
use super::strangers::Stranger;
use crate::peer::{FromPeer, ToPeer};
use crate::run::Broadcast;

/// Bytes that are read from a broadcast's file at once.
const CHUNK: usize = 128 << 10;
/// How long a connection that is being closed may take to deliver its last messages.
const LINGER: Duration = Duration::from_secs(2);

/// Carries commands out until the driver wants the connection closed, or hangs up. Gives whether the peer has received all that it
/// was told by then.
pub(super) async fn empty(
    peer: &Peer,
    mut queue: mpsc::UnboundedReceiver<ToPeer>,
    control: SendStream,
    partial: Option<ResumePoint>,
    stranger: Stranger,
) -> Result<bool, PeerError> {
    let (messages, waiting) = mpsc::channel(MESSAGES);
    let (newest, tasks) = watch::channel(None);
    let dismissed = async {
        let mut stranger = Some(stranger);
        while let Some(command) = queue.recv().await {
            match command {
                ToPeer::Message(message) => {
                    if matches!(message, ToClient::Welcome { .. }) {
                        stranger = None;
                        // One upload at a time, from now on.
                        peer.connection.set_max_concurrent_uni_streams(VarInt::from_u32(1));
                    }
                    let (asks, protocol) = (matches!(message, ToClient::Conditions(_)), peer.protocol());
                    match message.for_peer(protocol) {
                        Some(message) => {
                            messages.try_send(frame::encode(&message, 0)).map_err(|_| PeerError::Deaf)?;
                        }
                        None if asks => peer.tell(FromPeer::Unconditional { peer: peer.id, protocol })?,
                        None => {}
                    }
                }
                ToPeer::Task(broadcast) => {
                    newest.send_replace(Some(broadcast));
                }
                ToPeer::Disconnect => break,
            }
        }
        drop((messages, stranger));
        Ok::<_, PeerError>(())
    };
    let said = say(peer, control, waiting);
    tokio::pin!(said);
    tokio::select! {
        result = dismissed => result?,
        // While there may be more to say it ends only when something is wrong.
        result = &mut said => return result,
        result = give(peer, tasks, partial) => return result,
    }
    let received = matches!(tokio::time::timeout(LINGER, said).await, Ok(Ok(true)));
    peer.connection.close(VarInt::from_u32(0), b"goodbye");
    Ok(received)
}

/// Writes messages to the control stream until there are no more, and waits until the peer has them or is gone: gives which.
async fn say(
    peer: &Peer,
    mut control: SendStream,
    mut waiting: mpsc::Receiver<Vec<u8>>,
) -> Result<bool, PeerError> {
    while let Some(frame) = waiting.recv().await {
        within(peer.limits.patience, PeerError::Deaf, control.write_all(&frame)).await?;
    }
    // `stopped` resolves when the peer has everything, wants no more, or is gone.
    let _ = control.finish();
    Ok(matches!(control.stopped().await, Ok(None)))
}

/// Sends the newest task, always.
async fn give(
    peer: &Peer,
    mut tasks: watch::Receiver<Option<Broadcast>>,
    mut partial: Option<ResumePoint>,
) -> Result<bool, PeerError> {
    while tasks.changed().await.is_ok() {
        let Some(mut broadcast) = tasks.borrow_and_update().clone() else { continue };
        loop {
            let partial = partial.take();
            tokio::select! {
                sent = send(peer, &broadcast, partial) => {
                    sent?;
                    break;
                }
                // The round closed without this peer: what is left of its task is of no use.
                Ok(()) = tasks.changed() => match tasks.borrow_and_update().clone() {
                    Some(newer) => broadcast = newer,
                    None => break,
                },
            }
        }
    }
    std::future::pending().await
}

/// A stream that is reset when it is dropped, if by then the peer does not have everything.
struct TaskStream(SendStream);

impl Drop for TaskStream {
    fn drop(&mut self) {
        // It fails for a stream that was delivered, which is fine.
        let _ = self.0.reset(VarInt::from_u32(0));
    }
}

/// A large broadcast is read from its file. The file was written moments ago and lies in the page cache, so
/// it is read in place, chunk by chunk: however many clients there are, a model is in this process's memory
/// in chunks only.
///
/// Of a task whose beginning the peer has, `partial`, it is sent the rest.
async fn send(peer: &Peer, broadcast: &Broadcast, partial: Option<ResumePoint>) -> Result<(), PeerError> {
    let patience = peer.limits.patience;
    let mut stream = TaskStream(within(patience, PeerError::Deaf, peer.connection.open_uni()).await?);
    let mut source = Source::of(broadcast)?;
    let offset = match partial.filter(|partial| partial.round == broadcast.round) {
        Some(partial) => {
            let length = broadcast.length;
            let look = move || (source.skip(partial, length), source);
            let (skipped, same) = peer.limits.hashed(look).await;
            source = same;
            skipped.map_err(PeerError::Broadcast)?
        }
        None => 0,
    };
    let message = match offset {
        0 => broadcast.task(),
        _ => ToClient::TaskRest { round: broadcast.round, work: broadcast.work, offset },
    };
    let mut next = Some(Bytes::from(frame::encode(&message, broadcast.length - offset)));
    while let Some(mut chunk) = next {
        while !chunk.is_empty() {
            let written = stream.0.write_chunks(std::slice::from_mut(&mut chunk));
            within(patience, PeerError::Deaf, written).await?;
        }
        next = source.chunk().map_err(PeerError::Broadcast)?;
    }
    let _ = stream.0.finish();
    // The rest is in the send window, and out of sight: the peer has time for it as for any other part.
    let parts = 1 + broadcast.length.min(SEND_WINDOW) / PROGRESS;
    let delivered = async { Ok::<_, PeerError>(stream.0.stopped().await) };
    within(patience * parts as u32, PeerError::Deaf, delivered).await.map(drop)
}

enum Source {
    Memory(Bytes),
    /// So many bytes of it are left.
    File(File, u64),
}

impl Source {
    /// Its round may have closed and tidied up. That is no reason to say nothing: where late updates count, the peer would be taken
    /// to be at work for a task that it has never seen. Its next hello says that it is not.
    fn of(broadcast: &Broadcast) -> Result<Self, PeerError> {
        match &broadcast.content {
            Some(content) => Ok(Self::Memory(content.clone())),
            None => match File::open(&broadcast.path) {
                Ok(file) => Ok(Self::File(file, broadcast.length)),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(PeerError::Outdated),
                Err(error) => Err(PeerError::Broadcast(error)),
            },
        }
    }

    /// Passes over what the peer has, if that is a beginning of this; so many bytes.
    fn skip(&mut self, partial: ResumePoint, length: u64) -> std::io::Result<u64> {
        if partial.bytes >= length {
            return Ok(0);
        }
        match self {
            Self::Memory(content) => {
                let offset = partial.offset_in(partial.round, content).unwrap_or(0);
                *content = content.slice(offset..);
                Ok(offset as u64)
            }
            Self::File(file, left) => {
                if digest(file, partial.bytes)? != partial.digest {
                    file.rewind()?;
                    return Ok(0);
                }
                *left -= partial.bytes;
                Ok(partial.bytes)
            }
        }
    }

    fn chunk(&mut self) -> std::io::Result<Option<Bytes>> {
        match self {
            Self::Memory(content) if content.is_empty() => Ok(None),
            Self::Memory(content) => Ok(Some(std::mem::take(content))),
            Self::File(_, 0) => Ok(None),
            Self::File(file, left) => {
                let mut chunk = vec![0; usize::try_from(*left).unwrap_or(CHUNK).min(CHUNK)];
                file.read_exact(&mut chunk)?;
                *left -= chunk.len() as u64;
                Ok(Some(chunk.into()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use shared::message::TaskKind;

    use super::*;

    #[test]
    fn a_task_that_is_gone_is_not_passed_over_in_silence() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("broadcast");
        let broadcast =
            Broadcast { round: 1, work: TaskKind::TRAIN, path: path.clone(), length: 3, content: None };
        assert!(matches!(Source::of(&broadcast), Err(PeerError::Outdated)));
        std::fs::write(&path, b"abc").unwrap();
        assert!(matches!(Source::of(&broadcast), Ok(Source::File(_, 3))));
        // Small ones are in memory, whatever becomes of their files.
        let broadcast =
            Broadcast { path: folder.path().join("gone"), content: Some(Bytes::new()), ..broadcast };
        assert!(matches!(Source::of(&broadcast), Ok(Source::Memory(_))));
    }
}
