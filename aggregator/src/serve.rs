//! Serving a run to real devices.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tokio::sync::{mpsc, watch};

use crate::coordinator::{Outcome, Resume};
use crate::driver::{Notice, drive};
use crate::files::{Disk, FileLayer as _, write_durably};
use crate::quic::identity::ServerIdentity;
use crate::quic::{ListenError, Listener};
use crate::run::{Run, RunError};

/// Where devices find the run, written for scripts once connections are taken.
#[derive(Clone, Debug, Serialize)]
pub struct Ready {
    /// The address in use.
    pub address: SocketAddr,
    /// SHA-256 of the server's certificate, for `edge-client join --fingerprint`.
    pub fingerprint: String,
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
    /// The address cannot be used.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The ready file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    ReadyFile {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
}

/// Serves the run on `address` until it is over or `stop` turns true.
pub async fn serve(
    run: Run,
    resume: Resume,
    address: SocketAddr,
    identity: &ServerIdentity,
    ready_file: Option<&Path>,
    stop: watch::Receiver<bool>,
    notice: &mut (dyn FnMut(Notice<'_>) + Send),
) -> Result<(Run, Outcome), ServeError> {
    // A file of an earlier process would name a port that nobody listens on.
    if let Some(path) = ready_file {
        Disk.remove(path).map_err(|source| ServeError::ReadyFile { path: path.to_owned(), source })?;
    }
    let listener = Listener::bind(address, identity, run.config().policy.lost_after)?;
    let ready = Ready {
        address: listener.address(),
        fingerprint: identity.fingerprint_hex(),
        pid: std::process::id(),
        run: run.directory().root().to_owned(),
    };
    notice(Notice::Remark(format!("listening on {}, fingerprint {}", ready.address, ready.fingerprint)));
    if let Some(path) = ready_file {
        let json = serde_json::to_string(&ready).expect("addresses and strings are JSON");
        write_durably(&Disk, path, |out| out.write_all(format!("{json}\n").as_bytes()))
            .map_err(|source| ServeError::ReadyFile { path: path.to_owned(), source })?;
    }
    let (to_driver, from_peers) = mpsc::unbounded_channel();
    let (spool, max_payload) = (run.directory().spool(), run.max_payload());
    let accepting = tokio::spawn(listener.accept(spool, max_payload, run.config().data.clients, to_driver));
    let result = drive(run, resume, from_peers, stop, notice).await;
    // The listener notices that the driver hung up, and closes what is still open.
    let _ = accepting.await;
    Ok(result?)
}
