//! The store: what must survive a restart of the process. The device's identity, a finished update until its receipt, the client
//! state that the algorithm keeps between rounds, the secrets of secure aggregation, and the part of a long download that has arrived.
//!
//! A [`DiskStore`] keeps them in a state directory. A crash of the process or a reboot loses nothing. A power failure loses at most
//! the update of the round just trained, and never client state of an update that counts: such an update is synced before it is
//! sent, any other beside the upload or not at all (training that took less than a second). What is lost is trained again, unless
//! the server has it. A [`MemoryStore`] does the same for simulated clients, which end with their process.
//!
//! The driver uses a store in the order of a round: [`save`](Store::save) when training is done, the
//! [`sync_handle`](Store::sync_handle) before the upload or beside it, [`forget`](Store::forget) at the receipt.
//!
//! # The state directory
//!
//! ```text
//! STATE/                  mode 0700
//!     format              version of the whole directory
//!     identity            the client's private key, 64 hexadecimal digits, and their checksum; mode 0600
//!     server              the server's key and addresses, and the ticket until it is redeemed; JSON with a checksum, mode 0600
//!     lock                locked by the process that uses the directory
//!     outbox/             at most one update without a receipt
//!         update          the update: run, round, report, payload
//!         local           the client state as of this update
//!     runs/RUN-ID/local   the client state as of the last update that counted
//!     runs/RUN-ID/masking the secret of the newest exchange of keys, and what it was used for
//!     personal/RUN-ID.safetensors     the personal model of a run, for use without a connection
//!     frozen/SHA256.safetensors       parameters that runs do not learn, by their digest; the four used last
//!     download                        what has arrived of a task that takes long to receive, until its update is saved
//! ```
//!
//! An update and its client state are written to `outbox.partial/`, which is then renamed: after a crash both exist or neither.
//! Forgetting an update that [counts](Verdict::counts) moves its `local` to the run's directory. Any other is renamed to
//! `outbox.partial/` again and removed as a whole, so that training continues from the state before it. The run directories used
//! last are kept, [`RUNS_KEPT`] of them; older ones are removed.
//!
//! Other files are written beside their place, with the suffix `.partial`. What cannot be finished is removed at once, and what a crash
//! leaves by the next start.
//!
//! A half-written or damaged outbox is removed with a warning: training again brings it back. What cannot be brought back
//! (identity, client state, the server's key) is an error that says what to do. So is a file of a newer format: its program may
//! return. Client state belongs to one run: an error in it fails that run's round, and does not end the process. A partial download
//! that cannot be written or read is given up: its task is received from the beginning. Frozen parameters that are damaged are removed
//! with a warning, and received again.

mod client_state;
mod disk;
mod download;
mod durable;
mod error;
#[cfg(feature = "faults")]
pub mod faults;
mod file_format;
mod frozen;
mod identity;
mod masking;
mod memory;
mod outbox;
mod personal;
mod server;

use std::sync::PoisonError;

use bytes::Bytes;
use shared::id::RunId;
use shared::message::{CountedUpdate, TaskId, TrainReport, Verdict};
use shared::payload::Payload;

pub use client_state::{StoredState, read_state, write_state};
pub use disk::{DiskStore, client_of, is_in_use};
pub use download::{Beginning, PartialDownload, SharedDownload};
pub use error::StoreError;
pub use memory::MemoryStore;
pub use personal::PersonalModels;
pub use server::{KnownServer, ServerFile};

/// Number of runs whose client state is kept, the last used ones. A device takes part in one run at a time; more are kept for
/// federations that take turns.
pub const RUNS_KEPT: usize = 8;

/// Syncs what was saved before it was made. It may run on any thread, also after the update was forgotten: then it does nothing.
pub type SyncHandle = Box<dyn FnOnce() -> Result<(), StoreError> + Send>;

/// Saves what it was made for, on any thread.
pub type SaveHandle = Box<dyn FnOnce() -> Result<(), StoreError> + Send>;

/// Which client state of a run is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// There is none.
    Absent,
    /// That of an earlier program, which did not write down the round.
    Unknown,
    /// That of this update, which counted.
    After(CountedUpdate),
}

/// A finished update, to be saved until its receipt.
#[derive(Clone, Debug)]
pub struct Update {
    /// The task that it is of.
    pub id: TaskId,
    /// How the training went.
    pub report: TrainReport,
    /// What is sent to the server, an encoded record.
    pub payload: Payload,
    /// The client state as of this update, an encoded record, if there is any.
    pub local: Option<Vec<u8>>,
}

/// Storage that survives a restart of the process (or, in memory, a lost connection).
pub trait Store: Send {
    /// The update without a receipt, saved by this process or an earlier one.
    fn pending(&mut self) -> Result<Option<(TaskId, TrainReport)>, StoreError>;

    /// The payload of the pending update, an encoded record. [`StoreError::NothingHeld`] if there is none.
    fn payload(&mut self) -> Result<Payload, StoreError>;

    /// Saves an update with its client state: both or neither survive a crash of the process. Drops an update that is still pending
    /// first, as one that does not count, unless it is already being forgotten as one that does. Discards the
    /// [download](Self::download) of its task. Not yet safe from a power failure: see [`sync_handle`](Self::sync_handle).
    fn save(&mut self, update: &Update) -> Result<(), StoreError>;

    /// A job that syncs what was saved so far. It can run on another thread beside the upload. `None` if there is nothing to sync,
    /// since all of it ends with the process.
    fn sync_handle(&self) -> Option<SyncHandle>;

    /// Deletes the pending update, if there is one. Commits its client state if the verdict [counts](Verdict::counts) the update;
    /// otherwise restores the previous state.
    fn forget(&mut self, verdict: Option<&Verdict>) -> Result<(), StoreError>;

    /// The latest client state of this run: that of the pending update, or else the committed one.
    fn client_state(&mut self, run: RunId) -> Result<Option<Vec<u8>>, StoreError>;

    /// Which client state of this run is committed. That of a pending update is, once the update was
    /// [forgotten](Self::forget) as one that counts, even if the disk has had no room to move it.
    fn standing(&mut self, run: RunId) -> Result<Standing, StoreError>;

    /// The state of secure aggregation in this run, as it was [kept](Self::keep_masking) last. `None` as well if it is damaged: the device
    /// then begins the next exchange of keys afresh.
    fn masking(&mut self, run: RunId) -> Result<Option<Vec<u8>>, StoreError> {
        let _ = run;
        Ok(None)
    }

    /// Replaces the state of secure aggregation in this run durably. By default no store keeps any, and its device takes part in no
    /// such run.
    fn keep_masking(&mut self, run: RunId, state: &[u8]) -> Result<(), StoreError> {
        let _ = (run, state);
        Err(StoreError::KeepsNoSecrets)
    }

    /// Saves the personal model of a run durably, a [`Personal`](shared::personalisation::Personal) file, and replaces an earlier one.
    fn save_personal(&mut self, run: RunId, bytes: &[u8]) -> Result<(), StoreError>;

    /// The frozen parameters of this digest, encoded, if they are kept and sound. By default none are kept.
    fn frozen(&mut self, digest: &str) -> Result<Option<Bytes>, StoreError> {
        let _ = digest;
        Ok(None)
    }

    /// A job that keeps frozen parameters, which have this digest, over runs and restarts. It can run on another thread: there may be
    /// many of them. `None`, as by default, if they are not kept.
    fn save_frozen(&self, digest: &str, encoded: &Bytes) -> Option<SaveHandle> {
        let _ = (digest, encoded);
        None
    }

    /// The partial download, for the transport; `None` if transports of this store bring every task whole.
    fn download(&self) -> Option<SharedDownload> {
        None
    }

    /// Discards the partial download of the task of `round`, or any: it is done, or no longer wanted.
    fn discard_download(&mut self, round: Option<u32>) {
        if let Some(download) = self.download() {
            download.lock().unwrap_or_else(PoisonError::into_inner).discard(round);
        }
    }
}
