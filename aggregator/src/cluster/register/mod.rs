//! One register of devices and tickets for all servers of a lab.
//!
//! Each server has its own [database](crate::database), which all of its code and its operator's commands read and change, as if it were
//! alone. A [`Synchroniser`] beside it carries changes to a [store](crate::cluster) and back: it notices what was changed here, merges
//! what was changed elsewhere, and both sides remember nothing but what they agreed on last. A device that is revoked at one server is
//! cut off at all of them within about a second, by [`Admission::watch`](crate::enrolment::Admission::watch) of each.
//!
//! The register of a lab has a revision, which every change raises under a lock of the lab's row: what a server reads with a revision is
//! complete up to it. A server writes only if it has read and merged all that is there; otherwise it reads first. So there is one order
//! of changes, and one rule for those that did not know of each other.
//!
//! A ticket is used in the store before the device is admitted, in the transaction that admits it for all servers. While the store is
//! away, devices with a new ticket are told to try again, and known ones are admitted as before. What is changed meanwhile is carried when
//! it is back, also after a restart.
//!
//! When a device was last here, from where and with what program stays with the server that saw it: these change all the time, and
//! decide nothing. Numbers of tickets, too, are of each server; the store knows a ticket by the digest of its secret, as the database does.
//!
//! | module | what it is |
//! |---|---|
//! | `rows` | rows of devices and tickets |
//! | `merge` | the rule for rows that were changed at several servers |
//! | `local` | this server's database: what was changed, what was agreed on |
//! | `apply` | what the store says, merged into that database |
//! | `store` | the store: what is new there, and changes to it |
//! | `claim` | uses of tickets |
//! | `worker` | the thread |
//! | [`error`] | what is in the way |

mod apply;
mod claim;
pub mod error;
mod local;
mod merge;
mod rows;
mod store;
mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use shared::identity::PublicKey;

use self::claim::{Claims, Message};
pub use self::error::RegisterError;
use self::worker::Worker;
use super::address::StoreAddress;
use super::connection::Connection;
use crate::database::{Database, DatabaseError};
use crate::enrolment::SharedTickets;

/// Keeps the register of this server and that of the store the same until it is dropped.
#[derive(Debug)]
pub struct Synchroniser {
    claims: Claims,
    thread: Option<JoinHandle<()>>,
}

impl Synchroniser {
    /// Starts to synchronise `database` with the register that the store has of the lab whose servers are known by the key `lab`. If the
    /// store answers, both say the same when this returns; if it does not, that is told, and tried again by a thread. Blocks meanwhile.
    ///
    /// # Errors
    /// What does not pass by itself: the store lets this program not in, is of a newer one, or the database cannot be read.
    pub fn start(database: &Database, address: StoreAddress, lab: PublicKey) -> Result<Self, RegisterError> {
        let (to, inbox) = mpsc::channel();
        let away = Arc::new(AtomicBool::new(true));
        let worker = Worker {
            database: database.another()?,
            connection: Connection::new(address),
            lab: lab.as_bytes().to_vec(),
            inbox,
            away: away.clone(),
        };
        let (ready, is_ready) = mpsc::sync_channel(1);
        let run = move || worker.run(|done| drop(ready.send(done)));
        let thread = std::thread::Builder::new().name("register".to_owned()).spawn(run);
        let this = Self { claims: Claims { to, away }, thread: Some(thread.map_err(RegisterError::Thread)?) };
        // It is told once, in any case.
        is_ready.recv().unwrap_or(Ok(()))?;
        Ok(this)
    }

    /// The tickets of the lab, for [`Admission::sharing`](crate::enrolment::Admission::sharing).
    #[must_use]
    pub fn tickets(&self) -> Arc<dyn SharedTickets> {
        Arc::new(self.claims.clone())
    }

    /// Whether the store cannot be used now.
    #[must_use]
    pub fn is_away(&self) -> bool {
        self.claims.away.load(Ordering::Relaxed)
    }
}

/// Waits until all that was changed in `database` is in the store that the servers of `lab` share; at most this long. Says whether it is.
/// The database of a server that shares nothing has nothing to wait for.
///
/// # Errors
/// The database cannot be read.
pub fn is_carried(database: &Database, lab: PublicKey, patience: Duration) -> Result<bool, DatabaseError> {
    /// How often it is looked.
    const LOOK: Duration = Duration::from_millis(20);
    if local::place(database, lab.as_bytes())?.is_none() {
        return Ok(true);
    }
    let until = Instant::now() + patience;
    loop {
        if local::changed(database)?.is_empty() {
            return Ok(true);
        }
        if Instant::now() >= until {
            return Ok(false);
        }
        std::thread::sleep(LOOK);
    }
}

impl Drop for Synchroniser {
    fn drop(&mut self) {
        let _ = self.claims.to.send(Message::Stop);
        // Where the store does not answer, the thread may wait for it for a while, with nothing to lose.
        if let Some(thread) = self.thread.take().filter(|_| !self.is_away()) {
            let _ = thread.join();
        }
    }
}
