//! Identifiers: those of clients and runs, and the form that [public keys](crate::identity::PublicKey) share with them.
//!
//! An identifier is a number of random bytes. Binary formats (postcard) hold the raw bytes, text formats (TOML, JSON) lowercase
//! hexadecimal digits.

use thiserror::Error;

use crate::seed::Seed;

/// The text is not an identifier.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ParseIdError {
    /// The text has the wrong length.
    #[error("a {what} has {expected} hexadecimal digits, this text has {found} characters")]
    Length {
        /// What was expected: `client id`, `run id` or `key`.
        what: &'static str,
        /// Digits in such an identifier.
        expected: usize,
        /// Characters in the text.
        found: usize,
    },
    /// A character is not a hexadecimal digit.
    #[error("a {what} consists of the digits 0-9 and a-f: {found:?} at position {position} is none of them")]
    Digit {
        /// What was expected: `client id`, `run id` or `key`.
        what: &'static str,
        /// Which character, counted from 0.
        position: usize,
        /// The character.
        found: char,
    },
}

/// Parses hexadecimal digits of either case.
pub(crate) fn parse_hex<const N: usize>(what: &'static str, text: &str) -> Result<[u8; N], ParseIdError> {
    let found = text.chars().count();
    if found != 2 * N {
        return Err(ParseIdError::Length { what, expected: 2 * N, found });
    }
    let mut bytes = [0; N];
    for (position, found) in text.chars().enumerate() {
        let digit = found.to_digit(16).ok_or(ParseIdError::Digit { what, position, found })?;
        bytes[position / 2] = (bytes[position / 2] << 4) | digit as u8;
    }
    Ok(bytes)
}

/// Implements an identifier of `$n` bytes: conversions, text form, and both serialised forms.
macro_rules! identifier {
    ($name:ident, $n:literal, $what:literal) => {
        impl $name {
            /// The identifier made of these bytes.
            #[must_use]
            pub const fn from_bytes(bytes: [u8; $n]) -> Self {
                Self(bytes)
            }

            /// The bytes of the identifier.
            #[must_use]
            pub const fn as_bytes(&self) -> &[u8; $n] {
                &self.0
            }

            /// The first 8 hexadecimal digits, for tables and log lines. Not unique: never parse or compare it.
            #[must_use]
            pub fn short(&self) -> String {
                let [a, b, c, d, ..] = self.0;
                format!("{:08x}", u32::from_be_bytes([a, b, c, d]))
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(&::data_encoding::HEXLOWER.encode(&self.0))
            }
        }

        impl ::std::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl ::std::str::FromStr for $name {
            type Err = $crate::id::ParseIdError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                $crate::id::parse_hex($what, text).map(Self)
            }
        }

        impl ::serde::Serialize for $name {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                if serializer.is_human_readable() {
                    serializer.collect_str(self)
                } else {
                    ::serde::Serialize::serialize(&self.0, serializer)
                }
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                if deserializer.is_human_readable() {
                    <String as ::serde::Deserialize>::deserialize(deserializer)?
                        .parse()
                        .map_err(::serde::de::Error::custom)
                } else {
                    <[u8; $n] as ::serde::Deserialize>::deserialize(deserializer).map(Self)
                }
            }
        }
    };
}
pub(crate) use identifier;

/// The permanent identifier of a client, across runs and restarts: 16 bytes, the fingerprint of the device's key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId([u8; 16]);

identifier!(ClientId, 16, "client id");

impl ClientId {
    /// The identifier of a simulated client: the first 16 bytes of the seed derived with label `client` and `index`.
    #[must_use]
    pub fn virtual_client(index: u32, seed: &Seed) -> Self {
        let derived = seed.derive_numbered("client", u64::from(index));
        Self(std::array::from_fn(|byte| derived.as_bytes()[byte]))
    }
}

/// The identifier of a run: 8 random bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId([u8; 8]);

identifier!(RunId, 8, "run id");

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde::{Deserialize, Serialize};

    #[derive(Serialize, Deserialize, Debug, PartialEq)]
    struct Readable {
        client: ClientId,
        run: RunId,
    }

    #[test]
    fn text_form_is_full_lowercase_hex() {
        let id = RunId::from_bytes([0x00, 0x1f, 0xab, 0xcd, 0xef, 0x99, 0x80, 0x07]);
        assert_eq!(id.to_string(), "001fabcdef998007");
        assert_eq!(id.short(), "001fabcd");
        assert_eq!(format!("{id:?}"), "RunId(001fabcdef998007)");
        assert_eq!("001FABCDEF998007".parse(), Ok(id));
    }

    #[test]
    fn parse_errors_carry_what_is_wrong() {
        assert_eq!(
            "abc".parse::<ClientId>(),
            Err(ParseIdError::Length { what: "client id", expected: 32, found: 3 })
        );
        assert_eq!(
            "0123456789abcdeg".parse::<RunId>(),
            Err(ParseIdError::Digit { what: "run id", position: 15, found: 'g' })
        );
        // 16 characters, more than 16 bytes.
        assert_eq!(
            "012345é789abcdef".parse::<RunId>(),
            Err(ParseIdError::Digit { what: "run id", position: 6, found: 'é' })
        );
        assert!("+123456789abcdef".parse::<RunId>().is_err());
    }

    #[test]
    fn postcard_form_is_the_raw_bytes() {
        let client = ClientId::from_bytes(*b"0123456789abcdef");
        assert_eq!(postcard::to_stdvec(&client).unwrap(), b"0123456789abcdef");
        assert_eq!(postcard::from_bytes::<ClientId>(b"0123456789abcdef").unwrap(), client);
        assert!(postcard::from_bytes::<ClientId>(b"0123456789abcde").is_err());
    }

    #[test]
    fn readable_form_is_the_text() {
        let both = Readable { client: ClientId::from_bytes([0x11; 16]), run: RunId::from_bytes([0xfe; 8]) };
        let text = toml::to_string(&both).unwrap();
        assert_eq!(text, format!("client = \"{}\"\nrun = \"{}\"\n", "11".repeat(16), "fe".repeat(8)));
        assert_eq!(toml::from_str::<Readable>(&text).unwrap(), both);
        let error = toml::from_str::<Readable>("client = \"11\"\nrun = \"22\"").unwrap_err().to_string();
        assert!(error.contains("32 hexadecimal digits"), "{error}");
    }

    #[test]
    fn virtual_clients_are_distinct_and_fixed_by_the_seed() {
        let seed = Seed::root(1);
        let ids: std::collections::BTreeSet<_> =
            (0..1000).map(|index| ClientId::virtual_client(index, &seed)).collect();
        assert_eq!(ids.len(), 1000);
        assert_eq!(ClientId::virtual_client(3, &seed), ClientId::virtual_client(3, &Seed::root(1)));
        assert_ne!(ClientId::virtual_client(3, &seed), ClientId::virtual_client(3, &Seed::root(2)));
        // Computed with Python's hashlib.
        assert_eq!(ClientId::virtual_client(0, &seed).to_string(), "b469c850d5423a432f2ed02152a24e9b");
    }

    proptest! {
        #[test]
        fn text_round_trip(bytes: [u8; 16]) {
            let id = ClientId::from_bytes(bytes);
            prop_assert_eq!(id.to_string().parse(), Ok(id));
            prop_assert!(id.to_string().starts_with(&id.short()));
        }

        #[test]
        fn any_text_is_parsed_without_panic(text: String) {
            let _ = text.parse::<RunId>();
        }
    }
}
