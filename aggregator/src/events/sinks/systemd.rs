//! systemd, where it started the program as a service of type `notify`: readiness, the status line of `systemctl status`, and
//! keep-alives for `WatchdogSec=`. See `sd_notify(3)`.

use std::time::{Duration, Instant};

#[cfg(unix)]
use sd_notify::NotifyState;

use crate::events::{Notice, Sink};

/// The least time between two messages of a kind.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// The service manager; without one, nothing is sent.
pub struct Systemd {
    listens: bool,
    ready: bool,
    /// The last status line, and when it was sent.
    sent: Option<(String, Instant)>,
    /// When the last keep-alive was sent.
    alive: Option<Instant>,
}

impl Systemd {
    /// As `NOTIFY_SOCKET` says.
    #[must_use]
    pub fn of_environment() -> Self {
        let listens = cfg!(unix) && std::env::var_os("NOTIFY_SOCKET").is_some();
        Self { listens, ready: false, sent: None, alive: None }
    }

    /// The program has started, and ends at once.
    pub fn nothing_to_do(why: &str) {
        #[cfg(unix)]
        if Self::of_environment().listens {
            Self::send(&[NotifyState::Ready, NotifyState::Status(why)]);
        }
        #[cfg(not(unix))]
        let _ = why;
    }

    /// Sends keep-alives for as long as this is polled, while devices that are away are waited for.
    pub async fn keep_alive() {
        #[cfg(unix)]
        if Self::of_environment().listens {
            loop {
                Self::send(&[NotifyState::Watchdog]);
                tokio::time::sleep(MIN_INTERVAL).await;
            }
        }
        std::future::pending::<()>().await;
    }

    /// If it cannot be reached it restarts the program, which is at least as good as ending it here.
    #[cfg(unix)]
    fn send(state: &[NotifyState<'_>]) {
        if let Err(error) = sd_notify::notify(state) {
            tracing::warn!("systemd cannot be notified: {error}");
        }
    }
}

impl Sink for Systemd {
    #[cfg(unix)]
    fn receive(&mut self, notice: &Notice<'_>) {
        if !self.listens {
            return;
        }
        let due = |last: Option<Instant>| last.is_none_or(|last| last.elapsed() >= MIN_INTERVAL);
        match notice {
            Notice::Status(status) => {
                // The first status comes when connections are taken.
                if !std::mem::replace(&mut self.ready, true) {
                    Self::send(&[NotifyState::Ready]);
                }
                let text = status.to_string();
                let sent = self.sent.as_ref();
                if due(sent.map(|(_, at)| *at)) && sent.is_none_or(|(sent, _)| *sent != text) {
                    Self::send(&[NotifyState::Status(&text)]);
                    self.sent = Some((text, Instant::now()));
                }
            }
            Notice::Alive if due(self.alive) => {
                Self::send(&[NotifyState::Watchdog]);
                self.alive = Some(Instant::now());
            }
            _ => {}
        }
    }

    #[cfg(not(unix))]
    fn receive(&mut self, _: &Notice<'_>) {}
}
