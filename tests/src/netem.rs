//! Network emulation between one device and the server: delay, loss, bandwidth.
//!
//! Datagrams are passed on by this process, since not every kernel has the queueing discipline for it (`netem`), and since
//! what is lost is then drawn from a seed. A device that comes from another address is passed on from another one, so the
//! server sees it move.

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use shared::seed::Seed;

/// How often its threads look whether it is to end.
const LOOK: Duration = Duration::from_millis(20);
/// More than any datagram.
const DATAGRAM: usize = 1 << 16;
/// Datagrams that wait longer for bandwidth are dropped, as by a router's queue.
const QUEUE: Duration = Duration::from_millis(500);

/// What happens to every datagram, in either direction.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    /// How long each takes.
    pub delay: Duration,
    /// The probability that it is lost.
    pub loss: f64,
    /// Bytes per second that get through; `None` for as many as come.
    pub width: Option<f64>,
    /// Nothing gets through.
    pub closed: bool,
}

impl Conditions {
    /// Nothing stands in the way.
    pub const PERFECT: Self = Self { delay: Duration::ZERO, loss: 0.0, width: None, closed: false };
}

struct State {
    conditions: Conditions,
    rng: ChaCha8Rng,
    /// When each direction is free again.
    free: [Instant; 2],
}

/// Bytes of the device and of the server that have arrived.
#[derive(Debug, Default)]
struct Counts {
    came: [AtomicU64; 2],
    moves: AtomicU64,
}

/// A datagram on its way, and when it gets there.
struct Passing {
    due: Instant,
    bytes: Vec<u8>,
    out: Arc<UdpSocket>,
    to: SocketAddr,
}

/// Passes datagrams between a device and a server until it is dropped.
pub struct Netem {
    state: Arc<Mutex<State>>,
    counts: Arc<Counts>,
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Netem {
    /// Between the peers that connect to `front`, and `server`.
    ///
    /// # Panics
    /// If there is no such address on this machine.
    #[must_use]
    pub fn open(front: SocketAddr, server: SocketAddr, seed: u64) -> Self {
        let front = Arc::new(UdpSocket::bind(front).expect("an address of this machine"));
        front.set_read_timeout(Some(LOOK)).expect("it is not zero");
        let rng = Seed::root(seed).derive("strait").rng();
        let now = Instant::now();
        let state = Arc::new(Mutex::new(State { conditions: Conditions::PERFECT, rng, free: [now; 2] }));
        let (counts, ends): (Arc<Counts>, Arc<AtomicBool>) = Default::default();
        let (up, passing_up) = channel();
        let (down, passing_down) = channel();
        let mut threads = vec![pass_on(passing_up), pass_on(passing_down)];
        threads.push(std::thread::spawn({
            let side = Side { state: state.clone(), counts: counts.clone(), ends: ends.clone() };
            move || side.hear_device(&front, server, &up, &down)
        }));
        Self { state, counts, ends, threads }
    }

    /// From now on it is like this.
    pub fn set(&self, conditions: Conditions) {
        lock(&self.state).conditions = conditions;
    }

    /// Bytes that the device has sent.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.counts.came[0].load(Ordering::Relaxed)
    }

    /// Bytes that the server has sent.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.counts.came[1].load(Ordering::Relaxed)
    }

    /// How often the device came from an address that was not its own before.
    #[must_use]
    pub fn moves(&self) -> u64 {
        self.counts.moves.load(Ordering::Relaxed)
    }
}

impl Drop for Netem {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..).rev() {
            let _ = thread.join();
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends each when it is due. They come in this order: all take equally long.
fn pass_on(passing: Receiver<Passing>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        for Passing { due, bytes, out, to } in passing {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let _ = out.send_to(&bytes, to);
        }
    })
}

#[derive(Clone)]
struct Side {
    state: Arc<Mutex<State>>,
    counts: Arc<Counts>,
    ends: Arc<AtomicBool>,
}

impl Side {
    fn hear_device(
        &self,
        front: &Arc<UdpSocket>,
        server: SocketAddr,
        up: &Sender<Passing>,
        down: &Sender<Passing>,
    ) {
        let mut backs: HashMap<SocketAddr, Arc<UdpSocket>> = HashMap::new();
        let mut threads = Vec::new();
        let mut bytes = vec![0; DATAGRAM];
        while !self.ends.load(Ordering::Relaxed) {
            let Ok((length, device)) = front.recv_from(&mut bytes) else { continue };
            let known = backs.is_empty() || backs.keys().any(|known| known.ip() == device.ip());
            self.counts.moves.fetch_add(u64::from(!known), Ordering::Relaxed);
            let back = backs.entry(device).or_insert_with(|| {
                let back = Arc::new(UdpSocket::bind("127.0.0.1:0").expect("a free port"));
                back.set_read_timeout(Some(LOOK)).expect("it is not zero");
                let (side, own, front, down) = (self.clone(), back.clone(), front.clone(), down.clone());
                threads.push(std::thread::spawn(move || side.hear_server(&own, &front, device, &down)));
                back
            });
            self.pass(0, &bytes[..length], back, server, up);
        }
        for thread in threads {
            let _ = thread.join();
        }
    }

    fn hear_server(
        &self,
        back: &UdpSocket,
        front: &Arc<UdpSocket>,
        device: SocketAddr,
        down: &Sender<Passing>,
    ) {
        let mut bytes = vec![0; DATAGRAM];
        while !self.ends.load(Ordering::Relaxed) {
            if let Ok((length, _)) = back.recv_from(&mut bytes) {
                self.pass(1, &bytes[..length], front, device, down);
            }
        }
    }

    fn pass(
        &self,
        way: usize,
        bytes: &[u8],
        out: &Arc<UdpSocket>,
        to: SocketAddr,
        passing: &Sender<Passing>,
    ) {
        self.counts.came[way].fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let mut state = lock(&self.state);
        let Conditions { delay, loss, width, closed } = state.conditions;
        let lost = loss > 0.0 && state.rng.random_bool(loss);
        let now = Instant::now();
        let begins = state.free[way].max(now);
        if lost || closed || begins - now > QUEUE {
            return;
        }
        let takes = width.map_or(Duration::ZERO, |width| Duration::from_secs_f64(bytes.len() as f64 / width));
        state.free[way] = begins + takes;
        let due = begins + takes + delay;
        let _ = passing.send(Passing { due, bytes: bytes.to_vec(), out: out.clone(), to });
    }
}
