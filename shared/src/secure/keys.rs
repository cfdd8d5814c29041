//! Agreement on secrets by X25519.

use curve25519_dalek::MontgomeryPoint;
use x25519_dalek::{PublicKey as Point, StaticSecret};

/// Eight in binary digits. The secrets of X25519 are multiples of it, and the orders of points that give nothing away divide it.
const EIGHT: [bool; 4] = [true, false, false, false];

/// Whether a key agrees on another secret with every other one. One of low order agrees on 0 with all.
pub(super) fn is_key(public: &[u8; 32]) -> bool {
    MontgomeryPoint(*public).mul_bits_be(EIGHT.into_iter()).to_bytes() != [0; 32]
}

/// The result of a key agreement; `None` if the other key is none.
pub(super) fn agree(secret: &StaticSecret, public: &[u8; 32]) -> Option<[u8; 32]> {
    let agreed = secret.diffie_hellman(&Point::from(*public));
    agreed.was_contributory().then(|| agreed.to_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The keys with which every secret agrees on 0: of orders 1, 2, 4 and 8 on the curve and its twist, and those among them that are
    /// written in two ways (Bernstein, <https://cr.yp.to/ecdh.html>, "How do I validate Curve25519 public keys?").
    const OF_LOW_ORDER: [&str; 7] = [
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
        "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    ];

    #[test]
    fn a_key_of_low_order_is_none() {
        for text in OF_LOW_ORDER {
            let mut key = [0; 32];
            for (byte, digits) in key.iter_mut().zip(text.as_bytes().chunks(2)) {
                *byte = u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap();
            }
            assert!(!is_key(&key) && agree(&StaticSecret::from([1; 32]), &key).is_none(), "{text}");
            // The highest bit is not part of it.
            key[31] |= 0x80;
            assert!(!is_key(&key), "{text}");
        }
    }

    #[test]
    fn other_keys_are_those_with_which_one_agrees_on_something() {
        for number in 2..100 {
            let of_a_secret = Point::from(&StaticSecret::from([number; 32])).to_bytes();
            // Half of these are on the twist, where agreements are as good.
            for key in [of_a_secret, [number; 32]] {
                assert!(is_key(&key) && agree(&StaticSecret::from([1; 32]), &key).is_some(), "{key:?}");
            }
        }
    }
}
