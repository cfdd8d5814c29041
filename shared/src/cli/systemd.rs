//! systemd, where it started the program as a service of type `notify`: readiness, the status line of `systemctl status`, and
//! keep-alives for `WatchdogSec=`. See `sd_notify(3)`.

use std::time::Duration;

/// The service manager; without one, nothing is sent.
#[derive(Clone, Copy, Debug)]
pub struct Systemd {
    listens: bool,
}

impl Systemd {
    /// As `NOTIFY_SOCKET` says.
    #[must_use]
    pub fn of_environment() -> Self {
        Self { listens: cfg!(unix) && std::env::var_os("NOTIFY_SOCKET").is_some() }
    }

    /// Whether there is one.
    #[must_use]
    pub fn listens(self) -> bool {
        self.listens
    }

    /// The longest time between two keep-alives, if it expects any.
    #[must_use]
    pub fn watchdog(self) -> Option<Duration> {
        #[cfg(unix)]
        return sd_notify::watchdog_enabled().filter(|_| self.listens);
        #[cfg(not(unix))]
        None
    }

    /// The program is ready.
    pub fn ready(self) {
        self.send("READY=1");
    }

    /// The program makes progress.
    pub fn alive(self) {
        self.send("WATCHDOG=1");
    }

    /// What the program is doing, in one line.
    pub fn status(self, line: &str) {
        self.send(&format!("STATUS={line}"));
    }

    /// The program was asked to stop.
    pub fn stopping(self) {
        self.send("STOPPING=1");
    }

    /// If it cannot be reached it restarts the program, which is at least as good as ending it here.
    #[cfg_attr(not(unix), allow(unused_variables))]
    fn send(self, state: &str) {
        #[cfg(unix)]
        if self.listens
            && let Err(error) = sd_notify::notify(&[sd_notify::NotifyState::Custom(state)])
        {
            tracing::warn!("systemd cannot be notified: {error}");
        }
    }
}
