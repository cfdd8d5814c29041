//! Requests to stop (Ctrl-C and, on Unix, SIGTERM), and the end of a process that was stopped so.

use std::io;

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What asked the process to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopSignal {
    /// Ctrl-C: SIGINT.
    Interrupt,
    /// SIGTERM, as systemd, `kill` and `timeout` send it.
    Terminate,
}

impl StopSignal {
    /// The exit code that a shell reports for a process which the signal ended: 128 and the signal's number.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Interrupt => 130,
            Self::Terminate => 143,
        }
    }

    /// Ends the process by this signal once all is safe. A shell stops its loop or list of commands only then: after an
    /// ordinary exit with any code it takes the signal for handled. A process without a default action for signals
    /// (the first one of a container) exits with the same code.
    pub fn end_process(self) -> ! {
        #[cfg(unix)]
        if std::process::id() != 1 {
            let number = i32::from(self.exit_code()) - 128;
            // Returns only where the signal is blocked or refused.
            let _ = signal_hook::low_level::emulate_default_handler(number);
        }
        std::process::exit(self.exit_code().into())
    }
}

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
    pub async fn next(&mut self) -> StopSignal {
        #[cfg(unix)]
        tokio::select! {
            _ = self.interrupt.recv() => StopSignal::Interrupt,
            _ = self.terminate.recv() => StopSignal::Terminate,
        }
        #[cfg(not(unix))]
        {
            if tokio::signal::ctrl_c().await.is_err() {
                // Without signals there is no request to stop.
                std::future::pending::<()>().await;
            }
            StopSignal::Interrupt
        }
    }
}
