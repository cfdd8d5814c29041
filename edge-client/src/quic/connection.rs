//! An established connection: messages and models in both directions.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use quinn::{Connection, ReadExactError, RecvStream, SendStream};
use shared::differences::DifferenceError;
use shared::frame::{self, FrameError, HEADER_LEN, Header};
use shared::message::{ResumePoint, TaskHeader, ToClient, ToServer, UpdateHeader};
use shared::protocol::Protocol;
use tokio::sync::mpsc;

use super::base::Leads;
use super::{LINGER, QuicConnector};
use crate::transport::{Incoming, Outgoing};

/// Bytes between two reports of a task's arrival.
const ARRIVAL_STEP: usize = 256 << 10;

/// Limit for declining a run whose payloads are too large: it takes the welcome, which may be lost and sent again, and its answer.
const DECLINE_TIME: Duration = Duration::from_secs(10);

/// Why a connection was given up.
#[derive(Debug, thiserror::Error)]
pub(super) enum ServeError {
    #[error("{0}")]
    Connection(#[from] quinn::ConnectionError),
    #[error("{0}")]
    Read(#[from] ReadExactError),
    #[error("{0}")]
    ReadPayload(#[from] quinn::ReadError),
    #[error("{0}")]
    Write(#[from] quinn::WriteError),
    #[error("the server broke the protocol: {0}")]
    Frame(#[from] FrameError),
    #[error("the server broke the protocol: it sent the rest of a task that has not begun here")]
    Rest,
    #[error(
        "the server broke the protocol: a message came with a payload that takes none, or the other way round"
    )]
    Payload,
    #[error("stream finished early: no message came")]
    Nothing,
    #[error("the server sends a task of {0} bytes, for which this device has no memory")]
    TooLarge(u64),
    #[error("the server broke the protocol: {0}")]
    Difference(#[from] DifferenceError),
    #[error("the task cannot be taken in: {0}")]
    Blocking(#[from] tokio::task::JoinError),
    #[error("the server left")]
    Left,
}

/// Serves the connection until it ends, or the driver drops its end of the channel.
pub(super) async fn serve(
    connection: &Connection,
    connector: &QuicConnector,
    mut control: SendStream,
    mut answers: RecvStream,
    mut queue: mpsc::UnboundedReceiver<Outgoing>,
    spoken: Protocol,
    events: &mpsc::UnboundedSender<Incoming>,
) -> Result<(), ServeError> {
    let (updates, mut update_queue) = mpsc::unbounded_channel::<(Box<UpdateHeader>, Bytes)>();
    // The part of an update that the server has from an earlier connection.
    let begun = Mutex::new(None::<ResumePoint>);
    let inbound = async {
        loop {
            // A server that leaves ends its stream after a message.
            let (message, _) = read_message(&mut answers, 0).await.map_err(|error| match error {
                ServeError::Nothing => ServeError::Left,
                error => error,
            })?;
            match message {
                ToClient::Frozen { .. } => return Err(ServeError::Payload),
                message if message.task().is_some() => return Err(ServeError::Payload),
                ToClient::ResumePoint(partial) => {
                    *begun.lock().unwrap_or_else(PoisonError::into_inner) = Some(partial);
                }
                message => {
                    connector.heard(&message);
                    let _ = events.send(Incoming::Message(message));
                }
            }
        }
    };
    let (said, mut to_say) = mpsc::unbounded_channel();
    let tasks = async {
        loop {
            let stream = connection.accept_uni().await?;
            match read_task(stream, connector, events).await {
                Ok(task) => {
                    if let (Incoming::Task { .. }, Some(base)) = (&task, connector.base.said()) {
                        let _ = said.send(base);
                    }
                    let _ = events.send(task);
                }
                // The server stopped sending it since its round has closed.
                Err(
                    ServeError::Read(ReadExactError::ReadError(quinn::ReadError::Reset(_)))
                    | ServeError::ReadPayload(quinn::ReadError::Reset(_)),
                ) => {}
                Err(error) => return Err(error),
            }
        }
    };
    let outbound = async {
        loop {
            let outgoing = tokio::select! {
                outgoing = queue.recv() => outgoing,
                Some(message) = to_say.recv() => Some(Outgoing::Message(Box::new(message))),
            };
            match outgoing {
                None => break,
                Some(Outgoing::Message(message)) => {
                    if let Some(message) = message.for_peer(spoken) {
                        control.write_all(&frame::encode(&message, 0)).await?;
                    }
                }
                Some(Outgoing::Update(header, payload)) => {
                    let _ = updates.send((header, payload.to_bytes()));
                }
            }
        }
        // `stopped` resolves when the server has received everything, or the connection is lost.
        let _ = control.finish();
        let _ = tokio::time::timeout(LINGER, control.stopped()).await;
        Ok(())
    };
    let uploads = async {
        while let Some((header, payload)) = update_queue.recv().await {
            let mut stream = connection.open_uni().await?;
            let begun = begun.lock().unwrap_or_else(PoisonError::into_inner).take();
            let offset = begun.and_then(|begun| begun.offset_in(header.round, &payload)).unwrap_or(0);
            let rest = payload.slice(offset..);
            let message = match offset {
                0 => ToServer::Update(*header),
                _ => ToServer::UpdateRest { header: *header, offset: offset as u64 },
            };
            // Without a resume point, which an older server does not send, it is the whole update, which all know.
            let Some(message) = message.for_peer(spoken) else { continue };
            stream.write_all(&frame::encode(&message, rest.len() as u64)).await?;
            stream.write_chunk(rest).await?;
            let _ = stream.finish();
        }
        std::future::pending().await
    };
    tokio::select! {
        result = inbound => result,
        result = tasks => result,
        result = outbound => result,
        result = uploads => result,
        () = events.closed() => Ok(()),
    }
}

async fn read_message(stream: &mut RecvStream, max_payload: u64) -> Result<(ToClient, u64), ServeError> {
    let mut header = [0; HEADER_LEN];
    stream.read_exact(&mut header).await.map_err(|error| match error {
        ReadExactError::FinishedEarly(0) => ServeError::Nothing,
        error => error.into(),
    })?;
    let header = Header::parse(header, max_payload)?;
    let mut body = vec![0; header.message as usize];
    stream.read_exact(&mut body).await?;
    Ok((frame::decode(&body)?, header.payload))
}

/// The error of a payload that is too large, after a while. The welcome says how large they are, and a device declines such a run with a
/// reason: a payload that comes close behind the welcome must not end the connection before that reason is delivered.
async fn too_large(total: u64) -> ServeError {
    tokio::time::sleep(DECLINE_TIME).await;
    ServeError::TooLarge(total)
}

/// Reads frozen parameters. Memory grows with what has arrived, not with what was announced.
async fn read_frozen(
    mut stream: RecvStream,
    digest: String,
    total: u64,
    limit: u64,
) -> Result<Incoming, ServeError> {
    if total > limit {
        return Err(too_large(total).await);
    }
    let length = usize::try_from(total).map_err(|_| ServeError::Payload)?;
    let mut payload = Vec::new();
    while payload.len() < length {
        match stream.read_chunk(length - payload.len(), true).await? {
            Some(chunk) => payload.extend_from_slice(&chunk.bytes),
            None => return Err(FrameError::Truncated.into()),
        }
    }
    Ok(Incoming::Frozen { digest, payload: payload.into() })
}

async fn read_task(
    mut stream: RecvStream,
    connector: &QuicConnector,
    events: &mpsc::UnboundedSender<Incoming>,
) -> Result<Incoming, ServeError> {
    let (message, rest) = read_message(&mut stream, u64::MAX).await?;
    if let ToClient::Frozen { digest } = message {
        return read_frozen(stream, digest, rest, connector.max_task).await;
    }
    let TaskHeader { round, work, failed, offset } = message.task().ok_or(ServeError::Payload)?;
    let leads = Leads::of(&message);
    let total = offset.saturating_add(rest);
    if total > connector.max_task {
        return Err(too_large(total).await);
    }
    let length = usize::try_from(total).map_err(|_| ServeError::Payload)?;
    let mut arriving = match offset {
        0 => connector.interrupted.begin(round, total),
        _ => connector.interrupted.go_on(round, offset, total).ok_or(ServeError::Rest)?,
    };
    let began = Instant::now();
    let mut told = None;
    loop {
        let payload = arriving.payload();
        if payload.len() >= length {
            break;
        }
        let step = payload.len() / ARRIVAL_STEP;
        if told != Some(step) {
            told = Some(step);
            let _ = events.send(Incoming::Arriving { round, received: payload.len() as u64, total });
        }
        match stream.read_chunk(length - payload.len(), true).await {
            Ok(Some(chunk)) => {
                payload.extend_from_slice(&chunk.bytes);
                arriving.keep(began.elapsed());
            }
            Ok(None) => return Err(FrameError::Truncated.into()),
            Err(error) => {
                if matches!(error, quinn::ReadError::Reset(_)) {
                    // Its round has closed: the rest will not come.
                    arriving.abandon();
                }
                return Err(error.into());
            }
        }
    }
    let (base, received) = (connector.base.clone(), arriving.take().into());
    let advanced = tokio::task::spawn_blocking(move || base.advance(received, leads.as_ref())).await?;
    Ok(Incoming::Task { round, work, failed, payload: advanced? })
}
