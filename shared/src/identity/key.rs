//! Ed25519 keys and their encodings.

use std::fmt;

use data_encoding::HEXLOWER;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::id::{ClientId, ParseIdError, identifier, parse_hex};
use crate::text_checksum;

/// The prefix of an Ed25519 public key in a `SubjectPublicKeyInfo` (RFC 8410, section 4).
const SPKI: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
/// The prefix of an Ed25519 private key in PKCS#8 version 1 (RFC 8410, section 7).
const PKCS8: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// A private key: 32 bytes from a cryptographic source of randomness. Its `Debug` form does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretKey([u8; 32]);

impl SecretKey {
    /// The key with these bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes, to store the key or to derive other secrets from it.
    #[must_use]
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }

    /// Parses the 64 hexadecimal digits of a private key.
    pub fn parse(text: &str) -> Result<Self, ParseIdError> {
        parse_hex("key", text).map(Self)
    }

    /// Parses a key's file: the digits, and their [checksum](text_checksum) or at most a line break. Nothing else was written so.
    pub fn of_file(text: &str) -> Result<Self, ParseIdError> {
        // A file that fails its checksum is longer than a key.
        let content = text_checksum::content(text).unwrap_or(text);
        Self::parse(content.strip_suffix('\n').unwrap_or(content))
    }

    /// The file that [`of_file`](Self::of_file) reads.
    #[must_use]
    pub fn to_file(&self) -> String {
        text_checksum::with_checksum(&self.digits())
    }

    /// The hexadecimal digits that [`parse`](Self::parse) reads, to store the key.
    #[must_use]
    pub fn digits(&self) -> String {
        HEXLOWER.encode(&self.0)
    }

    /// The public key of this private key.
    #[must_use]
    pub fn public(&self) -> PublicKey {
        let key = self.pair().public_key().as_ref().try_into();
        PublicKey(key.expect("public keys of Ed25519 have 32 bytes"))
    }

    /// The signature of a message, which begins with what it is for.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> Signature {
        let bytes = self.pair().sign(message).as_ref().try_into();
        Signature::from_bytes(bytes.expect("signatures of Ed25519 have 64 bytes"))
    }

    fn pair(&self) -> Ed25519KeyPair {
        Ed25519KeyPair::from_seed_unchecked(&self.0).expect("a seed of Ed25519 is any 32 bytes")
    }

    pub(super) fn pkcs8(&self) -> Vec<u8> {
        [&PKCS8[..], &self.0].concat()
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey(..)")
    }
}

/// A public key, which identifies a device or a server. Displayed as 64 lowercase hexadecimal digits. Its bytes are not checked
/// to be a valid key: a handshake with an invalid one fails.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; 32]);

identifier!(PublicKey, 32, "key");

impl PublicKey {
    /// The id of the device with this key: the first 16 bytes of the key's SHA-256.
    #[must_use]
    pub fn client(&self) -> ClientId {
        let digest = Sha256::digest(self.0);
        ClientId::from_bytes(std::array::from_fn(|byte| digest[byte]))
    }

    /// Whether the holder of this key has signed the message.
    #[must_use]
    pub fn verifies(&self, message: &[u8], signature: &Signature) -> bool {
        UnparsedPublicKey::new(&ED25519, self.0).verify(message, &signature.to_bytes()).is_ok()
    }

    pub(super) fn spki(&self) -> Vec<u8> {
        [&SPKI[..], &self.0].concat()
    }

    pub(super) fn from_spki(bytes: &[u8]) -> Option<Self> {
        bytes.strip_prefix(&SPKI)?.try_into().ok().map(Self)
    }
}

/// A signature by Ed25519: 64 bytes, in halves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signature([u8; 32], [u8; 32]);

impl Signature {
    /// The signature with these bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 64]) -> Self {
        let half = |offset| std::array::from_fn(|byte| bytes[offset + byte]);
        Self(half(0), half(32))
    }

    /// Its bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 64] {
        std::array::from_fn(|byte| if byte < 32 { self.0[byte] } else { self.1[byte - 32] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8032, section 7.1, test 1.
    const SECRET: &str = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
    const PUBLIC: &str = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";

    #[test]
    fn a_public_key_follows_from_its_secret() {
        let secret = SecretKey::parse(SECRET).unwrap();
        assert_eq!(secret.digits(), SECRET);
        assert_eq!(secret.public().to_string(), PUBLIC);
        assert_eq!(PUBLIC.parse(), Ok(secret.public()));
        assert_eq!(PublicKey::from_spki(&secret.public().spki()), Some(secret.public()));
        // Computed with Python's hashlib.
        assert_eq!(secret.public().client().to_string(), "21fe31dfa154a261626bf854046fd227");
    }

    #[test]
    fn a_signature_is_of_one_message_and_one_key() {
        let key = SecretKey::parse(SECRET).unwrap();
        // RFC 8032, section 7.1, test 1: of the empty message.
        let signature = key.sign(b"");
        assert_eq!(HEXLOWER.encode(&signature.to_bytes()[..8]), "e5564300c360ac72");
        assert_eq!(Signature::from_bytes(signature.to_bytes()), signature);
        assert!(key.public().verifies(b"", &signature));
        assert!(!key.public().verifies(b"x", &signature));
        assert!(!SecretKey::from_bytes([1; 32]).public().verifies(b"", &signature));
    }

    #[test]
    fn a_file_holds_the_digits_and_a_line_break() {
        let key = SecretKey::parse(SECRET).unwrap();
        for content in [format!("{SECRET}\n"), SECRET.to_owned()] {
            assert_eq!(SecretKey::of_file(&content), Ok(key.clone()));
        }
        for content in
            [format!("{SECRET}\u{b}"), format!("{SECRET} "), format!("{SECRET}\n\n"), format!("\n{SECRET}")]
        {
            assert!(SecretKey::of_file(&content).is_err(), "{content:?}");
        }
    }

    #[test]
    fn a_flipped_bit_in_a_file_makes_no_other_key() {
        let key = SecretKey::parse(SECRET).unwrap();
        let file = key.to_file();
        assert_eq!(SecretKey::of_file(&file), Ok(key.clone()));
        for bit in 0..8 * file.len() {
            let mut bytes = file.clone().into_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let read = String::from_utf8(bytes).ok().and_then(|text| SecretKey::of_file(&text).ok());
            assert!(read.is_none_or(|read| read == key), "bit {bit}");
        }
    }

    #[test]
    fn a_secret_is_shown_nowhere() {
        let secret = SecretKey::parse(SECRET).unwrap();
        assert_eq!(format!("{secret:?}"), "SecretKey(..)");
    }

    #[test]
    fn what_is_not_a_key_is_none() {
        for wrong in
            ["", "9d", &PUBLIC[1..], &format!("{PUBLIC}0"), &PUBLIC.replace('d', "g"), &"é".repeat(32)]
        {
            assert!(wrong.parse::<PublicKey>().is_err(), "{wrong}");
            assert!(SecretKey::parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(PublicKey::from_spki(&[0; 44]), None);
        assert_eq!(PublicKey::from_spki(&SPKI), None);
    }
}
