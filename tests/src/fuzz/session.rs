//! The device's state machine by a list of operations: connections that come and go, any messages of a server, training that
//! ends in any way, time; and in the end a fair server, with which the session has to end.

use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use edge_client::failure::{Blame, Failure};
use edge_client::session::{Action, Activity, DeviceProfile, Event, Session};
use rand::RngExt as _;
use shared::frame;
use shared::id::{ClientId, RunId};
use shared::message::{
    CountedUpdate, Progress, Refusal, TaskId, TaskKind, ToClient, ToServer, TrainReport, Verdict,
};
use shared::seed::Seed;
use shared::spec::{RunSpec, SpecText};

use super::Seen;

/// Operations of one list.
const MOST: usize = 400;

#[derive(Arbitrary, Debug)]
enum Op {
    /// The attempt to connect ends.
    Connects {
        fine: bool,
    },
    Cut {
        elsewhere: bool,
    },
    Welcome {
        run: bool,
        wants: Option<u8>,
    },
    Task {
        round: u8,
        work: u8,
    },
    Receipt {
        round: u8,
    },
    /// It hears anything.
    Hears {
        message: Vec<u8>,
    },
    Trained {
        round: u8,
        fine: bool,
    },
    Lost {
        round: u8,
    },
    Synced {
        round: u8,
    },
    State {
        round: Option<u8>,
    },
    Progressed {
        round: u8,
    },
    Passes {
        milliseconds: u32,
    },
    Deadline,
    /// The process dies, and the next one finds what is in the store.
    Restarts,
    Stop,
}

/// What the driver knows.
#[expect(clippy::struct_excessive_bools, reason = "each is one thing that the driver knows")]
struct Driver {
    session: Session,
    now: Duration,
    connecting: bool,
    connected: bool,
    welcomed: bool,
    training: Option<u32>,
    /// The store.
    holding: Option<(TaskId, TrainReport)>,
    /// The round of the held update, while it is not durable.
    syncing: Option<u32>,
    /// The run that the session was welcomed to last.
    run: RunId,
    finished: bool,
}

fn device() -> DeviceProfile {
    DeviceProfile {
        client: ClientId::from_bytes([1; 16]),
        samples: 10,
        shape: vec![1, 2, 2],
        classes: 2,
        class_names: Vec::new(),
        skipped: 0,
        memory: None,
        secure_only: None,
        private_only: None,
        asks: false,
    }
}

fn spec(run: u8) -> SpecText {
    SpecText::of(&RunSpec { run: RunId::from_bytes([run; 8]), ..RunSpec::example("fedavg") })
}

impl Driver {
    fn new(holding: Option<(TaskId, TrainReport)>, now: Duration) -> Self {
        let mut driver = Self {
            session: Session::new(device(), holding, now),
            now,
            connecting: false,
            connected: false,
            welcomed: false,
            training: None,
            holding,
            syncing: None,
            run: RunId::from_bytes([0; 8]),
            finished: false,
        };
        driver.act();
        driver
    }

    fn give(&mut self, event: Event) {
        self.session.handle(self.now, event);
        self.act();
    }

    fn act(&mut self) {
        while let Some(action) = self.session.poll() {
            assert!(!self.finished, "after the end: {action:?}");
            match action {
                Action::Connect(_) => {
                    assert!(!self.connected && !self.connecting, "one connection at a time");
                    self.connecting = true;
                }
                Action::Read(_) | Action::HangUp => panic!("this device has read its samples"),
                Action::Send(message) => {
                    // It panics where a message is too long for a frame.
                    drop(frame::encode(&message, 0));
                    assert!(self.connected);
                    assert_eq!(!self.welcomed, matches!(message, ToServer::Hello(_)), "hello comes first");
                }
                Action::Upload(header) => {
                    assert!(self.connected && self.welcomed);
                    assert_eq!(self.holding.map(|(held, _)| held.round), Some(header.round));
                    assert_eq!(self.syncing, None, "durable before it is sent");
                }
                Action::Train { round, .. } => {
                    assert!(self.connected && self.welcomed);
                    assert!(self.training.is_none() && self.holding.is_none(), "one thing at a time");
                    self.training = Some(round);
                }
                Action::Cancel => assert!(self.training.take().is_some()),
                Action::Forget { round, .. } => {
                    assert_eq!(self.holding.take().map(|(held, _)| held.round), Some(round));
                    self.syncing = None;
                }
                Action::Sync { round } => self.syncing = Some(round),
                Action::LookUpState { .. } | Action::LookForTests { .. } => {
                    assert!(self.connected && self.welcomed);
                }
                Action::NotifyVerdict { .. } | Action::NotifyState { .. } => {}
                Action::Disconnect => assert!(self.connected),
                Action::Finish(_) => self.finished = true,
            }
        }
    }

    fn hears(&mut self, message: ToClient) {
        if !self.connected || self.finished {
            return;
        }
        if let ToClient::Welcome { spec, .. } = &message {
            self.welcomed = true;
            self.run = spec.read().expect("a specification").run;
        }
        self.give(Event::Message(message));
    }

    fn connects(&mut self, fine: bool) {
        if std::mem::take(&mut self.connecting) {
            (self.connected, self.welcomed) = (fine, false);
            let failed = Event::Disconnected { reason: "no server there".to_owned(), elsewhere: false };
            self.give(if fine { Event::Connected } else { failed });
        }
    }

    fn trained(&mut self, round: u32, fine: bool) {
        let ours = self.training == Some(round) && !self.finished;
        let report = TrainReport { samples: 10, ..TrainReport::default() };
        if ours {
            self.training = None;
            // It trains in the run that it was welcomed to.
            let run = match self.session.activity() {
                Activity::Training(held) => held.run,
                other => panic!("{other:?} while it trains"),
            };
            self.holding = fine.then_some((TaskId { run, round }, report));
        }
        let outcome =
            if fine { Ok(report) } else { Err(Failure::new(Blame::Machine, "out of memory".repeat(1000))) };
        self.give(Event::Trained { round, outcome, keeps: round.is_multiple_of(2) });
    }

    fn synced(&mut self, round: u32) {
        self.syncing.take_if(|syncing| *syncing == round);
        self.give(Event::Synced { round });
    }

    fn passes(&mut self, until: Duration) {
        self.now = self.now.max(until);
        self.give(Event::Tick);
    }

    fn play(&mut self, op: Op) {
        match op {
            Op::Connects { fine } => self.connects(fine),
            Op::Cut { elsewhere } => {
                if std::mem::take(&mut self.connected) {
                    self.give(Event::Disconnected { reason: "cut".to_owned(), elsewhere });
                }
            }
            Op::Welcome { run, wants } => {
                let wants = wants.map(|round| u32::from(round % 4));
                self.hears(ToClient::Welcome { spec: spec(u8::from(run)), wants });
            }
            Op::Task { round, work } => {
                let work =
                    TaskKind { train: work & 1 == 0, evaluate: work & 2 != 0, personalise: work & 4 != 0 };
                self.hears(ToClient::Task { round: u32::from(round % 4), work });
            }
            Op::Receipt { round } => {
                self.hears(ToClient::Receipt { round: u32::from(round % 4), verdict: Verdict::Accepted });
            }
            Op::Hears { message } => {
                if let Ok(message) = frame::decode(&message) {
                    self.hears(message);
                }
            }
            Op::Trained { round, fine } => {
                self.trained(self.training.filter(|_| round > 9).unwrap_or(u32::from(round)), fine);
            }
            Op::Synced { round } => self.synced(u32::from(round % 4)),
            Op::State { round } => {
                let after = round.map(|round| CountedUpdate {
                    round: u32::from(round % 8),
                    fingerprint: Some(round.into()),
                });
                self.give(Event::State { after });
            }
            Op::Lost { round } => {
                self.give(Event::Lost { round: u32::from(round % 4), reason: "a bad block".to_owned() });
            }
            Op::Progressed { round } => {
                self.give(Event::Progressed(Progress { round: Some(u32::from(round)), done: 1, total: 2 }));
            }
            Op::Passes { milliseconds } => {
                self.passes(self.now + Duration::from_millis(u64::from(milliseconds)));
            }
            Op::Deadline => {
                if let Some(deadline) = self.session.deadline() {
                    assert!(deadline > self.now, "a deadline that is over is a busy loop");
                    self.passes(deadline);
                }
            }
            Op::Restarts => *self = Self::new(self.holding, self.now),
            Op::Stop => self.give(Event::Stop),
        }
        let (training, holding) = match self.session.activity() {
            Activity::Idle => (None, None),
            Activity::Training(held) => (Some(held.round), None),
            Activity::Holding(held) => (None, Some(held.round)),
        };
        let known = (self.training, self.holding.map(|(held, _)| held.round));
        assert!(self.finished || known == (training, holding), "{known:?} {training:?} {holding:?}");
    }

    /// From now on the server is there and says what it should: one more round, and the end.
    fn without_faults(&mut self) {
        self.play(Op::Cut { elsewhere: false });
        self.connects(false);
        for _ in 0..10 {
            if self.finished {
                return;
            }
            if self.connecting {
                break;
            }
            if let (Some(round), None) = (self.training, self.session.deadline()) {
                self.trained(round, true);
                self.synced(round);
            } else {
                self.play(Op::Deadline);
            }
        }
        if self.finished {
            return;
        }
        assert!(self.connecting, "it connects again");
        self.connects(true);
        self.hears(ToClient::Welcome { spec: spec(7), wants: Some(9) });
        self.hears(ToClient::Task { round: 9, work: TaskKind::TRAIN });
        assert_eq!(self.training, Some(9), "what is wanted is trained");
        self.trained(9, true);
        assert_eq!(self.holding.map(|(held, _)| held.round), Some(9));
        self.hears(ToClient::Receipt { round: 9, verdict: Verdict::Accepted });
        assert_eq!(self.holding, None, "the receipt releases it");
        self.hears(ToClient::Finished { rounds: 9 });
        assert!(self.finished);
    }
}

/// Operations.
///
/// # Panics
/// If the machine does what it must not, or does not end.
#[must_use]
pub fn run(bytes: &[u8]) -> Seen {
    let mut input = Unstructured::new(bytes);
    let held = |round: u8| {
        (TaskId { run: RunId::from_bytes([1; 8]), round: u32::from(round % 4) }, TrainReport::default())
    };
    let mut driver =
        Driver::new(input.arbitrary::<Option<u8>>().unwrap_or_default().map(held), Duration::ZERO);
    let mut seen = [0_usize; 4];
    for _ in 0..MOST {
        if input.is_empty() {
            break;
        }
        let Ok(op) = Op::arbitrary(&mut input) else { break };
        driver.play(op);
        let states = [driver.training.is_some(), driver.holding.is_some(), driver.welcomed, driver.finished];
        seen.iter_mut().zip(states).for_each(|(count, so)| *count += usize::from(so));
    }
    driver.without_faults();
    Seen::of(&seen.map(|count| ["none", "some", "many"][count.min(2)].chars().collect::<Vec<_>>()))
}

/// Bytes of each kind, with messages in them.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let refusal = ToClient::Refused(Refusal::Replaced);
    let mut seeds = noise("session");
    seeds.push(frame::encode(&refusal, 0));
    seeds
}

/// Random bytes, short and long.
pub(super) fn noise(label: &str) -> Vec<Vec<u8>> {
    let lengths = [40_usize, 100, 300, 1000, 1000, 2000, 2000];
    let mut rng = Seed::root(0).derive(label).rng();
    lengths.map(|length| (0..length).map(|_| rng.random()).collect()).into()
}
