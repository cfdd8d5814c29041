//! Updates on the aggregator's disk: frames, exactly as they crossed the network.

use std::io::{ErrorKind, Read};

use models::Limits;
use shared::frame::{self, HEADER_LEN, Header};
use shared::message::{Rejection, ToServer, UpdateHeader};
use shared::parcel::Parcel;

/// Reads one update. Whatever the bytes are, the outcome is an update or a reason why not.
pub(super) fn read(input: &mut dyn Read, max_payload: u64) -> Result<(UpdateHeader, Parcel), Rejection> {
    let malformed = |reason: String| Rejection::Malformed { reason };
    let mut header = [0; HEADER_LEN];
    exactly(input, &mut header)?;
    let header = Header::parse(header, max_payload).map_err(|error| malformed(error.to_string()))?;
    let mut message = vec![0; header.message as usize];
    exactly(input, &mut message)?;
    let ToServer::Update(update) =
        frame::decode(&message).map_err(|error| malformed(error.to_string()))?
    else {
        return Err(malformed("the message with this payload is not an update".to_owned()));
    };
    let limits = Limits { max_bytes: header.payload, ..Limits::default() };
    let parcel = Parcel::read_from(input, limits).map_err(|error| malformed(error.to_string()))?;
    Ok((update, parcel))
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
