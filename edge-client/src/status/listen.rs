//! The status for programs on the device: a socket that says it in JSON.
//!
//! A program that sends a line or an HTTP request is answered once, with one JSON object; then the connection ends.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use super::record::DeviceStatus;
use crate::answer::{Address, Listener, reply};

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
            let object = || {
                let status = status.lock().unwrap_or_else(PoisonError::into_inner);
                serde_json::to_value(&*status).expect("a status is text and numbers")
            };
            let ended = accepting.each(|socket| {
                // The program has left, or was silent: nothing depends on it. They are answered one after another.
                let _ = reply(&socket, "200 OK", object);
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

#[cfg(all(test, unix))]
mod tests {
    use std::io::{Read as _, Write as _};
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
        drop(socket);
        assert!(!folder.path().join("status").exists(), "no program finds it any more");
    }
}
