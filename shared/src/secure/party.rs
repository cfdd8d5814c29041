//! A member's part in an exchange: its keys, its shares, its masks, and what it reveals in the end.
//!
//! All of it follows from one [secret](PartySecret), so that a device that was restarted says the same again.

use std::collections::BTreeMap;

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use x25519_dalek::{PublicKey as Point, StaticSecret};

use super::exchange::{Advertised, Exchange, commitment};
use super::graph::threshold;
use super::keys::agree;
use super::mask::Mask;
use super::shamir::{Share, split};
use crate::id::ClientId;
use crate::identity::SecretKey;
use crate::secret::Secret;
use crate::seed::Seed;

/// What a member draws for one exchange, from a source of randomness that no one else has. It is used for no other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PartySecret([u8; 32]);

impl PartySecret {
    /// The secret with these random bytes.
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes, to store it.
    #[must_use]
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }

    fn seed(&self, purpose: &str) -> Seed {
        Secret::new(&self.0).seed(purpose)
    }
}

impl std::fmt::Debug for PartySecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PartySecret(..)")
    }
}

/// The shares of a member's two secrets that one neighbour holds, sealed for that one: the server passes them on and cannot read them.
/// 80 bytes: two values of 32, and a tag of 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Sealed([[u8; 20]; 4]);

/// What a share has at the place of its holder, which follows from the order of the neighbours.
pub type Values = [u8; 32];

/// A member of an exchange.
pub struct Party {
    exchange: Exchange,
    client: ClientId,
    secret: PartySecret,
    sealing: StaticSecret,
    masking: StaticSecret,
    /// The seed of its own mask.
    own: [u8; 32],
}

/// What a neighbour sent cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartyError {
    /// A key that gives the same agreement with everyone.
    #[error("the key of device {0} is none: it would agree on the same secret with every device")]
    Key(ClientId),
    /// Shares that do not open.
    #[error(
        "the shares of device {0} do not open: they were changed on the way, or sealed for another device"
    )]
    Sealed(ClientId),
}

impl Party {
    /// The member with this secret.
    #[must_use]
    pub fn new(exchange: Exchange, client: ClientId, secret: PartySecret) -> Self {
        let key = |purpose| StaticSecret::from(*secret.seed(purpose).as_bytes());
        Self {
            exchange,
            client,
            secret,
            sealing: key("sealing key"),
            masking: key("masking key"),
            own: *secret.seed("own mask").as_bytes(),
        }
    }

    /// What it says of itself.
    #[must_use]
    pub fn advertise(&self, identity: &SecretKey) -> Advertised {
        let keys = [&self.sealing, &self.masking].map(|key| Point::from(key).to_bytes());
        Advertised::sign(identity, self.exchange, [keys[0], keys[1], commitment(&self.own)])
    }

    /// Its shares for each of its neighbours. It keeps one itself.
    pub fn shares(
        &self,
        neighbours: &[Advertised],
        share: f64,
    ) -> Result<Vec<(ClientId, Sealed)>, PartyError> {
        let (own, masking) = self.split(neighbours.len(), share);
        let sealed = neighbours.iter().zip(own[1..].iter().zip(&masking[1..])).map(|(to, (own, masking))| {
            let client = to.client();
            let key = agree(&self.sealing, &to.sealing).ok_or(PartyError::Key(client))?;
            Ok((client, seal(&key, self.exchange, self.client, [own.values, masking.values])))
        });
        sealed.collect()
    }

    /// All shares of both secrets, the first its own.
    fn split(&self, neighbours: usize, share: f64) -> (Vec<Share>, Vec<Share>) {
        let holders = neighbours + 1;
        let split = |secret: &[u8; 32], purpose| {
            split(secret, threshold(share, holders), holders, &mut chacha(&self.secret.seed(purpose)))
        };
        (split(&self.own, "own mask shares"), split(&self.masking.to_bytes(), "masking key shares"))
    }

    /// The masks of its update, where these neighbours take part. Masks that it shares with another cancel in the sum if both have been
    /// told the same `terms` of the round.
    pub fn masks<'a>(
        &self,
        present: impl IntoIterator<Item = &'a Advertised>,
        terms: &[u8; 32],
    ) -> Result<Vec<Mask>, PartyError> {
        let mut masks = vec![own_mask(&self.own)];
        let key = Point::from(&self.masking).to_bytes();
        for neighbour in present {
            let agreed = agree(&self.masking, &neighbour.masking);
            let agreed = agreed.ok_or_else(|| PartyError::Key(neighbour.client()))?;
            masks.push(pair_mask(&agreed, (self.exchange, terms), &key, &neighbour.masking));
        }
        Ok(masks)
    }

    /// Opens the shares that this neighbour has sealed for it: of the seed of its own mask, and of its masking key.
    pub fn open(&self, from: &Advertised, sealed: &Sealed) -> Result<[Values; 2], PartyError> {
        let client = from.client();
        let key = agree(&self.sealing, &from.sealing).ok_or(PartyError::Key(client))?;
        open(&key, self.exchange, client, sealed).ok_or(PartyError::Sealed(client))
    }

    /// Its own share of the seed of its own mask.
    #[must_use]
    pub fn own_share(&self, neighbours: usize, share: f64) -> Values {
        self.split(neighbours, share).0[0].values
    }
}

/// The mask of a member alone.
pub(super) fn own_mask(seed: &[u8; 32]) -> Mask {
    Mask { seed: Secret::new(seed).seed("own mask"), add: true }
}

/// The mask that the holder of the masking key `own` shares with that of `other`: what one adds, the other takes away.
fn pair_mask(
    agreed: &[u8; 32],
    (exchange, terms): (Exchange, &[u8; 32]),
    own: &[u8; 32],
    other: &[u8; 32],
) -> Mask {
    let seed = Secret::new(agreed).seed("pair mask").derive_bytes("exchange", &exchange.to_bytes());
    let seed = seed.derive_bytes("terms", terms);
    let seed = seed.derive_bytes("keys", &[own.min(other).as_slice(), own.max(other)].concat());
    Mask { seed, add: own < other }
}

/// The masks that a member shared with these neighbours, by its masking key, which was put together again. `None` if that is not the
/// secret of the key that it has advertised.
pub(super) fn masks_of_missing(
    (exchange, terms): (Exchange, &[u8; 32]),
    missing: &Advertised,
    secret: [u8; 32],
    neighbours: &BTreeMap<ClientId, Advertised>,
) -> Option<Vec<Mask>> {
    let secret = StaticSecret::from(secret);
    if Point::from(&secret).to_bytes() != missing.masking {
        return None;
    }
    let mask = |neighbour: &Advertised| {
        let agreed = agree(&secret, &neighbour.masking)?;
        Some(pair_mask(&agreed, (exchange, terms), &missing.masking, &neighbour.masking))
    };
    neighbours.values().map(mask).collect()
}

/// A generator whose draws stay secret.
fn chacha(seed: &Seed) -> rand_chacha::ChaCha20Rng {
    rand::SeedableRng::from_seed(*seed.as_bytes())
}

/// The cipher between two members for what `from` sends.
fn cipher(agreed: &[u8; 32], exchange: Exchange, from: ClientId) -> LessSafeKey {
    let key = Secret::new(agreed).seed("sealed shares").derive_bytes("exchange", &exchange.to_bytes());
    let key = key.derive_bytes("from", from.as_bytes());
    let key = UnboundKey::new(&CHACHA20_POLY1305, key.as_bytes());
    LessSafeKey::new(key.expect("a key of 32 bytes is one of this cipher"))
}

/// The key seals one message alone, and the same one again after a restart.
fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}

fn seal(agreed: &[u8; 32], exchange: Exchange, from: ClientId, values: [Values; 2]) -> Sealed {
    let mut bytes = values.concat();
    let sealed = cipher(agreed, exchange, from).seal_in_place_append_tag(nonce(), Aad::empty(), &mut bytes);
    sealed.expect("a message of 64 bytes is short enough");
    Sealed(std::array::from_fn(|part| std::array::from_fn(|byte| bytes[20 * part + byte])))
}

fn open(agreed: &[u8; 32], exchange: Exchange, from: ClientId, sealed: &Sealed) -> Option<[Values; 2]> {
    let mut bytes = sealed.0.concat();
    let opened = cipher(agreed, exchange, from).open_in_place(nonce(), Aad::empty(), &mut bytes).ok()?;
    let (own, masking) = opened.split_at_checked(32)?;
    Some([own.try_into().ok()?, masking.try_into().ok()?])
}
