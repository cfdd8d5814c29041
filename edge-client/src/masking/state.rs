//! What a device must not forget of an exchange: its secret, and what it has used that for.
//!
//! Each answer gives a part of the secret away. What was answered is therefore written down before it is sent, by a digest: after a restart
//! the device repeats that answer, and gives no other one.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use shared::id::RunId;
use shared::secure::{Exchange, PartySecret};

/// A SHA-256.
pub(super) type Digest = [u8; 32];

/// The digest of a list of the server's, for one purpose.
pub(super) fn digest(purpose: &str, list: &impl Serialize) -> Digest {
    let list = postcard::to_stdvec(list).expect("lists of keys and numbers can be encoded");
    let mut hash = Sha256::new();
    hash.update(purpose);
    hash.update([0]);
    hash.update(list);
    hash.finalize().into()
}

/// The update that a device has hidden in an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HiddenUpdate {
    /// What the server has asked for: the rounding, and with whom masks are shared.
    pub(super) asked: Digest,
    /// The masked update.
    pub(super) update: Digest,
}

/// The state of a device in the newest exchange of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The exchange.
    pub(super) exchange: Exchange,
    /// What all of its keys follow from.
    pub(super) secret: PartySecret,
    /// What the noise of its updates follows from, in all exchanges of the run.
    pub(super) noise: PartySecret,
    /// The neighbours that it has given shares of its secrets to.
    pub(super) neighbours: Option<Digest>,
    /// The update that it has hidden.
    pub(super) hidden: Option<HiddenUpdate>,
    /// The list by which it has revealed shares of its neighbours.
    pub(super) revealed: Option<Digest>,
}

/// A state as it is stored.
type Stored = (Exchange, [[u8; 32]; 2], Option<Digest>, Option<HiddenUpdate>, Option<Digest>);

impl State {
    /// The beginning of an exchange.
    pub(super) fn new(exchange: Exchange, secret: PartySecret, noise: PartySecret) -> Self {
        Self { exchange, secret, noise, neighbours: None, hidden: None, revealed: None }
    }

    /// The same without the secret of its keys, after all exchanges of its round.
    pub(super) fn over(&self) -> Self {
        let exchange = Exchange { attempt: u32::MAX, ..self.exchange };
        Self { revealed: Some([0; 32]), ..Self::new(exchange, PartySecret::new([0; 32]), self.noise) }
    }

    /// Whether its round is over.
    pub(super) fn is_over(&self) -> bool {
        self.exchange.attempt == u32::MAX
    }

    /// The run.
    #[must_use]
    pub fn run(&self) -> RunId {
        self.exchange.run
    }

    /// The round.
    #[must_use]
    pub fn round(&self) -> u32 {
        self.exchange.round
    }

    /// The bytes, to store it. They contain the secrets.
    ///
    /// # Panics
    /// Never: it consists of numbers.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let Self { exchange, secret, noise, neighbours, hidden, revealed } = self;
        let secrets = [secret, noise].map(|secret| *secret.expose());
        let stored: Stored = (*exchange, secrets, *neighbours, *hidden, *revealed);
        postcard::to_stdvec(&stored).expect("numbers can be encoded")
    }

    /// The state that was stored as these bytes; `None` if none was.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (stored, rest): (Stored, _) = postcard::take_from_bytes(bytes).ok()?;
        let (exchange, secrets, neighbours, hidden, revealed) = stored;
        let [secret, noise] = secrets.map(PartySecret::new);
        rest.is_empty().then_some(Self { exchange, secret, noise, neighbours, hidden, revealed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read_as_it_was_stored() {
        let exchange = Exchange { run: RunId::from_bytes([1; 8]), round: 300, attempt: 2 };
        let begun = State::new(exchange, PartySecret::new([7; 32]), PartySecret::new([8; 32]));
        let hidden = HiddenUpdate { asked: [2; 32], update: [3; 32] };
        let over = State {
            neighbours: Some([1; 32]),
            hidden: Some(hidden),
            revealed: Some([4; 32]),
            ..begun.clone()
        };
        for state in [begun, over] {
            let bytes = state.to_bytes();
            assert_eq!(State::from_bytes(&bytes).as_ref(), Some(&state));
            assert_eq!(State::from_bytes(&bytes[..bytes.len() - 1]), None);
            assert_eq!(State::from_bytes(&[&bytes[..], &[0]].concat()), None);
            let shown = format!("{state:?}");
            assert!(!shown.contains("7, 7") && !shown.contains("8, 8"), "a secret is shown nowhere");
        }
    }

    #[test]
    fn a_digest_is_of_one_purpose_and_one_list() {
        assert_eq!(digest("a", &[1, 2]), digest("a", &[1, 2]));
        assert_ne!(digest("a", &[1, 2]), digest("b", &[1, 2]));
        assert_ne!(digest("a", &[1, 2]), digest("a", &[2, 1]));
    }
}
