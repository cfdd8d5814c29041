//! Events in records: each with its length, and checksums of both.

use std::io::{self, Write};

use crc::{CRC_32_ISCSI, Crc};

use crate::protobuf::Message;

/// The version that the first event of a file names.
const VERSION: &str = "brain.Event:2";

/// A file of events.
#[derive(Debug)]
pub(super) struct EventFile<W> {
    out: W,
}

impl<W: Write> EventFile<W> {
    /// Begins a file. Times are seconds since 1970.
    pub(super) fn begin(mut out: W, time: f64) -> io::Result<Self> {
        out.write_all(&record(Message::new().double(1, time).text(3, VERSION).as_bytes()))?;
        Ok(Self { out })
    }

    /// Adds an event with a summary. One write: a reader sees whole events.
    pub(super) fn add(&mut self, time: f64, step: u32, summary: &Message) -> io::Result<()> {
        let event = Message::new().double(1, time).integer(2, step.into()).message(5, summary);
        self.out.write_all(&record(event.as_bytes()))
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The bytes of a record.
fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    [&length[..], &masked(&length).to_le_bytes(), data, &masked(data).to_le_bytes()].concat()
}

/// CRC-32C, rotated and moved, so that a checksum of data with checksums in them is as good as others.
fn masked(data: &[u8]) -> u32 {
    const CRC: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);
    CRC.checksum(data).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_begins_as_tensorflow_begins_it() {
        let file = EventFile::begin(Vec::new(), 1.0).expect("memory");
        // Written by TensorBoard 2's `RecordWriter` from `Event(wall_time=1.0, file_version="brain.Event:2")`.
        let expected = "18000000000000 00a37f4b22 09000000000000f03f1a0d627261696e2e4576656e743a32 ";
        let bytes: String = file.out.iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(bytes.starts_with(&expected.replace(' ', "")), "{bytes}");
        assert_eq!(file.out.len(), 8 + 4 + 24 + 4);
    }
}
