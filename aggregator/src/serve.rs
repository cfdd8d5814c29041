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
use tracing::warn;

use crate::control;
use crate::coordinator::{Outcome, Resume};
use crate::driver::{Drain, Ended, drive};
use crate::events::{Notice, Sink};
use crate::peer::FromPeer;
use crate::run::{Run, RunError};
use crate::storage::{Disk, write_durably};
use crate::transport::Listener;
use crate::transport::identity::ServerIdentity;

/// Address and key, written to a file for scripts once devices can connect.
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

impl Ready {
    /// Writes it to the file that was asked for, if one was.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, file: Option<&Path>) -> Result<(), ServeError> {
        let Some(path) = file else { return Ok(()) };
        let json = serde_json::to_string(self).expect("addresses and strings are JSON");
        write_durably(&Disk, path, |out| out.write_all(format!("{json}\n").as_bytes()))
            .map_err(|source| ServeError::ReadyFile { path: path.to_owned(), source })
    }
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

/// A run whose rounds are over, while its port is still open.
pub struct Served {
    /// The run, for its model and its report.
    pub run: Run,
    /// How it ended.
    pub outcome: Outcome,
    /// The port, where devices are still to be told that the run is over.
    pub shutdown: Shutdown,
}

/// A graceful shutdown: the port stays open after the last round, and devices that connect are told that the run is over.
pub struct Shutdown {
    drain: Drain,
    accepting: JoinHandle<()>,
}

impl Shutdown {
    /// How many known devices have not confirmed that the run is over.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.drain.pending()
    }

    /// Answers until all of them have confirmed, `timeout` is over or `stop` changes; then closes the port. Gives how many have not
    /// confirmed.
    pub async fn finish(mut self, timeout: Duration, stop: watch::Receiver<bool>) -> usize {
        if self.pending() > 0 {
            self.drain.run(timeout, stop).await;
        }
        let pending = self.pending();
        // Without a receiver the listener ends, and closes the connections that are left.
        drop(self.drain);
        let _ = self.accepting.await;
        pending
    }
}

/// Serves the run with `listener` until it is over or `stop` turns true.
pub async fn serve(
    run: Run,
    resume: Resume,
    mut listener: Listener,
    identity: &ServerIdentity,
    ready_file: Option<&Path>,
    stop: watch::Receiver<bool>,
    sink: &mut dyn Sink,
) -> Result<Served, ServeError> {
    let ready = Ready {
        address: listener.address(),
        key: identity.key(),
        pid: std::process::id(),
        run: run.directory().root().to_owned(),
    };
    sink.receive(&Notice::Listening { address: ready.address, key: ready.key });
    ready.write(ready_file)?;
    let (to_driver, from_peers) = mpsc::unbounded_channel();
    let (spool, max_payload) = (run.directory().spool(), run.max_payload());
    // A run that is stopped will be continued, with its unfinished uploads.
    let over = Arc::<AtomicBool>::default();
    listener.over = over.clone();
    let admission = listener.admission();
    let clients = run.config().data.clients;
    let accepting = tokio::spawn(listener.accept(spool, max_payload, clients, to_driver.clone()));
    let served = serve_peers(run, resume, (from_peers, to_driver), accepting, stop, sink).await?;
    over.store(served.outcome != Outcome::Stopped, Ordering::Relaxed);
    let recorded = tokio::task::spawn_blocking(move || admission.record()).await;
    if let Ok(Err(error)) = recorded {
        warn!("who was here cannot be written down: {error}");
    }
    Ok(served)
}

/// Serves the run to those that speak through `peers` until it is over or `stop` turns true. `accepting` ends when nothing more is
/// heard of them.
pub async fn serve_peers(
    run: Run,
    resume: Resume,
    (peers, to_driver): (mpsc::UnboundedReceiver<FromPeer>, mpsc::UnboundedSender<FromPeer>),
    accepting: JoinHandle<()>,
    stop: watch::Receiver<bool>,
    sink: &mut dyn Sink,
) -> Result<Served, ServeError> {
    control::watch(run.directory(), to_driver).map_err(|source| {
        let path = run.directory().state();
        RunError::Disk { action: "look for requests in", path, source }
    })?;
    // The future holds the run: boxed, it moves as a pointer.
    match Box::pin(drive(run, resume, peers, stop, sink)).await {
        Ok(Ended { run, outcome, drain }) => {
            Ok(Served { run, outcome, shutdown: Shutdown { drain, accepting } })
        }
        Err(error) => {
            let _ = accepting.await;
            Err(error.into())
        }
    }
}
