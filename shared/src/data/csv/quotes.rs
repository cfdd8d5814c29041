//! Quotation marks: how many a table has.

use std::io::{Read, Result};

/// The bytes of `R`, whose quotation marks are counted. A table in which all are closed has an even number of them.
#[derive(Debug)]
pub(super) struct Quotes<R> {
    inner: R,
    /// How many were read.
    pub(super) count: u64,
}

impl<R> Quotes<R> {
    pub(super) fn new(inner: R) -> Self {
        Self { inner, count: 0 }
    }
}

impl<R: Read> Read for Quotes<R> {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        let length = self.inner.read(out)?;
        self.count += out[..length].iter().map(|&byte| u64::from(byte == b'"')).sum::<u64>();
        Ok(length)
    }
}
