//! The addresses of a server in a message: a bounded number, each of bounded length.

use std::fmt;

use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::ticket::MAX_ADDRESS;

/// Limit of the addresses in [`ToClient::Servers`](super::ToClient::Servers), each of at most [`MAX_ADDRESS`] bytes.
pub const MAX_SERVERS: usize = 64;

/// Reads addresses, and refuses more or longer ones than a device keeps.
pub(super) fn bounded<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    from.deserialize_seq(Bounded)
}

struct Bounded;

impl<'de> Visitor<'de> for Bounded {
    type Value = Vec<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {MAX_SERVERS} addresses of at most {MAX_ADDRESS} bytes")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Vec<String>, A::Error> {
        let mut addresses = Vec::new();
        while let Some(Address(address)) = from.next_element()? {
            if addresses.len() == MAX_SERVERS {
                return Err(A::Error::custom(format_args!("more than {MAX_SERVERS} addresses")));
            }
            addresses.push(address);
        }
        Ok(addresses)
    }
}

/// One of them.
struct Address(String);

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let address = String::deserialize(from)?;
        if address.len() > MAX_ADDRESS {
            return Err(D::Error::custom(format_args!("an address of {} bytes", address.len())));
        }
        Ok(Self(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{self, HEADER_LEN};
    use crate::message::ToClient;

    /// This number of addresses of this length after its way; `None` if it is refused.
    fn sent(number: usize, length: usize) -> Option<ToClient> {
        let message = ToClient::Servers { addresses: vec!["x".repeat(length); number] };
        let decoded = frame::decode(&frame::encode(&message, 0)[HEADER_LEN..]).ok();
        assert!(decoded.as_ref().is_none_or(|decoded| *decoded == message));
        decoded
    }

    #[test]
    fn more_addresses_or_longer_ones_are_refused() {
        assert!(sent(0, 0).is_some() && sent(MAX_SERVERS, MAX_ADDRESS).is_some());
        assert!(sent(MAX_SERVERS + 1, 1).is_none());
        assert!(sent(1, MAX_ADDRESS + 1).is_none());
    }
}
