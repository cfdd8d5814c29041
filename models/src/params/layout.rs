//! The identity of a layout: which tensors there are and what shape each has.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest, Sha256};

use super::ParamSet;

/// A fingerprint of the names and shapes of a [`ParamSet`], independent of its values.
///
/// The first eight bytes, read as little-endian, of the SHA-256 of the tensors in name order, each as: length of the
/// name, name, length of the element type, element type (`F32`), number of dimensions, dimensions; every number as a
/// little-endian `u64`. Lengths come first so that no two layouts share a byte string.
///
/// It is a guard against honest mistakes (another model, another version), not against an adversary, who can search 64
/// bits: updates are checked tensor by tensor as well.
///
/// Shown and, in readable formats, written as 16 hexadecimal digits, because TOML has no unsigned 64-bit numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LayoutId(pub u64);

impl ParamSet {
    /// The fingerprint of the names and shapes.
    #[must_use]
    pub fn layout(&self) -> LayoutId {
        fn sized(hash: &mut Sha256, bytes: &[u8]) {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        }
        let mut hash = Sha256::new();
        for (name, array) in self {
            sized(&mut hash, name.as_bytes());
            sized(&mut hash, b"F32");
            hash.update((array.shape().len() as u64).to_le_bytes());
            for &extent in array.shape() {
                hash.update((extent as u64).to_le_bytes());
            }
        }
        let digest = hash.finalize();
        let mut first = [0; 8];
        first.copy_from_slice(&digest[..8]);
        LayoutId(u64::from_le_bytes(first))
    }
}

impl fmt::Display for LayoutId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Serialize for LayoutId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            serializer.serialize_u64(self.0)
        }
    }
}

impl<'de> Deserialize<'de> for LayoutId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return u64::deserialize(deserializer).map(Self);
        }
        let text = String::deserialize(deserializer)?;
        // `from_str_radix` alone would take a sign and fewer digits.
        if text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            u64::from_str_radix(&text, 16).map(Self).map_err(de::Error::custom)
        } else {
            Err(de::Error::invalid_value(de::Unexpected::Str(&text), &"16 hexadecimal digits"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::Array;

    fn set(tensors: &[(&str, &[usize])]) -> ParamSet {
        tensors.iter().map(|&(name, shape)| (name.to_owned(), Array::zeros(shape))).collect()
    }

    /// Computed apart from this code, with Python:
    /// `h=hashlib.sha256(); q=lambda n: struct.pack('<Q',n)`, then for each (name, shape)
    /// `h.update(q(len(name))+name+q(3)+b'F32'+q(len(shape))+b''.join(map(q,shape)))`, and the first 8 bytes.
    #[test]
    fn golden() {
        let params = set(&[("head.fc.bias", &[10]), ("head.fc.weight", &[10, 784])]);
        assert_eq!(params.layout().to_string(), "4187ff45cdbcea20");
        assert_eq!(ParamSet::new().layout().to_string(), "141cfc9842c4b0e3");
    }

    #[test]
    fn values_do_not_matter_and_names_and_shapes_do() {
        let base = set(&[("a", &[2, 3]), ("b", &[4])]);
        let mut other = base.clone();
        other.get_mut("a").unwrap().values_mut()[0] = 1.0;
        assert_eq!(base.layout(), other.layout());
        for different in [
            set(&[("a", &[3, 2]), ("b", &[4])]),
            set(&[("a", &[6]), ("b", &[4])]),
            set(&[("a", &[2, 3]), ("c", &[4])]),
            set(&[("a", &[2, 3])]),
        ] {
            assert_ne!(base.layout(), different.layout());
        }
    }

    #[test]
    fn readable_formats_hold_sixteen_digits() {
        let id = LayoutId(0x0123_4567_89ab_cdef);
        let json = serde_json::to_string(&id).unwrap();
        assert_eq!(json, r#""0123456789abcdef""#);
        assert_eq!(serde_json::from_str::<LayoutId>(&json).unwrap(), id);
        for bad in [r#""123""#, r#""+123456789abcdef""#, "17", r#""0123456789abcdefg""#] {
            assert!(serde_json::from_str::<LayoutId>(bad).is_err(), "{bad}");
        }
    }
}
