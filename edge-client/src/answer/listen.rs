//! Sockets for programs on this device: a Unix socket, or a port that only this device reaches.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
#[cfg(unix)]
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::http;
use super::model::Loaded;
use super::request::{MAX_REQUEST, answer_line, refusal};

/// Connections at a time.
const MAX_CONNECTIONS: usize = 32;
/// How long a program may be silent within a request, or not read its answer.
const PATIENCE: Duration = Duration::from_mins(10);

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
    /// The system's, if no connection can be accepted any more.
    pub fn serve(&self, model: &Arc<Mutex<Loaded>>) -> io::Result<()> {
        let open = Arc::new(AtomicUsize::new(0));
        loop {
            match self {
                #[cfg(unix)]
                Self::Unix(listener, _) => {
                    let (stream, _) = listener.accept()?;
                    let both = || {
                        stream.set_read_timeout(Some(PATIENCE))?;
                        stream.set_write_timeout(Some(PATIENCE))?;
                        stream.try_clone()
                    };
                    // A program that has left already ends its own connection alone.
                    if let Ok(input) = both() {
                        converse(input, stream, model, &open);
                    }
                }
                Self::Loopback(listener) => {
                    let (stream, _) = listener.accept()?;
                    let both = || {
                        stream.set_nodelay(true)?;
                        stream.set_read_timeout(Some(PATIENCE))?;
                        stream.set_write_timeout(Some(PATIENCE))?;
                        stream.try_clone()
                    };
                    if let Ok(input) = both() {
                        converse(input, stream, model, &open);
                    }
                }
            }
        }
    }
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

/// Serves a connection on a thread of its own, if there are not too many.
fn converse(
    input: impl Read + Send + 'static,
    mut out: impl Write + Send + 'static,
    model: &Arc<Mutex<Loaded>>,
    open: &Arc<AtomicUsize>,
) {
    if open.fetch_add(1, Ordering::Relaxed) >= MAX_CONNECTIONS {
        open.fetch_sub(1, Ordering::Relaxed);
        let _ = writeln!(
            out,
            "{}",
            refusal(&format!("{MAX_CONNECTIONS} connections are open, which is the most"))
        );
        return;
    }
    let (model, open) = (model.clone(), open.clone());
    std::thread::spawn(move || {
        // The program has disconnected, or was silent for too long.
        let _ = serve(BufReader::new(input), &mut out, &model);
        open.fetch_sub(1, Ordering::Relaxed);
    });
}

/// Answers the requests of a connection until its end.
fn serve(mut input: impl BufRead, out: &mut impl Write, model: &Mutex<Loaded>) -> io::Result<()> {
    let mut line = Vec::new();
    loop {
        line.clear();
        input.by_ref().take(MAX_REQUEST + 1).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(());
        }
        if line.len() as u64 > MAX_REQUEST {
            // Where the next request begins is not known.
            return writeln!(out, "{}", refusal(&format!("a request has at most {MAX_REQUEST} bytes")));
        }
        if http::is_http(&line) {
            return http::serve(&line, &mut input, out, |ask| {
                ask(model.lock().unwrap_or_else(PoisonError::into_inner).newest())
            });
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let answer = answer_line(model.lock().unwrap_or_else(PoisonError::into_inner).newest(), &line);
        writeln!(out, "{answer}")?;
        out.flush()?;
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
