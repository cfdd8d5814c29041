//! The session: the client's protocol state machine.
//!
//! It does no I/O and has no clock: messages, outcomes of the driver's work and `now` (time since any fixed
//! moment) go in through [`Session::handle`], [`Action`]s come out of [`Session::poll`]. It survives any
//! number of connections; what must survive a restart of the process is in the driver's
//! [store](crate::store), and comes back in as [`Activity::Holding`].
//!
//! # Connection
//!
//! | in | on | goes to | and does |
//! |---|---|---|---|
//! | `Waiting` | its moment | `Connecting` | `Connect` |
//! | `Connecting` | connected | `Greeting` | sends hello |
//! | `Connecting`, `Greeting`, `Joined` | disconnected | `Waiting` | after a growing, jittered delay; a welcome makes it short again, but while an update is held only a connection that lasts |
//! | `Greeting` | welcome | `Joined` | says what it leaves out, goes on with what it holds |
//! | any | refused for a reason that may pass | same | the server hangs up: as disconnected |
//! | `Greeting`, `Joined` | finished, while a personal model is made | `Leaving` | nothing yet |
//! | `Leaving` | trained | `Over` | `Finish` |
//! | any | refused for good, finished, stop | `Over` | `Finish` |
//!
//! A round after the last, in which devices make their personal models, may end before a slow one is done: what it tells
//! nobody waits for any more, but the model is its own, and it takes its time.
//!
//! # Activity
//!
//! | in | on | goes to | and does |
//! |---|---|---|---|
//! | `Idle`, `Holding` | task | `Training` | `Forget` what is held, `Train` |
//! | any | task before the welcome | same | keeps it until the welcome |
//! | `Holding` what the algorithm keeps something with | task | same | keeps it until the receipt |
//! | `Training` | task of a newer round | `Training` | `Cancel`, `Train` the newer |
//! | `Training`, `Holding` | task of the same or an older round | same | |
//! | `Training` | trained | `Holding` | `Upload`, now or when joined again |
//! | `Training` | not in a state to train | `Idle` | says not now; without a connection the task comes again |
//! | `Training` | could not train | `Idle` | says failed, now or after the welcome that still wants it |
//! | `Holding` | receipt, also before the welcome | `Idle` | `Forget`, and goes on with a task that waits for it |
//! | `Training` | receipt of what a newer task made it let go of | same | `NotifyVerdict` |
//! | `Holding` | the update cannot be read back | `Idle` | `Forget`, says failed |
//! | `Training`, `Holding` | welcome that wants another round, or another run | `Idle` | `Cancel` or `Forget` |
//!
//! What the algorithm keeps with an update is true only if the update counts, and the next task is trained with what is true:
//! hence the waiting, which ends, since every update has its receipt on the connection that it was sent on. A server that
//! has counted an update and is asked with it again says so before the welcome; of one that it does not want and says
//! nothing of, nothing is kept.

mod backoff;
mod event;

use std::collections::VecDeque;
use std::time::Duration;

use shared::eligibility::Eligibility;
use shared::message::{
    self, Hello, Progress, TaskId, TaskKind, ToClient, ToServer, TrainReport, UpdateHeader, Verdict,
};
use shared::spec::RunSpec;

use backoff::{Backoff, MAX_DELAY};

pub use event::{Action, Activity, DeviceProfile, Event, SessionEnd};

/// A server may ask for heart-beats no faster than this.
const SHORTEST_HEARTBEAT: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnState {
    /// Until this moment.
    Waiting(Duration),
    Connecting,
    Greeting,
    /// The next heart-beat is due at this moment.
    Joined(Duration),
    /// The run is over, and the device finishes what it does for itself. Whether the server is still there.
    Leaving(bool),
    Over,
}

/// The client's protocol state machine.
#[derive(Debug)]
pub struct Session {
    device: DeviceProfile,
    link: ConnState,
    spec: Option<Box<RunSpec>>,
    work: Activity,
    report: TrainReport,
    /// Whether the algorithm keeps something with the held update, as far as is known.
    keeps: bool,
    progress: Progress,
    /// Whether the task in training is for the device itself, and nobody learns from it.
    personal: bool,
    /// The round whose update a newer task has overtaken its receipt of.
    overtaken: Option<u32>,
    /// What the server asks of the device, on this connection.
    conditions: Eligibility,
    /// How it ends when that is done.
    leaving: Option<SessionEnd>,
    /// A task that overtook the welcome, or the receipt of what is held: it comes on a stream of its own.
    early: Option<(u32, TaskKind)>,
    /// A task that failed after the hello had declared it held: the server will not send it again.
    failed: Option<(TaskId, String)>,
    delay: Backoff,
    actions: VecDeque<Action>,
}

impl Session {
    /// A session that connects at once. `held` is an update that an earlier process left in the store.
    #[must_use]
    pub fn new(device: DeviceProfile, held: Option<(TaskId, TrainReport)>, now: Duration) -> Self {
        let (work, report) = match held {
            Some((held, report)) => (Activity::Holding(held), report),
            None => (Activity::Idle, TrainReport::default()),
        };
        let mut session = Self {
            delay: Backoff::of(device.client),
            device,
            link: ConnState::Waiting(now),
            spec: None,
            work,
            report,
            keeps: true,
            progress: Progress::default(),
            personal: false,
            overtaken: None,
            conditions: Eligibility::default(),
            leaving: None,
            early: None,
            failed: None,
            actions: VecDeque::new(),
        };
        session.settle(now);
        session
    }

    /// The next thing to do.
    pub fn poll(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When the session wants an [`Event::Tick`] at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        match self.link {
            ConnState::Waiting(moment) | ConnState::Joined(moment) => Some(moment),
            ConnState::Connecting | ConnState::Greeting | ConnState::Leaving(_) | ConnState::Over => None,
        }
    }

    /// What the client has in hand.
    #[must_use]
    pub fn work(&self) -> &Activity {
        &self.work
    }

    /// What the server asks of this device whenever it is to train.
    #[must_use]
    pub fn conditions(&self) -> &Eligibility {
        &self.conditions
    }

    /// Takes one event in at `now`. `now` never goes back.
    pub fn handle(&mut self, now: Duration, event: Event) {
        if self.link == ConnState::Over {
            return;
        }
        match event {
            Event::Connected => self.greet(),
            Event::Disconnected { .. } => match self.link {
                ConnState::Waiting(_) => {}
                ConnState::Leaving(_) => self.link = ConnState::Leaving(false),
                link => {
                    if matches!(link, ConnState::Joined(_)) {
                        self.delay.connected_until(now);
                    }
                    self.link = ConnState::Waiting(now + self.delay.next());
                }
            },
            Event::Message(message) => self.message(now, message),
            Event::Progressed(progress) => self.progress = progress,
            Event::Trained { round, outcome, keeps } => self.trained(round, outcome, keeps),
            Event::Ineligible { round, reason } => {
                if let Activity::Training(held) = self.work
                    && held.round == round
                {
                    self.work = Activity::Idle;
                    self.progress = Progress::default();
                    if matches!(self.link, ConnState::Joined(_)) {
                        self.actions.push_back(Action::Send(ToServer::Ineligible { round, reason }));
                    }
                }
            }
            Event::Lost { round, reason } => {
                if let Activity::Holding(held) = self.work
                    && held.round == round
                {
                    self.forget(None);
                    self.say_failed(held, &reason);
                    self.go_on();
                }
            }
            Event::Tick => {}
            Event::Stop => {
                if matches!(self.link, ConnState::Joined(_)) {
                    self.actions.push_back(Action::Send(ToServer::Goodbye));
                }
                self.end(SessionEnd::Stopped);
            }
        }
        self.settle(now);
    }

    fn greet(&mut self) {
        self.link = ConnState::Greeting;
        self.early = None;
        self.failed = None;
        self.conditions = Eligibility::default();
        self.overtaken = None;
        let holds = match &self.work {
            Activity::Idle => None,
            Activity::Training(held) | Activity::Holding(held) => Some(*held),
        };
        self.actions.push_back(Action::Send(ToServer::Hello(Hello {
            client: self.device.client,
            software: concat!(env!("CARGO_PKG_NAME"), " ", env!("CARGO_PKG_VERSION")).to_owned(),
            samples: self.device.samples,
            shape: self.device.shape.clone(),
            classes: self.device.classes,
            holds,
        })));
    }

    fn message(&mut self, now: Duration, message: ToClient) {
        if matches!(self.link, ConnState::Leaving(_)) {
            return;
        }
        match message {
            ToClient::Welcome { spec, wants } => self.welcome(now, spec, wants),
            ToClient::Refused(refusal) if refusal.may_pass() => {}
            ToClient::Refused(refusal) => self.end(SessionEnd::Refused(refusal)),
            // Whom to believe, and what arrives in parts, is the transport's matter.
            ToClient::ServerKey { .. } | ToClient::ResumePoint(_) | ToClient::TaskRest { .. } => {}
            ToClient::Conditions(conditions) => self.conditions = conditions,
            ToClient::Task { round, work } => self.task(round, work),
            ToClient::Receipt { round, verdict } => {
                if let Activity::Holding(held) = self.work
                    && held.round == round
                {
                    self.delay.shorten();
                    self.forget(Some(verdict));
                    self.go_on();
                } else if self.overtaken.take_if(|overtaken| *overtaken == round).is_some() {
                    self.actions.push_back(Action::NotifyVerdict { round, verdict });
                }
            }
            ToClient::Finished { rounds } if self.personal && matches!(self.work, Activity::Training(_)) => {
                self.link = ConnState::Leaving(true);
                self.leaving = Some(SessionEnd::Completed { rounds });
            }
            ToClient::Finished { rounds } => {
                self.abandon();
                self.end(SessionEnd::Completed { rounds });
            }
        }
    }

    fn welcome(&mut self, now: Duration, spec: Box<RunSpec>, wants: Option<u32>) {
        self.delay.welcomed(now);
        self.link = ConnState::Joined(now);
        self.actions.push_back(Action::Send(ToServer::SkippedSamples { samples: self.device.skipped }));
        let wanted = |held: &TaskId| held.run == spec.run && Some(held.round) == wants;
        match &self.work {
            Activity::Holding(held) if wanted(held) => self.upload(held.round),
            Activity::Training(held) if wanted(held) => self.delay.shorten(),
            _ => {
                self.delay.shorten();
                self.abandon();
            }
        }
        if let Some((held, reason)) = self.failed.take().filter(|(held, _)| wanted(held)) {
            self.say_failed(held, &reason);
        }
        self.spec = Some(spec);
        self.go_on();
    }

    /// With a task that has waited, if it needs to wait no longer.
    fn go_on(&mut self) {
        if matches!(self.link, ConnState::Joined(_))
            && let Some((round, work)) = self.early.take()
        {
            self.task(round, work);
        }
    }

    fn wait(&mut self, round: u32, work: TaskKind) {
        if self.early.is_none_or(|(newest, _)| newest < round) {
            self.early = Some((round, work));
        }
    }

    fn task(&mut self, round: u32, work: TaskKind) {
        let (ConnState::Joined(_), Some(spec)) = (self.link, &self.spec) else {
            self.wait(round, work);
            return;
        };
        let held = TaskId { run: spec.run, round };
        // Tasks come on streams of their own: an older one may be overtaken.
        if let Activity::Training(current) | Activity::Holding(current) = self.work
            && current.run == held.run
            && current.round >= round
        {
            return;
        }
        if self.keeps && matches!(self.work, Activity::Holding(current) if current.run == held.run) {
            self.wait(round, work);
            return;
        }
        let spec = spec.clone();
        // The receipt comes on another stream, and may come after this.
        self.overtaken = match self.work {
            Activity::Holding(current) if current.run == held.run => Some(current.round),
            _ => None,
        };
        self.abandon();
        self.work = Activity::Training(held);
        self.personal = work.personalise && !work.train;
        self.progress = Progress { round: Some(round), done: 0, total: 0 };
        self.actions.push_back(Action::Train { round, work, spec });
    }

    fn trained(&mut self, round: u32, outcome: Result<TrainReport, String>, keeps: bool) {
        let Activity::Training(held) = self.work else { return };
        if held.round != round {
            return;
        }
        self.progress = Progress::default();
        if let Some(leaving) = self.leaving.take() {
            self.work = Activity::Idle;
            if outcome.is_ok() {
                // What it would tell the server has been kept with the model.
                self.actions.push_back(Action::Forget { round, verdict: None });
            }
            self.end(leaving);
            return;
        }
        match outcome {
            Ok(report) => {
                self.work = Activity::Holding(held);
                (self.report, self.keeps) = (report, keeps);
                if matches!(self.link, ConnState::Joined(_)) {
                    self.upload(round);
                }
            }
            Err(reason) => {
                self.work = Activity::Idle;
                self.say_failed(held, &reason);
            }
        }
    }

    /// Without a connection the server learns of it at the next hello: nothing is held then.
    fn say_failed(&mut self, held: TaskId, reason: &str) {
        let reason = message::reason(&reason);
        match self.link {
            ConnState::Joined(_) => {
                self.actions.push_back(Action::Send(ToServer::Failed { round: held.round, reason }));
            }
            ConnState::Greeting => self.failed = Some((held, reason)),
            ConnState::Waiting(_) | ConnState::Connecting | ConnState::Leaving(_) | ConnState::Over => {}
        }
    }

    fn upload(&mut self, round: u32) {
        self.actions.push_back(Action::Upload(UpdateHeader { round, report: self.report }));
    }

    /// Lets go of whatever is in hand.
    fn abandon(&mut self) {
        match self.work {
            Activity::Idle => {}
            Activity::Training(_) => {
                self.work = Activity::Idle;
                self.progress = Progress::default();
                self.actions.push_back(Action::Cancel);
            }
            Activity::Holding(_) => self.forget(None),
        }
    }

    fn forget(&mut self, verdict: Option<Verdict>) {
        if let Activity::Holding(held) = self.work {
            self.work = Activity::Idle;
            self.actions.push_back(Action::Forget { round: held.round, verdict });
        }
    }

    fn end(&mut self, outcome: SessionEnd) {
        if matches!(self.work, Activity::Training(_)) {
            self.abandon();
        }
        if matches!(self.link, ConnState::Greeting | ConnState::Joined(_) | ConnState::Leaving(true)) {
            self.actions.push_back(Action::Disconnect);
        }
        self.link = ConnState::Over;
        self.actions.push_back(Action::Finish(outcome));
    }

    /// What time alone brings about; called after every event.
    fn settle(&mut self, now: Duration) {
        match self.link {
            ConnState::Waiting(moment) if now >= moment => {
                self.link = ConnState::Connecting;
                self.actions.push_back(Action::Connect);
            }
            ConnState::Joined(moment) if now >= moment => {
                let heartbeat =
                    self.spec.as_ref().map_or(MAX_DELAY, |spec| spec.heartbeat.max(SHORTEST_HEARTBEAT));
                // The server's number: any is survived.
                self.link = ConnState::Joined(now.saturating_add(heartbeat));
                self.actions.push_back(Action::Send(ToServer::Heartbeat(self.progress)));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
