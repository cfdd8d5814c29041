//! An update that has arrived, before it is accepted.

use std::path::PathBuf;

use bytes::Bytes;
use shared::id::ClientId;
use shared::payload::Payload;

use super::RunError;
use super::accept::Acceptance;
use super::error::disk;
use crate::storage::patient::patiently;

/// A whole frame with its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upload {
    /// In a file of the spool, synced by whoever received it. Once accepted it is durable.
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
}

impl From<PathBuf> for Upload {
    fn from(file: PathBuf) -> Self {
        Self::File(file)
    }
}

impl Acceptance<'_> {
    /// Writes an update down that has to wait for others on disk. Not durable, like all that a simulation writes.
    pub(super) fn spooled(
        &self,
        client: ClientId,
        frame: &[u8],
        payload: &Payload,
    ) -> Result<PathBuf, RunError> {
        let path = self.directory.spool().join(format!("{client}.upload"));
        let write = || {
            let mut file = self.files.create(&path)?;
            file.write_all(frame)?;
            payload.pieces().iter().try_for_each(|piece| file.write_all(piece))?;
            file.flush()
        };
        patiently(&*self.files, &path, write).map_err(disk("spool an update in", &path))?;
        Ok(path)
    }
}
