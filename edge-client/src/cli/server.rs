//! The server that `join` joins: from a ticket, an address, or the state directory.

use std::path::Path;

use shared::identity::PublicKey;
use shared::ticket::TicketSecret;

use super::arguments::JoinArguments;
use super::error::{CliError, Exit};
use super::event::{Event, Output};
use super::parse::Target;
use super::ticket;
use crate::address_book::{AddressBook, SharedAddressBook};
use crate::driver::Notice;
use crate::store::{DiskStore, KnownServer, ServerFile, StoreError};
use crate::trust::Trust;

/// The server to join, and what is stored about it.
pub(super) struct Server {
    file: ServerFile,
    /// The content of the file.
    remembered: Option<KnownServer>,
    /// The addresses that the owner gave.
    given: Vec<String>,
    /// All addresses, and the order in which they are tried.
    pub(super) addresses: SharedAddressBook,
    /// The trusted key.
    pub(super) trust: Trust,
    output: Output,
}

impl Server {
    /// The server that the arguments name; a ticket was [taken](take_ticket) before.
    pub(super) fn new(file: ServerFile, arguments: &JoinArguments, output: Output) -> Result<Self, CliError> {
        let (remembered, given, trusted) = match &arguments.server {
            Some(Target::Addresses(addresses)) => {
                // A key among the arguments replaces the stored one, once a server has proved it; except a key that the server
                // itself has replaced since, which may still stand in a file of settings.
                let remembered = match (file.load(), arguments.server_key) {
                    (Ok(server), Some(given)) => server.filter(|server| server.has_had(given)),
                    (Err(_), Some(_)) => None,
                    (loaded, None) => loaded?,
                };
                let trusted = remembered.as_ref().map(|server| server.key).or(arguments.server_key);
                (remembered, addresses.clone(), trusted)
            }
            // A mistyped ticket was refused when tickets were taken.
            Some(Target::Ticket(_) | Target::Mistyped(_)) | None => {
                let server = file.load()?.ok_or_else(|| no_server(file.path()))?;
                let given = arguments.server_key.filter(|given| !server.has_had(*given));
                let (addresses, key) = (server.addresses.clone(), given.unwrap_or(server.key));
                (Some(server), addresses, Some(key))
            }
        };
        // What a server has told is believed of the server with that key alone.
        let known = remembered.clone().filter(|server| Some(server.key) == trusted);
        let known = known.map(|server| server.at(given.clone()).address_book());
        let addresses = known.unwrap_or_else(|| AddressBook::new(given.clone())).into();
        Ok(Self { file, remembered, given, addresses, trust: Trust::new(trusted), output })
    }

    /// The ticket's secret, until it is redeemed.
    pub(super) fn ticket(&self) -> Option<TicketSecret> {
        self.remembered.as_ref().and_then(KnownServer::secret)
    }

    /// Stores what a notice says about the server.
    pub(super) fn handle(&mut self, notice: &Notice) -> Result<(), StoreError> {
        match notice {
            Notice::Connected { .. } => self.connected(),
            // The server knows this device from now on, even if the device has to wait for approval.
            Notice::Joined { .. } | Notice::TurnedBack { .. } => {
                match self.remembered.clone().filter(|server| server.secret().is_some()) {
                    Some(server) => self.remember(server.redeemed()),
                    None => self.connected(),
                }?;
                self.note_addresses(None)
            }
            Notice::Servers { addresses } => self.note_addresses(Some(addresses)),
            Notice::ServerKey { key } => {
                let server = match self.remembered.clone() {
                    Some(server) => server.renewed(*key),
                    None => KnownServer::new(*key, self.given.clone()),
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
        match self.remembered.as_ref().filter(|server| server.key == key) {
            None => {
                self.remember(KnownServer::new(key, self.given.clone()))?;
                self.tell(key);
                Ok(())
            }
            Some(server) if server.addresses != self.given => {
                self.remember(server.clone().at(self.given.clone()))
            }
            Some(_) => Ok(()),
        }
    }

    /// Keeps where the server has admitted this client, and what it has `told` of its addresses, if it has.
    fn note_addresses(&mut self, told: Option<&Vec<String>>) -> Result<(), StoreError> {
        let Some(server) = self.remembered.clone() else { return Ok(()) };
        let last = self.addresses.lock().last().cloned();
        let told = told.unwrap_or(&server.told).clone();
        let noted = server.noting(told, last);
        if self.remembered.as_ref() == Some(&noted) { Ok(()) } else { self.remember(noted) }
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

fn no_server(file: &Path) -> CliError {
    let text = format!(
        "this device belongs to no server yet ({} does not exist): join with a ticket, which `aggregator ticket` prints on \
         the server's machine, or with an address",
        file.display()
    );
    CliError::new(Exit::Local, text)
}

/// Stores the ticket of the arguments, if there is one, in the state directory `state`. From then on it is not needed again.
pub(super) fn take_ticket(arguments: &JoinArguments, state: &Path) -> Result<(), CliError> {
    let Some(ticket) = ticket::given(arguments.server.as_ref(), arguments.ticket_file.as_deref())? else {
        return Ok(());
    };
    let file = DiskStore::open(state)?.server();
    // A service may be started with the same ticket every time. It already belongs to the server, which may have a new key.
    if !matches!(file.load(), Ok(Some(server)) if server.has_taken(&ticket)) {
        file.save(&KnownServer::from(ticket.clone()))?;
    }
    ticket::leave_out(&ticket);
    Ok(())
}
