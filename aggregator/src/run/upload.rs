//! An update that has arrived, before it is accepted.

use std::path::PathBuf;

use bytes::Bytes;
use shared::payload::Payload;

use super::leaves::LeafUpload;

/// A whole frame with its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upload {
    /// In a file of the spool with its [checksum](crate::storage::checksum), synced on receipt. Once accepted it is durable.
    File(PathBuf),
    /// In the memory of a client that is a part of this process and shares it. It does not become durable (and stays in
    /// memory, unless the round's rule needs every update): when this
    /// process ends so does the client, and the next process has it trained again, to the same bytes.
    Memory {
        /// Header and message.
        frame: Bytes,
        /// The payload.
        payload: Payload,
    },
    /// In the spool of a leaf.
    Leaf(LeafUpload),
}

impl From<PathBuf> for Upload {
    fn from(file: PathBuf) -> Self {
        Self::File(file)
    }
}
