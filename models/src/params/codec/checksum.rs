//! A checksum inside a safetensors file, which stays one: the metadata key `crc32`.
//!
//! It is the CRC-32 of the whole file with zeros for its own eight digits. Files of other programs have none. It finds what disks and
//! copies change, in the values and in the header, and is not cryptographic.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use crc32fast::Hasher;

use super::DecodeError;

/// The metadata key of the checksum.
pub const CHECKSUM_KEY: &str = "crc32";

/// What stands before the digits in a header. In values of the metadata quotes are escaped, so that this is always a key.
const LABEL: &[u8] = b"\"crc32\":\"";

/// What stands for the digits while the sum is taken.
const UNKNOWN: &str = "00000000";

/// Writes a file with its checksum. `write` writes the file with the metadata that it is given, and does so twice, with the same
/// bytes but for the checksum: once to sum them up, and once to `out`.
///
/// # Errors
/// Those of `write`.
pub fn write_with_checksum<E>(
    metadata: &BTreeMap<String, String>,
    out: &mut dyn Write,
    mut write: impl FnMut(&BTreeMap<String, String>, &mut dyn Write) -> Result<(), E>,
) -> Result<(), E> {
    let mut metadata = metadata.clone();
    metadata.insert(CHECKSUM_KEY.to_owned(), UNKNOWN.to_owned());
    let mut sum = Sum(Hasher::new());
    write(&metadata, &mut sum)?;
    metadata.insert(CHECKSUM_KEY.to_owned(), format!("{:08x}", sum.0.finalize()));
    write(&metadata, out)
}

/// Takes the sum of all that is written.
struct Sum(Hasher);

impl Write for Sum {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A safetensors file whose checksum is taken while it is read.
pub struct Verifying<R> {
    input: R,
    /// The length field and the header, as far as they were read; at most `header` bytes, once that is known.
    begin: Vec<u8>,
    header: usize,
    data: Hasher,
}

impl<R: Read> Verifying<R> {
    /// The checksum of the file `input`, to be read through this.
    pub fn new(input: R) -> Self {
        Self { input, begin: Vec::new(), header: 8, data: Hasher::new() }
    }

    /// Reads what is left, and compares the checksum, if the file has one.
    ///
    /// # Errors
    /// [`DecodeError::Checksum`] if the file is not as it was written, [`DecodeError::Io`] if it cannot be read.
    pub fn finish(mut self) -> Result<(), DecodeError> {
        io::copy(&mut self, &mut io::sink()).map_err(DecodeError::Io)?;
        let Self { mut begin, data, .. } = self;
        let label = begin.windows(LABEL.len()).position(|window| window == LABEL);
        let digits = label.and_then(|label| begin.get_mut(label + LABEL.len()..)?.get_mut(..UNKNOWN.len()));
        let Some(digits) = digits else {
            // A label with a flipped bit is no file without a checksum.
            return if begin.windows(LABEL.len()).any(is_nearly_label) {
                Err(DecodeError::Checksum)
            } else {
                Ok(())
            };
        };
        let expected = digits.to_vec();
        digits.copy_from_slice(UNKNOWN.as_bytes());
        let mut sum = Hasher::new();
        sum.update(&begin);
        sum.combine(&data);
        if format!("{:08x}", sum.finalize()).as_bytes() == expected {
            Ok(())
        } else {
            Err(DecodeError::Checksum)
        }
    }
}

/// Whether these bytes differ from the label in one bit.
fn is_nearly_label(bytes: &[u8]) -> bool {
    bytes.iter().zip(LABEL).map(|(byte, label)| (byte ^ label).count_ones()).sum::<u32>() == 1
}

impl<R: Read> Read for Verifying<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(bytes)?;
        let mut read = &bytes[..count];
        while !read.is_empty() && self.begin.len() < self.header {
            let (begin, rest) = read.split_at(read.len().min(self.header - self.begin.len()));
            self.begin.extend_from_slice(begin);
            read = rest;
            if self.header == 8
                && let Some(length) = self.begin.first_chunk()
            {
                // It grows as bytes arrive: a declared length alone allocates nothing.
                self.header =
                    usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX).saturating_add(8);
            }
        }
        self.data.update(read);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::codec::{self, Limits};
    use crate::params::{Array, ParamSet, Precision};

    fn file() -> Vec<u8> {
        let mut params = ParamSet::new();
        params.insert("w", Array::new([3], vec![1.0, -2.5, 0.1]).unwrap());
        let metadata = BTreeMap::from([("name".to_owned(), "\"crc32\":\"".to_owned())]);
        let mut bytes = Vec::new();
        write_with_checksum(&metadata, &mut bytes, |metadata, out| {
            codec::write(&params, Precision::F32, metadata, out)
        })
        .unwrap();
        bytes
    }

    fn verified(bytes: &[u8]) -> Result<(), DecodeError> {
        Verifying::new(bytes).finish()
    }

    #[test]
    fn what_is_written_is_verified_however_it_is_read() {
        let bytes = file();
        assert!(verified(&bytes).is_ok());
        let mut reading = Verifying::new(&bytes[..]);
        let (params, metadata) = codec::read(&mut reading, Limits::default()).unwrap();
        assert_eq!((params.len(), metadata.len()), (1, 2));
        assert!(reading.finish().is_ok());
        for at_once in 1..20 {
            let mut reading = Verifying::new(&bytes[..]);
            while reading.read(&mut vec![0; at_once]).unwrap() > 0 {}
            assert!(reading.finish().is_ok(), "{at_once}");
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let whole = file();
        for bit in 0..8 * whole.len() {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            // A header that ends elsewhere is refused by the decoder.
            let in_length = bit / 8 < 8;
            let noticed = verified(&bytes).is_err();
            assert!(noticed || in_length, "bit {bit}");
        }
    }

    #[test]
    fn files_of_other_programs_have_no_checksum() {
        let bytes = codec::to_bytes(&ParamSet::new(), Precision::F32, &BTreeMap::new()).unwrap();
        assert!(verified(&bytes).is_ok());
        assert!(verified(b"").is_ok() && verified(&[0xff; 40]).is_ok());
    }
}
