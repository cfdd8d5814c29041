//! Identities: Ed25519 key pairs, and their proof in the TLS handshake.
//!
//! Every device and every server generates its own Ed25519 key pair at its first start. A device's id is the
//! [fingerprint](PublicKey::client) of its public key; devices identify a server by the public key itself. Both present raw
//! public keys (RFC 7250) in the TLS 1.3 handshake of QUIC. There are no host names, no certificate authority and no expiry,
//! so that no clock has to be right.

mod key;
pub mod tls;

pub use key::{PublicKey, SecretKey, Signature};
