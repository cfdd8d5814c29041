//! The server that `join` joins: from a ticket, an address, or the state directory.

use std::path::Path;

use shared::identity::PublicKey;
use shared::ticket::TicketSecret;
use tracing::warn;

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
    /// The content of the file, but for what is `unwritten`.
    remembered: Option<KnownServer>,
    /// Whether the file could not take the newest addresses, which are in memory alone.
    unwritten: bool,
    /// The key that was trusted when the process began.
    first: Option<PublicKey>,
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
        let trust = Trust::new(trusted);
        Ok(Self { file, remembered, unwritten: false, first: trusted, given, addresses, trust, output })
    }

    /// The ticket's secret, until it is redeemed.
    pub(super) fn ticket(&self) -> Option<TicketSecret> {
        self.remembered.as_ref().and_then(KnownServer::secret)
    }

    /// Stores what a notice says about the server. An error concerns its key or the ticket: without them, the next start may trust
    /// another server.
    pub(super) fn handle(&mut self, notice: &Notice) -> Result<(), StoreError> {
        match notice {
            Notice::Connected { .. } => self.connected(),
            // The server knows this device from now on, even if the device has to wait for approval.
            Notice::Joined { .. } | Notice::TurnedBack { .. } => {
                match self.remembered.clone().filter(|server| server.secret().is_some()) {
                    Some(server) => self.remember(server.redeemed()),
                    None => self.connected(),
                }?;
                self.note_addresses(None);
                Ok(())
            }
            Notice::Servers { addresses } => {
                self.note_addresses(Some(addresses));
                Ok(())
            }
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
        // The owner may have named the key of another server than the remembered one. Any other difference comes from the server: it
        // counts as soon as its announcement is read, and the notice of that comes later, or not at all if the connection ends.
        let of_first = |server: &KnownServer| self.first.is_none_or(|first| server.has_had(first));
        let known = self.remembered.clone().filter(of_first);
        let known = known.unwrap_or_else(|| KnownServer::new(self.first.unwrap_or(key), self.given.clone()));
        let server = known.at(self.given.clone()).renewed(key);
        if self.remembered.as_ref().is_some_and(|remembered| remembered.key == key) {
            self.note(server);
            return Ok(());
        }
        self.remember(server)?;
        self.tell(key);
        Ok(())
    }

    /// Keeps where the server has admitted this client, and what it has `told` of its addresses, if it has.
    fn note_addresses(&mut self, told: Option<&Vec<String>>) {
        let Some(server) = self.remembered.clone() else { return };
        let last = self.addresses.lock().last().cloned();
        let told = told.unwrap_or(&server.told).clone();
        self.note(server.noting(told, last));
    }

    /// Keeps addresses, which save time and nothing else: a disk that does not take them is tried again at the next note.
    fn note(&mut self, server: KnownServer) {
        if self.remembered.as_ref() == Some(&server) && !self.unwritten {
            return;
        }
        let written = self.file.save(&server);
        if let Err(error) = &written
            && !self.unwritten
        {
            warn!("the addresses of the server are not kept for the next start: {error}");
        }
        self.unwritten = written.is_err();
        self.remembered = Some(server);
    }

    fn remember(&mut self, server: KnownServer) -> Result<(), StoreError> {
        self.file.save(&server)?;
        self.unwritten = false;
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

#[cfg(test)]
mod tests {
    use std::fs;

    use shared::identity::SecretKey;
    use shared::ticket::Ticket;

    use super::*;

    fn key(byte: u8) -> PublicKey {
        SecretKey::from_bytes([byte; 32]).public()
    }

    fn ticket(byte: u8) -> Ticket {
        let secret = TicketSecret::from_bytes([9; 16]);
        Ticket { server: key(byte), secret, addresses: vec!["lab:4433".to_owned()] }
    }

    /// A process that trusts the server with this key, and remembers this one.
    fn server(folder: &Path, trusted: u8, remembered: &KnownServer) -> Server {
        let file = ServerFile::of(folder);
        file.save(remembered).unwrap();
        let given = vec!["lab:4433".to_owned()];
        Server {
            file,
            remembered: Some(remembered.clone()),
            unwritten: false,
            first: Some(key(trusted)),
            addresses: AddressBook::new(given.clone()).into(),
            given,
            trust: Trust::new(Some(key(trusted))),
            output: Output::new(true),
        }
    }

    fn connected() -> Notice {
        Notice::Connected { server: "lab:4433".to_owned() }
    }

    #[test]
    fn a_key_that_is_replaced_before_its_notice_comes_keeps_what_is_known_of_the_server() {
        let folder = tempfile::tempdir().unwrap();
        let redeemed = KnownServer::from(ticket(1)).redeemed().noting(vec!["other:1".to_owned()], None);
        let mut server = server(folder.path(), 1, &redeemed);
        server.trust.renew(key(2));
        server.handle(&connected()).unwrap();
        let kept = ServerFile::of(folder.path()).load().unwrap().unwrap();
        assert_eq!((kept.key, &kept.told), (key(2), &redeemed.told));
        assert!(kept.has_taken(&ticket(1)), "its old ticket does not bring the old key back");
        server.handle(&Notice::ServerKey { key: key(2) }).unwrap();
        assert_eq!(ServerFile::of(folder.path()).load().unwrap(), Some(kept));
    }

    #[test]
    fn the_key_of_another_server_forgets_the_one_before() {
        let folder = tempfile::tempdir().unwrap();
        let mut server = server(folder.path(), 3, &KnownServer::from(ticket(1)).redeemed());
        server.handle(&connected()).unwrap();
        server.trust.renew(key(4));
        server.handle(&connected()).unwrap();
        let kept = ServerFile::of(folder.path()).load().unwrap().unwrap();
        assert_eq!(kept.key, key(4));
        assert!(kept.has_had(key(3)) && !kept.has_had(key(1)));
    }

    #[test]
    fn addresses_that_cannot_be_written_end_nothing_and_a_key_that_cannot_does() {
        let folder = tempfile::tempdir().unwrap();
        let known = KnownServer::from(ticket(1)).redeemed();
        let mut server = server(folder.path(), 1, &known);
        // Its place is taken by a directory, as on a disk that takes no more.
        let path = server.file.path().to_owned();
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        let told = |address: &str| Notice::Servers { addresses: vec![address.to_owned()] };
        server.handle(&told("other:1")).unwrap();
        assert_eq!(
            server.remembered.as_ref().map(|known| known.told.clone()),
            Some(vec!["other:1".to_owned()])
        );
        server.handle(&Notice::ServerKey { key: key(2) }).unwrap_err();
        fs::remove_dir(&path).unwrap();
        server.handle(&told("other:1")).unwrap();
        let kept = server.file.load().unwrap();
        assert_eq!(kept, Some(known.noting(vec!["other:1".to_owned()], None)), "as soon as there is room");
    }
}
