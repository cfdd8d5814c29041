//! Checksums of the files that a run reads back.
//!
//! ```text
//! content | "\ncrc32=" | CRC-32 of the content, eight hexadecimal digits | "\n"
//! ```
//!
//! The trailer is text, so that a JSON file with it can still be read by people. Files of earlier versions have none and are read
//! as they are: every decoder wants the whole content and nothing more, so that a damaged trailer is not taken for an earlier
//! version. The checksum finds what disks, cables and copies change. It is not cryptographic: only the aggregator's user can write
//! to a run's directory.

use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;

use crc32fast::Hasher;

use super::{FileLayer, Reading, write_durably};

/// Length of the trailer in bytes.
const LENGTH: u64 = 16;

/// What stands before the digits.
const LABEL: &str = "\ncrc32=";

/// A file's content is not what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its content does not match its checksum")]
pub struct ChecksumMismatch;

impl ChecksumMismatch {
    /// Whether an error that a read gave is this one.
    #[must_use]
    pub fn is(error: &io::Error) -> bool {
        error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<Self>)
    }
}

/// The checksum of content that is written or read piece by piece.
#[derive(Clone, Debug, Default)]
pub struct Checksum(Hasher);

impl Checksum {
    /// Adds the next bytes of the content.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The trailer of this content.
    #[must_use]
    pub fn trailer(self) -> String {
        format!("{LABEL}{:08x}\n", self.0.finalize())
    }
}

/// The content of a file and its checksum, while it is read.
pub(super) struct Verification {
    /// Bytes of the content that were not read yet.
    left: u64,
    expected: u32,
    found: Checksum,
}

impl Verification {
    /// The verification of a file that has a trailer.
    pub(super) fn of(files: &dyn FileLayer, path: &Path) -> io::Result<Option<Self>> {
        let trailer = Trailer::of(files, path)?;
        Ok(trailer.map(|Trailer { content, sum }| Self {
            left: content,
            expected: sum,
            found: Checksum::default(),
        }))
    }

    /// Reads the next bytes of the content. At its end the checksum is compared.
    pub(super) fn read(&mut self, file: &mut dyn Read, bytes: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 && !bytes.is_empty() {
            let found = self.found.clone().0.finalize();
            return if found == self.expected {
                Ok(0)
            } else {
                Err(io::Error::new(ErrorKind::InvalidData, ChecksumMismatch))
            };
        }
        let most = usize::try_from(self.left).map_or(bytes.len(), |left| left.min(bytes.len()));
        let count = file.read(&mut bytes[..most])?;
        self.found.update(&bytes[..count]);
        self.left -= count as u64;
        Ok(count)
    }
}

/// A trailer that was found.
struct Trailer {
    /// Length of the content before it.
    content: u64,
    sum: u32,
}

impl Trailer {
    fn of(files: &dyn FileLayer, path: &Path) -> io::Result<Option<Self>> {
        let Some(content) = files.length(path)?.and_then(|length| length.checked_sub(LENGTH)) else {
            return Ok(None);
        };
        let mut trailer = String::new();
        match files.open_at(path, content)?.take(LENGTH).read_to_string(&mut trailer) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::InvalidData => return Ok(None),
            Err(error) => return Err(error),
        }
        let digits = trailer.strip_prefix(LABEL).and_then(|rest| rest.strip_suffix('\n'));
        let sum = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        Ok(sum.map(|sum| Self { content, sum }))
    }
}

/// Length of a file's content in bytes, without the trailer; `None` if it is not there.
pub fn content_length(files: &dyn FileLayer, path: &Path) -> io::Result<Option<u64>> {
    match Trailer::of(files, path)? {
        Some(trailer) => Ok(Some(trailer.content)),
        None => files.length(path),
    }
}

/// [`write_durably`] with a checksum after the content.
pub fn write_checked(
    files: &dyn FileLayer,
    path: &Path,
    mut write: impl FnMut(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    write_durably(files, path, |out| write_summed(out, &mut write))
}

/// Writes content with a checksum after it.
pub fn write_summed(
    out: &mut dyn Write,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut summed = Summed { out, sum: Checksum::default() };
    write(&mut summed)?;
    let Summed { out, sum } = summed;
    out.write_all(sum.trailer().as_bytes())
}

/// The content of a small file that may have a checksum; `None` if it is not there.
pub fn read_checked(files: &dyn FileLayer, path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut file = match Reading::open(files, path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut content = Vec::new();
    file.read_to_end(&mut content)?;
    Ok(Some(content))
}

/// A writer that sums up what passes.
struct Summed<'a> {
    out: &'a mut dyn Write,
    sum: Checksum,
}

impl Write for Summed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.out.write(bytes)?;
        self.sum.update(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::storage::Disk;

    #[test]
    fn the_format_is_fixed() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("file");
        write_checked(&Disk, &path, |out| out.write_all(b"{\"a\":").and_then(|()| out.write_all(b"1}")))
            .expect("written");
        // CRC-32 computed with Python's zlib.
        assert_eq!(fs::read(&path).expect("there"), b"{\"a\":1}\ncrc32=561bacaf\n");
        assert_eq!(read_checked(&Disk, &path).expect("sound").as_deref(), Some(&b"{\"a\":1}"[..]));
        assert_eq!(content_length(&Disk, &path).expect("there"), Some(7));
    }

    #[test]
    fn every_flipped_bit_is_noticed_or_left_over() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("file");
        let content: Vec<u8> = (0..200).collect();
        write_checked(&Disk, &path, |out| out.write_all(&content)).expect("written");
        let whole = fs::read(&path).expect("there");
        for bit in 0..whole.len() * 8 {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, &damaged).expect("written");
            match read_checked(&Disk, &path) {
                Err(error) => assert!(ChecksumMismatch::is(&error), "bit {bit}: {error}"),
                // No trailer any more, so that a decoder finds something behind the content; or a digit in upper case.
                Ok(read) => assert!(
                    bit / 8 >= content.len() && (read == Some(damaged) || read.as_ref() == Some(&content)),
                    "bit {bit}"
                ),
            }
        }
    }

    #[test]
    fn files_of_earlier_versions_are_read_as_they_are() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("file");
        assert_eq!(read_checked(&Disk, &path).expect("no failure"), None);
        for content in [&b""[..], b"{}", b"\xff\xfe and more than sixteen bytes \xff\xff"] {
            fs::write(&path, content).expect("written");
            assert_eq!(read_checked(&Disk, &path).expect("read").as_deref(), Some(content));
            assert_eq!(content_length(&Disk, &path).expect("there"), Some(content.len() as u64));
        }
    }
}
