//! Who is who: key pairs, and how both sides prove theirs in the handshake.
//!
//! Every device and every server has an Ed25519 key pair of its own, made at its first start. A device's id is the
//! [fingerprint](PublicKey::client) of its public key; a server is known to its devices by its public key itself. Both
//! show them as raw public keys (RFC 7250) in the TLS 1.3 handshake of QUIC: no host names, no certificate authority,
//! no validity in time, hence no clock that has to be right.

mod key;
pub mod tls;

pub use key::{ParseKeyError, PublicKey, SecretKey};
