//! Which server `join` joins: that of a ticket, that of an address, or the one that this device belongs to.

use std::path::Path;

use shared::identity::PublicKey;
use shared::ticket::TicketSecret;

use super::arguments::JoinArguments;
use super::error::CliError;
use super::event::{Event, Output};
use super::parse::Target;
use super::ticket;
use crate::driver::Notice;
use crate::store::{DiskStore, KnownServer, ServerFile, StoreError};
use crate::trust::Trust;

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
    let Some(ticket) = ticket::given(arguments.server.as_ref(), arguments.ticket_file.as_deref())? else {
        return Ok(());
    };
    let file = DiskStore::open(state)?.server();
    // A service that is started with its ticket again and again belongs to the server already, whose key may be another now.
    if !matches!(file.load(), Ok(Some(server)) if server.has_taken(&ticket)) {
        file.save(&KnownServer::from(ticket.clone()))?;
    }
    ticket::leave_out(&ticket);
    Ok(())
}
