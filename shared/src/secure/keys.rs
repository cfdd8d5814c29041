//! Agreement on secrets by X25519.

use x25519_dalek::{PublicKey as Point, StaticSecret};

/// Whether a key agrees on another secret with every other one. One of low order does not.
pub(super) fn is_key(public: &[u8; 32]) -> bool {
    agree(&StaticSecret::from([1; 32]), public).is_some()
}

/// The result of a key agreement; `None` if the other key is none.
pub(super) fn agree(secret: &StaticSecret, public: &[u8; 32]) -> Option<[u8; 32]> {
    let agreed = secret.diffie_hellman(&Point::from(*public));
    agreed.was_contributory().then(|| agreed.to_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_low_order_is_none() {
        // RFC 7748, section 6.1: all of its agreements are 0.
        let mut of_order_four = [0; 32];
        of_order_four[0] = 1;
        assert!(!is_key(&[0; 32]) && !is_key(&of_order_four));
        assert!(is_key(&Point::from(&StaticSecret::from([7; 32])).to_bytes()));
    }
}
