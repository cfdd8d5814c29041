//! The checksum of a small text file: a line `crc32=...` at its end.
//!
//! It finds what disks and copies change in a file that has no other redundancy, such as a key: with one bit flipped, a key is
//! another valid key. It is not cryptographic. Files of earlier programs, and those that people write, have none and are read
//! as they are; their readers want the whole content and nothing more, so that a damaged line is not taken for content.

use flate2::Crc;

/// What stands before the eight digits.
const LABEL: &str = "\ncrc32=";
/// Bytes of the line without its line break, which a copy may lack.
const LENGTH: usize = LABEL.len() + 8;

/// A file's content is not what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its content does not match its checksum")]
pub struct ChecksumMismatch;

/// The file of this content.
#[must_use]
pub fn with_checksum(content: &str) -> String {
    format!("{content}{LABEL}{:08x}\n", sum(content))
}

/// The content of a file, without its checksum if it has one.
///
/// # Errors
/// [`ChecksumMismatch`] if the content is not what was written.
pub fn content(file: &str) -> Result<&str, ChecksumMismatch> {
    let whole = file.strip_suffix('\n').unwrap_or(file);
    let split = whole.len().checked_sub(LENGTH).and_then(|at| whole.split_at_checked(at));
    let Some((content, line)) = split else { return Ok(file) };
    let digits = line.strip_prefix(LABEL);
    match digits.and_then(|digits| u32::from_str_radix(digits, 16).ok()) {
        None => Ok(file),
        Some(expected) if expected == sum(content) => Ok(content),
        Some(_) => Err(ChecksumMismatch),
    }
}

fn sum(content: &str) -> u32 {
    let mut crc = Crc::new();
    crc.update(content.as_bytes());
    crc.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_read_back_and_other_bytes_are_not() {
        // Computed with Python's zlib.
        assert_eq!(with_checksum("123456789"), "123456789\ncrc32=cbf43926\n");
        let file = with_checksum("é, and more");
        assert_eq!(content(&file), Ok("é, and more"));
        assert_eq!(content(&file.replace("more", "mose")), Err(ChecksumMismatch));
        assert_eq!(content(file.trim_end()), Ok("é, and more"), "a copy without its line break");
        for earlier in ["", "without one\n", "é\ncrc32=g0000000\n"] {
            assert_eq!(content(earlier), Ok(earlier));
        }
    }
}
