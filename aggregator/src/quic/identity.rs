//! The server's identity: a self-signed certificate that clients pin by its fingerprint.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use sha2::{Digest, Sha256};

/// A certificate and its private key.
pub struct ServerIdentity {
    certificate: CertificateDer<'static>,
    key: PrivatePkcs8KeyDer<'static>,
}

/// Why there is no identity. The operator's to mend.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A file cannot be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// One of the two files is missing.
    #[error(
        "{} is there but {} is not: restore both from a backup, or remove both to make a new identity \
         (clients that pinned the old one must then be told to trust the new one)",
        present.display(), absent.display()
    )]
    Half {
        /// The file that is there.
        present: PathBuf,
        /// The file that is not.
        absent: PathBuf,
    },
    /// No key could be made.
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
}

impl ServerIdentity {
    /// A new identity, kept nowhere.
    pub fn generate() -> Result<Self, IdentityError> {
        let made = rcgen::generate_simple_self_signed(vec!["aggregator".to_owned()])?;
        Ok(Self {
            certificate: made.cert.der().clone(),
            key: PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()),
        })
    }

    /// The identity kept in `directory`, made there if there is none. The key's file can be read by its owner
    /// alone.
    pub fn load_or_create(directory: &Path) -> Result<Self, IdentityError> {
        let (certificate, key) = (directory.join("server.cert.der"), directory.join("server.key.der"));
        match (certificate.exists(), key.exists()) {
            (true, true) => Ok(Self {
                certificate: CertificateDer::from(read(&certificate)?),
                key: PrivatePkcs8KeyDer::from(read(&key)?),
            }),
            (true, false) => Err(IdentityError::Half { present: certificate, absent: key }),
            (false, true) => Err(IdentityError::Half { present: key, absent: certificate }),
            (false, false) => {
                let identity = Self::generate()?;
                fs::create_dir_all(directory).map_err(|source| IdentityError::File {
                    action: "create",
                    path: directory.into(),
                    source,
                })?;
                write(&key, identity.key.secret_pkcs8_der(), 0o600)?;
                write(&certificate, &identity.certificate, 0o644)?;
                Ok(identity)
            }
        }
    }

    /// SHA-256 of the certificate: what clients pin.
    #[must_use]
    pub fn fingerprint(&self) -> [u8; 32] {
        Sha256::digest(&self.certificate).into()
    }

    /// [`fingerprint`](Self::fingerprint) as 64 hexadecimal digits.
    #[must_use]
    pub fn fingerprint_hex(&self) -> String {
        self.fingerprint().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// A secret for one purpose, which only the holder of the private key can know.
    pub(super) fn derive(&self, purpose: &str) -> [u8; 32] {
        Sha256::new_with_prefix(self.key.secret_pkcs8_der()).chain_update(purpose).finalize().into()
    }

    pub(super) fn certificate(&self) -> CertificateDer<'static> {
        self.certificate.clone()
    }

    pub(super) fn key(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(self.key.clone_key())
    }
}

fn read(path: &Path) -> Result<Vec<u8>, IdentityError> {
    fs::read(path).map_err(|source| IdentityError::File { action: "read", path: path.into(), source })
}

fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<(), IdentityError> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
    let result = options.open(path).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    result.map_err(|source| IdentityError::File { action: "write", path: path.into(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_made_once_and_guarded() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let first = ServerIdentity::load_or_create(directory.path()).expect("made");
        let again = ServerIdentity::load_or_create(directory.path()).expect("loaded");
        assert_eq!(first.fingerprint(), again.fingerprint());
        assert_ne!(first.fingerprint(), ServerIdentity::generate().expect("made").fingerprint());
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let key = fs::metadata(directory.path().join("server.key.der")).expect("written");
            assert_eq!(key.permissions().mode() & 0o777, 0o600);
        }
        fs::remove_file(directory.path().join("server.key.der")).expect("there");
        assert!(matches!(ServerIdentity::load_or_create(directory.path()), Err(IdentityError::Half { .. })));
    }
}
