//! A partial download: the part of a task's payload that has arrived, kept so that a restarted process resumes it.
//!
//! It saves time and nothing else. So writing it is not synced, an error in it only ends the keeping, and a file that is not as
//! it was written counts as far as it is.
//!
//! ```text
//! offset  size  field
//!      0     3  "FLD"
//!      3     1  format version
//!      4     4  round, little-endian
//!      8     8  length of the whole payload, little-endian
//!     16     4  CRC-32 of bytes 0..16, little-endian
//!     20        blocks: 64 KiB of payload, then the CRC-32 of bytes 0..16, the block's number and its payload
//! ```
//!
//! The checksums detect the torn or missing end that a power failure leaves. What they let pass is still not believed: the
//! server compares its SHA-256 ([`ResumePoint`](shared::message::ResumePoint)) before it sends only the rest. The payload's last
//! bytes are never written, so there always is a rest to ask for.

use std::fmt::Debug;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use flate2::Crc;
use models::Limits;
use shared::chown::chown_like_parent;

use super::durable;

/// Payload bytes in a block: half a second at 1 Mbit/s, which is what a restart costs at most.
const BLOCK: usize = 64 << 10;
/// Bytes of a checksum.
const SUM: usize = 4;
/// Bytes before the header's checksum.
const CHECKED: usize = 16;
/// Bytes before the first block.
const HEADER: usize = CHECKED + SUM;
const MAGIC: [u8; 3] = *b"FLD";
const VERSION: u8 = 1;

/// The partial download of a store. The transport writes it; the store discards it when its task is done.
pub type SharedDownload = Arc<Mutex<dyn PartialDownload>>;

/// The beginning of a task's payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beginning {
    /// The round of the task.
    pub round: u32,
    /// Bytes of the whole payload; more than are here.
    pub total: u64,
    /// What has arrived of it.
    pub payload: Vec<u8>,
}

/// Storage of one partial download.
pub trait PartialDownload: Debug + Send {
    /// What an earlier process has left. It stays here until it is discarded.
    fn load(&mut self) -> Option<Beginning>;

    /// Keeps `payload`, the part that has arrived so far of the task's `total` bytes. Each call continues the one before, and
    /// replaces the download of another task.
    fn keep(&mut self, round: u32, total: u64, payload: &[u8]);

    /// Removes the download if it is of `round`; without one, the download of any round. Returns whether there was one.
    fn discard(&mut self, round: Option<u32>) -> bool;
}

/// Survives lost connections and simulated restarts, but not the process.
impl PartialDownload for Option<Beginning> {
    fn load(&mut self) -> Option<Beginning> {
        self.clone()
    }

    fn keep(&mut self, round: u32, total: u64, payload: &[u8]) {
        *self = Some(Beginning { round, total, payload: payload.to_vec() });
    }

    fn discard(&mut self, round: Option<u32>) -> bool {
        self.take_if(|kept| round.is_none_or(|round| round == kept.round)).is_some()
    }
}

/// What identifies a download: its round and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    round: u32,
    total: u64,
}

#[derive(Debug)]
enum Kept {
    Nothing,
    /// The open file, positioned behind its last block, and the number of its blocks.
    Blocks(Head, File, u64),
    /// The disk has refused this one; its task is received without it.
    GivenUp(Head),
}

/// The file `STATE/download`.
#[derive(Debug)]
pub(super) struct DownloadFile {
    path: PathBuf,
    kept: Kept,
    /// Whether a failure was logged: a full disk would have one in every round.
    warned: bool,
}

impl DownloadFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, kept: Kept::Nothing, warned: false }
    }

    /// Opens what an earlier process has left, and cuts off what is not sound.
    fn open(&self) -> io::Result<Option<(Head, File, Vec<u8>)>> {
        let mut file = match File::options().read(true).write(true).open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut header = [0; HEADER];
        file.read_exact(&mut header)?;
        let Some(head) = Head::read(&header) else { return Ok(None) };
        let here = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        let mut payload = Vec::with_capacity(here.min(usize::try_from(head.total).unwrap_or(usize::MAX)));
        let mut block = vec![0; BLOCK + SUM];
        while file.read_exact(&mut block).is_ok() {
            let (bytes, sum) = block.split_at(BLOCK);
            let number = (payload.len() / BLOCK) as u64;
            if checksum(head, number, bytes).to_le_bytes() != sum
                || (payload.len() + BLOCK) as u64 >= head.total
            {
                break;
            }
            payload.extend_from_slice(bytes);
        }
        let sound = (HEADER + payload.len() / BLOCK * (BLOCK + SUM)) as u64;
        file.set_len(sound)?;
        file.seek(SeekFrom::Start(sound))?;
        Ok(Some((head, file, payload)))
    }

    /// Writes the blocks that are complete and not written yet, but for the one that the payload ends with.
    fn append(&mut self, head: Head, payload: &[u8]) -> io::Result<()> {
        if !matches!(&self.kept, Kept::Blocks(of, ..) | Kept::GivenUp(of) if *of == head) {
            let mut file = durable::private().truncate(true).open(&self.path)?;
            chown_like_parent(&file, &self.path);
            file.write_all(&head.header())?;
            self.kept = Kept::Blocks(head, file, 0);
        }
        let Kept::Blocks(_, file, blocks) = &mut self.kept else { return Ok(()) };
        let written = usize::try_from(*blocks).map_or(payload.len(), |blocks| blocks * BLOCK);
        for block in payload.get(written..).unwrap_or_default().chunks_exact(BLOCK) {
            if (*blocks + 1) * BLOCK as u64 >= head.total {
                break;
            }
            file.write_all(block)?;
            file.write_all(&checksum(head, *blocks, block).to_le_bytes())?;
            *blocks += 1;
        }
        Ok(())
    }

    fn remove(&self) {
        // One that cannot be removed now is replaced by the next download or removed by the next start.
        let _ = fs::remove_file(&self.path);
    }
}

impl PartialDownload for DownloadFile {
    fn load(&mut self) -> Option<Beginning> {
        match self.open() {
            Ok(Some((Head { round, total }, file, payload))) if !payload.is_empty() => {
                self.kept = Kept::Blocks(Head { round, total }, file, (payload.len() / BLOCK) as u64);
                Some(Beginning { round, total, payload })
            }
            _ => {
                self.remove();
                None
            }
        }
    }

    fn keep(&mut self, round: u32, total: u64, payload: &[u8]) {
        let head = Head { round, total };
        if let Err(error) = self.append(head, payload) {
            if !std::mem::replace(&mut self.warned, true) {
                let path = self.path.display();
                tracing::warn!(
                    "the task that is arriving is not kept in {path}: {error}; after a restart it is received from its beginning"
                );
            }
            self.remove();
            self.kept = Kept::GivenUp(head);
        }
    }

    fn discard(&mut self, round: Option<u32>) -> bool {
        let (Kept::Blocks(head, ..) | Kept::GivenUp(head)) = &self.kept else { return false };
        if round.is_some_and(|round| round != head.round) {
            return false;
        }
        let kept = std::mem::replace(&mut self.kept, Kept::Nothing);
        let had = matches!(kept, Kept::Blocks(..));
        // Closed first: not every system removes an open file.
        drop(kept);
        self.remove();
        had
    }
}

impl Head {
    fn checked(self) -> [u8; CHECKED] {
        let mut bytes = [0; CHECKED];
        bytes[..3].copy_from_slice(&MAGIC);
        bytes[3] = VERSION;
        bytes[4..8].copy_from_slice(&self.round.to_le_bytes());
        bytes[8..].copy_from_slice(&self.total.to_le_bytes());
        bytes
    }

    fn header(self) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        header[..CHECKED].copy_from_slice(&self.checked());
        header[CHECKED..].copy_from_slice(&sum(&[&self.checked()]).to_le_bytes());
        header
    }

    /// `None` if this build has not written it.
    fn read(header: &[u8; HEADER]) -> Option<Self> {
        let [_, _, _, _, a, b, c, d, total @ .., _, _, _, _] = header;
        let head = Self { round: u32::from_le_bytes([*a, *b, *c, *d]), total: u64::from_le_bytes(*total) };
        (head.header() == *header && head.total <= Limits::default().max_bytes).then_some(head)
    }
}

fn checksum(head: Head, number: u64, block: &[u8]) -> u32 {
    sum(&[&head.checked(), &number.to_le_bytes(), block])
}

fn sum(pieces: &[&[u8]]) -> u32 {
    let mut crc = Crc::new();
    for piece in pieces {
        crc.update(piece);
    }
    crc.sum()
}

#[cfg(test)]
mod tests;
