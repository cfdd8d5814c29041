//! One connection, served by one task.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quinn::{Connection, RecvStream, SendStream, VarInt};
use shared::frame::{self, FrameError, HEADER_LEN, Header};
use shared::message::{ToClient, ToServer};
use tokio::sync::mpsc;
use tracing::debug;

use crate::coordinator::PeerId;
use crate::driver::{FromPeer, ToPeer};
use crate::run::Broadcast;

/// Bytes that are read from a broadcast's file, or written to the spool, at once.
const CHUNK: usize = 128 * 1024;
/// How long a connection that is being closed may take to deliver its last messages.
const LINGER: Duration = Duration::from_secs(2);
/// A peer must say hello within this time.
const GREETING: Duration = Duration::from_secs(10);

/// What a peer may send, and where it goes.
pub(super) struct Limits {
    pub(super) spool: PathBuf,
    pub(super) max_payload: u64,
}

/// Why a connection was given up. All of these are the peer's doing, or the disk's.
#[derive(Debug, thiserror::Error)]
enum PeerError {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("it sent a message with payload that takes none, or the other way round")]
    Payload,
    #[error("it did not say hello in time")]
    Mute,
    #[error("{0}")]
    Read(#[from] quinn::ReadExactError),
    #[error("{0}")]
    ReadPayload(#[from] quinn::ReadError),
    #[error("{0}")]
    Write(#[from] quinn::WriteError),
    #[error("{0}")]
    Connection(#[from] quinn::ConnectionError),
    #[error("an upload cannot be written: {0}")]
    Spool(std::io::Error),
    #[error("the broadcast cannot be read: {0}")]
    Broadcast(std::io::Error),
    #[error("the aggregator stops")]
    DriverGone,
}

pub(super) struct Peer {
    id: PeerId,
    connection: Connection,
    driver: mpsc::UnboundedSender<FromPeer>,
    limits: Arc<Limits>,
}

/// A file in the spool that is of no use unless it becomes whole: removed when its upload fails, or is dropped with the
/// connection.
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

impl Peer {
    pub(super) fn new(
        id: PeerId,
        connection: Connection,
        driver: mpsc::UnboundedSender<FromPeer>,
        limits: Arc<Limits>,
    ) -> Self {
        Self { id, connection, driver, limits }
    }

    pub(super) async fn run(self) {
        let (commands, queue) = mpsc::unbounded_channel();
        let _ = self.driver.send(FromPeer::Connected { peer: self.id, commands });
        let reason = match self.serve(queue).await {
            Ok(()) => "closed".to_owned(),
            Err(error) => {
                debug!(peer = self.id.0, %error);
                let text = error.to_string();
                self.connection.close(VarInt::from_u32(1), text.as_bytes());
                text
            }
        };
        let _ = self.driver.send(FromPeer::Disconnected { peer: self.id, reason });
    }

    async fn serve(&self, mut queue: mpsc::UnboundedReceiver<ToPeer>) -> Result<(), PeerError> {
        let greeting = tokio::time::timeout(GREETING, async {
            let (sender, mut receiver) = self.connection.accept_bi().await?;
            self.control_message(&mut receiver).await?;
            Ok::<_, PeerError>((sender, receiver))
        });
        let (mut control, mut receiver) = greeting.await.map_err(|_| PeerError::Mute)??;
        let inbound = async {
            loop {
                self.control_message(&mut receiver).await?;
            }
        };
        let uploads = async {
            loop {
                let stream = self.connection.accept_uni().await?;
                self.upload(stream).await?;
            }
        };
        let (tasks, mut task_queue) = mpsc::unbounded_channel();
        let outbound = async {
            while let Some(command) = queue.recv().await {
                match command {
                    ToPeer::Message(message) => control.write_all(&frame::encode(&message, 0)).await?,
                    ToPeer::Task(broadcast) => {
                        let _ = tasks.send(broadcast);
                    }
                    ToPeer::Disconnect => break,
                }
            }
            // `stopped` resolves when the peer has everything, or is gone.
            let _ = control.finish();
            let _ = tokio::time::timeout(LINGER, control.stopped()).await;
            self.connection.close(VarInt::from_u32(0), b"goodbye");
            Ok(())
        };
        let broadcasts = async {
            let mut next = task_queue.recv().await;
            while let Some(broadcast) = next {
                let mut stream = self.connection.open_uni().await?;
                next = tokio::select! {
                    sent = send_task(&mut stream, &broadcast) => {
                        sent?;
                        let _ = stream.finish();
                        task_queue.recv().await
                    }
                    // The round closed without this peer: what is left of its task is of no use.
                    newer = task_queue.recv() => {
                        let _ = stream.reset(VarInt::from_u32(0));
                        newer
                    }
                };
            }
            std::future::pending::<Result<(), PeerError>>().await
        };
        tokio::select! {
            result = inbound => result,
            result = uploads => result,
            result = broadcasts => result,
            result = outbound => result,
        }
    }

    /// Reads one message of the control stream and hands it to the driver.
    async fn control_message(&self, receiver: &mut RecvStream) -> Result<(), PeerError> {
        let (message, _, bytes) = self.message(receiver, 0).await?;
        if matches!(message, ToServer::Update(_)) {
            return Err(PeerError::Payload);
        }
        self.tell(FromPeer::Message { peer: self.id, message, bytes })
    }

    async fn message(
        &self,
        receiver: &mut RecvStream,
        max_payload: u64,
    ) -> Result<(ToServer, Header, u64), PeerError> {
        let mut header = [0; HEADER_LEN];
        receiver.read_exact(&mut header).await?;
        let header = Header::parse(header, max_payload)?;
        let mut body = vec![0; header.message as usize];
        receiver.read_exact(&mut body).await?;
        let message = frame::decode(&body)?;
        Ok((message, header, HEADER_LEN as u64 + u64::from(header.message) + header.payload))
    }

    /// Spools one update, as the frame that it came in.
    async fn upload(&self, mut stream: RecvStream) -> Result<(), PeerError> {
        let (message, header, bytes) = self.message(&mut stream, self.limits.max_payload).await?;
        let ToServer::Update(update) = message else { return Err(PeerError::Payload) };
        let path = self.limits.spool.join(format!("{}-{}.upload", self.id.0, stream.id().index()));
        let unfinished = Unfinished(Some(path.clone()));
        match self.spool(&path, &ToServer::Update(update), header.payload, &mut stream).await {
            Ok(()) => unfinished.keep(),
            Err(PeerError::Spool(error)) => return self.tell(FromPeer::SpoolFailed { path, error }),
            Err(error) => return Err(error),
        }
        self.tell(FromPeer::Uploaded { peer: self.id, header: update, file: path, bytes })
    }

    /// Writes go to the page cache and take microseconds, so they are made in place; the sync is not.
    async fn spool(
        &self,
        path: &std::path::Path,
        message: &ToServer,
        payload: u64,
        stream: &mut RecvStream,
    ) -> Result<(), PeerError> {
        let mut file = File::create(path).map_err(PeerError::Spool)?;
        file.write_all(&frame::encode(message, payload)).map_err(PeerError::Spool)?;
        let mut left = payload;
        while left > 0 {
            let want = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
            let Some(chunk) = stream.read_chunk(want, true).await? else {
                return Err(FrameError::Truncated.into());
            };
            file.write_all(&chunk.bytes).map_err(PeerError::Spool)?;
            left -= chunk.bytes.len() as u64;
        }
        let synced = tokio::task::spawn_blocking(move || file.sync_data()).await;
        synced.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic())).map_err(PeerError::Spool)
    }

    fn tell(&self, event: FromPeer) -> Result<(), PeerError> {
        self.driver.send(event).map_err(|_| PeerError::DriverGone)
    }
}

/// A large broadcast is read from its file. The file was written moments ago and lies in the page cache, so it is read in place, chunk by chunk: however many
/// clients there are, a model is in this process's memory in chunks only.
async fn send_task(stream: &mut SendStream, broadcast: &Broadcast) -> Result<(), PeerError> {
    let message = ToClient::Task { round: broadcast.round };
    if let Some(content) = &broadcast.content {
        stream.write_all(&frame::encode(&message, broadcast.length)).await?;
        return Ok(stream.write_chunk(content.clone()).await?);
    }
    let mut file = match File::open(&broadcast.path) {
        Ok(file) => file,
        // Its round has closed and tidied up: the peer will be sent another task.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let _ = stream.reset(VarInt::from_u32(0));
            return Ok(());
        }
        Err(error) => return Err(PeerError::Broadcast(error)),
    };
    stream.write_all(&frame::encode(&message, broadcast.length)).await?;
    let mut left = broadcast.length;
    while left > 0 {
        let want = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
        let mut chunk = vec![0; want];
        file.read_exact(&mut chunk).map_err(PeerError::Broadcast)?;
        stream.write_chunk(Bytes::from(chunk)).await?;
        left -= want as u64;
    }
    Ok(())
}
