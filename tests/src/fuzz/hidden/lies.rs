//! Devices that answer wrongly.

use shared::message::SecureAnswer;
use shared::secure::Sealed;

/// A wrong answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lie {
    /// Keys of another device, or what was sealed for others is exchanged between them.
    Others(u8),
    /// Something is left out.
    Less,
    /// Bits are changed in what concerns another.
    Bits(u8),
    /// Something is said twice.
    Twice,
}

impl Lie {
    pub(super) fn of(kind: u8, about: u8) -> Self {
        match kind % 4 {
            0 => Self::Others(about),
            1 => Self::Less,
            2 => Self::Bits(about),
            _ => Self::Twice,
        }
    }
}

/// The answer, made wrong.
pub(super) fn falsified(answer: SecureAnswer, lie: Lie, bits: u8) -> SecureAnswer {
    match (answer, lie) {
        (SecureAnswer::Shares(mut shares), Lie::Others(other)) => {
            let place = usize::from(other) % shares.len().max(1);
            if let Some(last) = shares.last().map(|(_, sealed)| *sealed) {
                shares[place].1 = last;
            }
            SecureAnswer::Shares(shares)
        }
        (SecureAnswer::Shares(mut shares), Lie::Less) => {
            shares.pop();
            SecureAnswer::Shares(shares)
        }
        (SecureAnswer::Shares(mut shares), Lie::Bits(other)) => {
            let place = usize::from(other) % shares.len().max(1);
            shares[place].1 = bent(&shares[place].1, bits | 1);
            SecureAnswer::Shares(shares)
        }
        (SecureAnswer::Shares(shares), Lie::Twice) => SecureAnswer::Shares([&shares[..], &shares].concat()),
        (SecureAnswer::Revealed(mut shares), Lie::Others(other)) => {
            let place = usize::from(other) % shares.len().max(1);
            let first = shares[0].1;
            shares[place].1 = first;
            SecureAnswer::Revealed(shares)
        }
        (SecureAnswer::Revealed(mut shares), Lie::Less) => {
            shares.pop();
            SecureAnswer::Revealed(shares)
        }
        (SecureAnswer::Revealed(mut shares), Lie::Bits(other)) => {
            let place = usize::from(other) % shares.len().max(1);
            shares[place].1[3] ^= bits | 1;
            SecureAnswer::Revealed(shares)
        }
        (SecureAnswer::Revealed(shares), Lie::Twice) => {
            SecureAnswer::Revealed([&shares[..], &shares].concat())
        }
        (keys, _) => keys,
    }
}

/// The same with other bits in its first byte.
fn bent(sealed: &Sealed, bits: u8) -> Sealed {
    let mut bytes = postcard::to_stdvec(sealed).expect("bytes are encoded");
    bytes[0] ^= bits;
    postcard::from_bytes(&bytes).expect("any bytes are sealed ones")
}
