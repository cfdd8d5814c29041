//! Frozen parameters: which tensors of a network are not learned, and their values.
//!
//! An [`Architecture`] with [`Frozen`] parameters describes the whole network, and its parameter sets hold the learned tensors
//! alone ([`Architecture::parameter_specs`]). What adds, encodes, checks or clips them therefore knows nothing of the others.
//! A [`Network`](crate::Network) is made of both. The frozen values are known by the digest of their encoding: they travel and
//! are kept apart from what is learned.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{Architecture, ArchitectureError, ParameterSpec};
use crate::kept_features::KeptFeatures;
use crate::params::codec::{self, DecodeError, Limits};
use crate::params::{Mismatch, ParamSet};

/// Which tensors of an architecture are not learned, and what they are.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Frozen {
    /// Patterns of names; `*` stands for any characters, dots as well.
    pub names: Vec<String>,
    /// SHA-256 of their encoding in hexadecimal digits, once they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    #[serde(skip)]
    values: Option<Values>,
}

/// The tensors, where they are at hand, and their encoding, in the same memory.
#[derive(Clone, Debug)]
struct Values {
    tensors: Arc<ParamSet>,
    encoded: Bytes,
    features: Arc<KeptFeatures>,
}

/// The digest stands for the values.
impl PartialEq for Frozen {
    fn eq(&self, other: &Self) -> bool {
        (&self.names, &self.digest) == (&other.names, &other.digest)
    }
}

/// Why frozen parameters cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FrozenError {
    /// They are others than those that the run was begun with, or they are damaged.
    #[error(
        "the frozen parameters are damaged or are others: their digest is {found} and must be {expected}"
    )]
    Digest {
        /// The digest that the architecture has.
        expected: String,
        /// That of the bytes.
        found: String,
    },
    /// They cannot be decoded.
    #[error("the frozen parameters cannot be decoded")]
    Decode(#[from] DecodeError),
    /// They do not fit the network.
    #[error("the frozen parameters do not fit the network")]
    Mismatch(#[from] Mismatch),
    /// The architecture is not valid.
    #[error("the architecture is not valid")]
    Architecture(#[from] ArchitectureError),
}

impl Frozen {
    /// Tensors with such names, whose values are not known yet.
    #[must_use]
    pub fn named(names: Vec<String>) -> Self {
        Self { names, digest: None, values: None }
    }

    /// The tensors, where they are at hand.
    #[must_use]
    pub fn values(&self) -> Option<&Arc<ParamSet>> {
        self.values.as_ref().map(|values| &values.tensors)
    }

    /// Their encoding, where they are at hand.
    #[must_use]
    pub fn encoded(&self) -> Option<&Bytes> {
        self.values.as_ref().map(|values| &values.encoded)
    }

    /// What is kept of samples that went through these tensors, where they are at hand: as long as any copy of this lives.
    #[must_use]
    pub fn features(&self) -> Option<&KeptFeatures> {
        self.values.as_ref().map(|values| &*values.features)
    }

    fn has(&self, name: &str) -> bool {
        self.names.iter().any(|pattern| matches(pattern, name))
    }
}

/// The encoding of frozen parameters, by which they are known.
#[must_use]
pub fn encode_frozen(params: &ParamSet) -> Vec<u8> {
    codec::plain_bytes(params)
}

/// SHA-256 in hexadecimal digits.
#[must_use]
pub fn frozen_digest(encoded: &[u8]) -> String {
    Sha256::digest(encoded).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Whether a name is one that a pattern stands for: `*` stands for any characters, all others for themselves.
#[must_use]
pub fn matches(pattern: &str, name: &str) -> bool {
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let Some(last) = pieces.next_back() else { return rest.is_empty() };
    for piece in pieces {
        let Some(at) = rest.find(piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    rest.ends_with(last)
}

impl Architecture {
    /// Whether the tensor of this name is not learned.
    #[must_use]
    pub fn is_frozen(&self, name: &str) -> bool {
        self.frozen.as_ref().is_some_and(|frozen| frozen.has(name))
    }

    /// Whether a part has parameters and none of them is learned: then it does the same in training as in evaluation.
    /// `false` if the architecture is not valid.
    #[must_use]
    pub fn is_part_frozen(&self, part: &str) -> bool {
        let Some(frozen) = &self.frozen else { return false };
        let of_part =
            |spec: &ParameterSpec| spec.name.strip_prefix(part).is_some_and(|rest| rest.starts_with('.'));
        let mut names = self.all_parameter_specs().unwrap_or_default().into_iter().filter(of_part).peekable();
        names.peek().is_some() && names.all(|spec| frozen.has(&spec.name))
    }

    /// The same network with these frozen parameters, which are encoded: their digest is that of the architecture, or becomes it
    /// if it has none. They stay in the memory of `encoded`.
    ///
    /// # Errors
    /// [`FrozenError`] if they are not those of this network.
    ///
    /// # Panics
    /// If the architecture freezes nothing.
    pub fn with_frozen(mut self, encoded: &Bytes) -> Result<Self, FrozenError> {
        let specs = self.all_parameter_specs()?;
        let frozen = self.frozen.as_mut().expect("an architecture that freezes something");
        let found = frozen_digest(encoded);
        if let Some(expected) = frozen.digest.clone().filter(|expected| *expected != found) {
            return Err(FrozenError::Digest { expected, found });
        }
        let limits = Limits { max_bytes: encoded.len() as u64, ..Limits::default() };
        let (values, _) = codec::from_shared(encoded, limits)?;
        let mut count = 0;
        for spec in specs.iter().filter(|spec| frozen.has(&spec.name)) {
            let array = values.get(&spec.name).ok_or_else(|| Mismatch::missing(&spec.name))?;
            if array.shape() != spec.shape {
                return Err(Mismatch::shape(&spec.name, &spec.shape, array.shape()).into());
            }
            count += 1;
        }
        if let Some(extra) = values.names().find(|name| count != values.len() && !frozen.has(name)) {
            return Err(Mismatch::extra(extra).into());
        }
        let (tensors, encoded) = (Arc::new(values), encoded.clone());
        frozen.digest = Some(found);
        frozen.values = Some(Values { tensors, encoded, features: Arc::default() });
        Ok(self)
    }

    /// Divides a set of all tensors into those that are learned and those that are frozen.
    #[must_use]
    pub fn divide(&self, whole: ParamSet) -> (ParamSet, ParamSet) {
        let (mut learned, mut frozen) = (ParamSet::new(), ParamSet::new());
        for (name, array) in whole {
            let set = if self.is_frozen(&name) { &mut frozen } else { &mut learned };
            set.insert(name, array);
        }
        (learned, frozen)
    }

    /// All tensors of the network, of which `learned` are those that are learned: what other programs read.
    ///
    /// # Errors
    /// [`Mismatch`] that names the first tensor that is frozen and not at hand.
    pub fn compose<'p>(&self, learned: &'p ParamSet) -> Result<Cow<'p, ParamSet>, Mismatch> {
        let Some(frozen) = &self.frozen else { return Ok(Cow::Borrowed(learned)) };
        let mut whole = learned.clone();
        // A part of the network, such as its classifier, may have none of them.
        for spec in self.all_parameter_specs().unwrap_or_default() {
            if frozen.has(&spec.name) {
                let values = frozen.values().and_then(|values| values.get(&spec.name));
                let values = values.ok_or_else(|| Mismatch::missing(&spec.name))?;
                whole.insert(spec.name, values.clone());
            }
        }
        Ok(Cow::Owned(whole))
    }

    /// The network of which everything is learned.
    #[must_use]
    pub fn unfrozen(&self) -> Self {
        Self { frozen: None, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;

    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, name, expected) in [
            ("extractor.*", "extractor.conv1.weight", true),
            ("extractor.*", "extractor", false),
            ("*", "", true),
            ("head.fc.bias", "head.fc.bias", true),
            ("head.fc.bias", "head.fc.bias2", false),
            ("*.bias", "head.fc.bias", true),
            ("*.bias", "head.fc.weight", false),
            ("extractor.*.body.*.weight", "extractor.b1.body.c1.weight", true),
            ("extractor.*.body.*.weight", "extractor.b1.shortcut.c1.weight", false),
            ("a*a", "a", false),
            ("a*b*a", "aba", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    fn frozen(names: &[&str]) -> (Architecture, ParamSet) {
        let whole = Architecture::by_name("lenet-5", &[1, 28, 28], 10).unwrap();
        let params = whole.initialise(|name| ChaCha8Rng::seed_from_u64(name.len() as u64)).unwrap();
        let names = names.iter().map(|&name| name.to_owned()).collect();
        (Architecture { frozen: Some(Frozen::named(names)), ..whole }, params)
    }

    #[test]
    fn what_is_divided_is_composed_again() {
        let (architecture, whole) = frozen(&["extractor.*", "head.*.bias"]);
        let (learned, fixed) = architecture.divide(whole.clone());
        assert!(learned.names().all(|name| name.starts_with("head.") && name.ends_with(".weight")));
        assert_eq!(learned.len() + fixed.len(), whole.len());
        let specs = architecture.parameter_specs().unwrap();
        assert_eq!(specs.len(), learned.len());
        let missing = architecture.compose(&learned).unwrap_err();
        assert!(missing.tensor.starts_with("extractor."), "{missing}");
        let encoded = Bytes::from(encode_frozen(&fixed));
        let architecture = architecture.with_frozen(&encoded).unwrap();
        assert_eq!(*architecture.compose(&learned).unwrap(), whole);
        assert!(architecture.is_part_frozen("extractor") && !architecture.is_part_frozen("head"));
        // As it travels.
        let text = serde_json::to_string(&architecture).unwrap();
        let told: Architecture = serde_json::from_str(&text).unwrap();
        assert_eq!(told, architecture);
        assert!(told.frozen.as_ref().unwrap().values().is_none());
        assert!(told.with_frozen(&encoded).is_ok());
    }

    #[test]
    fn others_are_refused() {
        let (architecture, whole) = frozen(&["extractor.*"]);
        let (learned, fixed) = architecture.divide(whole.clone());
        let encoded = Bytes::from(encode_frozen(&fixed));
        let known = architecture.clone().with_frozen(&encoded).unwrap();
        let mut flipped = encoded.to_vec();
        *flipped.last_mut().unwrap() ^= 1;
        let error = known.with_frozen(&flipped.into()).unwrap_err();
        assert!(matches!(error, FrozenError::Digest { .. }), "{error}");
        for wrong in [learned, whole] {
            let error = architecture.clone().with_frozen(&encode_frozen(&wrong).into()).unwrap_err();
            assert!(matches!(error, FrozenError::Mismatch(_)), "{error}");
        }
        assert!(matches!(architecture.with_frozen(&Bytes::new()), Err(FrozenError::Decode(_))));
    }
}
