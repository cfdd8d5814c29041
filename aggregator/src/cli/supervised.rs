//! What systemd is told, where it started the program as a service of type `notify`: that devices can join, what the run
//! waits for (`systemctl status`), and that it gets on (`WatchdogSec=`). See `sd_notify(3)`.

use std::time::{Duration, Instant};

#[cfg(unix)]
use sd_notify::NotifyState;

use crate::driver::Notice;

/// However much happens, it is told no more often.
const PACE: Duration = Duration::from_secs(1);

/// Whoever supervises the program; it hears nothing if there is nobody.
pub(super) struct Supervised {
    listens: bool,
    ready: bool,
    /// What was told of the run last, and when.
    said: Option<(String, Instant)>,
    /// When the last keep-alive was told.
    alive: Option<Instant>,
}

impl Supervised {
    /// As the environment says.
    pub(super) fn new() -> Self {
        let listens = cfg!(unix) && std::env::var_os("NOTIFY_SOCKET").is_some();
        Self { listens, ready: false, said: None, alive: None }
    }

    /// The driver has something to say.
    #[cfg(unix)]
    pub(super) fn hear(&mut self, notice: &Notice<'_>) {
        if !self.listens {
            return;
        }
        let paced = |last: Option<Instant>| last.is_none_or(|last| last.elapsed() >= PACE);
        match notice {
            Notice::Status(status) => {
                // The first thing that is told of rounds: connections are taken by then.
                if !std::mem::replace(&mut self.ready, true) {
                    Self::tell(&[NotifyState::Ready]);
                }
                let text = status.to_string();
                let said = self.said.as_ref();
                if paced(said.map(|(_, at)| *at)) && said.is_none_or(|(said, _)| *said != text) {
                    Self::tell(&[NotifyState::Status(&text)]);
                    self.said = Some((text, Instant::now()));
                }
            }
            Notice::Alive if paced(self.alive) => {
                Self::tell(&[NotifyState::Watchdog]);
                self.alive = Some(Instant::now());
            }
            _ => {}
        }
    }

    /// Nobody listens.
    #[cfg(not(unix))]
    pub(super) fn hear(&mut self, _: &Notice<'_>) {}

    /// The program has started, and ends.
    pub(super) fn has_nothing_to_do(why: &str) {
        #[cfg(unix)]
        if Self::new().listens {
            Self::tell(&[NotifyState::Ready, NotifyState::Status(why)]);
        }
        #[cfg(not(unix))]
        let _ = why;
    }

    /// Says that the program gets on while it waits for devices that are away, for as long as this is polled.
    pub(super) async fn waits() {
        #[cfg(unix)]
        if Self::new().listens {
            loop {
                Self::tell(&[NotifyState::Watchdog]);
                tokio::time::sleep(PACE).await;
            }
        }
        std::future::pending::<()>().await;
    }

    /// Whoever does not listen restarts the program, which is at least as good as ending it here.
    #[cfg(unix)]
    fn tell(state: &[NotifyState<'_>]) {
        if let Err(error) = sd_notify::notify(state) {
            tracing::warn!("systemd cannot be told anything: {error}");
        }
    }
}
