//! The server's state machine by a list of operations: what peers do and say, durable steps that end in any order, time,
//! restarts; and in the end fair weather, in which the run has to end.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::OnceLock;
use std::time::Duration;

use aggregator::config::{Lateness, RoundPolicy};
use aggregator::coordinator::{
    Action, Closing, Coordinator, Event, Opening, Owed, PeerId, Reopened, Resume, Tally, UploadId,
};
use arbitrary::{Arbitrary, Unstructured};
use shared::frame;
use shared::id::ClientId;
use shared::message::{Held, Hello, Rejection, ToServer, TrainReport};
use shared::spec::RunSpec;

use super::Seen;
use crate::scenario::Scenario;

/// Devices that there are.
const DEVICES: u8 = 4;
/// Operations of one list.
const MOST: usize = 400;
/// Steps of fair weather in which a run of three rounds ends.
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
    /// The next durable step ends; a fold well or not.
    Step {
        fine: bool,
        enough: bool,
    },
    /// A step ends that nobody has begun.
    Never {
        round: u8,
        kind: u8,
    },
    /// Time passes.
    Passes {
        milliseconds: u32,
    },
    Deadline,
    Paused,
    Resumed,
    /// The process dies and starts again. So many of the steps under way were durable, and the decision that the next one
    /// carries out.
    Restarts {
        steps: u8,
        decision: bool,
    },
    Stop,
}

/// What is done on the ledger's thread, one after the other.
#[derive(Debug)]
enum Step {
    Open(Opening),
    /// Into which round, whose, and of which round.
    Fold(u32, ClientId, u32),
    Close(u32, Tally),
}

/// What the disk knows, and what the driver has to do.
struct Driver {
    coordinator: Coordinator,
    policy: RoundPolicy,
    spec: RunSpec,
    now: Duration,
    peers: BTreeMap<u8, PeerId>,
    numbers: u64,
    /// Payloads that were given to nobody yet, by the rounds that they were trained in.
    uploads: BTreeMap<u64, u32>,
    /// Whose updates are in, and of which rounds.
    taken: BTreeSet<(ClientId, u32)>,
    steps: VecDeque<Step>,
    /// Durable.
    disk: Resume,
    /// Who was sent a task on its present connection.
    asked: BTreeSet<(PeerId, u32)>,
    finished: bool,
    rejections: usize,
}

fn client(device: u8) -> ClientId {
    ClientId::from_bytes([device % DEVICES + 1; 16])
}

/// What was owed when a round opened and has not come since.
fn still_owed(open: &Reopened) -> BTreeMap<ClientId, Owed> {
    let mut owed = open.opening.owed.clone();
    owed.retain(|client, _| !open.late.contains_key(client));
    owed
}

/// What a device honestly declares.
fn samples(device: u8) -> u64 {
    10 * (u64::from(device % DEVICES) + 1)
}

impl Driver {
    fn new(policy: RoundPolicy) -> Self {
        let spec = RunSpec::example("fedavg");
        Self {
            coordinator: Coordinator::new(spec.clone(), policy, Resume::default(), Duration::ZERO),
            policy,
            spec,
            now: Duration::ZERO,
            peers: BTreeMap::new(),
            numbers: 0,
            uploads: BTreeMap::new(),
            taken: BTreeSet::new(),
            steps: VecDeque::new(),
            disk: Resume::default(),
            asked: BTreeSet::new(),
            finished: false,
            rejections: 0,
        }
    }

    /// The round that is open or opens, as it is or will be.
    fn open(&self) -> Option<&Opening> {
        let opens = self.steps.iter().rev().find_map(|step| match step {
            Step::Open(opening) => Some(opening),
            _ => None,
        });
        opens.or(self.disk.open.as_ref().map(|open| &open.opening))
    }

    fn newest(&self) -> u32 {
        self.disk.closed + u32::from(self.open().is_some())
    }

    fn give(&mut self, event: Event) {
        self.coordinator.handle(self.now, event);
        self.act();
    }

    fn act(&mut self) {
        while let Some(action) = self.coordinator.poll() {
            assert!(!self.finished || matches!(action, Action::Drop { .. }), "after the end: {action:?}");
            match action {
                // It panics where a message is too long for a frame.
                Action::Send { message, .. } => drop(frame::encode(&message, 0)),
                Action::Disconnect { peer } => self.peers.retain(|_, own| *own != peer),
                Action::Open(opening) => {
                    assert_eq!(opening.round, self.disk.closed + 1, "one round after the other");
                    // Where late updates count, everyone may be at work for an earlier round.
                    assert!(!opening.cohort.is_empty() || self.policy.late.is_some());
                    let folds = |step: &Step| matches!(step, Step::Fold(..));
                    assert!(self.steps.iter().all(folds), "neither opens nor closes meanwhile");
                    self.steps.push_back(Step::Open(opening));
                }
                Action::Broadcast { peer, round } => {
                    assert!(self.disk.open.as_ref().is_some_and(|open| open.opening.round == round));
                    assert!(self.asked.insert((peer, round)), "once per connection and round");
                }
                Action::Fold { round, client, upload, .. } => {
                    let trained = self.uploads.remove(&upload.0).expect("an upload is given away once");
                    self.check_fold(round, client, trained);
                    self.steps.push_back(Step::Fold(round, client, trained));
                }
                Action::Drop { upload } => {
                    assert!(self.uploads.remove(&upload.0).is_some(), "{upload:?} twice");
                }
                Action::Close { round, tally } => {
                    assert!(self.steps.is_empty(), "steps under way come first");
                    let open = self.disk.open.as_ref().expect("an open round closes");
                    assert_eq!(open.opening.round, round);
                    if !tally.void && open.decided().is_none() {
                        assert_eq!(tally.accepted, open.accepted.len(), "nothing accepted is lost");
                    }
                    self.steps.push_back(Step::Close(round, tally));
                }
                Action::Alarm { .. } => {}
                Action::Finish(_) => self.finished = true,
            }
        }
        // Those that count late may wait for the next round.
        let wait = self.policy.late.is_some() && !self.finished;
        assert!(wait || self.uploads.is_empty(), "an upload is folded or dropped at once");
    }

    /// An update that was trained in one round is to be folded into another, or the same.
    fn check_fold(&self, round: u32, client: ClientId, trained: u32) {
        let open = self.open().expect("folded into an open round");
        assert_eq!(open.round, round);
        let late =
            self.policy.late.and_then(|late| late.staleness(trained, round)).is_some_and(|late| late > 0);
        assert!(
            late || trained == round && open.cohort.contains_key(&client),
            "members' updates are folded, or late ones"
        );
        let durable = self.disk.open.as_ref().is_some_and(|open| open.accepted.contains(&client));
        let under_way = self.steps.iter().any(|step| match step {
            Step::Fold(_, other, _) => *other == client,
            Step::Close(..) => true,
            Step::Open(_) => false,
        });
        assert!(!durable && !under_way, "nobody counts twice in a round, nor in a closing one");
        assert!(!self.taken.contains(&(client, trained)), "nothing is folded twice");
    }

    fn hello(&mut self, device: u8, holds: Option<u8>, declared: Option<u64>) {
        self.numbers += 1;
        let peer = PeerId(self.numbers);
        let held = |ago: u8| Held { run: self.spec.run, round: self.newest().saturating_sub(u32::from(ago)) };
        let hello = Hello {
            client: client(device),
            software: "test 1".to_owned(),
            samples: declared.unwrap_or(samples(device)),
            shape: vec![1, 2, 2],
            classes: 2,
            holds: holds.map(held),
        };
        if !self.finished {
            self.peers.insert(device % DEVICES, peer);
        }
        self.give(Event::Message { peer, message: ToServer::Hello(hello) });
    }

    fn uploads(&mut self, device: u8, round: u32, dishonest: bool) {
        let Some(&peer) = self.peers.get(&(device % DEVICES)) else { return };
        self.numbers += 1;
        self.uploads.insert(self.numbers, round);
        let report =
            TrainReport { samples: samples(device) + u64::from(dishonest), ..TrainReport::default() };
        self.give(Event::Uploaded { peer, round, report, upload: UploadId(self.numbers) });
    }

    /// The next step is made; a fold finds the update good or not.
    fn make(&mut self, step: Step, fine: bool, enough: bool) -> Event {
        match step {
            Step::Open(opening) => {
                let round = opening.round;
                self.disk.roster.clone_from(&opening.roster);
                let before = self.disk.open.take();
                let (accepted, late) = before.map(|open| (open.accepted, open.late)).unwrap_or_default();
                self.disk.open = Some(Reopened { opening, accepted, late, closing: None });
                Event::Opened { round }
            }
            Step::Fold(round, client, trained) => {
                if fine {
                    let open = self.disk.open.as_mut().expect("folded into an open round");
                    assert!(open.accepted.insert(client) && self.taken.insert((client, trained)));
                    if trained != round {
                        open.late.insert(client, trained);
                    }
                    return Event::Folded { round, client, outcome: Ok(()) };
                }
                self.rejections += 1;
                let rejection = Rejection::NotFinite { tensor: "w".to_owned() };
                Event::Folded { round, client, outcome: Err(rejection) }
            }
            Step::Close(round, _) => {
                if let Some(open) = self.disk.open.take() {
                    self.disk.owed = still_owed(&open);
                    if self.policy.late.is_some() {
                        let missing =
                            open.opening.cohort.iter().filter(|(client, _)| !open.accepted.contains(client));
                        let owed = missing.map(|(client, &samples)| (*client, Owed { round, samples }));
                        self.disk.owed.extend(owed);
                    }
                }
                self.disk.closed = round;
                if enough {
                    self.disk.ended = Some(self.disk.ended.unwrap_or(u32::MAX).min(round));
                }
                Event::Closed { round, enough }
            }
        }
    }

    fn step(&mut self, fine: bool, enough: bool) {
        if let Some(step) = self.steps.pop_front() {
            let event = self.make(step, fine, enough);
            self.give(event);
        }
    }

    fn restarts(&mut self, durable: u8, decision: bool) {
        let mut steps = std::mem::take(&mut self.steps);
        let durable = usize::from(durable) % (steps.len() + 1);
        for step in steps.drain(..durable) {
            self.make(step, true, false);
        }
        if let (Some(Step::Close(_, tally)), true, Some(open)) =
            (steps.pop_front(), decision, &mut self.disk.open)
            && open.closing.is_none()
        {
            open.closing =
                Some(Closing { contributors: open.accepted.clone(), late: open.late.clone(), tally });
        }
        self.peers.clear();
        self.asked.clear();
        self.uploads.clear();
        self.finished = false;
        if let Some(open) = &self.disk.open {
            self.disk.owed = still_owed(open);
        }
        self.coordinator = Coordinator::new(self.spec.clone(), self.policy, self.disk.clone(), self.now);
        self.act();
    }

    fn passes(&mut self, until: Duration) {
        self.now = self.now.max(until);
        self.give(Event::Tick);
    }

    fn play(&mut self, op: Op) {
        match op {
            Op::Hello { device, holds, samples } => self.hello(device, holds, samples),
            Op::Says { device, message } => {
                if let (Some(&peer), Ok(message)) =
                    (self.peers.get(&(device % DEVICES)), frame::decode(&message))
                {
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
            Op::Paused => self.give(Event::Paused),
            Op::Resumed => self.give(Event::Resumed),
            Op::Restarts { steps, decision } => self.restarts(steps, decision),
            Op::Stop => self.give(Event::Stop),
        }
        // Steps under way when it was stopped are made all the same, and nobody listens.
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
            1 => self.give(Event::Closed { round, enough: false }),
            _ => self.give(Event::Folded { round, client: client(kind), outcome: Ok(()) }),
        }
    }

    /// From now on everything goes well: the run ends.
    fn fair_weather(&mut self) {
        self.give(Event::Resumed);
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
    driver.fair_weather();
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
        min: 1,
        max: None,
        time_min: Duration::ZERO,
        time_max: Duration::from_secs(100),
        start: 1,
        regather: Duration::from_secs(30),
        lost_after: Duration::from_secs(15),
        ..*SMALL.get_or_init(|| Scenario::small(&[]).config.policy)
    }
}

fn policy(input: &mut Unstructured<'_>) -> arbitrary::Result<RoundPolicy> {
    let min = input.int_in_range(1..=3)?;
    let above: Option<usize> = input.arbitrary()?;
    Ok(RoundPolicy {
        fraction: f64::from(input.int_in_range(0_u8..=10)?) / 10.0,
        min,
        max: above.map(|above| min + above % 3),
        time_min: Duration::from_secs(*input.choose(&[0, 20, 100])?),
        start: input.int_in_range(1..=3)?,
        lost_after: Duration::from_secs(*input.choose(&[15, 1000])?),
        late: input.choose(&[None, Some(1), Some(3)])?.map(|rounds| Lateness { rounds, power: 0.5 }),
        ..base()
    })
}

/// Bytes of each kind: operations are what they happen to mean.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    super::session::noise("coordinator")
}
