//! The sink that reports a served run to systemd: readiness, status line and keep-alives.

use std::time::{Duration, Instant};

use shared::cli::Systemd;

use crate::events::{Notice, Sink};

/// The least time between two messages of a kind.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// The service manager, and what it was told.
pub struct Service {
    systemd: Systemd,
    ready: bool,
    /// The last status line, and when it was sent.
    sent: Option<(String, Instant)>,
    /// When the last keep-alive was sent.
    alive: Option<Instant>,
}

impl Service {
    /// As `NOTIFY_SOCKET` says.
    #[must_use]
    pub fn of_environment() -> Self {
        Self { systemd: Systemd::of_environment(), ready: false, sent: None, alive: None }
    }

    /// Sends keep-alives for as long as this is polled, while devices that are away are waited for.
    pub async fn keep_alive() {
        let systemd = Systemd::of_environment();
        while systemd.listens() {
            systemd.alive();
            tokio::time::sleep(MIN_INTERVAL).await;
        }
        std::future::pending::<()>().await;
    }
}

impl Sink for Service {
    fn receive(&mut self, notice: &Notice<'_>) {
        if !self.systemd.listens() {
            return;
        }
        let due = |last: Option<Instant>| last.is_none_or(|last| last.elapsed() >= MIN_INTERVAL);
        match notice {
            Notice::Status(status) => {
                // The first status comes when connections are taken.
                if !std::mem::replace(&mut self.ready, true) {
                    self.systemd.ready();
                }
                let text = status.to_string();
                let sent = self.sent.as_ref();
                if due(sent.map(|(_, at)| *at)) && sent.is_none_or(|(sent, _)| *sent != text) {
                    self.systemd.status(&text);
                    self.sent = Some((text, Instant::now()));
                }
            }
            Notice::Alive if due(self.alive) => {
                self.systemd.alive();
                self.alive = Some(Instant::now());
            }
            _ => {}
        }
    }
}
