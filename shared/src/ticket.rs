//! Enrolment tickets: everything that a device needs to join, in one short string.
//!
//! A ticket contains the server's key, the server's addresses, and a secret that the server accepts a limited number of times
//! for a limited time. Its text is `fed1`, followed by base32 (RFC 4648, lower case, without padding) of a postcard message
//! and 4 bytes of its SHA-256, so that the device notices a typing error before it sends anything. Parsing accepts upper case
//! too, because a QR code of capitals is smaller.

use std::fmt;
use std::str::FromStr;

use data_encoding::BASE32_NOPAD_NOCASE;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::identity::PublicKey;

/// The prefix of tickets of this version.
const PREFIX: &str = "fed1";
const CHECKSUM: usize = 4;
/// Limit of the addresses in a ticket.
pub const MAX_ADDRESSES: usize = 8;
/// Longest address, `HOST:PORT` or `IP:PORT`, in characters.
pub const MAX_ADDRESS: usize = 260;
/// Longest text of a ticket, in characters.
const MAX_TEXT: usize = 4096;

/// The secret with which a new device enrols. People see it only as part of a ticket, and a server stores only its
/// [digest](Self::digest).
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TicketSecret([u8; 16]);

impl TicketSecret {
    /// The secret with these bytes, which must come from a cryptographic source of randomness.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The digest that a server stores.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        Sha256::new_with_prefix(b"federation ticket").chain_update(self.0).finalize().into()
    }
}

impl fmt::Debug for TicketSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketSecret(..)")
    }
}

/// An invitation to a server's federation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticket {
    /// The server's public key, which the device requires.
    pub server: PublicKey,
    /// The secret that admits a new device.
    pub secret: TicketSecret,
    /// The server's addresses, `HOST:PORT` or `IP:PORT`. Each device tries them in an order of its own.
    pub addresses: Vec<String>,
}

/// The text is not a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseTicketError {
    /// It does not begin like a ticket.
    #[error("this is not a ticket: tickets begin with {PREFIX}")]
    Other,
    /// It is a ticket of a version that this program does not know.
    #[error("the ticket is of a newer version: update this program")]
    Newer,
    /// It is mistyped or cut off.
    #[error("the ticket is mistyped or not whole: copy all of it, or scan its code again")]
    Damaged,
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = postcard::to_stdvec(self).expect("tickets are plain, which postcard encodes");
        let checksum: [u8; 32] = Sha256::digest(&bytes).into();
        bytes.extend_from_slice(&checksum[..CHECKSUM]);
        write!(f, "{PREFIX}{}", BASE32_NOPAD_NOCASE.encode(&bytes).to_ascii_lowercase())
    }
}

impl FromStr for Ticket {
    type Err = ParseTicketError;

    fn from_str(text: &str) -> Result<Self, ParseTicketError> {
        let text = text.trim();
        let lower = text.get(..PREFIX.len()).ok_or(ParseTicketError::Other)?.to_ascii_lowercase();
        if lower != PREFIX {
            let newer = lower.strip_prefix("fed").is_some_and(|version| version > "1");
            return Err(if newer { ParseTicketError::Newer } else { ParseTicketError::Other });
        }
        let body = &text.as_bytes()[PREFIX.len()..];
        let bytes = Some(body).filter(|body| body.len() <= MAX_TEXT);
        let bytes = bytes.and_then(|body| BASE32_NOPAD_NOCASE.decode(body).ok());
        let bytes = bytes.ok_or(ParseTicketError::Damaged)?;
        let whole = bytes.split_last_chunk::<CHECKSUM>();
        let whole = whole.filter(|(message, checksum)| Sha256::digest(message)[..CHECKSUM] == checksum[..]);
        let (message, _) = whole.ok_or(ParseTicketError::Damaged)?;
        let (ticket, rest) =
            postcard::take_from_bytes::<Self>(message).map_err(|_| ParseTicketError::Damaged)?;
        let fits = rest.is_empty()
            && (1..=MAX_ADDRESSES).contains(&ticket.addresses.len())
            && ticket.addresses.iter().all(|address| address.len() <= MAX_ADDRESS);
        if fits { Ok(ticket) } else { Err(ParseTicketError::Damaged) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::identity::SecretKey;

    fn ticket() -> Ticket {
        Ticket {
            server: SecretKey::from_bytes([7; 32]).public(),
            secret: TicketSecret::from_bytes(*b"sixteen  letters"),
            addresses: vec!["192.168.1.10:4433".to_owned(), "lab.local:4433".to_owned()],
        }
    }

    #[test]
    fn a_ticket_is_read_as_it_was_written_in_either_case() {
        let text = ticket().to_string();
        assert_eq!(text.parse(), Ok(ticket()));
        assert_eq!(text.to_uppercase().parse(), Ok(ticket()));
        assert_eq!(format!(" {text}\n").parse(), Ok(ticket()));
        assert!(text.len() < 160, "{} characters", text.len());
    }

    /// Tickets are printed and handed out: programs of any age read them.
    #[test]
    fn tickets_of_one_address_and_of_several_keep_their_text() {
        let one = Ticket { addresses: vec!["lab.example:4433".to_owned()], ..ticket() };
        let [one, several] = [one, ticket()].map(|ticket| ticket.to_string());
        assert_eq!(
            one,
            "fed15jfgyy7ctrjavpxvkb5rglwf7gkuo5vox27hxescd3vgsfcg2iwhg2lyorswk3raebwgk5dumvzhgaiqnrqweltfpbqw24dmmu5dinbtgpytf3ud"
        );
        assert_eq!(
            several,
            "fed15jfgyy7ctrjavpxvkb5rglwf7gkuo5vox27hxescd3vgsfcg2iwhg2lyorswk3raebwgk5dumvzhgaqrge4telrrgy4c4mjogeydunbugmzq43dbmixgy33dmfwdunbugmzvwhbsy4"
        );
    }

    #[test]
    fn every_slip_of_one_character_is_noticed() {
        let text = ticket().to_string();
        for at in PREFIX.len()..text.len() {
            for other in ['a', '7', 'z', '1', '-', 'é'] {
                let mut slip: Vec<char> = text.chars().collect();
                if slip[at] != other {
                    slip[at] = other;
                    let slip: String = slip.into_iter().collect();
                    assert_eq!(slip.parse::<Ticket>(), Err(ParseTicketError::Damaged), "{slip}");
                }
            }
            assert_eq!(text[..at].parse::<Ticket>(), Err(ParseTicketError::Damaged), "cut at {at}");
        }
    }

    #[test]
    fn what_is_no_ticket_is_told_from_a_newer_one() {
        assert_eq!("".parse::<Ticket>(), Err(ParseTicketError::Other));
        assert_eq!("lab.example:4433".parse::<Ticket>(), Err(ParseTicketError::Other));
        assert_eq!("fed2abc".parse::<Ticket>(), Err(ParseTicketError::Newer));
    }

    #[test]
    fn a_ticket_without_an_address_is_none() {
        let nowhere = Ticket { addresses: Vec::new(), ..ticket() };
        assert_eq!(nowhere.to_string().parse::<Ticket>(), Err(ParseTicketError::Damaged));
    }

    #[test]
    fn the_secret_is_shown_nowhere() {
        assert!(format!("{:?}", ticket()).contains("TicketSecret(..)"));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(fed[0-9])?.{0,80}") {
            let _ = text.parse::<Ticket>();
        }

        #[test]
        fn every_ticket_comes_back(key: [u8; 32], secret: [u8; 16], addresses in proptest::collection::vec("[a-z.:0-9]{1,40}", 1..=8)) {
            let ticket = Ticket { server: PublicKey::from_bytes(key), secret: TicketSecret(secret), addresses };
            prop_assert_eq!(ticket.to_string().parse(), Ok(ticket));
        }
    }
}
