//! The store of a device: a state directory.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use shared::chown::chown_like_parent;
use shared::id::{ClientId, RunId};
use shared::identity::SecretKey;
use shared::message::{TaskId, TrainReport, Verdict};
use shared::payload::Payload;

use super::client_state::ClientStates;
use super::download::{DownloadFile, PartialDownload as _, SharedDownload};
use super::error::StoreError;
use super::frozen::FrozenFiles;
use super::masking::MaskingStates;
use super::outbox::Outbox;
use super::personal::PersonalModels;
use super::server::ServerFile;
use super::{SaveHandle, Standing, Store, SyncHandle, Update, durable, identity};

/// The format of state directories that this program writes.
const FORMAT: u32 = 1;

/// A state directory, locked for this process until the store is dropped.
#[derive(Debug)]
pub struct DiskStore {
    /// The directory.
    pub directory: PathBuf,
    /// The private key that proves the device's identity.
    pub key: SecretKey,
    outbox: Outbox,
    masking: MaskingStates,
    download: Arc<Mutex<DownloadFile>>,
    /// The system releases the lock when the process ends.
    _lock: File,
}

impl DiskStore {
    /// Opens a state directory. Creates it, with a new identity, if it is absent.
    pub fn open(directory: &Path) -> Result<Self, StoreError> {
        durable::create_dir_durably(directory)?;
        let lock = lock(directory)?;
        format(directory)?;
        remove_unfinished(directory)?;
        let key = identity::load_or_create(&directory.join("identity"))?;
        let outbox = Outbox::open(directory.join("outbox"), ClientStates::new(directory.join("runs")))?;
        let masking = MaskingStates::new(directory.join("runs"));
        let download = Arc::new(Mutex::new(DownloadFile::new(directory.join("download"))));
        Ok(Self { directory: directory.to_path_buf(), key, outbox, masking, download, _lock: lock })
    }

    /// The device's client id, the same after every restart.
    #[must_use]
    pub fn client(&self) -> ClientId {
        self.key.public().client()
    }

    /// The file with the server that this client belongs to.
    #[must_use]
    pub fn server(&self) -> ServerFile {
        ServerFile::of(&self.directory)
    }
}

impl Store for DiskStore {
    fn pending(&mut self) -> Result<Option<(TaskId, TrainReport)>, StoreError> {
        Ok(self.outbox.pending())
    }

    fn payload(&mut self) -> Result<Payload, StoreError> {
        Ok(self.outbox.payload()?.into())
    }

    fn save(&mut self, update: &Update) -> Result<(), StoreError> {
        let discard = || {
            let mut download = self.download.lock().unwrap_or_else(PoisonError::into_inner);
            download.discard(Some(update.id.round))
        };
        match self.outbox.save(update) {
            // What would only save time gives its room to what must not be lost.
            Err(error) if error.is_full() && discard() => self.outbox.save(update),
            Err(error) => Err(error),
            Ok(()) => {
                discard();
                Ok(())
            }
        }
    }

    fn sync_handle(&self) -> Option<SyncHandle> {
        Some(self.outbox.sync_handle())
    }

    fn forget(&mut self, verdict: Option<&Verdict>) -> Result<(), StoreError> {
        if verdict.is_some_and(Verdict::counts) { self.outbox.adopt() } else { self.outbox.discard() }
    }

    fn client_state(&mut self, run: RunId) -> Result<Option<Vec<u8>>, StoreError> {
        self.outbox.client_state(run)
    }

    fn standing(&mut self, run: RunId) -> Result<Standing, StoreError> {
        self.outbox.standing(run)
    }

    fn masking(&mut self, run: RunId) -> Result<Option<Vec<u8>>, StoreError> {
        self.masking.read(run)
    }

    fn keep_masking(&mut self, run: RunId, state: &[u8]) -> Result<(), StoreError> {
        self.masking.replace(run, state)
    }

    fn save_personal(&mut self, run: RunId, bytes: &[u8]) -> Result<(), StoreError> {
        PersonalModels::of(&self.directory).save(run, bytes)
    }

    fn frozen(&mut self, digest: &str) -> Result<Option<Bytes>, StoreError> {
        FrozenFiles::of(&self.directory).read(digest)
    }

    fn save_frozen(&self, digest: &str, encoded: &Bytes) -> Option<SaveHandle> {
        let (files, digest) = (FrozenFiles::of(&self.directory), digest.to_owned());
        let encoded = encoded.clone();
        Some(Box::new(move || files.save(&digest, &encoded)))
    }

    fn download(&self) -> Option<SharedDownload> {
        Some(self.download.clone())
    }
}

/// Removes the files that an earlier process could not finish: they would fill a disk in time. The outbox has its own.
fn remove_unfinished(directory: &Path) -> Result<(), StoreError> {
    let runs = durable::entries(&directory.join("runs"))?;
    let folders = ["frozen", "personal"].map(|name| directory.join(name));
    durable::remove_unfinished(directory)?;
    folders
        .iter()
        .chain(&runs)
        .filter(|path| path.is_dir())
        .try_for_each(|path| durable::remove_unfinished(path))
}

/// Records the format of a new directory. Fails before it changes a directory of a newer format.
fn format(directory: &Path) -> Result<(), StoreError> {
    match noted_format(directory)? {
        Some(_) => Ok(()),
        None => durable::replace(&directory.join("format"), format!("{FORMAT}\n").as_bytes()),
    }
}

/// The recorded format of a directory; `None` if there is none. An unknown format is an error.
fn noted_format(directory: &Path) -> Result<Option<u32>, StoreError> {
    let Some(text) = durable::read_text(&directory.join("format"))? else { return Ok(None) };
    let found = text.unwrap_or_default().trim().chars().take(20).collect::<String>();
    // A power failure right after the start can leave the file unreadable.
    match found.parse::<u32>() {
        Ok(number) if number > FORMAT => {
            Err(StoreError::NewerDirectory { directory: directory.to_path_buf(), found, known: FORMAT })
        }
        number => Ok(number.ok()),
    }
}

/// The client id in a state directory; `None` if it is new. Changes nothing, and another process may be using the directory.
///
/// # Errors
/// Those of [`DiskStore::open`] for the content of the directory: a newer format, a damaged identity, unreadable files.
pub fn client_of(directory: &Path) -> Result<Option<ClientId>, StoreError> {
    noted_format(directory)?;
    let key = identity::load(&directory.join("identity"))?;
    ServerFile::of(directory).load()?;
    Ok(key.map(|key| key.public().client()))
}

/// Whether a process takes part with this state directory now.
#[must_use]
pub fn is_in_use(directory: &Path) -> bool {
    // Shared, so that two that look do not see each other.
    let held = |file: File| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
    File::open(directory.join("lock")).is_ok_and(held)
}

fn lock(directory: &Path) -> Result<File, StoreError> {
    let path = directory.join("lock");
    let file = durable::private().open(&path).map_err(StoreError::io("create", &path))?;
    chown_like_parent(&file, &path);
    match shared::durable::lock(&file) {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::Locked { directory: directory.to_path_buf() }),
        Err(TryLockError::Error(error)) => Err(StoreError::io("lock", &path)(error)),
    }
}
