//! Tickets: read from the arguments, a file or standard input, and hidden from the list of processes, which every user of the
//! system can read.

use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::path::Path;
use std::process::Command;

use shared::ticket::{ParseTicketError, Ticket};

use super::error::{CliError, Exit};
use super::parse::Target;

/// Limit for a file with a ticket.
const MAX_FILE: u64 = 64 << 10;

/// The ticket of the arguments, if there is one.
pub(super) fn given(server: Option<&Target>, file: Option<&Path>) -> Result<Option<Ticket>, CliError> {
    Ok(match (server, file) {
        (_, Some(path)) => Some(read(path)?),
        (Some(Target::Ticket(ticket)), None) => Some((**ticket).clone()),
        (Some(Target::Mistyped(problem)), None) => {
            return Err(CliError::new(Exit::Usage, problem.to_string()));
        }
        (Some(Target::Addresses(_)) | None, None) => None,
    })
}

/// Reads a ticket from a file or standard input; on a terminal, one line.
fn read(path: &Path) -> Result<Ticket, CliError> {
    let place = path.display();
    let unreadable =
        |error: io::Error| CliError::new(Exit::Local, format!("cannot read the ticket in {place}: {error}"));
    let mut text = String::new();
    if path != Path::new("-") {
        std::fs::File::open(path)
            .and_then(|file| file.take(MAX_FILE).read_to_string(&mut text))
            .map_err(unreadable)?;
    } else if io::stdin().is_terminal() {
        // Without standard error there is no prompt.
        let _ = write!(io::stderr(), "ticket: ");
        io::stdin().read_line(&mut text).map_err(unreadable)?;
    } else {
        io::stdin().take(MAX_FILE).read_to_string(&mut text).map_err(unreadable)?;
    }
    text.parse().map_err(|problem: ParseTicketError| {
        CliError::new(Exit::Usage, format!("{place} is no ticket: {problem}"))
    })
}

/// Restarts this program, in the same process, without a ticket that it no longer needs. If that is not possible, it goes on.
pub(super) fn leave_out(ticket: &Ticket) {
    restart(ticket, |_| Ok(()));
}

/// Restarts this program with the ticket on standard input, for a command that still needs it.
pub(super) fn hand_over(ticket: &Ticket) {
    restart(ticket, |command| {
        // The longest ticket fits into the buffer of a pipe.
        let (reader, mut writer) = io::pipe()?;
        writer.write_all(ticket.to_string().as_bytes())?;
        command.args(["--ticket-file", "-"]).stdin(reader);
        Ok(())
    });
}

#[cfg(unix)]
fn restart(ticket: &Ticket, change: impl FnOnce(&mut Command) -> io::Result<()>) {
    use std::ffi::{OsStr, OsString};
    use std::os::unix::process::CommandExt as _;

    let ticket = ticket.to_string();
    let is_it = |argument: &OsString| {
        argument.to_str().is_some_and(|argument| argument.trim().eq_ignore_ascii_case(&ticket))
    };
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if !arguments.iter().any(is_it) {
        return;
    }
    let start = || {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg0(arguments.first().map_or(OsStr::new("edge-client"), |name| name));
        // Only the ticket can follow `--`, and options that follow it would not be read as options.
        command.args(arguments.iter().skip(1).filter(|argument| !is_it(argument) && *argument != "--"));
        change(&mut command)?;
        Err::<std::convert::Infallible, _>(command.exec())
    };
    let Err(error) = start();
    tracing::warn!("the ticket stays in the list of processes until this program ends: {error}");
}

#[cfg(not(unix))]
fn restart(_: &Ticket, _: impl FnOnce(&mut Command) -> io::Result<()>) {}
