//! Sockets for programs on this device: a Unix socket, or a port that only this device reaches.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
#[cfg(unix)]
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use socket2::Socket;

use super::conversation::{Connections, converse};
use super::model::Loaded;

/// The pause before the next connection is accepted after the system had no room for one.
const PAUSE: Duration = Duration::from_millis(100);

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket, which only this user may open.
    Unix(PathBuf),
    /// A port of a loopback address.
    Loopback(SocketAddr),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Self::Unix(PathBuf::from(path)));
        }
        match text.parse::<SocketAddr>() {
            Ok(address) if address.ip().is_loopback() => Ok(Self::Loopback(address)),
            Ok(_) => {
                Err("only programs on this device are answered: 127.0.0.1:PORT or [::1]:PORT".to_owned())
            }
            Err(_) => Err("give unix:PATH or 127.0.0.1:PORT".to_owned()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Loopback(address) => address.fmt(f),
        }
    }
}

/// An open socket.
#[derive(Debug)]
pub enum Listener {
    /// Of a path, which is removed with it.
    #[cfg(unix)]
    Unix(UnixListener, PathBuf),
    /// Of a port.
    Loopback(TcpListener),
}

impl Listener {
    /// Opens the socket. A socket that an ended process has left is replaced.
    ///
    /// # Errors
    /// The system's.
    pub fn bind(address: &Address) -> io::Result<Self> {
        match address {
            Address::Loopback(address) => Ok(Self::Loopback(TcpListener::bind(address)?)),
            #[cfg(unix)]
            Address::Unix(path) => {
                use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
                use std::os::unix::net::UnixStream;
                let is_socket = path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket());
                if is_socket && UnixStream::connect(path).is_err() {
                    std::fs::remove_file(path)?;
                }
                let listener = UnixListener::bind(path)?;
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
                Ok(Self::Unix(listener, path.clone()))
            }
            #[cfg(not(unix))]
            Address::Unix(_) => {
                Err(io::Error::new(io::ErrorKind::Unsupported, "this system has no Unix sockets"))
            }
        }
    }

    /// Where it listens: the port is known if any was asked for.
    #[must_use]
    pub fn address(&self) -> Option<Address> {
        match self {
            #[cfg(unix)]
            Self::Unix(_, path) => Some(Address::Unix(path.clone())),
            Self::Loopback(listener) => listener.local_addr().ok().map(Address::Loopback),
        }
    }

    /// Answers until the process ends. A connection has a thread of its own; the model answers one request at a time.
    ///
    /// # Errors
    /// As [`each`](Self::each).
    pub fn serve(&self, model: Loaded) -> io::Result<()> {
        let connections = Connections::new(model);
        self.each(|socket| converse(socket, &connections))
    }

    /// Hands on each connection, until the process ends.
    ///
    /// # Errors
    /// The system's, if no connection can be accepted any more.
    pub fn each(&self, mut handle: impl FnMut(Socket)) -> io::Result<()> {
        loop {
            let accepted = match self {
                #[cfg(unix)]
                Self::Unix(listener, _) => listener.accept().map(|(stream, _)| stream.into()),
                Self::Loopback(listener) => listener.accept().map(|(stream, _)| stream.into()),
            };
            match accepted {
                Ok(socket) => handle(socket),
                Err(error) if is_passing(&error) => std::thread::sleep(PAUSE),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Whether the next connection may be accepted although this one could not be: its program has left, or the system has no room
/// for another file at the moment.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, OutOfMemory};
    let kind = matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted | OutOfMemory);
    #[cfg(unix)]
    let kind = kind || matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS));
    kind
}

impl Listener {
    /// Removes the socket's path: no program finds it any more.
    pub fn close(&self) {
        #[cfg(unix)]
        if let Self::Unix(_, path) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.close();
    }
}
