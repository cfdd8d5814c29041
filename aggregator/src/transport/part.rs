//! Part of an update, in the spool.

use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use models::Limits;
use sha2::{Digest as _, Sha256};
use shared::message::{ResumePoint, UpdateHeader};

use crate::run::update_file::read_header;

/// Part of an update.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Part {
    /// What it came with.
    pub(super) header: UpdateHeader,
    /// The spool's file, with the frame's header and message.
    pub(super) path: PathBuf,
    /// Where the payload begins in it.
    pub(super) begins: u64,
    /// Bytes of the payload that are there.
    pub(super) bytes: u64,
    /// Bytes that the whole payload has.
    pub(super) total: u64,
}

impl Part {
    /// What a file of the spool holds of an update, if that is worth anything. The last byte of a whole one is left to the device: it is
    /// asked for a rest.
    pub(super) fn read(path: &Path, max_payload: u64) -> Option<Self> {
        let mut file = File::open(path).ok()?;
        let (header, Limits { max_bytes: total, .. }) = read_header(&mut file, max_payload).ok()?;
        let begins = file.stream_position().ok()?;
        let bytes = file.metadata().ok()?.len().checked_sub(begins)?.min(total.checked_sub(1)?);
        let part = Self { header, path: path.to_owned(), begins, bytes, total };
        (bytes >= ResumePoint::MIN_BYTES as u64).then_some(part)
    }

    /// What the device is told. It reads the part.
    pub(super) fn partial(&self) -> io::Result<ResumePoint> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.begins))?;
        let digest = digest(&mut file, self.bytes)?;
        Ok(ResumePoint { round: self.header.round, bytes: self.bytes, digest })
    }
}

/// SHA-256 of the next `bytes` bytes.
pub(super) fn digest(source: &mut impl Read, bytes: u64) -> io::Result<[u8; 32]> {
    let mut hash = Sha256::new();
    let mut chunk = vec![0; 128 << 10];
    let mut left = bytes;
    while left > 0 {
        let want = usize::try_from(left).unwrap_or(chunk.len()).min(chunk.len());
        source.read_exact(&mut chunk[..want])?;
        hash.update(&chunk[..want]);
        left -= want as u64;
    }
    Ok(hash.finalize().into())
}

/// What cannot be removed now is removed by a restart.
pub(super) fn remove(part: &Part) {
    let _ = std::fs::remove_file(&part.path);
}
