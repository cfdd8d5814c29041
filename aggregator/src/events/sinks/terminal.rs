//! The terminal: a progress bar with the status, a line per round, and what the operator is told.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant, SystemTime};

use ::console::Term;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use shared::calendar::{moment, utc};
use shared::cli::wrapped;

use super::json_log;
use crate::coordinator::Status;
use crate::events::remaining::Remaining;
use crate::events::{Level, Notice, Sink, text};
use crate::report::console;
use crate::report::units::seconds;
use crate::round::{RoundRecord, jsonl};

/// Columns of a line where the width of the terminal is unknown: in a file, for example.
const COLUMNS: usize = 80;

/// How long a wait is before it is worth a line in a log, and how long until the next one.
const LONG_WAIT: Duration = Duration::from_secs(15);

/// `2025-11-21T15:35:07Z `: the time before a line of a log, in UTC.
fn stamp() -> String {
    utc(moment(SystemTime::now())) + " "
}

/// Every line of `text` behind the time.
fn stamped(text: &str, stamp: &str) -> String {
    text.lines().map(|line| format!("{stamp}{line}\n")).collect()
}

/// Tells a person on standard error. Where it is no terminal but a log, with the time.
pub fn tell(text: &str) {
    if json_log::is_on() {
        eprint!("{}", json_log::of_text(text, serde_json::Map::new()));
        return;
    }
    eprint!("{}", lines(text, io::stderr().is_terminal().then(error_columns)));
}

/// What a person is told, as lines of a terminal with this number of columns, or of a log.
#[must_use]
pub fn lines(text: &str, columns: Option<usize>) -> String {
    match columns {
        Some(_) => text.lines().map(|line| wrapped(line, columns, 2) + "\n").collect(),
        None => stamped(text, &stamp()),
    }
}

/// Columns of the terminal at standard error.
#[must_use]
pub fn error_columns() -> usize {
    Term::stderr().size_checked().map_or(COLUMNS, |(_, columns)| usize::from(columns))
}

/// Columns of the terminal at standard output.
#[must_use]
pub fn columns() -> usize {
    Term::stdout().size_checked().map_or(COLUMNS, |(_, columns)| usize::from(columns))
}

/// A progress bar on standard error, which is hidden where that is no terminal.
///
/// # Panics
/// If `template` does not parse.
#[must_use]
pub fn progress_bar(steps: u64, template: &str) -> ProgressBar {
    let target = if json_log::is_on() { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let bar = ProgressBar::with_draw_target(Some(steps), target);
    let style = ProgressStyle::with_template(template).expect("the template is a constant that parses");
    bar.set_style(style.progress_chars("=> "));
    if io::stderr().is_terminal() && !json_log::is_on() {
        bar.enable_steady_tick(Duration::from_millis(200));
    }
    bar
}

/// One round for a person on standard output, in the terminal's columns or behind the time.
fn round_lines(record: &RoundRecord, rounds: u32) -> String {
    if io::stdout().is_terminal() {
        // The date is in the record.
        let time = &stamp()[11..20];
        let line = console::line(record, rounds, columns().saturating_sub(time.len() + 1));
        return stamped(&line, &format!("{time} "));
    }
    let stamp = stamp();
    stamped(&console::line(record, rounds, COLUMNS.saturating_sub(stamp.len())), &stamp)
}

/// What to say when more clients are connected than the configuration expects.
fn surplus(connected: usize, expected: usize) -> Option<String> {
    (connected > expected).then(|| {
        format!(
            "{connected} clients are connected and data.clients expects {expected}: all of them take part, and \
             round.fraction counts them all"
        )
    })
}

/// The time that is left, behind the rounds of the bar; nothing while the run is paused.
fn prefix(status: &Status, left: Option<Duration>) -> String {
    let going_on = !status.paused && !status.unconfirmed && !status.held;
    let left = left.filter(|left| going_on && left.as_secs() > 0);
    left.map_or_else(String::new, |left| format!(", about {} left", seconds(left.as_secs_f64())))
}

/// Shows a run: rounds on standard output, everything else on standard error.
pub struct Terminal {
    bar: ProgressBar,
    remaining: Remaining,
    rounds: u32,
    json: bool,
    remarks: bool,
    /// How many clients are expected; `None` if they are simulated, or the operator knows already that more came.
    expected: Option<usize>,
    last: String,
    told: Instant,
    /// The first error of standard output.
    lost: Option<io::Error>,
}

impl Terminal {
    /// Shows a run of `rounds` of which some are `closed`: rounds as `json` or as text, and `remarks` or alarms alone.
    #[must_use]
    pub fn new(rounds: u32, closed: u32, json: bool, remarks: bool) -> Self {
        let bar = progress_bar(rounds.into(), "{bar:12} {pos}/{len} rounds{prefix}  {wide_msg}");
        bar.set_position(closed.into());
        let (last, told) = (String::new(), Instant::now());
        let remaining = Remaining::new(rounds, closed, told);
        Self { bar, remaining, rounds, json, remarks, expected: None, last, told, lost: None }
    }

    /// Tells the operator once if more clients than this are connected.
    #[must_use]
    pub fn expecting(self, clients: usize) -> Self {
        Self { expected: Some(clients), ..self }
    }

    fn show_status(&mut self, status: &Status) {
        if let Some(text) = self.expected.and_then(|expected| surplus(status.connected, expected)) {
            self.bar.suspend(|| tell(&text));
            self.expected = None;
        }
        let left = prefix(status, self.remaining.at(Instant::now()));
        if left != self.bar.prefix() {
            self.bar.set_prefix(left);
        }
        let text = status.to_string();
        // A log has no bar: there a long wait is told in lines.
        if self.bar.is_hidden() && status.since >= LONG_WAIT && self.told.elapsed() >= LONG_WAIT {
            tell(&text);
            self.told = Instant::now();
        }
        if text != self.last {
            self.bar.set_message(text.clone());
            self.last = text;
        }
    }

    fn show_round(&mut self, record: &RoundRecord) {
        let line = if self.json { jsonl::object(record) + "\n" } else { round_lines(record, self.rounds) };
        // The round is on disk: a reader that has gone away loses nothing. Any other error ends the command after the last round.
        let written = self.bar.suspend(|| {
            let mut out = io::stdout().lock();
            out.write_all(line.as_bytes()).and_then(|()| out.flush())
        });
        if let Err(error) = written
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            self.lost.get_or_insert(error);
        }
        if record.void && !record.closing {
            // It does not count: there is one more.
            self.rounds = self.rounds.saturating_add(1);
            self.bar.set_length(self.rounds.into());
        }
        self.bar.set_position(record.round.into());
        self.remaining.closed(record.round, Instant::now());
    }

    /// Ends the display.
    ///
    /// # Errors
    /// The first error of standard output, if rounds could not be shown.
    pub fn finish(self) -> io::Result<()> {
        self.bar.finish_and_clear();
        self.lost.map_or(Ok(()), Err)
    }
}

impl Sink for Terminal {
    fn receive(&mut self, notice: &Notice<'_>) {
        match notice {
            Notice::Status(status) => self.show_status(status),
            Notice::Round(record) => {
                self.show_round(record);
                if json_log::is_on() {
                    eprint!("{}", json_log::of_notice(notice));
                }
            }
            _ => {
                let level = notice.level();
                let Some(text) = text(notice).filter(|_| self.remarks || level == Level::Alarm) else {
                    return;
                };
                if json_log::is_on() {
                    eprint!("{}", json_log::of_notice(notice));
                    return;
                }
                let warning = if level == Level::Alarm { "WARNING: " } else { "" };
                self.bar.suspend(|| tell(&format!("{warning}{text}")));
            }
        }
    }
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
    fn lines_of_a_terminal_break_between_words() {
        let text = "listening on 127.0.0.1:4433, key 0a1b\n  beside it";
        assert_eq!(lines(text, Some(80)), format!("{text}\n"));
        assert_eq!(lines(text, Some(30)), "listening on 127.0.0.1:4433,\n  key 0a1b\n  beside it\n");
        assert!(lines(text, None).ends_with("Z   beside it\n"), "a log has the time instead");
    }

    #[test]
    fn a_run_that_is_paused_has_no_time_left() {
        let status = |held| Status {
            closed: 3,
            rounds: 9,
            failed: 0,
            connected: 1,
            known: 1,
            waiting_for: crate::coordinator::WaitingFor::Clients { connected: 1, needed: 2 },
            since: Duration::ZERO,
            paused: false,
            unconfirmed: false,
            held,
            own: None,
            load: None,
        };
        let left = Some(Duration::from_mins(1));
        assert!(prefix(&status(false), left).starts_with(", about "), "{}", prefix(&status(false), left));
        assert_eq!(prefix(&status(true), left), "", "what is paused takes as long as it is paused");
        assert_eq!(prefix(&status(false), None), "");
    }

    #[test]
    fn only_more_clients_than_expected_are_told_of() {
        assert_eq!((surplus(4, 4), surplus(0, 1)), (None, None));
        let text = surplus(5, 4).expect("one too many");
        assert!(text.contains("5 clients") && text.contains("data.clients expects 4"), "{text}");
    }
}
