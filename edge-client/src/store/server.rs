//! The server that the client belongs to: its key, its addresses, and the ticket until it is redeemed.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use shared::identity::PublicKey;
use shared::text_checksum::{content, with_checksum};
use shared::ticket::{Ticket, TicketSecret};

use super::durable;
use super::error::StoreError;
use crate::address_book::AddressBook;

/// What a client knows of its server.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownServer {
    /// Its key: no other server is trusted.
    pub key: PublicKey,
    /// Its addresses, from the owner of this device.
    pub addresses: Vec<String>,
    /// Its addresses by its own word, the newest list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub told: Vec<String>,
    /// Where it admitted this client last, if there is a choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<String>,
    /// The ticket, until the server has admitted this client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ticket: Option<String>,
    /// Digest of the secret of the redeemed ticket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    taken: Option<String>,
    /// Earlier keys of the server, which it replaced itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    former: Vec<PublicKey>,
}

/// Without the ticket, which is a secret.
impl fmt::Debug for KnownServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KnownServer")
            .field("key", &self.key)
            .field("addresses", &self.addresses)
            .finish_non_exhaustive()
    }
}

impl KnownServer {
    /// A server that admits this client without a ticket.
    #[must_use]
    pub fn new(key: PublicKey, addresses: Vec<String>) -> Self {
        Self { key, addresses, told: Vec::new(), last: None, ticket: None, taken: None, former: Vec::new() }
    }

    /// The ticket's secret; `None` once it is redeemed.
    #[must_use]
    pub fn secret(&self) -> Option<TicketSecret> {
        let ticket = self.ticket.as_deref()?.parse::<Ticket>().ok()?;
        Some(ticket.secret)
    }

    /// The server after it has admitted this client.
    #[must_use]
    pub fn redeemed(self) -> Self {
        let taken = self.secret().map(|secret| digits(&secret)).or(self.taken);
        Self { ticket: None, taken, ..self }
    }

    /// The same server at these addresses. If its owner has changed them, they count, until the server says its own again.
    #[must_use]
    pub fn at(self, addresses: Vec<String>) -> Self {
        if self.addresses == addresses {
            return self;
        }
        Self { addresses, told: Vec::new(), last: None, ..self }
    }

    /// The same server, which has told these addresses and admitted this client at the `last` one.
    #[must_use]
    pub fn noting(self, told: Vec<String>, last: Option<String>) -> Self {
        Self { told, last, ..self }
    }

    /// All of its addresses, and where to begin.
    #[must_use]
    pub fn address_book(&self) -> AddressBook {
        AddressBook::new(self.addresses.clone()).with_kept(self.told.clone(), self.last.clone())
    }

    /// The same server with a new key.
    #[must_use]
    pub fn renewed(mut self, key: PublicKey) -> Self {
        if key != self.key {
            self.former.push(self.key);
            self.former.retain(|former| *former != key);
        }
        Self { key, ..self }
    }

    /// Whether the server has this key or had it before.
    #[must_use]
    pub fn has_had(&self, key: PublicKey) -> bool {
        self.key == key || self.former.contains(&key)
    }

    /// Whether this client has redeemed this ticket with the server.
    #[must_use]
    pub fn has_taken(&self, ticket: &Ticket) -> bool {
        self.has_had(ticket.server) && self.taken.as_ref() == Some(&digits(&ticket.secret))
    }
}

impl From<Ticket> for KnownServer {
    fn from(ticket: Ticket) -> Self {
        let text = ticket.to_string();
        Self { ticket: Some(text), ..Self::new(ticket.server, ticket.addresses) }
    }
}

fn digits(secret: &TicketSecret) -> String {
    secret.digest().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The file of the server that the client of a state directory belongs to.
#[derive(Clone, Debug)]
pub struct ServerFile {
    path: PathBuf,
}

impl ServerFile {
    /// The file in a state directory, which may be in use.
    #[must_use]
    pub fn of(directory: &Path) -> Self {
        Self::new(directory.join("server"))
    }

    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// The path of the file. Remove it to trust another server.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The server; `None` before the first one.
    pub fn load(&self) -> Result<Option<KnownServer>, StoreError> {
        let Some(text) = durable::read_text(&self.path)? else { return Ok(None) };
        let server = text.ok().and_then(|text| {
            let json = content(&text).ok()?;
            serde_json::from_str::<KnownServer>(json).ok()
        });
        // Trusting any server instead would be unsafe.
        server.map(Some).ok_or_else(|| StoreError::Damaged {
            path: self.path.clone(),
            problem: "it should name the key and the addresses of the server".to_owned(),
            remedy: "restore it from a backup, or remove it and join with a new ticket",
        })
    }

    /// Replaces the server, durably.
    pub fn save(&self, server: &KnownServer) -> Result<(), StoreError> {
        let text = serde_json::to_string_pretty(server).expect("keys and strings are JSON");
        durable::replace(&self.path, with_checksum(&text).as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use shared::identity::SecretKey;
    use shared::message::MAX_SERVERS;
    use shared::ticket::MAX_ADDRESS;

    use super::*;

    fn key(byte: u8) -> PublicKey {
        SecretKey::from_bytes([byte; 32]).public()
    }

    #[test]
    fn a_server_is_saved_and_can_be_replaced_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let file = ServerFile::new(folder.path().join("server"));
        assert_eq!(file.load().unwrap(), None);
        for byte in [1, 2] {
            let server = KnownServer::new(key(byte), vec!["lab:4433".to_owned()]);
            file.save(&server).unwrap();
            assert_eq!(file.load().unwrap(), Some(server));
        }
        fs::remove_file(file.path()).unwrap();
        assert_eq!(file.load().unwrap(), None);
    }

    #[test]
    fn the_addresses_that_a_server_has_told_are_kept_until_its_owner_names_others() {
        let folder = tempfile::tempdir().unwrap();
        let file = ServerFile::new(folder.path().join("server"));
        let given = vec!["lab:4433".to_owned()];
        let server = KnownServer::new(key(1), given.clone());
        file.save(&server).unwrap();
        let text = fs::read_to_string(file.path()).unwrap();
        assert!(!text.contains("told") && !text.contains("last"), "as an earlier program writes it: {text}");
        let longest = |number: usize| format!("{number:02}{}:4433", "x".repeat(MAX_ADDRESS - 7));
        let told: Vec<String> = (0..MAX_SERVERS).map(longest).collect();
        let server = server.noting(told.clone(), told.last().cloned());
        file.save(&server).unwrap();
        let loaded = file.load().unwrap().unwrap();
        assert_eq!(loaded, server, "the longest list fits");
        assert_eq!(loaded.clone().at(given), server);
        assert_eq!(loaded.clone().renewed(key(2)).told, told);
        let others = vec!["elsewhere:4433".to_owned()];
        assert_eq!(loaded.at(others.clone()), KnownServer::new(key(1), others));
    }

    #[test]
    fn a_ticket_is_kept_until_it_is_redeemed() {
        let folder = tempfile::tempdir().unwrap();
        let file = ServerFile::new(folder.path().join("server"));
        let secret = TicketSecret::from_bytes([9; 16]);
        let addresses = (0..8).map(|number| format!("{number}{}:4433", "x".repeat(250))).collect();
        let server = KnownServer::from(Ticket { server: key(1), secret, addresses });
        file.save(&server).unwrap();
        let loaded = file.load().unwrap().unwrap();
        assert_eq!((loaded.secret(), &loaded), (Some(secret), &server), "the longest ticket fits");
        let ticket = Ticket { server: key(1), secret, addresses: vec!["lab:1".to_owned()] };
        assert!(!loaded.has_taken(&ticket));
        let renewed = loaded.redeemed().renewed(key(2));
        assert!(renewed.has_taken(&ticket) && renewed.has_had(key(1)) && !renewed.has_had(key(3)));
        assert!(!format!("{renewed:?}").contains(&ticket.to_string()));
        file.save(&renewed).unwrap();
        assert_eq!(file.load().unwrap().unwrap().secret(), None);
        assert!(!fs::read_to_string(file.path()).unwrap().contains("fed1"));
    }

    #[test]
    fn a_damaged_file_trusts_no_server() {
        let folder = tempfile::tempdir().unwrap();
        let file = ServerFile::new(folder.path().join("server"));
        for damage in
            [&b""[..], b"ab", b"\xff\xff", &b"ab".repeat(32), b"{\"key\": \"ab\", \"addresses\": []}"]
        {
            fs::write(file.path(), damage).unwrap();
            assert!(matches!(file.load(), Err(StoreError::Damaged { path, .. }) if path == file.path()));
        }
    }
}
