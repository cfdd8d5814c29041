//! The process and its terminal: standard output, signals.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::{Arc, OnceLock};

use serde::Serialize;
use shared::cli::{Signals, StopSignal};
use tokio::sync::watch;

use super::exit::Failure;
pub(super) use crate::events::sinks::terminal::{columns, tell};

/// Writes to standard output.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    written(io::stdout().write_all(text.as_bytes()))
}

/// The result of writing to standard output. A reader that has gone away (`| head`) is no error.
pub(super) fn written(result: io::Result<()>) -> Result<(), Failure> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::output(&error)),
        _ => Ok(()),
    }
}

/// Writes a value to standard output as one line of JSON.
pub(super) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    print(&(serde_json::to_string(value).map_err(Failure::internal)? + "\n"))
}

/// Prints the value as JSON, or as the text that people read.
pub(super) fn show(json: bool, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<(), Failure> {
    if json { print_json(value) } else { print(&text()) }
}

/// Whether this process was asked to stop, and by what.
#[derive(Clone, Debug)]
pub(super) struct StopRequest {
    /// Turns true with the request.
    pub stopped: watch::Receiver<bool>,
    signal: Arc<OnceLock<StopSignal>>,
}

impl StopRequest {
    /// Whether it was.
    #[cfg(any(feature = "cluster", feature = "simulate"))]
    pub(super) fn is_made(&self) -> bool {
        *self.stopped.borrow()
    }

    /// The end of a command that a signal stopped before its work was done.
    pub(super) fn failure(&self) -> Option<Failure> {
        self.signal.get().copied().map(Failure::Stopped)
    }
}

/// Ctrl-C (or SIGTERM) from now on: the first one is the request, the second one ends the process at once.
pub(super) fn stop_on_signal() -> StopRequest {
    let (stop, stopped) = watch::channel(false);
    let signal = Arc::new(OnceLock::new());
    let request = StopRequest { stopped, signal: signal.clone() };
    tokio::spawn(async move {
        let mut signals = match Signals::new() {
            Ok(signals) => signals,
            Err(error) => {
                tracing::warn!("requests to stop cannot be received: {error}");
                return stop.closed().await;
            }
        };
        let first = signals.next().await;
        signal.get_or_init(|| first);
        if io::stderr().is_terminal() {
            // Behind the ^C that a terminal shows.
            eprintln!();
        }
        tell("stopping; once more to stop at once");
        let _ = stop.send(true);
        signals.next().await.end_process();
    });
    request
}
