//! What goes to the terminal while rounds run.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use ::console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::sync::watch;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};

use super::exit::{AT_ONCE, Failure};
use crate::driver::Notice;
use crate::report::console;
use crate::round::{RoundRecord, jsonl};

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

/// Columns that a line should have where nobody says how wide the terminal is: in a file, say.
const COLUMNS: usize = 80;

/// `2025-11-21T15:35:07Z `: the time before a line that goes to a log, in UTC.
fn stamp() -> String {
    let mut time = String::new();
    // Writing to a string fails never, and a line without its time is better than none.
    let _ = SystemTime.format_time(&mut Writer::new(&mut time));
    let seconds = time.find(['.', 'Z']).unwrap_or(time.len());
    format!("{}Z ", &time[..seconds])
}

/// Every line of `text` behind the time.
fn stamped(text: &str, stamp: &str) -> String {
    text.lines().map(|line| format!("{stamp}{line}\n")).collect()
}

/// Tells a person on standard error. Where it is no terminal but a log, with the time.
pub(super) fn tell(text: &str) {
    if io::stderr().is_terminal() {
        eprintln!("{text}");
    } else {
        eprint!("{}", stamped(text, &stamp()));
    }
}

/// One round for a person on standard output, in the terminal's columns or behind the time.
fn round_lines(record: &RoundRecord, rounds: u32) -> String {
    if io::stdout().is_terminal() {
        let columns = Term::stdout().size_checked().map_or(COLUMNS, |(_, columns)| usize::from(columns));
        return console::line(record, rounds, columns) + "\n";
    }
    let stamp = stamp();
    stamped(&console::line(record, rounds, COLUMNS.saturating_sub(stamp.len())), &stamp)
}

/// What to say when more clients are there than the configuration expects.
fn surplus(connected: usize, expected: usize) -> Option<String> {
    (connected > expected).then(|| {
        format!(
            "{connected} clients are connected and data.clients expects {expected}: all of them take part, and \
             round.fraction counts them all"
        )
    })
}

/// A wait of this length is worth a line in a log, and another one after as long again.
const LONG_WAIT: Duration = Duration::from_secs(15);

/// A progress bar on a terminal, a line per round anywhere.
pub(super) struct Display {
    bar: ProgressBar,
    rounds: u32,
    json: bool,
    remarks: bool,
    /// How many clients the operator expects; `None` if they are simulated, or more were told of already.
    expected: Option<usize>,
    last: String,
    told: Instant,
    /// Why standard output could first not be written to.
    lost: Option<io::Error>,
}

impl Display {
    pub(super) fn new(rounds: u32, closed: u32, json: bool, remarks: bool) -> Self {
        let bar = ProgressBar::with_draw_target(Some(u64::from(rounds)), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{bar:12} {pos}/{len} rounds  {wide_msg}")
            .expect("the template is a constant that parses");
        bar.set_style(style.progress_chars("=> "));
        bar.set_position(u64::from(closed));
        if io::stderr().is_terminal() {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        let (last, told) = (String::new(), Instant::now());
        Self { bar, rounds, json, remarks, expected: None, last, told, lost: None }
    }

    /// Says it once when more clients than this are connected.
    pub(super) fn expecting(self, clients: usize) -> Self {
        Self { expected: Some(clients), ..self }
    }

    pub(super) fn show(&mut self, notice: &Notice<'_>) {
        match notice {
            Notice::Status(status) => {
                if let Some(text) = self.expected.and_then(|expected| surplus(status.connected, expected)) {
                    self.bar.suspend(|| tell(&text));
                    self.expected = None;
                }
                let text = status.to_string();
                // Where there is no bar to look at (a log, say), a long wait is told in lines.
                if self.bar.is_hidden() && status.waited >= LONG_WAIT && self.told.elapsed() >= LONG_WAIT {
                    tell(&text);
                    self.told = Instant::now();
                }
                if text != self.last {
                    self.bar.set_message(text.clone());
                    self.last = text;
                }
            }
            Notice::Round(record) => {
                let line = if self.json { jsonl::line(record) } else { round_lines(record, self.rounds) };
                // A round is on disk by now; a reader that has gone away loses nothing. Any other error ends this command, once
                // all rounds are over.
                let written = self.bar.suspend(|| {
                    let mut out = io::stdout().lock();
                    out.write_all(line.as_bytes()).and_then(|()| out.flush())
                });
                if let Err(error) = written
                    && error.kind() != io::ErrorKind::BrokenPipe
                {
                    self.lost.get_or_insert(error);
                }
                self.bar.set_position(u64::from(record.round));
            }
            Notice::Remark(text) | Notice::Aside(text) if self.remarks => self.bar.suspend(|| tell(text)),
            Notice::Remark(_)
            | Notice::Aside(_)
            | Notice::Alive
            | Notice::Opened { .. }
            | Notice::Arrival { .. }
            | Notice::LeftOut { .. } => {}
            Notice::Alarm(text) => self.bar.suspend(|| tell(&format!("WARNING: {text}"))),
        }
    }

    /// No round follows: whether all of them could be shown.
    pub(super) fn finish(self) -> Result<(), Failure> {
        self.bar.finish_and_clear();
        self.lost.map_or(Ok(()), |error| Err(Failure::output(&error)))
    }
}

/// Turns true at the first Ctrl-C (or SIGTERM); the second one ends the process at once.
pub(super) fn stop_on_signal() -> watch::Receiver<bool> {
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(async move {
        signal().await;
        if io::stderr().is_terminal() {
            // Behind the ^C that a terminal shows.
            eprintln!();
        }
        tell("stopping; once more to stop at once");
        let _ = stop.send(true);
        signal().await;
        std::process::exit(AT_ONCE);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_log_carry_the_time_in_seconds() {
        let stamp = stamp();
        let shape: String = stamp.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        assert_eq!(shape, "0000-00-00T00:00:00Z ");
        assert_eq!(stamped("a\n  b", "T "), "T a\nT   b\n");
    }

    #[test]
    fn only_more_clients_than_expected_are_told_of() {
        assert_eq!((surplus(4, 4), surplus(0, 1)), (None, None));
        let text = surplus(5, 4).expect("one too many");
        assert!(text.contains("5 clients") && text.contains("data.clients expects 4"), "{text}");
    }
}
