//! The server's state machine by a list of operations: messages of peers, durable steps that end in any order, time,
//! restarts; and finally steps without faults, in which the run has to end.

mod driver;

use std::sync::OnceLock;
use std::time::Duration;

use aggregator::coordinator::{Event, PeerId};
use aggregator::round::{Lateness, RoundPolicy};
use arbitrary::{Arbitrary, Unstructured};
use shared::frame;
use shared::message::ToServer;

use super::Seen;
use crate::scenario::Scenario;
use driver::{DEVICES, Driver, client};

/// Operations of one list.
const MOST: usize = 400;
/// Steps without faults in which a run of three rounds ends.
const PATIENCE: usize = 5_000;

#[derive(Arbitrary, Debug)]
enum Op {
    /// A device connects and says hello, holding the task of that many rounds ago.
    Hello {
        device: u8,
        holds: Option<u8>,
        samples: Option<u64>,
    },
    /// It says anything.
    Says {
        device: u8,
        message: Vec<u8>,
    },
    /// An update for the newest round plus this, less one.
    Uploads {
        device: u8,
        round: u8,
        dishonest: bool,
    },
    Disconnects {
        device: u8,
    },
    Alive {
        device: u8,
    },
    /// The device may not take part any more. It may be let in again.
    Revoked {
        device: u8,
    },
    /// The next durable step ends; a fold well or not.
    Step {
        fine: bool,
        enough: bool,
    },
    /// A step ends that was never begun.
    Never {
        round: u8,
        kind: u8,
    },
    /// Time passes.
    Passes {
        milliseconds: u32,
    },
    Deadline,
    /// Time passes without any event being handled.
    Stalled {
        milliseconds: u32,
    },
    Paused,
    Resumed,
    /// Where other servers may lead: the store was asked this long ago who does, and none does for a time.
    Leads {
        ago: u16,
        milliseconds: u16,
    },
    /// The process dies and starts again. This number of the steps under way were durable, and the decision that the next one
    /// carries out.
    Restarts {
        steps: u8,
        decision: bool,
    },
    Stop,
}

impl Driver {
    fn play(&mut self, op: Op) {
        match op {
            Op::Hello { device, holds, samples } => self.hello(device, holds, samples),
            Op::Says { device, message } => {
                if let (Some(&peer), Ok(message)) =
                    (self.peers.get(&(device % DEVICES)), frame::decode(&message))
                {
                    if let ToServer::Hello(hello) = &message {
                        self.revoked.remove(&hello.client);
                    }
                    self.give(Event::Message { peer, message });
                }
            }
            Op::Uploads { device, round, dishonest } => {
                let round = (self.newest() + u32::from(round % 4)).saturating_sub(1);
                self.uploads(device, round, dishonest);
            }
            Op::Disconnects { device } => {
                if let Some(peer) = self.peers.remove(&(device % DEVICES)) {
                    self.give(Event::Disconnected { peer });
                }
            }
            Op::Alive { device } => self.give(Event::Alive { peer: PeerId(u64::from(device)) }),
            Op::Revoked { device } => self.revoked(device),
            Op::Step { fine, enough } => self.step(fine, enough),
            Op::Never { round, kind } => self.never(u32::from(round), kind),
            Op::Passes { milliseconds } => {
                self.passes(self.now + Duration::from_millis(u64::from(milliseconds)));
            }
            Op::Deadline => {
                if let Some(deadline) = self.coordinator.deadline(self.now) {
                    self.passes(deadline);
                }
            }
            Op::Stalled { milliseconds } => {
                let by = Duration::from_millis(u64::from(milliseconds));
                self.now += by;
                let connected = self.coordinator.status(self.now).connected;
                self.give(Event::Stalled { by });
                assert!(self.finished || self.coordinator.status(self.now).connected == connected);
            }
            Op::Paused => self.pauses(true),
            Op::Resumed => self.pauses(false),
            Op::Leads { ago, milliseconds } => {
                let [ago, lasts] = [ago, milliseconds].map(|span| Duration::from_millis(u64::from(span)));
                let asked = self.now.saturating_sub(ago);
                self.leads(asked, asked + lasts);
            }
            Op::Restarts { steps, decision } => self.restarts(steps, decision),
            Op::Stop => self.give(Event::Stop),
        }
        // Steps under way when it was stopped are still made; their results are ignored.
        assert!(self.finished || self.coordinator.closed() == self.disk.closed);
        let deadline = self.coordinator.deadline(self.now);
        assert!(deadline.is_none_or(|moment| moment > self.now), "a deadline that is over is a busy loop");
        let status = self.coordinator.status(self.now);
        assert!(!status.to_string().is_empty() && status.connected <= status.known);
    }

    /// The driver reports what it was not asked for, of a round that is not under way.
    fn never(&mut self, round: u32, kind: u8) {
        let under_way = self.disk.closed + 1;
        if round == under_way {
            return;
        }
        match kind % 3 {
            0 => self.give(Event::Opened { round }),
            1 => self.give(Event::Closed { round, void: false, enough: false }),
            _ => self.give(Event::Folded { round, client: client(kind), outcome: Ok(7) }),
        }
    }

    /// From now on everything goes well: the run ends.
    fn without_faults(&mut self) {
        self.pauses(false);
        self.leads(self.now, Duration::MAX);
        for device in 0..DEVICES {
            self.play(Op::Disconnects { device });
        }
        for _ in 0..PATIENCE {
            if self.finished {
                return;
            }
            if !self.steps.is_empty() {
                self.step(true, false);
            } else if let Some(device) = (0..DEVICES).find(|device| !self.peers.contains_key(device)) {
                self.hello(device, None, None);
            } else if let Some((peer, round)) = self.asked.pop_first() {
                if let Some(device) =
                    self.peers.iter().find(|(_, own)| **own == peer).map(|(device, _)| *device)
                {
                    self.uploads(device, round, false);
                }
            } else {
                let deadline = self.coordinator.deadline(self.now);
                let deadline = deadline
                    .unwrap_or_else(|| panic!("it waits for nothing: {}", self.coordinator.status(self.now)));
                self.passes(deadline);
            }
        }
        panic!("the run does not end: {}", self.coordinator.status(self.now));
    }
}

/// A policy, then operations.
///
/// # Panics
/// If the machine does what it must not, or the run does not end.
#[must_use]
pub fn run(bytes: &[u8]) -> Seen {
    let mut input = Unstructured::new(bytes);
    let policy = policy(&mut input).unwrap_or_else(|_| base());
    let mut driver = Driver::new(policy);
    let mut restarts = 0;
    for _ in 0..MOST {
        if input.is_empty() {
            break;
        }
        let Ok(op) = Op::arbitrary(&mut input) else { break };
        restarts += usize::from(matches!(op, Op::Restarts { .. }));
        driver.play(op);
    }
    let before = driver.disk.closed;
    driver.without_faults();
    let accepted = driver.disk.open.as_ref().map(|open| open.accepted.len());
    let few = |count: usize| ["none", "some", "many"][count.min(2)].chars().collect::<Vec<_>>();
    Seen::of(&(
        few(before as usize),
        few(restarts),
        few(driver.rejections),
        accepted,
        few(driver.peers.len()),
    ))
}

/// The policy of a small run, but for what matters here.
fn base() -> RoundPolicy {
    static SMALL: OnceLock<RoundPolicy> = OnceLock::new();
    RoundPolicy {
        fraction: 1.0,
        poisson: None,
        min: 1,
        max: None,
        min_wait: Duration::ZERO,
        timeout: Duration::from_secs(100),
        start: 1,
        reconnect_grace: Duration::from_secs(30),
        connection_timeout: Duration::from_secs(15),
        ..*SMALL.get_or_init(|| Scenario::small(&[]).config.policy)
    }
}

fn policy(input: &mut Unstructured<'_>) -> arbitrary::Result<RoundPolicy> {
    let min = input.int_in_range(1..=3)?;
    let above: Option<usize> = input.arbitrary()?;
    Ok(RoundPolicy {
        poisson: None,
        fraction: f64::from(input.int_in_range(0_u8..=10)?) / 10.0,
        min,
        max: above.map(|above| min + above % 3),
        min_wait: Duration::from_secs(*input.choose(&[0, 20, 100])?),
        start: input.int_in_range(1..=3)?,
        connection_timeout: Duration::from_secs(*input.choose(&[15, 1000])?),
        late: input.choose(&[None, Some(1), Some(3)])?.map(|rounds| Lateness { rounds, power: 0.5 }),
        receipts_at_close: input.arbitrary()?,
        ..base()
    })
}

/// Bytes of each kind: operations are what they happen to mean.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    super::session::noise("coordinator")
}
