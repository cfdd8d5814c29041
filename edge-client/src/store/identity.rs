//! The identity file: the client's private key. Owners back it up, restore it, and keep it secret.

use std::path::Path;

use shared::identity::SecretKey;

use super::durable;
use super::error::StoreError;

/// The client's key; `None` before the first start.
pub(super) fn load(path: &Path) -> Result<Option<SecretKey>, StoreError> {
    let Some(text) = durable::read_text(path)? else { return Ok(None) };
    let damaged = |problem: &str| StoreError::Damaged {
        path: path.to_path_buf(),
        problem: problem.to_owned(),
        // A new one would make this device another client.
        remedy: "restore it from a backup, or remove it to take part as a new client",
    };
    let text = text.map_err(|_| damaged("it is not text"))?;
    let key = SecretKey::of_file(&text).map_err(|_| {
        // Devices of an earlier version had an id and no key. A key that was cut in half ends without a line break.
        let id = text.strip_suffix('\n').map(str::parse::<shared::id::ClientId>);
        let id_alone = matches!(id, Some(Ok(_)));
        let without = "it is of an older version of this program, whose devices had an id and no key";
        damaged(if id_alone {
            without
        } else {
            "it is not a private key of 64 hexadecimal digits with its checksum"
        })
    });
    key.map(Some)
}

/// The client's key; made from the system's random numbers at the first start.
pub(super) fn load_or_create(path: &Path) -> Result<SecretKey, StoreError> {
    if let Some(key) = load(path)? {
        // The process that created it may have crashed before syncing it, and a ticket is bound to one identity.
        durable::sync_dir(durable::parent(path))?;
        return Ok(key);
    }
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(StoreError::Random)?;
    let key = SecretKey::from_bytes(bytes);
    durable::replace(path, key.to_file().as_bytes())?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::durable::tests::SYNCED;
    use super::*;

    #[test]
    fn an_identity_is_created_once_and_differs_between_devices() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("identity"), folder.path().join("other"));
        let key = load_or_create(&path).unwrap();
        assert_eq!(load_or_create(&path).unwrap(), key);
        assert_ne!(load_or_create(&other).unwrap(), key);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn an_identity_is_durable_before_it_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("identity");
        for _ in 0..2 {
            load_or_create(&path).unwrap();
            assert_eq!(SYNCED.take().last().map(PathBuf::as_path), Some(folder.path()));
        }
    }

    #[test]
    fn a_damaged_identity_is_neither_believed_nor_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("identity");
        let long = [b'0'; 5000];
        let old = b"0123456789abcdef0123456789abcdef\n";
        let half = &old[..32];
        let flipped = [&[b'0'; 64][..], b"\x0b"].concat();
        let wrong = b"0123456789abcdef0123456789abcdeg";
        for damage in [&b""[..], b"0123", wrong, b"\xff\xfe", &long, &flipped, half, old] {
            fs::write(&path, damage).unwrap();
            let error = load_or_create(&path).unwrap_err();
            assert!(
                matches!(error, StoreError::Damaged { ref path, .. } if path.ends_with("identity")),
                "{error}"
            );
            assert!(error.to_string().contains("remove it to take part as a new client"), "{error}");
            assert_eq!(error.to_string().contains("older version"), damage == old, "{error}");
            assert_eq!(fs::read(&path).unwrap(), damage);
        }
    }
}
