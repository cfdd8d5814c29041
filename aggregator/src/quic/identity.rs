//! The server's identity: a self-signed certificate that clients pin by its fingerprint.

use std::fs::TryLockError;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use rcgen::{CertificateParams, KeyPair, PKCS_ED25519};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use sha2::{Digest, Sha256};

use crate::files::{Disk, FileLayer, create_dir_durably, parent, partial, write_durably};

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
    /// There is a certificate without its key.
    #[error(
        "{} is there but its key, {}, is not: restore the key from a backup, or remove the certificate to make a new \
         identity (clients that pinned the old one must then be told to trust the new one)",
        certificate.display(), key.display()
    )]
    Keyless {
        /// The file that is there.
        certificate: PathBuf,
        /// The file that is not.
        key: PathBuf,
    },
    /// Another process makes the identity at this moment.
    #[error("another aggregator is making the identity in {} just now: start this one again", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// No key could be made.
    #[error("cannot make a certificate: {0}")]
    Make(#[from] rcgen::Error),
}

impl ServerIdentity {
    /// A new identity, kept nowhere.
    pub fn generate() -> Result<Self, IdentityError> {
        let key = PrivatePkcs8KeyDer::from(KeyPair::generate_for(&PKCS_ED25519)?);
        Ok(Self { certificate: certify(&key)?, key })
    }

    /// The identity kept in `directory`, made there if there is none. The key's file can be read by its owner
    /// alone.
    pub fn load_or_create(directory: &Path) -> Result<Self, IdentityError> {
        Self::load_or_create_on(&Disk, directory)
    }

    /// The same on any disk. The key is durable before there is a certificate, and gives the same certificate every time:
    /// a process that dies in between, or a certificate that is lost, costs nothing.
    pub fn load_or_create_on(files: &dyn FileLayer, directory: &Path) -> Result<Self, IdentityError> {
        let (certificate, key) = (directory.join("server.cert.der"), directory.join("server.key.der"));
        let there = |path: &Path| match files.length(path) {
            Ok(length) => Ok(length.is_some()),
            Err(error) => Err(file("look at", path)(error)),
        };
        let complete = || -> Result<bool, IdentityError> { Ok(there(&certificate)? && there(&key)?) };
        if !complete()? {
            create_dir_durably(files, directory).map_err(file("create", directory))?;
            let lock = directory.join("lock");
            let _lock = files.lock(&lock).map_err(|error| match error {
                TryLockError::WouldBlock => IdentityError::InUse { path: directory.to_owned() },
                TryLockError::Error(error) => file("lock", &lock)(error),
            })?;
            // Another process may have made it before this one had the lock.
            if !there(&key)? {
                if there(&certificate)? {
                    return Err(IdentityError::Keyless { certificate, key });
                }
                let made = Self::generate()?.key;
                write_key(files, &key, made.secret_pkcs8_der()).map_err(file("write", &key))?;
            }
            if !there(&certificate)? {
                let made = certify(&PrivatePkcs8KeyDer::from(read(files, &key)?))?;
                write_durably(files, &certificate, |out| out.write_all(&made))
                    .map_err(file("write", &certificate))?;
            }
        }
        Ok(Self {
            certificate: CertificateDer::from(read(files, &certificate)?),
            key: PrivatePkcs8KeyDer::from(read(files, &key)?),
        })
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

/// The self-signed certificate of a key. Ed25519 signs without randomness and the fields are constants, so it has the
/// same bytes every time, and the same fingerprint.
fn certify(key: &PrivatePkcs8KeyDer<'_>) -> Result<CertificateDer<'static>, rcgen::Error> {
    let params = CertificateParams::new(["aggregator".to_owned()])?;
    Ok(params.self_signed(&KeyPair::try_from(key)?)?.der().clone())
}

/// For `map_err`: says what was tried on which file.
fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> IdentityError {
    let path = path.to_owned();
    move |source| IdentityError::File { action, path, source }
}

fn read(files: &dyn FileLayer, path: &Path) -> Result<Vec<u8>, IdentityError> {
    let mut bytes = Vec::new();
    let mut input = files.open(path).map_err(file("open", path))?;
    input.read_to_end(&mut bytes).map_err(file("read", path))?;
    Ok(bytes)
}

fn write_key(files: &dyn FileLayer, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let partial = partial(path);
    let mut out = files.create_private(&partial)?;
    out.write_all(bytes)?;
    out.sync()?;
    drop(out);
    files.rename(&partial, path)?;
    files.sync_dir(parent(path))
}

#[cfg(test)]
mod tests {
    use std::fs;

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
    }

    #[test]
    fn a_certificate_comes_back_from_its_key_and_a_key_from_nowhere() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let first = ServerIdentity::load_or_create(directory.path()).expect("made");
        fs::remove_file(directory.path().join("server.cert.der")).expect("there");
        let again = ServerIdentity::load_or_create(directory.path()).expect("made again");
        assert_eq!(first.fingerprint(), again.fingerprint(), "clients go on trusting it");
        fs::remove_file(directory.path().join("server.key.der")).expect("there");
        let keyless = ServerIdentity::load_or_create(directory.path());
        assert!(matches!(keyless, Err(IdentityError::Keyless { .. })));
        // The remedy that the message names.
        fs::remove_file(directory.path().join("server.cert.der")).expect("there");
        let other = ServerIdentity::load_or_create(directory.path()).expect("made anew");
        assert_ne!(first.fingerprint(), other.fingerprint());
    }

    #[test]
    fn two_processes_do_not_make_one_identity() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let lock = Disk.lock(&directory.path().join("lock")).expect("free");
        let second = ServerIdentity::load_or_create(directory.path());
        assert!(matches!(second, Err(IdentityError::InUse { .. })));
        drop(lock);
        ServerIdentity::load_or_create(directory.path()).expect("made");
    }
}
