//! Line breaks of text files: CR LF becomes LF.
//!
//! The reader of tables counts a line at its LF. Behind a CR, which ends a row as well, it reads the LF with the next row and
//! numbers that one by the line before.

use std::io::{BufRead, BufReader, Read, Result};

/// The bytes of `R` without a CR before an LF. A CR alone stays: it ends a row, too.
#[derive(Debug)]
pub(super) struct LineFeeds<R> {
    inner: BufReader<R>,
    /// A CR was read, and what follows is not known yet.
    held: bool,
}

impl<R: Read> LineFeeds<R> {
    pub(super) fn new(inner: R) -> Self {
        Self { inner: BufReader::new(inner), held: false }
    }
}

impl<R: Read> Read for LineFeeds<R> {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        let Some(first) = out.first_mut() else { return Ok(0) };
        loop {
            let chunk = self.inner.fill_buf()?;
            if self.held && chunk.first() != Some(&b'\n') {
                self.held = false;
                *first = b'\r';
                return Ok(1);
            }
            self.held = false;
            if chunk.first() == Some(&b'\r') {
                self.inner.consume(1);
                self.held = true;
                continue;
            }
            let length = chunk.iter().position(|&byte| byte == b'\r').unwrap_or(chunk.len());
            let length = length.min(out.len());
            out[..length].copy_from_slice(&chunk[..length]);
            self.inner.consume(length);
            return Ok(length);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives one byte at a time.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, out: &mut [u8]) -> Result<usize> {
            let length = out.len().min(1);
            self.0.read(&mut out[..length])
        }
    }

    #[test]
    fn a_line_ends_with_lf_however_it_arrives() {
        let text = b"a\r\n\r\nb\rc\n\r\r\nd\r";
        let expected = b"a\n\nb\rc\n\r\nd\r";
        let (mut whole, mut slow) = (Vec::new(), Vec::new());
        LineFeeds::new(&text[..]).read_to_end(&mut whole).expect("bytes in memory");
        LineFeeds::new(Slow(text)).read_to_end(&mut slow).expect("bytes in memory");
        assert_eq!((whole.as_slice(), slow.as_slice()), (&expected[..], &expected[..]));
    }
}
