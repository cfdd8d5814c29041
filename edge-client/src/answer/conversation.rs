//! Conversations with programs on this device: how many at a time, and how long a silent one is waited for.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
#[cfg(unix)]
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::http;
use super::model::Loaded;
use super::request::{MAX_REQUEST, answer_line, refusal};

/// Connections that are answered at a time.
pub(super) const MAX_CONNECTIONS: usize = 32;
/// Further connections that are refused with the reason at a time; beyond them there is no answer.
const MAX_REFUSALS: usize = 32;
/// How long a program may be silent, or not read its answers.
const PATIENCE: Duration = Duration::from_mins(10);
/// How long a connection that is refused is waited for, and one that is to end for what it still sends.
const SHORT: Duration = Duration::from_secs(2);

/// A connection of either kind.
pub(super) trait Stream: Read + Write + Send + Sized + 'static {
    /// Sets both timeouts.
    fn wait_for(&self, patience: Duration) -> io::Result<()>;
    /// A second handle.
    fn again(&self) -> io::Result<Self>;
    /// Ends what is sent; what arrives can still be read.
    fn end(&self) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn wait_for(&self, patience: Duration) -> io::Result<()> {
        self.set_nodelay(true)?;
        self.set_read_timeout(Some(patience))?;
        self.set_write_timeout(Some(patience))
    }

    fn again(&self) -> io::Result<Self> {
        self.try_clone()
    }

    fn end(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

#[cfg(unix)]
impl Stream for UnixStream {
    fn wait_for(&self, patience: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(patience))?;
        self.set_write_timeout(Some(patience))
    }

    fn again(&self) -> io::Result<Self> {
        self.try_clone()
    }

    fn end(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

/// The connections that are open.
#[derive(Clone, Debug, Default)]
pub(super) struct Places(Arc<AtomicUsize>);

/// One of them; it is free again when this is dropped.
struct Place {
    places: Places,
    /// How many were open before.
    before: usize,
}

impl Places {
    fn take(&self) -> Place {
        Place { before: self.0.fetch_add(1, Ordering::Relaxed), places: self.clone() }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves a connection on a thread of its own, or refuses it if there are too many. One that the system has no thread for is closed.
pub(super) fn converse(stream: impl Stream, model: &Arc<Mutex<Loaded>>, places: &Places) {
    let place = places.take();
    if place.before >= MAX_CONNECTIONS + MAX_REFUSALS {
        return;
    }
    let model = model.clone();
    let talk = move || {
        // The program has disconnected, or was silent for too long: its connection alone ends.
        let _ = if place.before < MAX_CONNECTIONS { hold(&stream, &model) } else { refuse(&stream) };
        drop(stream);
        drop(place);
    };
    if let Err(error) = std::thread::Builder::new().spawn(talk) {
        tracing::warn!(
            "a program on this device is not answered, since the system has no thread for it: {error}"
        );
    }
}

fn hold(stream: &impl Stream, model: &Mutex<Loaded>) -> io::Result<()> {
    stream.wait_for(PATIENCE)?;
    let mut input = BufReader::new(stream.again()?);
    serve(&mut input, &mut stream.again()?, model)?;
    leave(stream, &mut input)
}

/// Says why there is no answer, in the form of the request.
fn refuse(stream: &impl Stream) -> io::Result<()> {
    stream.wait_for(SHORT)?;
    let mut input = BufReader::new(stream.again()?);
    let mut line = Vec::new();
    input.by_ref().take(http::MAX_HEADER).read_until(b'\n', &mut line)?;
    let reason = refusal(&format!(
        "{MAX_CONNECTIONS} connections are open, which is the most: close one, or try again"
    ));
    let mut out = stream.again()?;
    if http::is_http(&line) {
        http::respond(&mut out, "503 Service Unavailable", &reason)?;
    } else {
        writeln!(out, "{reason}")?;
    }
    leave(stream, &mut input)
}

/// Ends a connection so that its last answer arrives: to close it while something that was sent is unread would discard that answer.
fn leave(stream: &impl Stream, input: &mut impl Read) -> io::Result<()> {
    stream.end()?;
    stream.wait_for(SHORT)?;
    let (start, mut unread) = (Instant::now(), [0; 1 << 12]);
    while start.elapsed() < SHORT && input.read(&mut unread)? > 0 {}
    Ok(())
}

/// Answers the requests of a connection until its end.
pub(super) fn serve(input: &mut impl BufRead, out: &mut impl Write, model: &Mutex<Loaded>) -> io::Result<()> {
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
            return http::serve(&line, input, out, |ask| {
                ask(model.lock().unwrap_or_else(PoisonError::into_inner).newest())
            });
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let answer = answer_line(model.lock().unwrap_or_else(PoisonError::into_inner).newest(), &line);
        // In one write: half a line would be a packet of its own.
        out.write_all(format!("{answer}\n").as_bytes())?;
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
