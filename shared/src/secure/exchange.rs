//! One exchange of keys: what it is bound to, and what each member says of itself.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::keys::is_key;
use crate::id::{ClientId, RunId};
use crate::identity::{PublicKey, SecretKey, Signature};

/// What a signature, a key and a mask hold for, and for nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Exchange {
    /// The run.
    pub run: RunId,
    /// The round.
    pub round: u32,
    /// The number of the exchange in the round, from 0: it begins again where too few members stay.
    pub attempt: u32,
}

impl Exchange {
    /// Its bytes, by which keys and seeds are bound to it.
    pub(super) fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(self.run.as_bytes());
        bytes[8..12].copy_from_slice(&self.round.to_le_bytes());
        bytes[12..].copy_from_slice(&self.attempt.to_le_bytes());
        bytes
    }
}

/// What a member says of itself to the others, signed with its identity. The server passes it on and cannot change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advertised {
    /// Its identity, of which its id is the fingerprint.
    pub identity: PublicKey,
    /// The X25519 key with which shares for it are sealed.
    pub sealing: [u8; 32],
    /// The X25519 key from which masks are agreed. Its secret may be revealed to the server, if the member does not deliver.
    pub masking: [u8; 32],
    /// The SHA-256 of the seed of its own mask, by which a seed that is put together again is recognised.
    pub commitment: [u8; 32],
    /// Over all of it, and the [`Exchange`].
    pub signature: Signature,
}

/// What is signed begins so: no signature for another purpose does.
const DOMAIN: &[u8] = b"federation secure aggregation v1";

impl Advertised {
    /// Signs what a member says of itself.
    pub(super) fn sign(
        identity: &SecretKey,
        exchange: Exchange,
        [sealing, masking, commitment]: [[u8; 32]; 3],
    ) -> Self {
        let signature = identity.sign(&signed(exchange, [&sealing, &masking, &commitment]));
        Self { identity: identity.public(), sealing, masking, commitment, signature }
    }

    /// Who says it.
    #[must_use]
    pub fn client(&self) -> ClientId {
        self.identity.client()
    }

    /// Whether it was said for this exchange by the holder of the identity, and its keys are some.
    #[must_use]
    pub fn is_genuine(&self, exchange: Exchange) -> bool {
        let Self { identity, sealing, masking, commitment, signature } = self;
        is_key(sealing)
            && is_key(masking)
            && identity.verifies(&signed(exchange, [sealing, masking, commitment]), signature)
    }
}

fn signed(exchange: Exchange, parts: [&[u8; 32]; 3]) -> Vec<u8> {
    let mut message = [DOMAIN, &exchange.to_bytes()].concat();
    for part in parts {
        message.extend_from_slice(part);
    }
    message
}

/// By what the seed of a member's own mask is recognised.
pub(super) fn commitment(seed: &[u8; 32]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(b"federation own mask v1");
    hash.update(seed);
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_member_says_holds_for_one_exchange_and_cannot_be_changed() {
        let identity = SecretKey::from_bytes([3; 32]);
        let exchange = Exchange { run: RunId::from_bytes([1; 8]), round: 4, attempt: 0 };
        let said = Advertised::sign(&identity, exchange, [[1; 32], [2; 32], [3; 32]]);
        assert_eq!(said.client(), identity.public().client());
        assert!(said.is_genuine(exchange));
        for other in [
            Exchange { run: RunId::from_bytes([2; 8]), ..exchange },
            Exchange { round: 5, ..exchange },
            Exchange { attempt: 1, ..exchange },
        ] {
            assert!(!said.is_genuine(other), "{other:?}");
        }
        let changed = [
            Advertised { identity: SecretKey::from_bytes([4; 32]).public(), ..said },
            Advertised { sealing: [9; 32], ..said },
            Advertised { masking: [9; 32], ..said },
            Advertised { commitment: [9; 32], ..said },
        ];
        assert!(changed.iter().all(|said| !said.is_genuine(exchange)));
    }
}
