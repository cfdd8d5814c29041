//! A seed that its holder alone may know.

use std::fmt;

use crate::seed::Seed;

/// A seed of noise that hides something: with it the noise can be taken away. It is never shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret(Seed);

impl Secret {
    /// The secret with these random bytes.
    #[must_use]
    pub fn new(bytes: &[u8; 32]) -> Self {
        Self(Seed::root(0).derive_bytes("secret", bytes))
    }

    /// The seed of one purpose. It is as secret as this.
    #[must_use]
    pub fn seed(&self, purpose: &str) -> Seed {
        self.0.derive(purpose)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_not_shown_and_every_purpose_has_its_own_seed() {
        let (one, other) = (Secret::new(&[1; 32]), Secret::new(&[2; 32]));
        assert_eq!(format!("{one:?}"), "Secret(..)");
        assert_ne!(one.seed("noise"), one.seed("cohorts"));
        assert_ne!(one.seed("noise"), other.seed("noise"));
        assert_eq!(one.seed("noise"), Secret::new(&[1; 32]).seed("noise"));
    }
}
