//! The session, driven by hand: what goes in, and exactly what comes out.

mod connection;
mod properties;
mod reading;
mod work;

use std::sync::Arc;
use std::time::Duration;

use shared::eligibility::{Eligibility, Ineligible};
use shared::id::{ClientId, RunId};
use shared::message::{
    Discard, Hello, Progress, Refusal, TaskId, ToClient, ToServer, TrainReport, UpdateHeader, Verdict,
};
use shared::spec::{RunSpec, SpecText};

use super::*;
use crate::failure::{Blame, Failure};

const NANOSECOND: Duration = Duration::from_nanos(1);
const HEARTBEAT: Duration = Duration::from_secs(5);

fn spec(run: u8) -> Arc<RunSpec> {
    Arc::new(RunSpec { run: RunId::from_bytes([run; 8]), heartbeat: HEARTBEAT, ..RunSpec::example("fedavg") })
}

fn just_before(moment: Duration) -> Duration {
    moment.checked_sub(NANOSECOND).expect("moments in tests are later than the first nanosecond")
}

fn held(run: u8, round: u32) -> TaskId {
    TaskId { run: RunId::from_bytes([run; 8]), round }
}

fn report() -> TrainReport {
    TrainReport { samples: 10, steps: 3, loss: 0.5, duration: Duration::from_secs(2), metrics: [None; 12] }
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

fn hello(holds: Option<TaskId>) -> Action {
    let software = concat!("edge-client ", env!("CARGO_PKG_VERSION")).to_owned();
    let DeviceProfile { client, samples, shape, classes, .. } = device();
    Action::Send(ToServer::Hello(Hello { client, software, samples, shape, classes, holds }))
}

fn heartbeat(round: Option<u32>, done: u64, total: u64) -> Action {
    Action::Send(ToServer::Heartbeat(Progress { round, done, total }))
}

fn upload(round: u32) -> Action {
    Action::Upload(UpdateHeader { round, report: report() })
}

fn train(run: u8, round: u32) -> Action {
    Action::Train { round, work: TaskKind::TRAIN, spec: spec(run) }
}

fn forget(round: u32, verdict: Option<Verdict>) -> Action {
    Action::Forget { round, verdict }
}

fn failed(round: u32) -> Action {
    Action::Send(ToServer::Failed { round, reason: "out of memory".to_owned() })
}

/// A session and its clock.
struct Bench {
    session: Session,
    now: Duration,
}

impl Bench {
    /// A session that is about to connect.
    fn new(holding: Option<TaskId>) -> Self {
        let held = holding.map(|held| (held, report()));
        let mut bench = Self { session: Session::new(device(), held, Duration::ZERO), now: Duration::ZERO };
        assert_eq!(bench.drain(), [Action::Connect(Pass::All)]);
        bench
    }

    /// A session that said hello.
    fn greeting(holding: Option<TaskId>) -> Self {
        let mut bench = Self::new(holding);
        assert_eq!(bench.give(Event::Connected), [hello(holding)]);
        bench
    }

    /// A session that takes part in run 1.
    fn joined() -> Self {
        let mut bench = Self::greeting(None);
        assert_eq!(bench.welcome(1, None), [heartbeat(None, 0, 0)]);
        bench
    }

    /// A session that trains in `round` of run 1.
    fn training(round: u32) -> Self {
        let mut bench = Self::joined();
        assert_eq!(bench.task(round), [train(1, round)]);
        bench
    }

    /// A session that has sent its update of `round` of run 1.
    fn holding(round: u32) -> Self {
        let mut bench = Self::training(round);
        assert_eq!(bench.trained(round), [upload(round)]);
        bench
    }

    /// But for what is said at every welcome, and has a test of its own.
    fn drain(&mut self) -> Vec<Action> {
        let skipped = |action: &Action| matches!(action, Action::Send(ToServer::SkippedSamples { .. }));
        std::iter::from_fn(|| self.session.poll()).filter(|action| !skipped(action)).collect()
    }

    fn give(&mut self, event: Event) -> Vec<Action> {
        self.session.handle(self.now, event);
        self.drain()
    }

    fn at(&mut self, now: Duration) -> Vec<Action> {
        self.now = now;
        self.give(Event::Tick)
    }

    fn hears(&mut self, message: ToClient) -> Vec<Action> {
        self.give(Event::Message(message))
    }

    fn welcome(&mut self, run: u8, wants: Option<u32>) -> Vec<Action> {
        self.hears(ToClient::Welcome { spec: SpecText::of(&spec(run)), wants })
    }

    fn task(&mut self, round: u32) -> Vec<Action> {
        self.hears(ToClient::Task { round, work: TaskKind::TRAIN })
    }

    fn trained(&mut self, round: u32) -> Vec<Action> {
        self.give(Event::Trained { round, outcome: Ok(report()), keeps: false })
    }

    fn fails(&mut self, round: u32) -> Vec<Action> {
        self.give(Event::Trained {
            round,
            outcome: Err(Failure::new(Blame::Machine, "out of memory")),
            keeps: false,
        })
    }

    fn cut(&mut self) -> Vec<Action> {
        self.cut_with(false)
    }

    /// Is cut off; `elsewhere`: the server has addresses that were not tried.
    fn cut_with(&mut self, elsewhere: bool) -> Vec<Action> {
        self.give(Event::Disconnected { reason: "the network is down".to_owned(), elsewhere })
    }

    /// Waits until the session connects again, and gives how long that took.
    fn reconnects(&mut self) -> Duration {
        let before = self.now;
        let moment = self.session.deadline().expect("a moment to connect again");
        assert_eq!(self.at(just_before(moment)), [], "not before its moment");
        assert_eq!(self.at(moment), [Action::Connect(Pass::All)]);
        assert_eq!(self.session.deadline(), None, "connecting takes as long as it takes");
        moment.checked_sub(before).expect("a moment in the future")
    }

    /// Is cut off, comes back and says hello, which is given.
    fn comes_back(&mut self) -> Vec<Action> {
        assert_eq!(self.cut(), []);
        self.reconnects();
        self.give(Event::Connected)
    }
}
