//! Which server `join` joins: that of a ticket, that of an address, or the one that this device belongs to.

use std::ffi::OsStr;
use std::io::{self, Read as _};
use std::path::Path;

use shared::identity::PublicKey;
use shared::ticket::{Ticket, TicketSecret};

use super::arguments::JoinArguments;
use super::error::CliError;
use super::event::{Event, Output};
use super::values::Target;
use crate::driver::Notice;
use crate::store::{DiskStore, KnownServer, ServerFile, StoreError};
use crate::trust::Trust;

/// More than any file with a ticket has.
const MAX_FILE: u64 = 64 << 10;

/// The server that is joined, and what is remembered of it.
pub(super) struct Server {
    file: ServerFile,
    /// What the file says, as far as it is known.
    remembered: Option<KnownServer>,
    /// Where to try.
    pub(super) addresses: Vec<String>,
    /// Whom to believe.
    pub(super) trust: Trust,
    output: Output,
}

impl Server {
    /// The server that the arguments name; a ticket was [taken](take_ticket) before.
    pub(super) fn new(file: ServerFile, arguments: &JoinArguments, output: Output) -> Result<Self, CliError> {
        let (remembered, addresses, trusted) = match &arguments.server {
            Some(Target::Address(address)) => {
                // What the user gives replaces what is remembered, whatever that is, once a server has proved it; but for a key
                // that the server itself has replaced since, which stands in a file of settings, say.
                let remembered = match (file.load(), arguments.server_key) {
                    (Ok(server), Some(given)) => server.filter(|server| server.has_had(given)),
                    (Err(_), Some(_)) => None,
                    (loaded, None) => loaded?,
                };
                let trusted = remembered.as_ref().map(|server| server.key).or(arguments.server_key);
                (remembered, vec![address.clone()], trusted)
            }
            Some(Target::Mistyped(problem)) => return Err(CliError::Mistyped(*problem)),
            Some(Target::Ticket(_)) | None => {
                let server =
                    file.load()?.ok_or_else(|| CliError::NoServer { path: file.path().to_path_buf() })?;
                let given = arguments.server_key.filter(|given| !server.has_had(*given));
                let (addresses, key) = (server.addresses.clone(), given.unwrap_or(server.key));
                (Some(server), addresses, Some(key))
            }
        };
        Ok(Self { file, remembered, addresses, trust: Trust::new(trusted), output })
    }

    /// What lets this device in, if it is not in yet.
    pub(super) fn ticket(&self) -> Option<TicketSecret> {
        self.remembered.as_ref().and_then(KnownServer::secret)
    }

    /// Remembers what a notice says of the server.
    pub(super) fn hear(&mut self, notice: &Notice) -> Result<(), StoreError> {
        match notice {
            Notice::Connected { .. } => self.connected(),
            // It knows this device from now on, even if the device has to wait.
            Notice::Joined { .. } | Notice::TurnedBack { .. } => {
                match self.remembered.clone().filter(|server| server.secret().is_some()) {
                    Some(server) => self.remember(server.redeemed()),
                    None => self.connected(),
                }
            }
            Notice::ServerKey { key } => {
                let server = match self.remembered.clone() {
                    Some(server) => server.renewed(*key),
                    None => KnownServer::new(*key, self.addresses.clone()),
                };
                self.remember(server)?;
                self.tell(*key);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn connected(&mut self) -> Result<(), StoreError> {
        let Some(key) = self.trust.trusted() else { return Ok(()) };
        let known = self.remembered.as_ref();
        let new_key = known.is_none_or(|server| server.key != key);
        if new_key {
            self.remember(KnownServer::new(key, self.addresses.clone()))?;
        } else if let Some(server) = known.filter(|server| server.addresses != self.addresses) {
            let server = server.clone().at(self.addresses.clone());
            self.remember(server)?;
        }
        if new_key {
            self.tell(key);
        }
        Ok(())
    }

    fn remember(&mut self, server: KnownServer) -> Result<(), StoreError> {
        self.file.save(&server)?;
        self.remembered = Some(server);
        Ok(())
    }

    fn tell(&self, key: PublicKey) {
        self.output.show(&Event::Pinned { key, path: self.file.path().to_path_buf() });
    }
}

/// Remembers the ticket that the arguments give, if they give one, in the state directory `state`: from then on this
/// device needs it no more, whatever happens next.
pub(super) fn take_ticket(arguments: &JoinArguments, state: &Path) -> Result<(), CliError> {
    let ticket = match (&arguments.server, &arguments.ticket_file) {
        (_, Some(path)) => read(path)?,
        (Some(Target::Ticket(ticket)), None) => (**ticket).clone(),
        (Some(Target::Mistyped(problem)), None) => return Err(CliError::Mistyped(*problem)),
        (Some(Target::Address(_)) | None, None) => return Ok(()),
    };
    let text = ticket.to_string();
    let file = DiskStore::open(state)?.server();
    // A service that is started with its ticket again and again belongs to the server already, whose key may be another now.
    if !matches!(file.load(), Ok(Some(server)) if server.has_taken(&ticket)) {
        file.save(&KnownServer::from(ticket))?;
    }
    leave_out(&text);
    Ok(())
}

/// The ticket in a file, or on standard input.
fn read(path: &Path) -> Result<Ticket, CliError> {
    let unreadable = |error: io::Error| CliError::TicketFile { path: path.to_path_buf(), error };
    let mut text = String::new();
    if path == Path::new("-") {
        io::stdin().take(MAX_FILE).read_to_string(&mut text).map_err(unreadable)?;
    } else {
        std::fs::File::open(path)
            .and_then(|file| file.take(MAX_FILE).read_to_string(&mut text))
            .map_err(unreadable)?;
    }
    text.parse().map_err(|problem| CliError::Ticket { path: path.to_path_buf(), problem })
}

/// Starts this program anew, in the same process, without the ticket among its arguments, which every user of the
/// system can read. Where that is not possible it goes on as it is.
fn leave_out(ticket: &str) {
    #[cfg(unix)]
    {
        use std::os::unix::process::CommandExt as _;
        let is_it = |argument: &OsStr| {
            argument.to_str().is_some_and(|argument| argument.trim().eq_ignore_ascii_case(ticket))
        };
        let arguments: Vec<_> = std::env::args_os().collect();
        if let Ok(program) = std::env::current_exe()
            && arguments.iter().any(|argument| is_it(argument))
        {
            let without = arguments.iter().skip(1).filter(|argument| !is_it(argument));
            let name = arguments.first().map_or(OsStr::new("edge-client"), |name| name);
            let error = std::process::Command::new(program).arg0(name).args(without).exec();
            tracing::warn!("the ticket stays in the list of processes until this program ends: {error}");
        }
    }
    #[cfg(not(unix))]
    let _ = (ticket, OsStr::new(""));
}
