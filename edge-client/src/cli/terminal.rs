//! Standard error when it is a terminal: lines that stay, and below them one that is written over and over.
//!
//! Two control sequences are all that it takes, and every terminal of the last forty years has them: erase to
//! the end of the line, and wrap or do not wrap long lines. There is one terminal, so its state is a static:
//! the log and a panic write to it as well, and must not end up in the middle of the status.

use std::io::{self, IsTerminal as _, Write};
use std::sync::{Mutex, PoisonError};

/// The status on display; empty without one.
static STATUS: Mutex<String> = Mutex::new(String::new());

const ERASE: &str = "\r\x1b[K";
const NO_WRAP: &str = "\x1b[?7l";
const WRAP: &str = "\x1b[?7h";

/// Is standard error a terminal that can write a line over?
pub(super) fn is_there() -> bool {
    io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|terminal| terminal != "dumb")
}

/// Writes a line that stays, above the status.
pub(super) fn print(line: &str) {
    above(&format!("{line}\n"));
}

/// Shows another status, or none.
pub(super) fn status(line: &str) {
    let mut status = STATUS.lock().unwrap_or_else(PoisonError::into_inner);
    // Nobody may be looking any more; that is no reason to stop training.
    if *status != line {
        line.clone_into(&mut status);
        let _ = io::stderr().write_all(drawn(&status).as_bytes());
    }
}

/// From now on a panic begins on a line of its own.
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

/// The text in place of the status, and the status again below it.
fn over(status: &str, text: &str) -> String {
    if status.is_empty() { text.to_owned() } else { format!("{ERASE}{text}{}", drawn(status)) }
}

fn drawn(status: &str) -> String {
    if status.is_empty() { ERASE.to_owned() } else { format!("{ERASE}{NO_WRAP}{status}{WRAP}") }
}

/// Standard error for the log, whose lines come whole.
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
