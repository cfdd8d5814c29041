//! Who the client is: a small file that people may read, copy to a backup and restore.

use std::path::Path;

use shared::id::ClientId;

use super::durable;
use super::error::StoreError;

/// The client's identity; made from the system's random numbers at the first start.
pub(super) fn load_or_create(path: &Path) -> Result<ClientId, StoreError> {
    if let Some(text) = durable::read_text(path)? {
        let damaged = |problem| StoreError::Identity { path: path.to_path_buf(), problem };
        let text = text.map_err(|_| damaged("it is not text".to_owned()))?;
        return text.trim().parse().map_err(|error| damaged(format!("{error}")));
    }
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(StoreError::Random)?;
    let client = ClientId::from_bytes(bytes);
    durable::replace(path, format!("{client}\n").as_bytes())?;
    Ok(client)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn an_identity_is_made_once_and_differs_between_devices() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("identity"), folder.path().join("other"));
        let client = load_or_create(&path).unwrap();
        assert_eq!(load_or_create(&path).unwrap(), client);
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{client}\n"));
        assert_ne!(load_or_create(&other).unwrap(), client);
    }

    #[test]
    fn a_damaged_identity_is_neither_believed_nor_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("identity");
        let long = [b'0'; 5000];
        for damage in [&b""[..], b"0123", b"0123456789abcdef0123456789abcdeg", b"\xff\xfe", &long] {
            fs::write(&path, damage).unwrap();
            let error = load_or_create(&path).unwrap_err();
            assert!(matches!(error, StoreError::Identity { .. }), "{error}");
            assert!(error.to_string().contains("remove it to take part as a new client"), "{error}");
            assert_eq!(fs::read(&path).unwrap(), damage);
        }
    }
}
