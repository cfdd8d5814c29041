//! Serving a run to real devices.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use shared::identity::PublicKey;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::coordinator::{Outcome, Resume};
use crate::driver::{Ended, Latecomers, Notice, drive};
use crate::run::{Run, RunError};
use crate::storage::{Disk, FileLayer as _, write_durably};
use crate::transport::Listener;
use crate::transport::identity::ServerIdentity;

/// Where devices find the run, written for scripts once connections are taken.
#[derive(Clone, Debug, Serialize)]
pub struct Ready {
    /// The address in use.
    pub address: SocketAddr,
    /// The server's key, for `edge-client join --server-key`.
    pub key: PublicKey,
    /// This process.
    pub pid: u32,
    /// The run's directory.
    pub run: PathBuf,
}

/// Why a run cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The run failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The ready file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    ReadyFile {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
}

/// A run that is served no more, while its port still is.
pub struct Served {
    /// The run, for its model and its report.
    pub run: Run,
    /// How it ended.
    pub outcome: Outcome,
    /// Who is still to be told.
    pub door: Door,
}

/// The port after the last round. Devices that have not heard that the run is over are told here when they come.
pub struct Door {
    latecomers: Latecomers,
    accepting: JoinHandle<()>,
}

impl Door {
    /// Known devices that have not heard that the run is over.
    #[must_use]
    pub fn awaited(&self) -> usize {
        self.latecomers.untold()
    }

    /// Answers until all of them have heard it, `time` is over or `stop` changes; then closes. Gives how many have not heard it.
    pub async fn close_after(mut self, time: Duration, stop: watch::Receiver<bool>) -> usize {
        if self.awaited() > 0 {
            self.latecomers.answer(time, stop).await;
        }
        let untold = self.awaited();
        // The listener notices that nobody listens to it any more, and closes what is still open.
        drop(self.latecomers);
        let _ = self.accepting.await;
        untold
    }
}

/// Serves the run with `listener` until it is over or `stop` turns true.
pub async fn serve(
    run: Run,
    resume: Resume,
    listener: Listener,
    identity: &ServerIdentity,
    ready_file: Option<&Path>,
    stop: watch::Receiver<bool>,
    notice: &mut (dyn FnMut(Notice<'_>) + Send),
) -> Result<Served, ServeError> {
    // A file of an earlier process would name a port that nobody listens on.
    if let Some(path) = ready_file {
        Disk.remove(path).map_err(|source| ServeError::ReadyFile { path: path.to_owned(), source })?;
    }
    let ready = Ready {
        address: listener.address(),
        key: identity.key(),
        pid: std::process::id(),
        run: run.directory().root().to_owned(),
    };
    notice(Notice::Remark(format!("listening on {}, key {}", ready.address, ready.key)));
    if let Some(path) = ready_file {
        let json = serde_json::to_string(&ready).expect("addresses and strings are JSON");
        write_durably(&Disk, path, |out| out.write_all(format!("{json}\n").as_bytes()))
            .map_err(|source| ServeError::ReadyFile { path: path.to_owned(), source })?;
    }
    let (to_driver, from_peers) = mpsc::unbounded_channel();
    let (spool, max_payload) = (run.directory().spool(), run.max_payload());
    // Whoever stops a run goes on with it, also with what is there of unfinished uploads.
    let over = Arc::<AtomicBool>::default();
    let listener = listener.keeping_partial_uploads_unless(over.clone());
    let accepting = tokio::spawn(listener.accept(spool, max_payload, run.config().data.clients, to_driver));
    // It holds the run: boxed, it is moved about as a pointer.
    match Box::pin(drive(run, resume, from_peers, stop, notice)).await {
        Ok(Ended { run, outcome, latecomers }) => {
            over.store(outcome != Outcome::Stopped, Ordering::Relaxed);
            Ok(Served { run, outcome, door: Door { latecomers, accepting } })
        }
        Err(error) => {
            let _ = accepting.await;
            Err(error.into())
        }
    }
}
