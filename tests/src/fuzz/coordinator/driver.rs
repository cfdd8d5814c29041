//! A driver for the fuzzed coordinator: carries its actions out and checks them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use aggregator::coordinator::{
    Action, Arrival, Closing, Coordinator, Event, Opening, Outcome, OutstandingTask, PeerId, Reopened,
    Resume, RosterSnapshot, UploadId,
};
use aggregator::round::{RoundPolicy, Tally};
use shared::frame;
use shared::id::ClientId;
use shared::message::{
    Discard, Hello, Rejection, TaskId, ToClient, ToServer, TrainReport, UpdateHeader, Verdict,
};
use shared::spec::RunSpec;

/// Devices that there are.
pub(super) const DEVICES: u8 = 4;

/// What is done on the ledger's thread, one after the other.
#[derive(Debug)]
pub(super) enum Step {
    Open(Opening),
    SaveRoster(RosterSnapshot),
    /// Into which round, whose, and of which round.
    Fold(u32, ClientId, u32),
    Close(u32, Tally),
}

/// What the disk knows, and what the driver has to do.
pub(super) struct Driver {
    pub(super) coordinator: Coordinator,
    policy: RoundPolicy,
    spec: RunSpec,
    pub(super) now: Duration,
    pub(super) peers: BTreeMap<u8, PeerId>,
    numbers: u64,
    /// Payloads that were not sent yet, by the rounds that they were trained in.
    uploads: BTreeMap<u64, u32>,
    /// Whose updates are in, and of which rounds.
    taken: BTreeSet<(ClientId, u32)>,
    pub(super) steps: VecDeque<Step>,
    /// Durable.
    pub(super) disk: Resume,
    /// Who was sent a task on its present connection.
    pub(super) asked: BTreeSet<(PeerId, u32)>,
    /// Who may not take part any more, and has not come since.
    pub(super) revoked: BTreeSet<ClientId>,
    pub(super) finished: bool,
    pub(super) rejections: usize,
    /// The disk is full.
    is_full: bool,
    /// No other server leads before this moment.
    leads_until: Duration,
}

pub(super) fn client(device: u8) -> ClientId {
    ClientId::from_bytes([device % DEVICES + 1; 16])
}

/// What was owed when a round opened and has not come since.
fn still_owed(open: &Reopened) -> BTreeMap<ClientId, OutstandingTask> {
    let mut owed = open.opening.owed.clone();
    owed.retain(|client, _| !open.late.contains_key(client));
    owed
}

/// What a device honestly declares.
fn samples(device: u8) -> u64 {
    10 * (u64::from(device % DEVICES) + 1)
}

impl Driver {
    pub(super) fn new(policy: RoundPolicy) -> Self {
        let leads_until = if policy.receipts_at_close { Duration::ZERO } else { Duration::MAX };
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
            revoked: BTreeSet::new(),
            finished: false,
            rejections: 0,
            is_full: false,
            leads_until,
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

    pub(super) fn newest(&self) -> u32 {
        self.disk.closed + u32::from(self.open().is_some())
    }

    pub(super) fn give(&mut self, event: Event) {
        self.coordinator.handle(self.now, event);
        let actions: Vec<_> = std::iter::from_fn(|| self.coordinator.poll()).collect();
        for action in &actions {
            self.check_lease(action);
        }
        self.act(actions);
    }

    pub(super) fn pauses(&mut self, is_full: bool) {
        self.is_full = is_full;
        self.give(if is_full { Event::Paused } else { Event::Resumed });
    }

    /// The store, asked at this moment, has said that no other server leads before `until`, if there are any.
    pub(super) fn leads(&mut self, asked: Duration, until: Duration) {
        if self.policy.receipts_at_close {
            self.leads_until = self.leads_until.max(until);
            self.give(Event::Leads { asked, until });
        }
    }

    /// Nothing is answered or decided while another server may lead, and no verdict comes before its round has closed.
    fn check_lease(&self, action: &Action) {
        let leads = self.now < self.leads_until;
        match action {
            Action::Open(_) | Action::Close { .. } => {
                assert!(leads && !self.is_full, "decided while it may not: {action:?}");
            }
            Action::Send { message: ToClient::Welcome { .. }, .. } => {
                assert!(leads, "answered while another server may lead");
            }
            Action::Send { message: ToClient::Receipt { round, verdict }, .. } => {
                let content =
                    matches!(verdict, Verdict::Rejected(_) | Verdict::Discarded(Discard::Duplicate));
                let settled = content || *round <= self.disk.closed;
                assert!(
                    settled || !self.policy.receipts_at_close,
                    "round {round}: {verdict:?} before its close"
                );
            }
            _ => {}
        }
    }

    fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            assert!(!self.finished || matches!(action, Action::Drop { .. }), "after the end: {action:?}");
            match action {
                // It panics where a message is too long for a frame.
                Action::Send { message, .. } => drop(frame::encode(&message, 0)),
                Action::Disconnect { peer } => self.peers.retain(|_, own| *own != peer),
                Action::Open(opening) => {
                    assert_eq!(opening.round, self.disk.closed + 1, "one round after the other");
                    // Where late updates count, everyone may be at work for an earlier round.
                    assert!(!opening.cohort.is_empty() || self.policy.late.is_some());
                    let folds = |step: &Step| matches!(step, Step::Fold(..) | Step::SaveRoster(_));
                    assert!(self.steps.iter().all(folds), "neither opens nor closes meanwhile");
                    self.steps.push_back(Step::Open(opening));
                }
                Action::Broadcast { peer, round } => {
                    assert!(self.disk.open.as_ref().is_some_and(|open| open.opening.round == round));
                    assert!(self.asked.insert((peer, round)), "once per connection and round");
                }
                Action::Fold { round, client, upload } => {
                    let trained = self.uploads.remove(&upload.0).expect("an upload is given away once");
                    self.check_fold(round, client, trained);
                    self.steps.push_back(Step::Fold(round, client, trained));
                }
                Action::Drop { upload } => {
                    assert!(self.uploads.remove(&upload.0).is_some(), "{upload:?} twice");
                }
                Action::Close { round, tally } => {
                    let remembers = |step: &Step| matches!(step, Step::SaveRoster(_));
                    assert!(self.steps.iter().all(remembers), "steps under way come first");
                    let open = self.disk.open.as_ref().expect("an open round closes");
                    assert_eq!(open.opening.round, round);
                    if !tally.void && open.decided().is_none() {
                        assert_eq!(tally.accepted, open.accepted.len(), "nothing accepted is lost");
                    }
                    self.steps.push_back(Step::Close(round, tally));
                }
                Action::SaveRoster(known) => {
                    assert_eq!(known.since, self.newest(), "beside the newest opening");
                    let under_way = self.steps.iter().filter(|step| matches!(step, Step::SaveRoster(_)));
                    assert!(under_way.count() < 2, "one at a time, and one more beside an opening");
                    self.steps.push_back(Step::SaveRoster(known));
                }
                Action::Alarm { .. } | Action::StateDiffers { .. } | Action::Outgrown { .. } => {}
                Action::Agree { .. } | Action::Decide { .. } | Action::Unmask { .. } => {
                    panic!("nothing is hidden in these runs")
                }
                Action::Finish(outcome) => {
                    let rounds = self.disk.ended.unwrap_or(self.spec.rounds + self.disk.failed);
                    let nothing = self.disk.void >= self.policy.failure_limit(self.spec.rounds);
                    let expected = match outcome {
                        Outcome::NoProgress { rounds, .. } => nothing && rounds == self.disk.void,
                        Outcome::Completed => !nothing && self.disk.closed >= rounds,
                        Outcome::Stopped => true,
                    };
                    assert!(
                        expected,
                        "{outcome:?} after {} rounds, {} void",
                        self.disk.closed, self.disk.void
                    );
                    self.finished = true;
                }
            }
        }
        // Those that count late may wait for the next round, as those for a round that another server has opened.
        let may = self.policy.late.is_some() || self.policy.receipts_at_close;
        let wait = may && !self.finished;
        assert!(wait || self.uploads.is_empty(), "an upload is folded or dropped at once");
    }

    /// An update that was trained in one round is to be folded into another, or the same.
    fn check_fold(&self, round: u32, client: ClientId, trained: u32) {
        let open = self.open().expect("folded into an open round");
        assert_eq!(open.round, round);
        assert!(!self.revoked.contains(&client), "an update of a revoked client");
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
            Step::Open(_) | Step::SaveRoster(_) => false,
        });
        assert!(!durable && !under_way, "no client counts twice in a round, nor in a closing one");
        assert!(!self.taken.contains(&(client, trained)), "nothing is folded twice");
    }

    pub(super) fn hello(&mut self, device: u8, holds: Option<u8>, declared: Option<u64>) {
        self.numbers += 1;
        let peer = PeerId(self.numbers);
        self.revoked.remove(&client(device));
        let held =
            |ago: u8| TaskId { run: self.spec.run, round: self.newest().saturating_sub(u32::from(ago)) };
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

    pub(super) fn revoked(&mut self, device: u8) {
        self.give(Event::Revoked { client: client(device) });
        self.revoked.insert(client(device));
    }

    pub(super) fn uploads(&mut self, device: u8, round: u32, dishonest: bool) {
        let Some(&peer) = self.peers.get(&(device % DEVICES)) else { return };
        self.numbers += 1;
        self.uploads.insert(self.numbers, round);
        let report =
            TrainReport { samples: samples(device) + u64::from(dishonest), ..TrainReport::default() };
        let header = UpdateHeader { round, report };
        self.give(Event::Uploaded(Arrival { peer, header, upload: UploadId(self.numbers) }));
    }

    /// The next step is made; a fold finds the update good or not.
    fn make(&mut self, step: Step, fine: bool, enough: bool) -> Event {
        match step {
            Step::Open(opening) => {
                let round = opening.round;
                if self.disk.open.as_ref().is_none_or(|open| open.opening.round != round) {
                    self.disk.roster.clone_from(&opening.roster);
                }
                let before = self.disk.open.take();
                let (accepted, late, fingerprints) =
                    before.map(|open| (open.accepted, open.late, open.fingerprints)).unwrap_or_default();
                self.disk.open =
                    Some(Reopened { opening, accepted, late, closing: None, agreement: None, fingerprints });
                Event::Opened { round }
            }
            Step::SaveRoster(known) => {
                self.disk.roster = known.roster;
                Event::RosterSaved
            }
            Step::Fold(round, client, trained) => {
                if fine {
                    let open = self.disk.open.as_mut().expect("folded into an open round");
                    assert!(open.accepted.insert(client) && self.taken.insert((client, trained)));
                    if trained != round {
                        open.late.insert(client, trained);
                    }
                    if self.policy.receipts_at_close {
                        open.fingerprints.insert(client, 7);
                    }
                    return Event::Folded { round, client, outcome: Ok(7) };
                }
                self.rejections += 1;
                let rejection = Rejection::NotFinite { tensor: "w".to_owned() };
                Event::Folded { round, client, outcome: Err(rejection) }
            }
            Step::Close(round, tally) => {
                self.disk.void = if tally.void { self.disk.void + 1 } else { 0 };
                self.disk.failed += u32::from(tally.void);
                if let Some(open) = self.disk.open.take() {
                    self.disk.owed = still_owed(&open);
                    if self.policy.late.is_some() {
                        let missing =
                            open.opening.cohort.iter().filter(|(client, _)| !open.accepted.contains(client));
                        let owed =
                            missing.map(|(client, &samples)| (*client, OutstandingTask { round, samples }));
                        self.disk.owed.extend(owed);
                    }
                }
                self.disk.closed = round;
                if enough {
                    self.disk.ended = Some(self.disk.ended.unwrap_or(u32::MAX).min(round));
                }
                Event::Closed { round, void: false, enough }
            }
        }
    }

    pub(super) fn step(&mut self, fine: bool, enough: bool) {
        if let Some(step) = self.steps.pop_front() {
            let event = self.make(step, fine, enough);
            self.give(event);
        }
    }

    pub(super) fn restarts(&mut self, durable: u8, decision: bool) {
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
        (self.is_full, self.leads_until) =
            (false, if self.policy.receipts_at_close { self.now } else { Duration::MAX });
        self.coordinator = Coordinator::new(self.spec.clone(), self.policy, self.disk.clone(), self.now);
        let actions = std::iter::from_fn(|| self.coordinator.poll()).collect();
        self.act(actions);
    }

    pub(super) fn passes(&mut self, until: Duration) {
        self.now = self.now.max(until);
        self.give(Event::Tick);
    }
}
