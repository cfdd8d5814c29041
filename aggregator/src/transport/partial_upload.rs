//! The part of an update that has arrived, in the spool.

use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use models::Limits;
use sha2::{Digest as _, Sha256};
use shared::message::{ResumePoint, UpdateHeader};

use crate::run::update_file::read_header;
use crate::storage::checksum::Checksum;

/// The part of an update that has arrived.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PartialUpload {
    /// The header of the update.
    pub(super) header: UpdateHeader,
    /// Its file, which begins with the frame's header and message.
    pub(super) path: PathBuf,
    /// Offset of the payload in the file.
    pub(super) begins: u64,
    /// Bytes of the payload that have arrived.
    pub(super) bytes: u64,
    /// Bytes of the whole payload.
    pub(super) total: u64,
}

impl PartialUpload {
    /// Reads a file of the spool; `None` if it holds too little to be worth resuming. If the payload is complete, its last byte
    /// is left out, so that there is a rest for the device to send.
    pub(super) fn read(path: &Path, max_payload: u64) -> Option<Self> {
        let mut file = File::open(path).ok()?;
        let (header, Limits { max_bytes: total, .. }) = read_header(&mut file, max_payload).ok()?;
        let begins = file.stream_position().ok()?;
        let bytes = file.metadata().ok()?.len().checked_sub(begins)?.min(total.checked_sub(1)?);
        let part = Self { header, path: path.to_owned(), begins, bytes, total };
        (bytes >= ResumePoint::MIN_BYTES as u64).then_some(part)
    }

    /// The resume point that the device is sent; reads and hashes the part.
    pub(super) fn partial(&self) -> io::Result<ResumePoint> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.begins))?;
        let digest = digest(&mut file, self.bytes)?;
        Ok(ResumePoint { round: self.header.round, bytes: self.bytes, digest })
    }

    /// Opens the file to write the rest, and adds to `sum` what is in it.
    pub(super) fn reopen(&self, mut sum: Checksum) -> io::Result<(File, Checksum)> {
        let mut file = File::options().read(true).write(true).open(&self.path)?;
        each_chunk(&mut file, self.begins + self.bytes, |chunk| sum.update(chunk))?;
        Ok((file, sum))
    }
}

/// SHA-256 of the next `bytes` bytes.
pub(super) fn digest(source: &mut impl Read, bytes: u64) -> io::Result<[u8; 32]> {
    let mut hash = Sha256::new();
    each_chunk(source, bytes, |chunk| hash.update(chunk))?;
    Ok(hash.finalize().into())
}

/// Reads the next `bytes` bytes, a chunk at a time.
fn each_chunk(source: &mut impl Read, bytes: u64, mut visit: impl FnMut(&[u8])) -> io::Result<()> {
    let mut chunk = vec![0; 128 << 10];
    let mut left = bytes;
    while left > 0 {
        let want = usize::try_from(left).unwrap_or(chunk.len()).min(chunk.len());
        source.read_exact(&mut chunk[..want])?;
        visit(&chunk[..want]);
        left -= want as u64;
    }
    Ok(())
}

/// Removes the file. One that cannot be removed now is removed by the next start.
pub(super) fn remove(part: &PartialUpload) {
    let _ = std::fs::remove_file(&part.path);
}
