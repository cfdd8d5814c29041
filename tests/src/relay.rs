//! A relay of datagrams that stands for a network whose addresses change: seen from the server, the client moves.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the relay looks whether it is to end.
const LOOK: Duration = Duration::from_millis(20);
/// More than any datagram.
const DATAGRAM: usize = 1 << 16;

/// Passes datagrams between one client and a server, until it is dropped.
pub struct Relay {
    address: SocketAddr,
    passed: Arc<AtomicU64>,
    moves: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// In front of `server`; it takes another address after every `often` bytes from the client.
    ///
    /// # Panics
    /// If the system gives no sockets.
    #[must_use]
    pub fn start(server: SocketAddr, often: u64) -> Self {
        let front = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        front.set_read_timeout(Some(LOOK)).expect("it is not zero");
        let address = front.local_addr().expect("it is bound");
        let (passed, moves, ends): (Arc<AtomicU64>, Arc<AtomicU64>, Arc<AtomicBool>) = Default::default();
        let thread = std::thread::spawn({
            let (passed, moves, ends) = (passed.clone(), moves.clone(), ends.clone());
            move || {
                let mut back: Option<UdpSocket> = None;
                let mut since = 0;
                let mut bytes = vec![0; DATAGRAM];
                while !ends.load(Ordering::Relaxed) {
                    let Ok((length, client)) = front.recv_from(&mut bytes) else { continue };
                    if back.is_none() || since > often {
                        // Answers to the former address still reach the client, as a router's would for a while.
                        back = Some(towards(server, &front, client, ends.clone()));
                        moves.fetch_add(u64::from(since > 0), Ordering::Relaxed);
                        since = 0;
                    }
                    let sent = back.as_ref().expect("just made").send(&bytes[..length]);
                    since += length as u64;
                    passed.fetch_add(sent.unwrap_or(0) as u64, Ordering::Relaxed);
                }
            }
        });
        Self { address, passed, moves, ends, thread: Some(thread) }
    }

    /// Where clients find the server.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many times the client has moved.
    #[must_use]
    pub fn moves(&self) -> u64 {
        self.moves.load(Ordering::Relaxed)
    }

    /// Bytes from the client to the server.
    #[must_use]
    pub fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }
}

/// A socket of its own towards the server, whose answers go back to the client.
fn towards(server: SocketAddr, front: &UdpSocket, client: SocketAddr, ends: Arc<AtomicBool>) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    socket.connect(server).expect("an address of this machine");
    socket.set_read_timeout(Some(LOOK)).expect("it is not zero");
    let (back, front) = (socket.try_clone().expect("a socket"), front.try_clone().expect("a socket"));
    std::thread::spawn(move || {
        let mut bytes = vec![0; DATAGRAM];
        while !ends.load(Ordering::Relaxed) {
            if let Ok(length) = back.recv(&mut bytes) {
                let _ = front.send_to(&bytes[..length], client);
            }
        }
    });
    socket
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
