//! The positions of a few values among many, as the gaps between them in Rice's code.
//!
//! Golomb, *Run-length encodings*, IEEE Transactions on Information Theory 12 (1966); Rice, *Some practical universal noiseless coding
//! techniques*, JPL 79-22 (1979). As for the gradients of Sattler, Wiedemann, Müller, Samek: *Robust and Communication-Efficient Federated
//! Learning from Non-i.i.d. Data*, 2019 (arXiv 1903.02891), section V-C.
//!
//! ```text
//! gap     values between a position and the one before it
//! b       floor(log2(n / k)),  k positions among n: not written, both sides know n and k
//! code    gap >> b zeros, a one, the b low bits of the gap; the lowest bits of a byte come first, and the last byte is filled with zeros
//! ```
//!
//! Gaps of positions at random take 8.1 bits each among a hundred times as many values, and 4.8 among ten times as many: 0.1 bits more than
//! the entropy. Every set of positions has one encoding, and nothing else is read.

/// The most low bits of a gap.
const MOST_LOW: u32 = 31;
/// The most bits that are written or read at a time: they fit into a word from any bit of a byte on.
const WORD: usize = 56;

/// The low bits of the gaps of `kept` positions among `count`.
fn low_bits(count: usize, kept: usize) -> u32 {
    count.checked_div(kept).and_then(usize::checked_ilog2).unwrap_or(0).min(MOST_LOW)
}

/// The bytes of these positions among `count`, which rise and lie below it.
pub(super) fn encode(count: usize, positions: &[usize]) -> Vec<u8> {
    let low = low_bits(count, positions.len());
    let mut bits = Writer::default();
    let mut next = 0;
    for &position in positions {
        let gap = position - next;
        next = position + 1;
        let mut zeros = gap >> low;
        while zeros > 0 {
            let some = zeros.min(WORD);
            bits.push(0, some);
            zeros -= some;
        }
        bits.push(1, 1);
        bits.push(gap as u64 & ((1 << low) - 1), low as usize);
    }
    bits.end()
}

/// Hands the `kept` positions among `count` to `take`, in their order. `None` if the bytes are not what [`encode`] writes: then some may
/// have been handed over, all of them below `count`.
pub(super) fn decode(count: usize, kept: usize, bytes: &[u8], mut take: impl FnMut(usize)) -> Option<()> {
    if kept > count || kept.div_ceil(8) > bytes.len() {
        return None;
    }
    let low = low_bits(count, kept);
    let mut bits = Reader { bytes, at: 0 };
    let mut next = 0_usize;
    for _ in 0..kept {
        let high = bits.zeros()?;
        // No gap is longer than all values, so that nothing overflows.
        if high > count >> low {
            return None;
        }
        let gap = high << low | bits.take(low as usize)? as usize;
        let position = next.checked_add(gap).filter(|&position| position < count)?;
        take(position);
        next = position + 1;
    }
    bits.is_end().then_some(())
}

/// Bits as they are written.
#[derive(Default)]
struct Writer {
    bytes: Vec<u8>,
    /// Bits that do not fill a byte yet.
    word: u64,
    held: usize,
}

impl Writer {
    /// Writes the lowest `count` bits, at most [`WORD`]; `value` has no others.
    fn push(&mut self, value: u64, count: usize) {
        self.word |= value << self.held;
        self.held += count;
        while self.held >= 8 {
            self.bytes.push(self.word as u8);
            self.word >>= 8;
            self.held -= 8;
        }
    }

    fn end(mut self) -> Vec<u8> {
        if self.held > 0 {
            self.bytes.push(self.word as u8);
        }
        self.bytes
    }
}

/// Bits as they are read.
struct Reader<'a> {
    bytes: &'a [u8],
    /// Bits that were read.
    at: usize,
}

impl Reader<'_> {
    /// The next [`WORD`] bits or more, zeros beyond the end.
    fn word(&self) -> u64 {
        let rest = self.bytes.get(self.at / 8..).unwrap_or_default();
        let word = match rest.first_chunk() {
            Some(eight) => u64::from_le_bytes(*eight),
            None => rest.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte)),
        };
        word >> (self.at % 8)
    }

    /// Reads zeros and the one behind them: the number of zeros.
    fn zeros(&mut self) -> Option<usize> {
        let begin = self.at;
        loop {
            let zeros = self.word().trailing_zeros() as usize;
            if zeros < WORD {
                self.at += zeros + 1;
                return Some(self.at - 1 - begin);
            }
            self.at += WORD;
            if self.at / 8 >= self.bytes.len() {
                return None;
            }
        }
    }

    /// Reads `count` bits, at most [`WORD`].
    fn take(&mut self, count: usize) -> Option<u64> {
        let value = self.word() & ((1 << count) - 1);
        self.at += count;
        (self.at <= 8 * self.bytes.len()).then_some(value)
    }

    /// Whether the last byte is reached, and zeros alone are left in it.
    fn is_end(&self) -> bool {
        self.at.div_ceil(8) == self.bytes.len() && (self.at.is_multiple_of(8) || self.word() == 0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(count: usize, kept: usize, bytes: &[u8]) -> Option<Vec<usize>> {
        let mut positions = Vec::new();
        decode(count, kept, bytes, |position| positions.push(position)).map(|()| positions)
    }

    #[test]
    fn golden_bytes() {
        // Gaps 2, 0, 9 with two low bits: 1 01, 1 00, 001 10, from the lowest bit on; and 999 with nine: 01 111001111.
        assert_eq!(encode(16, &[2, 3, 13]), [0b0000_1101, 0b11]);
        assert_eq!(encode(8, &[0, 1, 2, 3, 4, 5, 6, 7]), [0xff]);
        assert_eq!(encode(1000, &[]), [0_u8; 0]);
        assert_eq!(encode(1000, &[999]), [0b1001_1110, 0b111]);
    }

    #[test]
    fn what_is_not_written_is_not_read() {
        for (count, kept, bytes, why) in [
            (16, 3, &[0b0000_1101][..], "too short"),
            (16, 3, &[0b0000_1101, 0b11, 0][..], "a byte too many"),
            (16, 3, &[0b0000_1101, 0b1011][..], "a bit too many"),
            (13, 3, &[0b0000_1101, 0b11][..], "beyond the end"),
            (8, 9, &[0xff, 1][..], "more than there can be"),
            (1000, 0, &[0][..], "a byte for nothing"),
            (usize::MAX, 1, &[0; 100][..], "no end"),
            (usize::MAX, usize::MAX, &[0xff; 100][..], "more than there are bits"),
        ] {
            assert_eq!(read(count, kept, bytes), None, "{why}");
        }
    }

    #[test]
    fn positions_at_random_take_as_few_bits_as_promised() {
        for (each, most) in [(10, 4.85), (100, 8.2)] {
            let mut state = 1_u64;
            let mut draw = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                state >> 33
            };
            let positions: Vec<usize> = (0..400_000).filter(|_| draw() % each == 0).collect();
            let bits = 8.0 * encode(400_000, &positions).len() as f64 / positions.len() as f64;
            assert!(bits < most, "{bits} of {most}");
        }
    }

    proptest! {
        #[test]
        fn positions_and_back(count in 1_usize..5000, seed: u64, each in 1_u64..400) {
            let mut state = seed;
            let mut draw = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                state >> 33
            };
            let positions: Vec<usize> = (0..count).filter(|_| draw() % each == 0).collect();
            let bytes = encode(count, &positions);
            prop_assert_eq!(read(count, positions.len(), &bytes), Some(positions));
        }

        #[test]
        fn what_is_read_is_what_would_be_written(
            count in 0_usize..3000,
            kept in 0_usize..40,
            bytes in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            if let Some(positions) = read(count, kept, &bytes) {
                prop_assert!(positions.is_sorted_by(|a, b| a < b) && positions.iter().all(|&at| at < count));
                prop_assert_eq!(encode(count, &positions), bytes);
            }
        }
    }
}
