//! Quotation marks: how many each row of a table has.

use std::collections::VecDeque;
use std::io::{Read, Result};

/// The bytes of `R`, with the places of the quotation marks among them. A row in which all are closed has an even number of them.
#[derive(Debug)]
pub(super) struct Quotes<R> {
    inner: R,
    /// How many bytes were read.
    read: u64,
    /// Where the quotation marks are that were read and not yet counted.
    places: VecDeque<u64>,
}

impl<R> Quotes<R> {
    pub(super) fn new(inner: R) -> Self {
        Self { inner, read: 0, places: VecDeque::new() }
    }

    /// How many there are in front of this byte, without those that were counted before.
    pub(super) fn count_to(&mut self, end: u64) -> usize {
        let count = self.places.partition_point(|&place| place < end);
        self.places.drain(..count);
        count
    }
}

impl<R: Read> Read for Quotes<R> {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        let length = self.inner.read(out)?;
        let places = (self.read..).zip(&out[..length]).filter(|(_, byte)| **byte == b'"');
        self.places.extend(places.map(|(place, _)| place));
        self.read += length as u64;
        Ok(length)
    }
}
