//! What must survive a restart of the process: the device's identity, a finished update until its receipt
//! arrives, and what the algorithm keeps between rounds.
//!
//! A [`DiskStore`] keeps them in a state directory. A crash of the process or a reboot loses nothing of it. A
//! power failure loses at most the update of the round that has just been trained, if the
//! [driver](crate::driver) did not think it worth a sync (training that took less than a second) or the sync
//! was still under way: the device then trains that round again. A [`MemoryStore`] is the same for simulated
//! clients, which live and die with their process.
//!
//! The order in which the driver uses either is that of a round: [`save`](Store::save) when training is done,
//! upload while the [`sync_handle`](Store::sync_handle) runs beside it, [`forget`](Store::forget) at the
//! receipt.
//!
//! # The state directory
//!
//! ```text
//! STATE/                  mode 0700
//!     format              version of all of this
//!     identity            the client's private key, 64 hexadecimal digits, mode 0600
//!     server              the server's key and addresses, and the ticket that it has not taken yet; JSON, mode 0600
//!     lock                locked by the process that uses the directory
//!     outbox/             there is at most one update without a receipt
//!         update          the update: run, round, report, payload
//!         local           what the algorithm keeps, as of this update
//!     runs/RUN-ID/local   what the algorithm keeps, as of the last update that counted
//!     personal/RUN-ID.safetensors     the personal model that was made in a run, for use without a connection
//! ```
//!
//! An update and the client state that goes with it are written to `outbox.partial/`, which is then renamed:
//! after a crash there are both or neither. Forgetting an update that [counts](Verdict::counts) moves its `local` to the
//! run's directory; one that does not is renamed to `outbox.partial/` again and removed whole, so that training goes on
//! from the state before it. The run directories used last are kept, [`RUNS_KEPT`] of them; older ones are removed.
//!
//! Nothing here is worth stopping a client for that training again brings back: a half-written or damaged
//! outbox is removed with a warning. What cannot be brought back (identity, client state of a run, the
//! server's key) is an error that says what to do. So is a file of a newer format: its program may return. Client state
//! concerns one run: its error is that run's failed round, of which the server hears, and never the end of the process.

mod client_state;
mod disk;
mod durable;
mod error;
mod file_format;
mod identity;
mod memory;
mod outbox;
mod personal;
mod server;

use shared::id::RunId;
use shared::message::{TaskId, TrainReport, Verdict};
use shared::payload::Payload;

pub use disk::{DiskStore, looked_into};
pub use error::StoreError;
pub use memory::MemoryStore;
pub use personal::PersonalModels;
pub use server::{KnownServer, ServerFile};

/// Runs whose client state is kept, the most recently used ones. A device takes part in one run at a time;
/// the others are there for federations that take turns.
pub const RUNS_KEPT: usize = 8;

/// Makes durable what was kept before it was made. It may run on any thread, and after the update was
/// forgotten, when it has nothing left to do.
pub type SyncHandle = Box<dyn FnOnce() -> Result<(), StoreError> + Send>;

/// What survives a restart of the process (or, in memory, a lost connection).
pub trait Store: Send {
    /// The update without a receipt that an earlier process, or this one, has kept.
    fn pending(&mut self) -> Result<Option<(TaskId, TrainReport)>, StoreError>;

    /// The held update's payload, an encoded record. [`StoreError::NothingHeld`] if there is none.
    fn payload(&mut self) -> Result<Payload, StoreError>;

    /// Keeps an update and, unless it is `None`, what the algorithm keeps from this round to the next in
    /// the update's run: both or neither survive a crash of the process. An update still held is let go of
    /// first, as one that does not count unless it is being forgotten as one that does. Power may still fail: see
    /// [`sync_handle`](Self::sync_handle).
    fn save(
        &mut self,
        held: TaskId,
        report: &TrainReport,
        payload: &Payload,
        local: Option<&[u8]>,
    ) -> Result<(), StoreError>;

    /// A task that makes what was kept so far durable. It is handed out, so that it can run on a thread of
    /// its own beside the upload.
    fn sync_handle(&self) -> SyncHandle;

    /// Lets go of the held update, if there is one. What the algorithm kept with it stays if the update
    /// [counts](Verdict::counts), and goes with it if it does not, or nobody knows: then what was kept before is what holds.
    fn forget(&mut self, verdict: Option<&Verdict>) -> Result<(), StoreError>;

    /// What the algorithm kept last in this run, with the held update or before it.
    fn client_state(&mut self, run: RunId) -> Result<Option<Vec<u8>>, StoreError>;

    /// Keeps the device's personal model of a run, durably, in place of an earlier one: a [`Personal`](crate::personal) file.
    fn save_personal(&mut self, run: RunId, bytes: &[u8]) -> Result<(), StoreError>;
}
