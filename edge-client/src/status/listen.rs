//! The status for programs on the device: a socket that says it in JSON.
//!
//! A program that sends a line is answered with one JSON object in a line; an HTTP GET with the same object. Then the connection ends.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use socket2::Socket;

use super::record::DeviceStatus;
use crate::answer::{Address, Listener};

/// How long a program may take to ask, and to read the answer. They are answered one after another.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest line that a program may ask with.
const MAX_LINE: u64 = 8192;

/// An open socket; closed when this is dropped.
#[derive(Debug)]
pub struct StatusSocket {
    listener: Arc<Listener>,
}

impl StatusSocket {
    /// Opens it, and answers on a thread of its own with what `status` is then.
    ///
    /// # Errors
    /// The system's.
    pub fn open(address: &Address, status: Arc<Mutex<DeviceStatus>>) -> io::Result<Self> {
        let listener = Arc::new(Listener::bind(address)?);
        let accepting = listener.clone();
        std::thread::Builder::new().name("status".to_owned()).spawn(move || {
            let ended = accepting.each(|socket| {
                // The program has left, or was silent: nothing depends on it.
                let _ = answer(socket, &status);
            });
            if let Err(error) = ended {
                tracing::warn!("programs on this device are told no status any more: {error}");
            }
        })?;
        Ok(Self { listener })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> Option<Address> {
        self.listener.address()
    }
}

impl Drop for StatusSocket {
    fn drop(&mut self) {
        self.listener.close();
    }
}

fn answer(mut socket: Socket, status: &Mutex<DeviceStatus>) -> io::Result<()> {
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(&socket).take(MAX_LINE);
    let mut asked = String::new();
    reader.read_line(&mut asked)?;
    let method = asked.split(' ').next().unwrap_or_default();
    let http = asked.trim_end().rsplit(' ').next().is_some_and(|last| last.starts_with("HTTP/"));
    if http {
        // The rest of the head, so that closing the connection does not reset it before the answer is read.
        let mut header = String::from("-");
        while !header.trim_end().is_empty() {
            header.clear();
            reader.read_line(&mut header)?;
        }
    }
    let object = {
        let status = status.lock().unwrap_or_else(PoisonError::into_inner);
        serde_json::to_string(&*status).expect("a status is text and numbers") + "\n"
    };
    let text = match (http, method) {
        (false, _) => object,
        (true, "GET") => format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{object}",
            object.len()
        ),
        (true, _) => {
            "HTTP/1.1 405 Method Not Allowed\r\nAllow: GET\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                .to_owned()
        }
    };
    socket.write_all(text.as_bytes())
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::net::UnixStream;

    use shared::id::ClientId;

    use super::*;

    fn asked(address: &Address, request: &str) -> String {
        let Address::Unix(path) = address else { panic!("{address}") };
        let mut said = String::new();
        let mut ask = || {
            let mut stream = UnixStream::connect(path)?;
            stream.write_all(request.as_bytes())?;
            stream.read_to_string(&mut said)
        };
        ask().expect("it is answered");
        said
    }

    #[test]
    fn a_line_and_an_http_get_are_answered_with_the_status_of_now() {
        let folder = tempfile::tempdir().unwrap();
        let address = Address::Unix(folder.path().join("status"));
        let status = Arc::new(Mutex::new(DeviceStatus::begin(ClientId::from_bytes([7; 16]), "lab:4433", 1)));
        let socket = StatusSocket::open(&address, status.clone()).unwrap();
        assert_eq!(socket.address(), Some(address.clone()));
        let read: DeviceStatus = serde_json::from_str(&asked(&address, "\n")).unwrap();
        assert_eq!((read.server.as_str(), read.accepted), ("lab:4433", 0));
        status.lock().unwrap().accepted = 5;
        let page = asked(&address, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let (head, body) = page.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert_eq!(serde_json::from_str::<DeviceStatus>(body).unwrap().accepted, 5);
        assert!(asked(&address, "POST / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
        drop(socket);
        assert!(!folder.path().join("status").exists(), "no program finds it any more");
    }
}
