//! Keys, ids and tickets, as people and peers show them.

use std::time::{Duration, UNIX_EPOCH};

use aggregator::storage::Disk;
use aggregator::transport::identity::ServerIdentity;
use data_encoding::BASE32_NOPAD_NOCASE;
use rustls::pki_types::CertificateDer;
use sha2::{Digest as _, Sha256};
use shared::id::{ClientId, RunId};
use shared::identity::tls::{peer_key, shown};
use shared::identity::{PublicKey, SecretKey};
use shared::ticket::{MAX_ADDRESS, MAX_ADDRESSES, Ticket, TicketSecret};

use super::{Seen, tmp};
use crate::keys::device_key;

/// A ticket as it is typed.
///
/// # Panics
/// If one is read that is written differently.
#[must_use]
pub fn ticket(bytes: &[u8]) -> Seen {
    let text = String::from_utf8_lossy(bytes);
    let read: Result<Ticket, _> = text.parse();
    if let Ok(ticket) = &read {
        assert_eq!(ticket.to_string().parse().as_ref(), Ok(ticket));
        assert!((1..=MAX_ADDRESSES).contains(&ticket.addresses.len()));
        assert!(ticket.addresses.iter().all(|address| address.len() <= MAX_ADDRESS));
    }
    Seen::result(&read)
}

/// A ticket's content under a correct checksum: any program can compute it.
#[must_use]
pub fn content(bytes: &[u8]) -> Seen {
    let checksum: [u8; 32] = Sha256::digest(bytes).into();
    let text = format!("fed1{}", BASE32_NOPAD_NOCASE.encode(&[bytes, &checksum[..4]].concat()));
    ticket(text.as_bytes())
}

fn some() -> Vec<Ticket> {
    let addresses = [&["192.168.1.10:4433", "lab.local:4433"][..], &["[::1]:1"], &["a"; MAX_ADDRESSES]];
    let ticket = |addresses: &[&str]| Ticket {
        server: device_key(0).public(),
        secret: TicketSecret::from_bytes(*b"sixteen  letters"),
        addresses: addresses.iter().map(|&address| address.to_owned()).collect(),
    };
    addresses.map(ticket).into()
}

/// Tickets in either case.
#[must_use]
pub fn tickets() -> Vec<Vec<u8>> {
    let texts = some().into_iter().map(|ticket| ticket.to_string());
    texts.flat_map(|text| [text.to_uppercase().into_bytes(), text.into_bytes()]).collect()
}

/// What they hold.
#[must_use]
pub fn contents() -> Vec<Vec<u8>> {
    let content = |text: Vec<u8>| {
        let bytes = BASE32_NOPAD_NOCASE.decode(&text[4..]).expect("an own ticket");
        bytes[..bytes.len() - 4].to_vec()
    };
    tickets().into_iter().map(content).collect()
}

/// A key in a handshake, and keys and ids in digits.
///
/// # Panics
/// If one is read that is written differently.
#[must_use]
pub fn key(bytes: &[u8]) -> Seen {
    let in_handshake = peer_key(&CertificateDer::from(bytes));
    let text = String::from_utf8_lossy(bytes);
    let public: Result<PublicKey, _> = text.parse();
    if let Ok(key) = &public {
        assert_eq!(key.to_string(), text.to_lowercase());
    }
    let secret = SecretKey::parse(&text).map(|key| key.public().client());
    let ids = (text.parse::<ClientId>(), text.parse::<RunId>());
    if let Ok(client) = &ids.0 {
        assert_eq!(client.to_string(), text.to_lowercase());
    }
    Seen::of(&(
        in_handshake.map(|_| ()),
        public.map(|_| ()),
        secret.map(|_| ()),
        ids.0.is_ok(),
        ids.1.is_ok(),
    ))
}

/// A key in each form.
#[must_use]
pub fn keys() -> Vec<Vec<u8>> {
    let key = device_key(1);
    let public = key.public();
    let run = RunId::from_bytes([7; 8]).to_string();
    let texts = [public.to_string(), public.client().to_string(), run].map(String::into_bytes);
    let shown = shown(&key).cert[0].to_vec();
    texts.into_iter().chain([shown]).collect()
}

/// The two files with a server's keys, with a zero byte between them.
///
/// # Panics
/// If a damaged file is replaced.
#[must_use]
pub fn server(bytes: &[u8]) -> Seen {
    let mut parts = bytes.splitn(2, |&byte| byte == 0);
    let (current, former) = (parts.next().unwrap_or_default(), parts.next());
    let path = tmp::file("server.key", current);
    let folder = path.parent().expect("it is in a folder");
    if let Some(former) = former {
        tmp::write(&folder.join("former.key"), former);
    }
    let loaded = ServerIdentity::load_or_create(&Disk, folder);
    assert_eq!(std::fs::read(&path).expect("it is there"), current, "never replaced");
    let now = UNIX_EPOCH + Duration::from_secs(1_000_000);
    Seen::of(&loaded.map(|identity| {
        let keys = identity.keys(now).len();
        let rotated = ServerIdentity::rotate(&Disk, folder, Duration::from_hours(1), false, now);
        (keys > 1, rotated.is_ok())
    }))
}

/// A server with one key, and with two.
#[must_use]
pub fn servers() -> Vec<Vec<u8>> {
    let digits = |index| device_key(index).digits();
    let former = format!("{}\n\0{} 1003600\n", digits(0), digits(1));
    vec![format!("{}\n", digits(0)).into_bytes(), former.into_bytes()]
}
