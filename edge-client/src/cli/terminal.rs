//! The terminal on standard error: lines that stay, and a status line below them.
//!
//! It needs two control sequences, which all terminals have: erase to the end of the line, and wrapping on or off. Its state is a
//! static since there is one terminal, to which the log and panics write as well.

use std::io::{self, IsTerminal as _, Write};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use shared::calendar::{moment, utc};

use shared::cli::wrapped;

use super::stream::Stream;

/// The status line shown; empty without one.
static STATUS: Mutex<String> = Mutex::new(String::new());

const ERASE: &str = "\r\x1b[K";
const NO_WRAP: &str = "\x1b[?7l";
const WRAP: &str = "\x1b[?7h";

/// Whether standard error is a terminal that can erase a line.
pub(super) fn is_there() -> bool {
    io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|terminal| terminal != "dumb")
}

/// Writes a line that stays, above the status; in several lines if it is longer than the terminal is wide.
pub(super) fn print(line: &str) {
    above(&format!("{}\n", wrapped(line, Stream::Err.columns(), 2)));
}

/// Writes a line behind the time of day in UTC, above the status.
pub(super) fn print_at(time: SystemTime, line: &str) {
    let clock = &utc(moment(time))[11..19];
    above(&format!(
        "{clock} {}\n",
        wrapped(line, Stream::Err.columns().map(|all| all.saturating_sub(9)), 0).replace('\n', "\n         ")
    ));
}

/// Replaces the status line; an empty one removes it.
pub(super) fn status(line: &str) {
    let mut status = STATUS.lock().unwrap_or_else(PoisonError::into_inner);
    // Errors are ignored: training goes on without a reader.
    if *status != line {
        line.clone_into(&mut status);
        let _ = io::stderr().write_all(drawn(&status).as_bytes());
    }
}

/// Makes panics begin on a line of their own.
pub(super) fn take_panics() {
    let printed = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        status("");
        printed(panic);
    }));
}

/// Writes whole lines above the status.
fn above(text: &str) {
    let status = STATUS.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = io::stderr().write_all(over(&status, text).as_bytes());
}

/// The text in place of the status line, and the status line again below it.
fn over(status: &str, text: &str) -> String {
    if status.is_empty() { text.to_owned() } else { format!("{ERASE}{text}{}", drawn(status)) }
}

fn drawn(status: &str) -> String {
    if status.is_empty() { ERASE.to_owned() } else { format!("{ERASE}{NO_WRAP}{status}{WRAP}") }
}

/// Standard error for the log, which writes whole lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Log;

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        above(&String::from_utf8_lossy(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_take_the_place_of_the_status_and_it_comes_again_below() {
        assert_eq!(over("", "a line\n"), "a line\n", "without a status nothing steers the terminal");
        assert_eq!(over("waiting", "a line\n"), "\r\x1b[Ka line\n\r\x1b[K\x1b[?7lwaiting\x1b[?7h");
        assert_eq!(drawn(""), "\r\x1b[K");
    }
}
