//! The server's identity: its key pair and, for some time after a change, the former one.

use std::fs::{File, TryLockError};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};
use shared::identity::{PublicKey, SecretKey};
use shared::text_checksum::{content, with_checksum};

use crate::report::units::counted;
use crate::storage::{FileLayer, create_private_dir_durably, write_privately};
use shared::chown::advice;

/// The file of the key that the server is known by.
pub const KEY_FILE: &str = "server.key";
/// The key that it was known by before, and until when devices may still ask for it.
const FORMER: &str = "former.key";
/// More than a file with a key has.
const MAX_FILE: u64 = 4096;

/// The keys of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerIdentity {
    key: SecretKey,
    former: Option<Former>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Former {
    key: SecretKey,
    until: SystemTime,
}

/// The identity cannot be loaded, created or changed; the operator has to act.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A file cannot be read or written.
    #[error("cannot {action} {}: {source}{}", path.display(), advice(path, source))]
    File {
        /// The operation.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A file is damaged.
    #[error(
        "{} is damaged: it should hold a private key of 64 hexadecimal digits; restore it from a backup, or remove it to \
         give the server a new identity (every device then needs a new ticket)",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// Another process is creating the identity.
    #[error("another aggregator is making the identity in {} just now: start this one again", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// There is no identity to change.
    #[error("there is no server key in {} yet: `aggregator serve` makes it at its first start", path.display())]
    Absent {
        /// The directory.
        path: PathBuf,
    },
    /// The last change is too recent.
    #[error(
        "the key was changed before, and devices may ask for the former one for another {}: change it again after \
         that, or now with --force, which locks out devices that have not been here since the last change",
        roughly(*left)
    )]
    Changing {
        /// How long the former key remains valid.
        left: Duration,
    },
    /// The system's random number generator failed.
    #[error("cannot make a key: the system gives no random numbers ({0})")]
    Random(getrandom::Error),
}

impl ServerIdentity {
    /// A new identity, not stored anywhere.
    pub fn generate() -> Result<Self, IdentityError> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(IdentityError::Random)?;
        Ok(Self { key: SecretKey::from_bytes(bytes), former: None })
    }

    /// The identity stored in `directory`, created if there is none. Only the owner can read the key's file.
    pub fn load_or_create(files: &dyn FileLayer, directory: &Path) -> Result<Self, IdentityError> {
        if let Some(identity) = Self::load(files, directory)? {
            // A process may have died between renaming the file and syncing the directory. The key must not be used before a
            // power failure can no longer lose it.
            files.sync_dir(directory).map_err(file("sync", directory))?;
            return Ok(identity);
        }
        create_private_dir_durably(files, directory).map_err(file("create", directory))?;
        let _lock = lock(files, directory)?;
        // Another process may have created it before this one took the lock.
        if let Some(identity) = Self::load(files, directory)? {
            return Ok(identity);
        }
        let made = Self::generate()?;
        let path = directory.join(KEY_FILE);
        write_privately(files, &path, made.key.to_file().as_bytes()).map_err(file("write", &path))?;
        Ok(made)
    }

    /// The identity stored in `directory`, if there is one.
    pub fn load(files: &dyn FileLayer, directory: &Path) -> Result<Option<Self>, IdentityError> {
        let path = directory.join(KEY_FILE);
        let damaged = |path: &Path| IdentityError::Damaged { path: path.to_owned() };
        let Some(text) = read(files, &path)? else { return Ok(None) };
        let key = SecretKey::of_file(&text).map_err(|_| damaged(&path))?;
        let path = directory.join(FORMER);
        let former = read(files, &path)?.map(|text| parse_former(&text).ok_or_else(|| damaged(&path)));
        // After a crash during a change of the key, the former key may be the current one.
        let former = former.transpose()?.filter(|former| former.key != key);
        Ok(Some(Self { key, former }))
    }

    /// Replaces the key in `directory` by a new one. The old key remains valid for `overlap`; devices that connect with it learn
    /// the new one. After a crash the directory holds the old key or both keys.
    pub fn rotate(
        files: &dyn FileLayer,
        directory: &Path,
        overlap: Duration,
        force: bool,
        now: SystemTime,
    ) -> Result<Self, IdentityError> {
        let absent = || IdentityError::Absent { path: directory.to_owned() };
        Self::load(files, directory)?.ok_or_else(absent)?;
        let _lock = lock(files, directory)?;
        let present = Self::load(files, directory)?.ok_or_else(absent)?;
        if let Some(former) = present.former.filter(|_| !force)
            && let Ok(left) = former.until.duration_since(now)
        {
            return Err(IdentityError::Changing { left });
        }
        let made = Self::generate()?;
        let former = Former { key: present.key, until: now + overlap };
        let since = former.until.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let path = directory.join(FORMER);
        let text = with_checksum(&format!("{} {since}", former.key.digits()));
        write_privately(files, &path, text.as_bytes()).map_err(file("write", &path))?;
        let path = directory.join(KEY_FILE);
        write_privately(files, &path, made.key.to_file().as_bytes()).map_err(file("write", &path))?;
        Ok(Self { former: Some(former), ..made })
    }

    /// The current public key, by which devices identify the server.
    #[must_use]
    pub fn key(&self) -> PublicKey {
        self.key.public()
    }

    /// The keys that are valid at `now`, the current one first.
    #[must_use]
    pub fn keys(&self, now: SystemTime) -> Vec<SecretKey> {
        let former = self.former.as_ref().filter(|former| now < former.until);
        [Some(self.key.clone()), former.map(|former| former.key.clone())].into_iter().flatten().collect()
    }

    /// Derives a secret for one purpose from the private key.
    pub(crate) fn derive(&self, purpose: &str) -> [u8; 32] {
        Sha256::new_with_prefix(self.key.expose()).chain_update(purpose).finalize().into()
    }
}

/// A duration rounded up: in minutes up to two hours, in hours up to two days, else in days.
fn roughly(time: Duration) -> String {
    let minutes = time.as_secs().div_ceil(60) as usize;
    match minutes {
        ..=120 => counted(minutes, "minute"),
        121..=2880 => counted(minutes.div_ceil(60), "hour"),
        _ => counted(minutes.div_ceil(24 * 60), "day"),
    }
}

fn parse_former(text: &str) -> Option<Former> {
    let content = content(text).ok()?;
    let (key, until) = content.strip_suffix('\n').unwrap_or(content).split_once(' ')?;
    let until = UNIX_EPOCH.checked_add(Duration::from_secs(until.parse().ok()?))?;
    Some(Former { key: SecretKey::parse(key).ok()?, until })
}

fn lock(files: &dyn FileLayer, directory: &Path) -> Result<File, IdentityError> {
    let path = directory.join("lock");
    files.lock(&path).map_err(|error| match error {
        TryLockError::WouldBlock => IdentityError::InUse { path: directory.to_owned() },
        TryLockError::Error(error) => file("lock", &path)(error),
    })
}

/// Attaches operation and file to an error, for `map_err`.
fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> IdentityError {
    let path = path.to_owned();
    move |source| IdentityError::File { action, path, source }
}

/// The content of a small file, empty if it is not text; `None` if there is no such file.
fn read(files: &dyn FileLayer, path: &Path) -> Result<Option<String>, IdentityError> {
    if files.length(path).map_err(file("look at", path))?.is_none() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    let input = files.open(path).map_err(file("open", path))?;
    input.take(MAX_FILE).read_to_end(&mut bytes).map_err(file("read", path))?;
    Ok(Some(String::from_utf8(bytes).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::storage::Disk;

    #[test]
    fn an_identity_is_made_once_and_guarded() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        assert_eq!(ServerIdentity::load(&Disk, directory.path()).expect("readable"), None);
        let folder = directory.path().join("runs/identity");
        let first = ServerIdentity::load_or_create(&Disk, &folder).expect("made");
        let again = ServerIdentity::load_or_create(&Disk, &folder).expect("loaded");
        assert_eq!(first, again);
        assert_ne!(first.key(), ServerIdentity::generate().expect("made").key());
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = |path: &Path| fs::metadata(path).expect("written").permissions().mode() & 0o777;
            assert_eq!((mode(&folder.join(KEY_FILE)), mode(&folder)), (0o600, 0o700));
            assert_ne!(mode(&directory.path().join("runs")), 0o700, "results are not secret");
            let copied = fs::read_to_string(folder.join(KEY_FILE)).expect("there");
            fs::write(folder.join(KEY_FILE), copied.trim_end()).expect("written");
            let without = ServerIdentity::load(&Disk, &folder).expect("readable");
            assert_eq!(without, Some(first), "a line break that is not there is no damage");
        }
    }

    #[test]
    fn a_damaged_key_is_neither_believed_nor_replaced() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let digits = ServerIdentity::generate().expect("made").key.digits();
        // A flipped bit makes a line break a vertical tab, which is a blank to some.
        let flipped = format!("{digits}\u{b}");
        for damage in ["", "0123", "\u{fffd}", &flipped, &format!(" {digits}\n"), &format!("{digits}\n\n")] {
            fs::write(directory.path().join(KEY_FILE), damage).expect("written");
            let damaged = ServerIdentity::load_or_create(&Disk, directory.path());
            assert!(matches!(damaged, Err(IdentityError::Damaged { .. })));
            assert_eq!(fs::read_to_string(directory.path().join(KEY_FILE)).expect("there"), damage);
        }
    }

    #[test]
    fn two_processes_do_not_make_one_identity() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let lock = Disk.lock(&directory.path().join("lock")).expect("free");
        let second = ServerIdentity::load_or_create(&Disk, directory.path());
        assert!(matches!(second, Err(IdentityError::InUse { .. })));
        drop(lock);
        ServerIdentity::load_or_create(&Disk, directory.path()).expect("made");
    }

    #[test]
    fn how_long_a_former_key_stays_is_said_in_units_that_people_use() {
        let said = |seconds| roughly(Duration::from_secs(seconds));
        assert_eq!([said(1), said(61), said(7200)], ["1 minute", "2 minutes", "120 minutes"]);
        assert_eq!([said(7201), said(86_400)], ["3 hours", "24 hours"]);
        assert_eq!([said(30 * 86_400 - 5), said(2 * 86_400 + 1)], ["30 days", "3 days"]);
    }

    #[test]
    fn a_former_key_is_shown_until_its_time_is_over() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let now = UNIX_EPOCH + Duration::from_secs(1_000_000);
        let hour = Duration::from_hours(1);
        let rotate = |force, now| ServerIdentity::rotate(&Disk, directory.path(), hour, force, now);
        assert!(matches!(rotate(false, now), Err(IdentityError::Absent { .. })));
        let first = ServerIdentity::load_or_create(&Disk, directory.path()).expect("made");
        let second = rotate(false, now).expect("changed");
        assert_ne!(first.key(), second.key());
        assert_eq!(ServerIdentity::load(&Disk, directory.path()).expect("readable"), Some(second.clone()));
        assert_eq!(second.keys(now), [second.key.clone(), first.key.clone()]);
        assert_eq!(second.keys(now + hour).len(), 1);
        // In a hurry two former keys would be needed.
        assert!(matches!(rotate(false, now + hour / 2), Err(IdentityError::Changing { .. })));
        let third = rotate(true, now + hour / 2).expect("asked for");
        assert_eq!(third.keys(now + hour / 2), [third.key.clone(), second.key.clone()]);
        rotate(false, now + 2 * hour).expect("the former key is out of use");
    }
}
