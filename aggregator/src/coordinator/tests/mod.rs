//! The coordinator, driven by hand: what goes in, and exactly what comes out.

mod after_training;
mod closing;
mod connections;
mod declared;
mod in_vain;
mod late;
mod lease;
mod ledger;
mod not_now;
mod open;
mod opening;
mod participations;
mod pausing;
mod properties;
mod remembering;
mod restart;
mod revoked;
mod secure;
mod server_left;
mod stalled;
mod time;
mod unsettled;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use shared::eligibility::Eligibility;
use shared::id::{ClientId, RunId};
use shared::message::{
    Discard, Hello, Progress, Refusal, Rejection, TaskId, TaskKind, ToClient, ToServer, TrainReport,
    UpdateHeader, Verdict,
};
use shared::spec::{RunSpec, SpecText};

use crate::round::{RoundPolicy, SampleCap, Tally, VOID_PAUSE, WaitedFor, WeightBounds};

use super::*;

const MILLISECOND: Duration = Duration::from_millis(1);
const NANOSECOND: Duration = Duration::from_nanos(1);
const TIMEOUT: Duration = Duration::from_secs(100);
const RECONNECT_GRACE: Duration = Duration::from_secs(30);

/// An update on a connection.
fn arrival(peer: PeerId, round: u32, report: TrainReport, upload: UploadId) -> Arrival {
    Arrival { peer, header: UpdateHeader { round, report }, upload }
}

/// Three rounds of the example run.
fn spec() -> RunSpec {
    RunSpec::example("fedavg")
}

/// Everyone is asked; a round closes with what it has after 100 s, and with everyone's update before.
fn policy(start: usize) -> RoundPolicy {
    RoundPolicy {
        fraction: 1.0,
        poisson: None,
        min: 1,
        max: None,
        min_wait: Duration::ZERO,
        timeout: TIMEOUT,
        cuts_short: true,
        start,
        reconnect_grace: RECONNECT_GRACE,
        connection_timeout: Duration::from_hours(1),
        void_pause: VOID_PAUSE,
        max_failed: None,
        late: None,
        eligibility: Eligibility::default(),
        max_abs: 1000.0,
        max_samples: None,
        weight_bounds: WeightBounds::NONE,
        receipts_at_close: false,
    }
}

/// The same beside other servers.
fn several(start: usize) -> RoundPolicy {
    RoundPolicy { receipts_at_close: true, ..policy(start) }
}

fn close(round: u32, tally: Tally) -> Action {
    Action::Close { round, tally }
}

fn just_before(moment: Duration) -> Duration {
    moment.checked_sub(NANOSECOND).expect("moments in tests are later than the first nanosecond")
}

fn client(n: u8) -> ClientId {
    ClientId::from_bytes([n; 16])
}

/// Client `n` has `10 n` samples.
fn samples(n: u8) -> u64 {
    10 * u64::from(n)
}

fn shares(clients: &[u8]) -> BTreeMap<ClientId, u64> {
    clients.iter().map(|&n| (client(n), samples(n))).collect()
}

fn opening(round: u32, cohort: &[u8], roster: &[u8]) -> Opening {
    let (cohort, roster) = (shares(cohort), shares(roster));
    let (owed, counted) = (BTreeMap::new(), BTreeMap::new());
    let sample_cap = SampleCap::NONE;
    Opening {
        round,
        work: TaskKind::TRAIN,
        cohort,
        roster,
        sample_cap,
        owed,
        counted,
        ledger: None,
        participations: BTreeMap::new(),
        exchange: 0,
    }
}

/// Of any accepted update.
const FINGERPRINT: u32 = 0x0102_0304;

fn report(n: u8) -> TrainReport {
    TrainReport {
        samples: samples(n),
        steps: 3,
        loss: 0.5,
        duration: Duration::from_secs(2),
        metrics: [None; 12],
    }
}

fn hello(n: u8, holds: Option<TaskId>) -> Hello {
    let software = "test 1".to_owned();
    Hello { client: client(n), software, samples: samples(n), shape: vec![1, 2, 2], classes: 2, holds }
}

fn welcome(peer: PeerId, wants: Option<u32>) -> Action {
    Action::Send { peer, message: ToClient::Welcome { spec: SpecText::of(&spec()), wants } }
}

fn receipt(peer: PeerId, round: u32, verdict: Verdict) -> Action {
    Action::Send { peer, message: ToClient::Receipt { round, verdict } }
}

fn refused(peer: PeerId, refusal: Refusal) -> [Action; 2] {
    [Action::Send { peer, message: ToClient::Refused(refusal) }, Action::Disconnect { peer }]
}

/// The tally of a round in which nothing went wrong.
fn tally(sampled: usize, accepted: usize, waited_for: WaitedFor) -> Tally {
    Tally { sampled, accepted, waited_for, ..Tally::default() }
}

/// A coordinator, its clock, and clients numbered from 1, each with its newest connection.
struct Bench {
    coordinator: Coordinator,
    now: Duration,
    peers: BTreeMap<u8, PeerId>,
    next_peer: u64,
    next_upload: u64,
}

impl Bench {
    fn new(policy: RoundPolicy) -> Self {
        Self::resume(policy, Resume::default())
    }

    fn resume(policy: RoundPolicy, resume: Resume) -> Self {
        Self::with(spec(), policy, resume)
    }

    fn with(spec: RunSpec, policy: RoundPolicy, resume: Resume) -> Self {
        let mut coordinator = Coordinator::new(spec, policy, resume, Duration::ZERO);
        // With other servers, this one leads.
        coordinator.handle(Duration::ZERO, Event::Leads { asked: Duration::ZERO, until: Duration::MAX });
        Self { coordinator, now: Duration::ZERO, peers: BTreeMap::new(), next_peer: 0, next_upload: 0 }
    }

    /// Clients 1 to `clients` are connected and round 1 is open.
    fn open(policy: RoundPolicy, clients: u8) -> Self {
        let mut bench = Self::new(RoundPolicy { start: usize::from(clients), ..policy });
        for n in 1..=clients {
            bench.joins(n);
        }
        bench.opened(1);
        bench
    }

    /// What it is to do, but for what it has to remember: that is done at once.
    fn drain(&mut self) -> Vec<Action> {
        let mut actions = Vec::new();
        while let Some(action) = self.coordinator.poll() {
            match action {
                Action::SaveRoster(_) => self.coordinator.handle(self.now, Event::RosterSaved),
                action => actions.push(action),
            }
        }
        actions
    }

    fn give(&mut self, event: Event) -> Vec<Action> {
        self.coordinator.handle(self.now, event);
        self.drain()
    }

    /// Time passes until `now`.
    fn at(&mut self, now: Duration) -> Vec<Action> {
        self.now = now;
        self.give(Event::Tick)
    }

    fn peer(&self, n: u8) -> PeerId {
        self.peers[&n]
    }

    /// Client `n` says hello on a new connection.
    fn joins(&mut self, n: u8) -> Vec<Action> {
        self.greets(n, hello(n, None))
    }

    fn joins_holding(&mut self, n: u8, run: RunId, round: u32) -> Vec<Action> {
        self.greets(n, hello(n, Some(TaskId { run, round })))
    }

    fn greets(&mut self, n: u8, hello: Hello) -> Vec<Action> {
        let peer = PeerId(self.next_peer);
        self.next_peer += 1;
        self.peers.insert(n, peer);
        self.give(Event::Message { peer, message: ToServer::Hello(hello) })
    }

    fn says(&mut self, n: u8, message: ToServer) -> Vec<Action> {
        self.give(Event::Message { peer: self.peer(n), message })
    }

    fn fails(&mut self, n: u8, round: u32) -> Vec<Action> {
        self.says(n, ToServer::Failed { round, reason: "out of memory".to_owned() })
    }

    fn leaves(&mut self, n: u8) -> Vec<Action> {
        self.give(Event::Disconnected { peer: self.peer(n) })
    }

    fn opened(&mut self, round: u32) -> Vec<Action> {
        self.give(Event::Opened { round })
    }

    /// An update arrives on client `n`'s newest connection.
    fn uploads(&mut self, n: u8, round: u32, report: TrainReport) -> Vec<Action> {
        self.next_upload += 1;
        let upload = UploadId(self.next_upload);
        self.give(Event::Uploaded(arrival(self.peer(n), round, report, upload)))
    }

    fn folded(&mut self, n: u8, round: u32, outcome: Result<(), Rejection>) -> Vec<Action> {
        let outcome = outcome.map(|()| FINGERPRINT);
        self.give(Event::Folded { round, client: client(n), outcome })
    }

    /// Client `n`'s update arrives and is folded.
    fn delivers(&mut self, n: u8, round: u32) -> Vec<Action> {
        let fold = self.uploads(n, round, report(n));
        assert!(matches!(fold[..], [Action::Fold { .. }]), "{fold:?}");
        self.folded(n, round, Ok(()))
    }

    fn closed(&mut self, round: u32) -> Vec<Action> {
        self.give(Event::Closed { round, void: false, enough: false })
    }

    fn accepted(&self, n: u8, round: u32) -> Action {
        receipt(self.peer(n), round, Verdict::Accepted)
    }

    fn task(&self, n: u8, round: u32) -> Action {
        Action::Broadcast { peer: self.peer(n), round }
    }

    fn status(&self) -> String {
        self.coordinator.status(self.now).to_string()
    }
}
