//! A driver for the fuzzed coordinator of hidden rounds: devices with real keys and secrets, and the durable steps.

mod steps;

use std::collections::{BTreeSet, VecDeque};
use std::sync::OnceLock;
use std::time::Duration;

use aggregator::coordinator::{
    Action, Agreement, Arrival, Coordinator, Event, Opening, PeerId, Resume, Revealed, RosterSnapshot,
    UploadId,
};
use aggregator::round::{RoundPolicy, Tally};
use shared::frame;
use shared::id::ClientId;
use shared::identity::SecretKey;
use shared::message::{
    Hello, SecureAnswer, SecureStep, TaskId, ToClient, ToServer, TrainReport, UpdateHeader,
};
use shared::secure::{Advertised, Exchange, Party, PartySecret, Sealed};
use shared::seed::Seed;
use shared::spec::{RunSpec, SecureAggregation};

use super::lies::{Lie, falsified};
use crate::keys::device_key;
use crate::scenario::Scenario;

/// Devices that there are.
pub(super) const DEVICES: u8 = 5;
/// What all are sent of a round.
const TERMS: [u8; 32] = [7; 32];

enum Step {
    Open(Opening),
    SaveRoster(RosterSnapshot),
    Fold(u32, ClientId),
    Agree(u32, Agreement),
    Decide(u32, Tally),
    Close(u32),
    Unmask(u32, Revealed),
}

/// A device.
#[derive(Default)]
struct Device {
    peer: Option<PeerId>,
    asked: VecDeque<(u32, u32, SecureStep)>,
    neighbours: Vec<Advertised>,
    present: Vec<(ClientId, Sealed)>,
}

pub(super) struct Driver {
    pub(super) coordinator: Coordinator,
    spec: RunSpec,
    policy: RoundPolicy,
    pub(super) now: Duration,
    keys: Vec<SecretKey>,
    devices: Vec<Device>,
    numbers: u64,
    uploads: BTreeSet<u64>,
    steps: VecDeque<Step>,
    disk: Resume,
    pub(super) finished: bool,
    /// Rounds whose masks were taken away.
    pub(super) unmasked: usize,
    /// Rounds of which the answers were no good.
    pub(super) kept_secret: usize,
    pub(super) voids: usize,
}

fn policy() -> RoundPolicy {
    static SMALL: OnceLock<RoundPolicy> = OnceLock::new();
    let small = *SMALL.get_or_init(|| Scenario::small(&[]).config.policy);
    RoundPolicy { min: 3, start: 3, timeout: Duration::from_secs(100), ..small }
}

impl Driver {
    pub(super) fn new() -> Self {
        let secure = SecureAggregation { enabled: true, min_devices: 3, ..SecureAggregation::default() };
        let spec = RunSpec { secure, ..RunSpec::example("fedavg") };
        let policy = policy();
        Self {
            coordinator: Coordinator::new(spec.clone(), policy, Resume::default(), Duration::ZERO),
            spec,
            policy,
            now: Duration::ZERO,
            keys: (0..DEVICES).map(|device| device_key(device.into())).collect(),
            devices: (0..DEVICES).map(|_| Device::default()).collect(),
            numbers: 0,
            uploads: BTreeSet::new(),
            steps: VecDeque::new(),
            disk: Resume::default(),
            finished: false,
            unmasked: 0,
            kept_secret: 0,
            voids: 0,
        }
    }

    fn client(&self, device: u8) -> ClientId {
        self.keys[usize::from(device)].public().client()
    }

    fn party(&self, device: u8, round: u32, attempt: u32) -> Party {
        let exchange = Exchange { run: self.spec.run, round, attempt };
        let seed = Seed::root(device.into()).derive_numbered("round", round.into());
        let seed = seed.derive_numbered("attempt", attempt.into());
        Party::new(exchange, self.client(device), PartySecret::new(*seed.as_bytes()))
    }

    pub(super) fn closed(&self) -> u32 {
        self.disk.closed
    }

    pub(super) fn has_steps(&self) -> bool {
        !self.steps.is_empty()
    }

    pub(super) fn is_asked(&self, device: u8) -> bool {
        !self.devices[usize::from(device)].asked.is_empty()
    }

    fn give(&mut self, event: Event) {
        self.coordinator.handle(self.now, event);
        while let Some(action) = self.coordinator.poll() {
            assert!(!self.finished || matches!(action, Action::Drop { .. }), "after the end: {action:?}");
            self.act(action);
        }
        assert!(self.uploads.is_empty(), "an upload is folded or dropped at once");
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Send { peer, message } => {
                // It panics where a message is too long for a frame.
                drop(frame::encode(&message, 0));
                let device = self.devices.iter_mut().find(|device| device.peer == Some(peer));
                if let (Some(device), ToClient::Secure { round, attempt, step }) = (device, message) {
                    device.asked.push_back((round, attempt, *step));
                }
            }
            Action::Disconnect { peer } => {
                self.devices.iter_mut().filter(|device| device.peer == Some(peer)).for_each(Device::leave);
            }
            Action::Open(opening) => self.steps.push_back(Step::Open(opening)),
            Action::SaveRoster(known) => self.steps.push_back(Step::SaveRoster(known)),
            Action::Fold { round, client, upload } => {
                assert!(self.uploads.remove(&upload.0), "an upload is given away once");
                let open = self.disk.open.as_ref().expect("folded into an open round");
                let agreement = open.agreement.as_ref().expect("who takes part is durable before");
                assert!(agreement.sealed.contains_key(&client), "of those that take part");
                assert!(
                    open.closing.is_none() && !open.accepted.contains(&client),
                    "once, before the decision"
                );
                self.steps.push_back(Step::Fold(round, client));
            }
            Action::Drop { upload } => assert!(self.uploads.remove(&upload.0), "{upload:?} twice"),
            Action::Agree { round, agreement } => self.steps.push_back(Step::Agree(round, *agreement)),
            Action::Decide { round, tally } => self.steps.push_back(Step::Decide(round, tally)),
            Action::Close { round, tally } => {
                assert!(tally.void, "nothing counts of which masks are not taken away");
                self.steps.push_back(Step::Close(round));
            }
            Action::Unmask { round, revealed, .. } => {
                let open = self.disk.open.as_ref().expect("an open round");
                assert!(open.closing.is_some(), "the decision is durable before masks are taken away");
                self.steps.push_back(Step::Unmask(round, revealed));
            }
            Action::Broadcast { .. }
            | Action::Alarm { .. }
            | Action::StateDiffers { .. }
            | Action::Outgrown { .. } => {}
            Action::Finish(_) => self.finished = true,
        }
    }

    pub(super) fn hello_if_away(&mut self, device: u8) {
        if self.devices[usize::from(device)].peer.is_none() {
            self.hello(device);
        }
    }

    pub(super) fn hello(&mut self, device: u8) {
        if self.finished {
            return;
        }
        self.numbers += 1;
        let (peer, client) = (PeerId(self.numbers), self.client(device));
        let open = self.disk.open.as_ref().filter(|open| open.accepted.contains(&client));
        let holds = open.map(|open| TaskId { run: self.spec.run, round: open.opening.round });
        self.devices[usize::from(device)].leave();
        self.devices[usize::from(device)].peer = Some(peer);
        let hello = Hello {
            client,
            software: "test 1".to_owned(),
            samples: 10,
            shape: vec![1, 2, 2],
            classes: 2,
            holds,
        };
        self.give(Event::Message { peer, message: ToServer::Hello(hello) });
    }

    pub(super) fn disconnects(&mut self, device: u8) {
        if let Some(peer) = self.devices[usize::from(device)].peer {
            self.devices[usize::from(device)].leave();
            self.give(Event::Disconnected { peer });
        }
    }

    pub(super) fn revoked(&mut self, device: u8) {
        self.give(Event::Revoked { client: self.client(device) });
    }

    pub(super) fn sleeps(&mut self, device: u8) {
        self.devices[usize::from(device)].asked.clear();
    }

    /// Says this in the newest exchange that the device was asked in, or that number of exchanges later.
    pub(super) fn says(&mut self, device: u8, later: u32, answer: SecureAnswer) {
        let round = self.disk.closed + 1;
        let attempt = self.devices[usize::from(device)].asked.back().map_or(0, |(_, attempt, _)| *attempt);
        let message = ToServer::Secure { round, attempt: attempt + later, answer: Box::new(answer) };
        self.anything(device, message);
    }

    pub(super) fn anything(&mut self, device: u8, message: ToServer) {
        if let Some(peer) = self.devices[usize::from(device)].peer {
            self.give(Event::Message { peer, message });
        }
    }

    /// Does the oldest thing that it was asked for.
    pub(super) fn answers(&mut self, device: u8, lie: Option<Lie>) {
        let own = &mut self.devices[usize::from(device)];
        let (Some(peer), Some((round, attempt, step))) = (own.peer, own.asked.pop_front()) else { return };
        let party = self.party(device, round, attempt);
        let share = self.spec.secure.threshold;
        let answer = match step {
            SecureStep::Advertise => {
                let signer = match lie {
                    Some(Lie::Others(other)) => other,
                    _ => device,
                };
                SecureAnswer::Keys(party.advertise(&self.keys[usize::from(signer)]))
            }
            SecureStep::Neighbours { neighbours, .. } => {
                let Ok(shares) = party.shares(&neighbours, share) else { return };
                self.devices[usize::from(device)].neighbours = neighbours;
                SecureAnswer::Shares(shares)
            }
            SecureStep::Mask { present, .. } => {
                self.devices[usize::from(device)].present = present;
                return self.uploads(peer, round);
            }
            SecureStep::Reveal { counted, .. } => {
                let Device { neighbours, present, .. } = &self.devices[usize::from(device)];
                let mut shares = vec![(self.client(device), party.own_share(neighbours.len(), share))];
                for (from, sealed) in present {
                    let said = neighbours.iter().find(|said| said.client() == *from);
                    let opened = said.and_then(|said| party.open(said, sealed).ok());
                    let counts = counted.contains(from);
                    shares.extend(opened.map(|[own, key]| (*from, if counts { own } else { key })));
                }
                SecureAnswer::Revealed(shares)
            }
        };
        let answer = lie.map_or(answer.clone(), |lie| falsified(answer, lie, self.spec.run.as_bytes()[0]));
        let message = ToServer::Secure { round, attempt, answer: Box::new(answer) };
        self.give(Event::Message { peer, message });
    }

    fn uploads(&mut self, peer: PeerId, round: u32) {
        self.numbers += 1;
        self.uploads.insert(self.numbers);
        let report = TrainReport { samples: 10, ..TrainReport::default() };
        let header = UpdateHeader { round, report };
        self.give(Event::Uploaded(Arrival { peer, header, upload: UploadId(self.numbers) }));
    }

    pub(super) fn passes(&mut self, until: Duration) {
        self.now = self.now.max(until);
        self.give(Event::Tick);
    }

    pub(super) fn deadline(&mut self) {
        if let Some(deadline) = self.coordinator.deadline(self.now) {
            self.passes(deadline);
        }
    }
}

impl Device {
    fn leave(&mut self) {
        self.peer = None;
        self.asked.clear();
    }
}
