//! systemd, where it started the program as a service of type `notify`: readiness, the status line of `systemctl status`, and
//! keep-alives for `WatchdogSec=`. See `sd_notify(3)`.

use std::time::Duration;

#[cfg(unix)]
use sd_notify::NotifyState;

use super::event::printable;
use super::status::Status;
use crate::driver::Notice;

/// Interval of progress in the status line.
const PROGRESS: Duration = Duration::from_secs(10);

/// Keep-alives per watchdog period.
const KEEP_ALIVES: u32 = 4;

/// The service manager; without one, nothing is sent.
pub(super) struct Systemd {
    listens: bool,
    status: Status,
    sent: String,
}

impl Systemd {
    /// As `NOTIFY_SOCKET` says.
    pub(super) fn new() -> Self {
        let listens = cfg!(unix) && std::env::var_os("NOTIFY_SOCKET").is_some();
        Self { listens, status: Status::new(), sent: String::new() }
    }

    /// The interval of progress notices.
    pub(super) fn progress(&self) -> Option<Duration> {
        self.listens.then_some(PROGRESS)
    }

    /// The interval of keep-alives.
    #[cfg(unix)]
    pub(super) fn alive(&self) -> Option<Duration> {
        let period = sd_notify::watchdog_enabled().filter(|_| self.listens)?;
        Some((period / KEEP_ALIVES).max(Duration::from_millis(1)))
    }

    /// There is no service manager.
    #[cfg(not(unix))]
    pub(super) fn alive(&self) -> Option<Duration> {
        None
    }

    /// The client is ready and connects.
    pub(super) fn ready(&mut self, server: &str) {
        self.status.connecting(server);
        #[cfg(unix)]
        Self::send(&[NotifyState::Ready]);
        self.status();
    }

    /// Handles a notice of the driver.
    pub(super) fn handle(&mut self, notice: &Notice) {
        #[cfg(unix)]
        if matches!(notice, Notice::Alive) {
            Self::send(&[NotifyState::Watchdog]);
        }
        self.status.handle(notice);
        self.status();
    }

    /// The client was asked to stop.
    pub(super) fn stopping() {
        #[cfg(unix)]
        Self::send(&[NotifyState::Stopping]);
    }

    /// Sends the status line if it has changed.
    fn status(&mut self) {
        let line = printable(&self.status.line());
        if self.listens && line != self.sent {
            #[cfg(unix)]
            Self::send(&[NotifyState::Status(&line)]);
            self.sent = line;
        }
    }

    /// Sends a state, if there is a service manager. If it cannot be reached it restarts the program, which is at least as good as
    /// ending it here.
    #[cfg(unix)]
    fn send(state: &[NotifyState<'_>]) {
        if let Err(error) = sd_notify::notify(state) {
            tracing::warn!("systemd cannot be notified: {error}");
        }
    }
}
