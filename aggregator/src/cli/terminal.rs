//! What goes to the terminal while rounds run.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::sync::watch;

use super::exit::Failure;
use crate::driver::Notice;
use crate::report::{console, jsonl};

/// Diagnostics go to standard error; `RUST_LOG` overrides the flags.
pub(super) fn log_to_stderr(verbose: u8) {
    let level = match verbose {
        0 => "warn",
        1 => "warn,aggregator=info,edge_client=info",
        _ => "warn,aggregator=debug,edge_client=debug",
    };
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(level));
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false)
        .try_init();
}

/// Writes to standard output. A reader that has gone away (`| head`) is no error.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::output(&error)),
        _ => Ok(()),
    }
}

/// A wait of this length is worth a line in a log, and another one after as long again.
const LONG_WAIT: Duration = Duration::from_secs(15);

/// A progress bar on a terminal, a line per round anywhere.
pub(super) struct Display {
    bar: ProgressBar,
    rounds: u32,
    json: bool,
    remarks: bool,
    last: String,
    told: Instant,
}

impl Display {
    pub(super) fn new(rounds: u32, closed: u32, json: bool, remarks: bool) -> Self {
        let bar = ProgressBar::with_draw_target(Some(u64::from(rounds)), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} rounds  {wide_msg}")
            .expect("the template is a constant that parses");
        bar.set_style(style.progress_chars("=> "));
        bar.set_position(u64::from(closed));
        if io::stderr().is_terminal() {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Self { bar, rounds, json, remarks, last: String::new(), told: Instant::now() }
    }

    pub(super) fn show(&mut self, notice: &Notice<'_>) {
        match notice {
            Notice::Status(status) => {
                let text = status.to_string();
                // Where there is no bar to look at (a log, say), a long wait is told in lines.
                if self.bar.is_hidden() && status.waited >= LONG_WAIT && self.told.elapsed() >= LONG_WAIT {
                    eprintln!("{text}");
                    self.told = Instant::now();
                }
                if text != self.last {
                    self.bar.set_message(text.clone());
                    self.last = text;
                }
            }
            Notice::Round(record) => {
                let line =
                    if self.json { jsonl::line(record) } else { console::line(record, self.rounds) + "\n" };
                // A round is on disk by now; standard output that is closed loses nothing.
                self.bar.suspend(|| {
                    let mut out = io::stdout().lock();
                    let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
                });
                self.bar.set_position(u64::from(record.round));
            }
            Notice::Remark(text) if self.remarks => self.bar.suspend(|| eprintln!("{text}")),
            Notice::Remark(_) => {}
        }
    }

    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// Turns true at the first Ctrl-C (or SIGTERM); the second one ends the process at once.
pub(super) fn stop_on_signal() -> watch::Receiver<bool> {
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(async move {
        signal().await;
        eprintln!("\nstopping; once more to stop at once");
        let _ = stop.send(true);
        signal().await;
        std::process::exit(130);
    });
    stopped
}

#[cfg(unix)]
async fn signal() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        },
        Err(_) => drop(tokio::signal::ctrl_c().await),
    }
}

#[cfg(not(unix))]
async fn signal() {
    let _ = tokio::signal::ctrl_c().await;
}
