//! Reports of `join` to systemd: readiness, status line and keep-alives.

use std::time::Duration;

use shared::cli::Systemd;

use super::event::printable;

use crate::driver::Notice;
use crate::status::line::StatusLine;

/// Interval of progress in the status line.
const PROGRESS: Duration = Duration::from_secs(10);

/// Keep-alives per watchdog period.
const KEEP_ALIVES: u32 = 4;

/// The service manager, and the status line that it shows.
pub(super) struct Service {
    systemd: Systemd,
    status: StatusLine,
    sent: String,
}

impl Service {
    pub(super) fn new() -> Self {
        Self { systemd: Systemd::of_environment(), status: StatusLine::new(), sent: String::new() }
    }

    /// The interval of progress notices.
    pub(super) fn progress(&self) -> Option<Duration> {
        self.systemd.listens().then_some(PROGRESS)
    }

    /// The interval of keep-alives.
    pub(super) fn alive(&self) -> Option<Duration> {
        Some((self.systemd.watchdog()? / KEEP_ALIVES).max(Duration::from_millis(1)))
    }

    /// The client is ready and connects.
    pub(super) fn ready(&mut self, server: &str) {
        self.status.connecting(server);
        self.systemd.ready();
        self.show();
    }

    /// Handles a notice of the driver.
    pub(super) fn handle(&mut self, notice: &Notice) {
        if matches!(notice, Notice::Alive) {
            self.systemd.alive();
        }
        self.status.handle(notice);
        self.show();
    }

    /// Sends the status line if it has changed.
    fn show(&mut self) {
        let line = printable(self.status.line());
        if self.systemd.listens() && line != self.sent {
            self.systemd.status(&line);
            self.sent = line;
        }
    }
}
