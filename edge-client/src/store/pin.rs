//! Which server the client trusts: a small file that people may read, write and remove.

use std::path::{Path, PathBuf};

use super::durable;
use super::error::StoreError;
use crate::trust::{Fingerprint, to_hex};

/// The file with the fingerprint of the one server that the client of a state directory trusts.
#[derive(Clone, Debug)]
pub struct ServerPin {
    path: PathBuf,
}

impl ServerPin {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// The file. Removing it is the way to trust another server.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The fingerprint; `None` before the first server.
    pub fn load(&self) -> Result<Option<Fingerprint>, StoreError> {
        let Some(text) = durable::read_text(&self.path)? else { return Ok(None) };
        // What is not text is no fingerprint either.
        let fingerprint = text.ok().and_then(|text| parse_fingerprint(text.trim()));
        fingerprint.map(Some).ok_or_else(|| StoreError::Pin { path: self.path.clone() })
    }

    /// Trusts this server and no other from now on. Durable when it returns.
    pub fn save(&self, fingerprint: Fingerprint) -> Result<(), StoreError> {
        durable::replace(&self.path, format!("{}\n", to_hex(&fingerprint)).as_bytes())
    }
}

/// A fingerprint from 64 hexadecimal digits, which may be in pairs with colons between them as other programs
/// print it; the inverse of [`to_hex`].
#[must_use]
pub fn parse_fingerprint(text: &str) -> Option<Fingerprint> {
    let mut fingerprint = Fingerprint::default();
    let digits: String = if text.contains(':') { pairs(text)?.concat() } else { text.to_owned() };
    let digits = digits.chars().map(|digit| digit.to_digit(16)).collect::<Option<Vec<_>>>()?;
    if digits.len() != 2 * fingerprint.len() {
        return None;
    }
    for (byte, pair) in fingerprint.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = (pair[0] << 4 | pair[1]) as u8;
    }
    Some(fingerprint)
}

fn pairs(text: &str) -> Option<Vec<&str>> {
    text.split(':').map(|pair| (pair.len() == 2).then_some(pair)).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_pin_is_kept_and_can_be_replaced_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let pin = ServerPin::new(folder.path().join("server"));
        assert_eq!(pin.load().unwrap(), None);
        pin.save([0xab; 32]).unwrap();
        assert_eq!(pin.load().unwrap(), Some([0xab; 32]));
        pin.save([7; 32]).unwrap();
        assert_eq!(pin.load().unwrap(), Some([7; 32]));
        fs::remove_file(pin.path()).unwrap();
        assert_eq!(pin.load().unwrap(), None);
    }

    #[test]
    fn a_damaged_pin_trusts_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let pin = ServerPin::new(folder.path().join("server"));
        for damage in [&b""[..], b"ab", b"\xff\xff"] {
            fs::write(pin.path(), damage).unwrap();
            assert!(matches!(pin.load(), Err(StoreError::Pin { .. })));
        }
    }

    #[test]
    fn fingerprints_are_read_as_people_write_them() {
        let fingerprint = std::array::from_fn(|index| (37 * index) as u8);
        let hex = to_hex(&fingerprint);
        assert_eq!(parse_fingerprint(&hex), Some(fingerprint));
        assert_eq!(parse_fingerprint(&hex.to_uppercase()), Some(fingerprint));
        let with_colons = fingerprint.map(|byte| format!("{byte:02X}")).join(":");
        assert_eq!(parse_fingerprint(&with_colons), Some(fingerprint));
        for wrong in [&hex[1..], &format!("{hex}0"), &hex.replace('0', "g"), &with_colons[1..], "", ":", "é"]
        {
            assert_eq!(parse_fingerprint(wrong), None, "{wrong}");
        }
    }
}
