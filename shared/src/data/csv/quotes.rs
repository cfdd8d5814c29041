//! Quotation marks: which rows of a table have one that is not closed.
//!
//! The reader takes what follows a closing quotation mark for a part of its field. So it does where a quotation mark that was not
//! closed meets the next one, rows behind it: what stands between the two is lost.

use std::collections::VecDeque;
use std::io::{Read, Result};

/// Where in a row the next byte is, as the reader of tables sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Where a field begins.
    Begin,
    /// In a field without quotation marks around it.
    Bare,
    /// Behind the opening quotation mark.
    Quoted,
    /// Behind a quotation mark in a quoted field: the closing one, or the first of two that stand for one.
    Closed,
}

/// The bytes of `R`, in which closing quotation marks are looked for that do not end their field.
#[derive(Debug)]
pub(super) struct Quotes<R> {
    inner: R,
    /// How many bytes were read.
    read: u64,
    place: Place,
    /// Where they are, as far as rows have not been asked about.
    wrong: VecDeque<u64>,
}

impl<R> Quotes<R> {
    pub(super) fn new(inner: R) -> Self {
        Self { inner, read: 0, place: Place::Begin, wrong: VecDeque::new() }
    }

    /// Whether all rows up to this byte close their quotation marks, but for those that were asked about before.
    pub(super) fn closed_up_to(&mut self, end: u64) -> bool {
        let count = self.wrong.partition_point(|&place| place < end);
        self.wrong.drain(..count);
        count == 0
    }

    /// Whether the table, which was read to its end, ends within quotation marks.
    pub(super) fn ends_open(&self) -> bool {
        self.place == Place::Quoted
    }
}

impl<R: Read> Read for Quotes<R> {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        let length = self.inner.read(out)?;
        for (&byte, at) in out[..length].iter().zip(self.read..) {
            self.place = match (self.place, byte) {
                (Place::Quoted, b'"') => Place::Closed,
                (Place::Quoted, _) | (Place::Begin | Place::Closed, b'"') => Place::Quoted,
                (_, b',' | b'\n' | b'\r') => Place::Begin,
                (Place::Closed, _) => {
                    self.wrong.push_back(at);
                    Place::Bare
                }
                (Place::Begin | Place::Bare, _) => Place::Bare,
            };
        }
        self.read += length as u64;
        Ok(length)
    }
}
