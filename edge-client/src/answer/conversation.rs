//! Conversations with programs on this device: how many at a time, and how long a silent one is waited for.

use std::io::{self, BufReader, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use socket2::Socket;

use super::http;
use super::model::Loaded;
use super::reading::{MAX_REQUEST, Patience, Reader, Room, Unread};
use super::request::{Service, answer_line, refusal};

/// Connections that are answered at a time.
pub(super) const MAX_CONNECTIONS: usize = 32;
/// Further connections that are refused with the reason at a time; beyond them there is no answer.
const MAX_REFUSALS: usize = 32;
/// How long a program may be silent or not read its answers, and how long its request may take to arrive.
const PATIENCE: Patience = Patience { idle: Duration::from_mins(10), arrival: Duration::from_secs(30) };
/// How long a connection that is refused is waited for, and one that is to end for what it still sends.
const SHORT: Duration = Duration::from_secs(2);

/// What all connections share.
#[derive(Debug)]
pub(super) struct Connections {
    service: Service,
    room: Room,
    /// How many connections are open.
    open: AtomicUsize,
}

/// A connection's place; it is free again when this is dropped.
struct Place {
    connections: Arc<Connections>,
    /// How many were open before.
    before: usize,
}

impl Connections {
    pub(super) fn new(model: Loaded) -> Arc<Self> {
        Arc::new(Self { service: Service::new(model), room: Room::default(), open: AtomicUsize::new(0) })
    }
}

impl Place {
    fn take(connections: &Arc<Connections>) -> Self {
        Self { before: connections.open.fetch_add(1, Ordering::Relaxed), connections: connections.clone() }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves a connection on a thread of its own, or refuses it if there are too many. One that the system has no thread for is closed.
pub(super) fn converse(socket: Socket, connections: &Arc<Connections>) {
    let place = Place::take(connections);
    if place.before >= MAX_CONNECTIONS + MAX_REFUSALS {
        return;
    }
    let talk = move || {
        // The program has disconnected, or was silent for too long: its connection alone ends.
        let _ =
            if place.before < MAX_CONNECTIONS { hold(&socket, &place.connections) } else { refuse(&socket) };
        drop(socket);
        drop(place);
    };
    if let Err(error) = std::thread::Builder::new().spawn(talk) {
        tracing::warn!(
            "a program on this device is not answered, since the system has no thread for it: {error}"
        );
    }
}

fn hold(socket: &Socket, connections: &Connections) -> io::Result<()> {
    // A socket of a path has no such option, and needs none.
    let _ = socket.set_tcp_nodelay(true);
    socket.set_write_timeout(Some(PATIENCE.idle))?;
    let wait_for = |time| socket.set_read_timeout(Some(time));
    let mut input = Reader::new(BufReader::new(socket), connections.room.clone(), PATIENCE, &wait_for);
    serve(&mut input, &mut &*socket, &connections.service)?;
    leave(socket, &mut input)
}

/// Says why there is no answer.
fn refuse(socket: &Socket) -> io::Result<()> {
    reply(socket, "503 Service Unavailable", || {
        refusal(&format!(
            "{MAX_CONNECTIONS} connections are open, which is the most: close one, or try again"
        ))
    })
}

/// Gives one line or HTTP request this answer, in the form of the request, and ends the connection. A program that takes
/// more than two seconds to ask is answered nothing.
///
/// # Errors
/// The program has disconnected.
pub fn reply(socket: &Socket, status: &str, object: impl FnOnce() -> Value) -> io::Result<()> {
    socket.set_write_timeout(Some(SHORT))?;
    let wait_for = |time| socket.set_read_timeout(Some(time));
    let patience = Patience { idle: SHORT, arrival: SHORT };
    let mut input = Reader::new(BufReader::new(socket), Room::default(), patience, &wait_for);
    let in_http = match input.first_line(http::MAX_HEADER) {
        Ok(line) => line.is_some_and(|line| http::is_http(&line)),
        Err(Unread::Gone(error)) => return Err(error),
        Err(_) => false,
    };
    let (object, mut out) = (object(), socket);
    if in_http {
        http::respond(&mut out, status, &object)?;
    } else {
        writeln!(out, "{object}")?;
    }
    leave(socket, &mut input)
}

/// Ends a connection so that its last answer arrives: to close it while something that was sent is unread would discard that answer.
fn leave(socket: &Socket, input: &mut Reader<'_, BufReader<&Socket>>) -> io::Result<()> {
    socket.shutdown(Shutdown::Write)?;
    input.discard(SHORT)
}

/// Answers the requests of a connection until its end.
pub(super) fn serve(
    input: &mut Reader<'_, impl io::BufRead>,
    out: &mut impl Write,
    service: &Service,
) -> io::Result<()> {
    loop {
        let line = match input.first_line(MAX_REQUEST) {
            Ok(Some(line)) => line,
            Ok(None) => return Ok(()),
            Err(Unread::Gone(error)) => return Err(error),
            // Where the next request begins is not known.
            Err(unread) => return writeln!(out, "{}", refusal(&unread.to_string())),
        };
        if http::is_http(&line) {
            return http::serve(&line, input, out, service);
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let answer = answer_line(service, &line);
        drop(line);
        // In one write: half a line would be a packet of its own.
        out.write_all(format!("{answer}\n").as_bytes())?;
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
