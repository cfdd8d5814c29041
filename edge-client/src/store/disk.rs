//! The store of a real device: a state directory.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use shared::id::{ClientId, RunId};
use shared::identity::SecretKey;
use shared::message::{TaskId, TrainReport, Verdict};
use shared::payload::Payload;

use super::client_state::ClientStates;
use super::error::StoreError;
use super::outbox::Outbox;
use super::personal::PersonalModels;
use super::server::ServerFile;
use super::{Store, SyncHandle, durable, identity};

/// The format of state directories that this program writes.
const FORMAT: u32 = 1;

/// A state directory, which this process has to itself until the store is dropped.
#[derive(Debug)]
pub struct DiskStore {
    directory: PathBuf,
    key: SecretKey,
    outbox: Outbox,
    locals: ClientStates,
    /// The lock is the system's and ends with the process, however that ends.
    _lock: File,
}

impl DiskStore {
    /// Opens a state directory; creates it, with a new identity, if there is none.
    pub fn open(directory: &Path) -> Result<Self, StoreError> {
        durable::create_dir_durably(directory)?;
        let lock = lock(directory)?;
        format(directory)?;
        let key = identity::load_or_create(&directory.join("identity"))?;
        let locals = ClientStates::new(directory.join("runs"));
        let outbox = Outbox::open(directory.join("outbox"), &locals)?;
        Ok(Self { directory: directory.to_path_buf(), key, outbox, locals, _lock: lock })
    }

    /// The device's identity, the same after every restart.
    #[must_use]
    pub fn client(&self) -> ClientId {
        self.key.public().client()
    }

    /// The key that proves it.
    #[must_use]
    pub fn key(&self) -> &SecretKey {
        &self.key
    }

    /// The state directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// What the device has made for itself.
    #[must_use]
    pub fn personal_models(&self) -> PersonalModels {
        PersonalModels::of(&self.directory)
    }

    /// Which server this client belongs to.
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

    fn save(
        &mut self,
        held: TaskId,
        report: &TrainReport,
        payload: &Payload,
        local: Option<&[u8]>,
    ) -> Result<(), StoreError> {
        self.outbox.save(&self.locals, held, report, &payload.to_bytes(), local)
    }

    fn sync_handle(&self) -> SyncHandle {
        self.outbox.sync_handle()
    }

    fn forget(&mut self, verdict: Option<&Verdict>) -> Result<(), StoreError> {
        if verdict.is_some_and(Verdict::counts) {
            self.outbox.adopt(&self.locals)
        } else {
            self.outbox.discard()
        }
    }

    fn client_state(&mut self, run: RunId) -> Result<Option<Vec<u8>>, StoreError> {
        match self.outbox.client_state(run)? {
            Some(newest) => Ok(Some(newest)),
            None => self.locals.read(run),
        }
    }

    fn save_personal(&mut self, run: RunId, bytes: &[u8]) -> Result<(), StoreError> {
        self.personal_models().save(run, bytes)
    }
}

/// Notes the format of a new directory, and turns back before that of a newer program is touched.
fn format(directory: &Path) -> Result<(), StoreError> {
    match noted_format(directory)? {
        Some(_) => Ok(()),
        None => durable::replace(&directory.join("format"), format!("{FORMAT}\n").as_bytes()),
    }
}

/// The format of a directory, which this program knows; `None` where none is noted.
fn noted_format(directory: &Path) -> Result<Option<u32>, StoreError> {
    let Some(text) = durable::read_text(&directory.join("format"))? else { return Ok(None) };
    let found = text.unwrap_or_default().trim().chars().take(20).collect::<String>();
    // A directory without a readable number is one whose power failed early.
    match found.parse::<u32>() {
        Ok(number) if number > FORMAT => {
            Err(StoreError::NewerDirectory { directory: directory.to_path_buf(), found, known: FORMAT })
        }
        number => Ok(number.ok()),
    }
}

/// Who a state directory makes of this device, if it has been used: what [`DiskStore::open`] would find, looked at without
/// changing anything and whether or not another process works there.
///
/// # Errors
/// Those that opening it would have for what is in it: a newer format, a damaged identity, nothing that can be read.
pub fn looked_into(directory: &Path) -> Result<Option<ClientId>, StoreError> {
    // What is no directory has an error of its own at the first file in it.
    noted_format(directory)?;
    let key = identity::load(&directory.join("identity"))?;
    ServerFile::of(directory).load()?;
    Ok(key.map(|key| key.public().client()))
}

fn lock(directory: &Path) -> Result<File, StoreError> {
    let path = directory.join("lock");
    let file = durable::private().open(&path).map_err(StoreError::io("create", &path))?;
    durable::chown_like_parent(&file, &path);
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::Locked { directory: directory.to_path_buf() }),
        Err(TryLockError::Error(error)) => Err(StoreError::io("lock", &path)(error)),
    }
}
