//! Mutations: the usual small changes of an input, several at a time, all from one seed.

use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use shared::seed::Seed;

/// No input gets longer.
pub const LONGEST: usize = 64 << 10;
/// Damages at a time.
const MOST: u32 = 6;
/// Numbers at which decoders go wrong.
const NUMBERS: [u64; 14] = [
    0,
    1,
    2,
    127,
    128,
    255,
    256,
    65_535,
    65_536,
    i32::MAX as u64,
    u32::MAX as u64,
    1 << 40,
    i64::MAX as u64,
    u64::MAX,
];
/// The same as text.
const TEXTS: [&str; 12] = [
    "0",
    "1",
    "-1",
    "255",
    "65536",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "1e308",
    "NaN",
    "0.5",
];

/// Makes inputs.
pub struct Mutator {
    rng: ChaCha8Rng,
    words: &'static [&'static str],
}

impl Mutator {
    /// The same inputs for the same seed and target.
    #[must_use]
    pub fn new(seed: u64, target: &str, words: &'static [&'static str]) -> Self {
        Self { rng: Seed::root(seed).derive("fuzz").derive(target).rng(), words }
    }

    fn below(&mut self, limit: usize) -> usize {
        self.rng.random_range(0..limit.max(1))
    }

    /// One of the inputs, damaged.
    ///
    /// # Panics
    /// If there are none.
    #[must_use]
    pub fn mutate(&mut self, inputs: &[Vec<u8>]) -> Vec<u8> {
        let chosen = self.below(inputs.len());
        let mut input = inputs[chosen].clone();
        for _ in 0..self.rng.random_range(1..=MOST) {
            let other = self.below(inputs.len());
            self.damage(&mut input, &inputs[other]);
        }
        input.truncate(LONGEST);
        input
    }

    fn damage(&mut self, input: &mut Vec<u8>, other: &[u8]) {
        match self.below(12) {
            0 => self.overwrite(input, |byte, random| byte ^ (1 << (random % 8))),
            1 => self.overwrite(input, |_, random| random),
            2 => self.overwrite(input, |byte, random| byte.wrapping_add(random % 16).wrapping_sub(8)),
            3 => self.write_number(input),
            4 => {
                let range = self.range(input.len());
                input.drain(range);
            }
            5 => {
                let range = self.range(input.len());
                let (at, piece) = (self.below(input.len() + 1), input[range].to_vec());
                input.splice(at..at, piece);
            }
            6 => {
                let length = self.below(input.len() + 1);
                input.truncate(length);
            }
            7 => {
                // The rest of another input, from about the same place on.
                let at = self.below(input.len() + 1);
                input.truncate(at);
                input.extend_from_slice(&other[at.min(other.len())..]);
            }
            8 => {
                let range = self.range(other.len());
                let at = self.below(input.len() + 1);
                input.splice(at..at, other[range].to_vec());
            }
            9 => {
                let count = self.below(8);
                let at = self.below(input.len() + 1);
                let random: Vec<u8> = (0..count).map(|_| self.rng.random()).collect();
                input.splice(at..at, random);
            }
            10 => self.write_text_number(input),
            _ if self.words.is_empty() => self.write_number(input),
            _ => {
                let word = self.words[self.below(self.words.len())].as_bytes();
                let at = self.below(input.len() + 1);
                // Overwrites bytes, or inserts between them.
                let end = if self.rng.random() { (at + word.len()).min(input.len()) } else { at };
                input.splice(at..end, word.iter().copied());
            }
        }
    }

    fn overwrite(&mut self, input: &mut [u8], change: impl Fn(u8, u8) -> u8) {
        if !input.is_empty() {
            let (at, random) = (self.below(input.len()), self.rng.random());
            input[at] = change(input[at], random);
        }
    }

    /// A short piece more often than a long one.
    fn range(&mut self, length: usize) -> std::ops::Range<usize> {
        let begin = self.below(length);
        let most = if self.rng.random() { 8 } else { length };
        let end = (begin + self.below(most + 1)).min(length);
        begin.min(end)..end
    }

    /// A number of 1, 2, 4 or 8 bytes, in either order of bytes, or as postcard writes it.
    fn write_number(&mut self, input: &mut Vec<u8>) {
        let number = NUMBERS[self.below(NUMBERS.len())];
        let at = self.below(input.len() + 1);
        let little = number.to_le_bytes();
        let big = number.to_be_bytes();
        let bytes = match self.below(7) {
            0 => little[..1].to_vec(),
            1 => little[..2].to_vec(),
            2 => little[..4].to_vec(),
            3 => little.to_vec(),
            4 => big[4..].to_vec(),
            5 => big.to_vec(),
            _ => varint(number),
        };
        let end = (at + bytes.len()).min(input.len());
        input.splice(at..end, bytes);
    }

    /// Another number where one is written in digits.
    fn write_text_number(&mut self, input: &mut Vec<u8>) {
        let from = self.below(input.len());
        let Some(begin) = (from..input.len()).find(|&at| input[at].is_ascii_digit()) else { return };
        let end = (begin..input.len()).find(|&at| !input[at].is_ascii_digit()).unwrap_or(input.len());
        let text = TEXTS[self.below(TEXTS.len())];
        input.splice(begin..end, text.bytes());
    }
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number > 127 {
        bytes.push(number as u8 | 128);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_inputs_and_another_one_others() {
        let inputs = [b"one 1 two 22".to_vec(), Vec::new(), vec![7; 300]];
        let made = |seed| {
            let mut mutator = Mutator::new(seed, "test", &["word"]);
            (0..500).map(|_| mutator.mutate(&inputs)).collect::<Vec<_>>()
        };
        let first = made(1);
        assert_eq!(first, made(1));
        assert_ne!(first, made(2));
        assert!(first.iter().filter(|input| inputs.contains(input)).count() < 100, "most are damaged");
        assert!(first.iter().any(|input| input.windows(4).any(|piece| piece == b"word")));
        assert!(first.iter().any(|input| input.windows(8).any(|piece| piece == [255; 8])));
    }

    #[test]
    fn numbers_are_written_as_postcard_does() {
        assert_eq!((varint(127), varint(300)), (vec![127], vec![0xac, 2]));
    }
}
