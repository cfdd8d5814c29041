//! Requests to stop: Ctrl-C and, on Unix, SIGTERM.

use std::io;

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Receives requests to stop from the moment it is made.
#[derive(Debug)]
pub struct Signals {
    #[cfg(unix)]
    interrupt: Signal,
    #[cfg(unix)]
    terminate: Signal,
}

impl Signals {
    /// Takes the signals over from the system's default, which is to end the process. Needs a tokio runtime.
    #[cfg(unix)]
    pub fn new() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// The handler is installed at the first wait.
    #[cfg(not(unix))]
    pub fn new() -> io::Result<Self> {
        Ok(Self {})
    }

    /// Waits for the next request.
    pub async fn next(&mut self) {
        #[cfg(unix)]
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
        #[cfg(not(unix))]
        if tokio::signal::ctrl_c().await.is_err() {
            // Without signals there is no request to stop.
            std::future::pending::<()>().await;
        }
    }
}
