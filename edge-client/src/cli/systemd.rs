//! What systemd is told, where it started the program as a service of type `notify`: that the client is ready, what it does
//! (`systemctl status`), and that it gets on (`WatchdogSec=`). See `sd_notify(3)`.

use std::time::Duration;

#[cfg(unix)]
use sd_notify::NotifyState;

use super::event::printable;
use super::status::Status;
use crate::driver::Notice;

/// How often the progress of training is told.
const PROGRESS: Duration = Duration::from_secs(10);

/// A keep-alive is told so many times in the period after which the program counts as hanging.
const KEEP_ALIVES: u32 = 4;

/// Whoever supervises the program; it hears nothing if there is nobody.
pub(super) struct Supervised {
    listens: bool,
    status: Status,
    said: String,
}

impl Supervised {
    /// As the environment says.
    pub(super) fn new() -> Self {
        let listens = cfg!(unix) && std::env::var_os("NOTIFY_SOCKET").is_some();
        Self { listens, status: Status::new(), said: String::new() }
    }

    /// How often training's progress is worth a notice.
    pub(super) fn progress(&self) -> Option<Duration> {
        self.listens.then_some(PROGRESS)
    }

    /// How often a keep-alive is.
    #[cfg(unix)]
    pub(super) fn alive(&self) -> Option<Duration> {
        let period = sd_notify::watchdog_enabled().filter(|_| self.listens)?;
        Some((period / KEEP_ALIVES).max(Duration::from_millis(1)))
    }

    /// Never: nobody listens.
    #[cfg(not(unix))]
    pub(super) fn alive(&self) -> Option<Duration> {
        None
    }

    /// The client has all that it needs, and connects.
    pub(super) fn ready(&mut self, server: &str) {
        self.status.connecting(server);
        #[cfg(unix)]
        Self::tell(&[NotifyState::Ready]);
        self.status();
    }

    /// The driver has something to say.
    pub(super) fn hear(&mut self, notice: &Notice) {
        #[cfg(unix)]
        if matches!(notice, Notice::Alive) {
            Self::tell(&[NotifyState::Watchdog]);
        }
        self.status.hear(notice);
        self.status();
    }

    /// The client was asked to stop.
    pub(super) fn stopping() {
        #[cfg(unix)]
        Self::tell(&[NotifyState::Stopping]);
    }

    /// Tells what the client does, if that is news.
    fn status(&mut self) {
        let line = printable(&self.status.line());
        if self.listens && line != self.said {
            #[cfg(unix)]
            Self::tell(&[NotifyState::Status(&line)]);
            self.said = line;
        }
    }

    /// Without anybody who supervises, nothing is told. Whoever does not listen restarts the program, which is at least as good as ending it here.
    #[cfg(unix)]
    fn tell(state: &[NotifyState<'_>]) {
        if let Err(error) = sd_notify::notify(state) {
            tracing::warn!("systemd cannot be told anything: {error}");
        }
    }
}
