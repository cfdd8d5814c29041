//! Updates on the aggregator's disk: frames as they crossed the network; compressed ones that are read in step with others as what they
//! stand for.

use std::io::{ErrorKind, Read};
use std::path::Path;

use models::Limits;
use models::params::codec::TensorStream;
use shared::frame::{self, HEADER_LEN, Header};
use shared::message::{Rejection, ToServer, UpdateHeader, reason};
use shared::payload::Payload;
use shared::record::Record;

use super::RunError;
use super::error::disk;
use crate::storage::{FileLayer, Reading};

/// Why an update is not accepted.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotAccepted {
    /// It is not believed, which is its sender's fault.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// This machine cannot accept any.
    #[error(transparent)]
    Failed(#[from] RunError),
}

/// Tells the outcome of an update from a failure of this machine.
pub(super) fn outcome<T>(accepted: Result<T, NotAccepted>) -> Result<Result<T, Rejection>, RunError> {
    match accepted {
        Ok(accepted) => Ok(Ok(accepted)),
        Err(NotAccepted::Rejected(rejection)) => Ok(Err(rejection)),
        Err(NotAccepted::Failed(error)) => Err(error),
    }
}

/// Reads one update. Any bytes give an update or the reason of its rejection.
pub(super) fn read(input: &mut dyn Read, accepted: Limits) -> Result<(UpdateHeader, Record), Rejection> {
    let (update, Limits { max_bytes, .. }) = read_header(input, accepted.max_bytes)?;
    let limits = Limits { max_bytes, ..accepted };
    let record = Record::read_update(input, limits).map_err(|error| malformed(reason(&error)))?;
    Ok((update, record))
}

/// [`read_from`] of an update that is masked whole numbers.
pub(super) fn read_masked(
    files: &dyn FileLayer,
    path: &Path,
    accepted: Limits,
) -> Result<(UpdateHeader, Record), NotAccepted> {
    let mut input = Reading::open(files, path).map_err(disk("open", path))?;
    let read = read_header(&mut input, accepted.max_bytes).and_then(|(update, Limits { max_bytes, .. })| {
        let limits = Limits { max_bytes, ..accepted };
        let record = Record::read_with_integers(&mut input, limits);
        Ok((update, record.map_err(|error| malformed(reason(&error)))?))
    });
    Ok(input.judge(read).map_err(disk("read", path))??)
}

/// [`read`] of a file.
pub(super) fn read_from(
    files: &dyn FileLayer,
    path: &Path,
    accepted: Limits,
) -> Result<(UpdateHeader, Record), NotAccepted> {
    let mut input = Reading::open(files, path).map_err(disk("open", path))?;
    let read = read(&mut input, accepted);
    Ok(input.judge(read).map_err(disk("read", path))??)
}

/// Opens the tensors of an accepted update, which was read before. The error is a message.
pub(super) fn tensors(
    files: &dyn FileLayer,
    path: &Path,
    max_payload: u64,
) -> Result<TensorStream<Reading>, String> {
    let mut input = Reading::open(files, path).map_err(|error| error.to_string())?;
    let (_, limits) = read_header(&mut input, max_payload).map_err(|error| error.to_string())?;
    TensorStream::open(input, limits).map_err(|error| reason(&error))
}

/// The bytes of an update's payload when it came, if the file has another one and says so.
pub(super) fn received(files: &dyn FileLayer, path: &Path, max_payload: u64) -> Option<u64> {
    let mut input = Reading::open(files, path).ok()?;
    let (_, limits) = read_header(&mut input, max_payload).ok()?;
    let (_, metadata) = TensorStream::open_described(input, limits).ok()?;
    metadata.get(Record::RECEIVED)?.parse().ok()
}

/// [`read`] of a frame whose payload lies apart in memory, and is read there.
pub(super) fn read_shared(
    mut frame: &[u8],
    payload: &Payload,
    accepted: Limits,
) -> Result<(UpdateHeader, Record), Rejection> {
    let (update, Limits { max_bytes, .. }) = read_header(&mut frame, accepted.max_bytes)?;
    let limits = Limits { max_bytes, ..accepted };
    let record = Record::update_from_payload(payload, limits).map_err(|error| malformed(reason(&error)))?;
    Ok((update, record))
}

/// Reads what stands before an update's payload, and gives the limits that the payload is read with.
pub(crate) fn read_header(
    input: &mut dyn Read,
    max_payload: u64,
) -> Result<(UpdateHeader, Limits), Rejection> {
    let mut header = [0; HEADER_LEN];
    exactly(input, &mut header)?;
    let header = Header::parse(header, max_payload).map_err(|error| malformed(reason(&error)))?;
    let mut message = vec![0; header.message as usize];
    exactly(input, &mut message)?;
    let ToServer::Update(update) = frame::decode(&message).map_err(|error| malformed(reason(&error)))? else {
        return Err(malformed("the message with this payload is not an update".to_owned()));
    };
    Ok((update, Limits { max_bytes: header.payload, ..Limits::default() }))
}

fn malformed(reason: String) -> Rejection {
    Rejection::Malformed { reason }
}

fn exactly(input: &mut dyn Read, bytes: &mut [u8]) -> Result<(), Rejection> {
    input.read_exact(bytes).map_err(|error| {
        let reason = match error.kind() {
            ErrorKind::UnexpectedEof => "it ends early".to_owned(),
            _ => error.to_string(),
        };
        Rejection::Malformed { reason }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::message::{ToClient, TrainReport, Verdict};

    #[test]
    fn a_rejection_fits_into_a_message_however_much_the_decoder_quotes() {
        // A safetensors header that repeats a name of 100 kB.
        let name = "w".repeat(100_000);
        let entry = format!(r#""{name}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}"#);
        let json = format!("{{{entry},{entry}}}");
        let payload = [&(json.len() as u64).to_le_bytes(), json.as_bytes()].concat();
        let update = ToServer::Update(UpdateHeader { round: 1, report: TrainReport::default() });
        let bytes = [frame::encode(&update, payload.len() as u64), payload].concat();
        let rejection =
            read(&mut bytes.as_slice(), Limits { max_bytes: 1 << 20, ..Limits::default() }).unwrap_err();
        let Rejection::Malformed { reason } = &rejection else { panic!("{rejection:?}") };
        assert!(reason.contains("the name `www"), "{reason}");
        let receipt = ToClient::Receipt { round: 1, verdict: Verdict::Rejected(rejection.clone()) };
        assert!(frame::encode(&receipt, 0).len() < 1000);
    }
}
