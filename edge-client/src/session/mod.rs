//! The session: the client's protocol state machine.
//!
//! It does no I/O and has no clock. Messages, results of the driver's work and `now` (time since any fixed moment) go in
//! through [`Session::handle`]; [`Action`]s come out of [`Session::poll`]. A session outlives its connections. What must
//! survive a restart of the process lies in the driver's [store](crate::store) and comes back as [`Activity::Holding`].
//!
//! # Connection
//!
//! | in | on | goes to | and does |
//! |---|---|---|---|
//! | `Waiting` | its moment | `Connecting` | `Connect` |
//! | `Connecting` | connected | `Greeting` | sends hello |
//! | `Connecting`, `Greeting`, `Joined` | disconnected | `Waiting` | backs off with jitter; a welcome resets the backoff, but for connections in a row that were cut soon after theirs |
//! | `Greeting`, `Joined` with a held update and not for long | disconnected, and the server has addresses that were not tried | `Connecting` | `Connect` to the rest of them |
//! | `Greeting` | how to read the samples, when it has asked | `Reading` | `Read` |
//! | `Reading` | read | `Connecting` | `Connect` |
//! | `Reading` | cannot be read | `Over` | `Finish` |
//! | `Greeting` | refused for samples that it has read as another run said, or a welcome to such a run | `Waiting` | `HangUp`, and asks again |
//! | `Greeting` | welcome to a run that it cannot follow, has no memory for, or whose updates are not hidden or not private as its owner asks | `Over` | sends declined, `Finish` |
//! | `Greeting` | welcome | `Joined` | sends how many samples it skips, resumes what it holds; `LookForTests` if the run has clients test models |
//! | `Joined` | nothing to test models on | same | sends untested |
//! | any | refused for a transient reason | same | the server closes the connection: as disconnected |
//! | `Greeting`, `Joined` | finished, while a personal model is made | `Leaving` | nothing yet |
//! | `Leaving` | trained, or failed: also without a connection that could bring frozen parameters | `Over` | `Finish` |
//! | any | refused for good, finished, stop, permanent failure of a task | `Over` | `Finish` |
//!
//! Devices make personal models in an extra round after the last one. The server may finish that round before a slow device has
//! built its model; the device still completes it, but no longer reports it.
//!
//! # Work
//!
//! | in | on | goes to | and does |
//! |---|---|---|---|
//! | `Idle`, `Holding` | task | `Training` | `Forget` the held update, `Train` |
//! | any | task of a round that is one too many for what its owner asks of privacy | `Over` | sends failed and goodbye, `Finish` |
//! | any | task before the welcome | same | keeps the task until the welcome |
//! | `Holding` an update with client state | task | same | keeps the task until the receipt |
//! | `Training` | task of a newer round | `Training` | `Cancel`, `Train` the newer |
//! | `Training`, `Holding` | task of the same or an older round | same | |
//! | `Training` | trained, without client state | `Holding` | `Upload`, now or when joined again |
//! | `Training` | trained, with client state | `Holding` | `Sync` |
//! | `Holding` | synced | same | `Upload`, now or when joined again |
//! | `Training` | not eligible to train | `Idle` | sends ineligible; without a connection the task comes again |
//! | `Training` | failed | `Idle` | sends failed, now or after the welcome that still wants it |
//! | `Training` | failed for good | `Idle` | sends failed and goodbye, `Finish` |
//! | `Holding` | receipt, also before the welcome | `Idle` | `Forget`, begins the task that waits for it |
//! | `Training` | receipt of an update that a newer task replaced | same | `NotifyVerdict` |
//! | `Holding` | the update cannot be made durable or read back | `Idle` | `Forget`, sends failed |
//! | `Training`, `Holding` | welcome that wants another round, or another run | `Idle` | `Cancel` or `Forget` |
//!
//! Client state is committed only when its update is accepted, and the next task starts from committed state. A device with
//! client state therefore waits for the receipt before it starts the next task; every update gets one, on the connection that
//! it was sent on. An update is synced with its state before it is sent: otherwise a power failure could leave the server with an update
//! whose state is nowhere. A server that counted the update of an earlier connection sends the receipt before the welcome. An update
//! the server neither wants nor mentions is dropped together with its state.
//!
//! A server that says after which update the state must stand is told after which it does, and both sides report a
//! [difference](shared::client_state).

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod backoff;
mod event;
mod reading;
mod welcome;
mod work;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use shared::algorithm::registry;
use shared::client_state::Stands;
use shared::eligibility::Eligibility;
use shared::message::{
    self, CountedUpdate, Hello, Progress, Refusal, TaskId, TaskKind, ToClient, ToServer, TrainReport,
};
use shared::spec::{Reading, RunSpec};

use crate::address_book::Pass;
use backoff::{Backoff, MAX_DELAY};

pub use event::{Action, Activity, DeviceProfile, Event, SessionEnd};

/// Name and version, for the operator.
pub(crate) const SOFTWARE: &str = concat!(env!("CARGO_PKG_NAME"), " ", env!("CARGO_PKG_VERSION"));
/// The shortest interval of heart-beats that a server can ask for.
const MIN_HEARTBEAT: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnState {
    /// Backs off until this moment.
    Waiting(Duration),
    Connecting,
    Greeting,
    /// Not connected, while the driver reads the samples.
    Reading,
    /// The next heart-beat is due at this moment.
    Joined(Duration),
    /// The run is over, and the device finishes its personal model. Whether it is still connected.
    Leaving(bool),
    Over,
}

/// The client's protocol state machine.
#[derive(Debug)]
pub struct Session {
    device: DeviceProfile,
    connection: ConnState,
    spec: Option<Arc<RunSpec>>,
    /// How its samples were read, if it has asked.
    reading: Option<Reading>,
    /// What samples were refused that were read so.
    turned_down: Option<(Reading, Refusal)>,
    activity: Activity,
    report: TrainReport,
    /// Whether client state goes with the held update. True if unknown.
    keeps: bool,
    /// Whether the held update is being synced with its client state, and may not be sent before.
    syncing: bool,
    /// The round after whose update the client state must stand, as the server has said on this connection.
    counted: Option<Stands>,
    /// The difference that was reported last: what the server said, and what the device has.
    differed: Option<(Option<CountedUpdate>, Option<CountedUpdate>)>,
    progress: Progress,
    /// The last round of this run that the owner lets the device train in.
    last_private: u32,
    /// Whether the task in training makes a personal model and nothing else.
    personal: bool,
    /// The round of an update that a newer task replaced before its receipt came.
    overtaken: Option<u32>,
    /// The run's conditions for training, as received on this connection.
    conditions: Eligibility,
    /// How the session ends once the personal model is made.
    leaving: Option<SessionEnd>,
    /// A task that arrived before the welcome, or before the receipt of the held update: it has a stream of its own.
    early: Option<(u32, TaskKind)>,
    /// A task that failed after the hello had declared it held: the server will not send it again.
    failed: Option<(TaskId, String)>,
    backoff: Backoff,
    /// The addresses of the next attempt.
    pass: Pass,
    /// Why the server has said on this connection to come again later.
    put_off: Option<Refusal>,
    actions: VecDeque<Action>,
}

impl Session {
    /// A session that connects at once. `pending` is an update that an earlier process left in the store.
    #[must_use]
    pub fn new(device: DeviceProfile, pending: Option<(TaskId, TrainReport)>, now: Duration) -> Self {
        let (activity, report) = match pending {
            Some((id, report)) => (Activity::Holding(id), report),
            None => (Activity::Idle, TrainReport::default()),
        };
        let mut session = Self {
            backoff: Backoff::of(device.client),
            device,
            connection: ConnState::Waiting(now),
            spec: None,
            reading: None,
            turned_down: None,
            activity,
            report,
            keeps: true,
            syncing: false,
            counted: None,
            differed: None,
            progress: Progress::default(),
            last_private: u32::MAX,
            personal: false,
            overtaken: None,
            conditions: Eligibility::default(),
            leaving: None,
            early: None,
            failed: None,
            pass: Pass::All,
            put_off: None,
            actions: VecDeque::new(),
        };
        session.settle(now);
        session
    }

    /// The next action to carry out.
    pub fn poll(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The moment at which the session wants an [`Event::Tick`].
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        match self.connection {
            ConnState::Waiting(moment) | ConnState::Joined(moment) => Some(moment),
            ConnState::Connecting
            | ConnState::Greeting
            | ConnState::Reading
            | ConnState::Leaving(_)
            | ConnState::Over => None,
        }
    }

    /// Time until the next attempt to connect; zero while one is made, `None` if there is none.
    #[must_use]
    pub fn next_attempt(&self, now: Duration) -> Option<Duration> {
        match self.connection {
            ConnState::Waiting(moment) => Some(moment.saturating_sub(now)),
            ConnState::Connecting => Some(Duration::ZERO),
            _ => None,
        }
    }

    /// The run that the client takes part in, while it is connected to its server.
    #[must_use]
    pub fn run(&self) -> Option<&Arc<RunSpec>> {
        self.spec.as_ref().filter(|_| matches!(self.connection, ConnState::Joined(_)))
    }

    /// Whether the run is over, and only the personal model under way keeps the client from ending.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        matches!(self.connection, ConnState::Leaving(_))
    }

    /// What the client is doing.
    #[must_use]
    pub fn activity(&self) -> &Activity {
        &self.activity
    }

    /// The run's conditions for training.
    #[must_use]
    pub fn conditions(&self) -> &Eligibility {
        &self.conditions
    }

    /// Handles one event at `now`, which never goes back.
    pub fn handle(&mut self, now: Duration, event: Event) {
        if self.connection == ConnState::Over {
            return;
        }
        match event {
            Event::Connected => self.greet(),
            Event::Disconnected { elsewhere, .. } => self.disconnected(now, elsewhere),
            Event::Message(message) => self.message(now, message),
            Event::Read(read) => self.samples_read(now, read),
            Event::Progressed(progress) => self.progress = progress,
            Event::Trained { round, outcome, keeps } => self.trained(round, outcome, keeps),
            Event::Synced { round } => self.synced(round),
            Event::State { after } => self.state_found(after),
            Event::Ineligible { round, reason } => self.ineligible(round, reason),
            Event::Untested { reason } if matches!(self.connection, ConnState::Joined(_)) => {
                let reason = message::reason(&reason);
                self.actions.push_back(Action::Send(ToServer::Untested { reason }));
            }
            Event::Lost { round, reason } => self.lost(round, &reason),
            // Without a connection: the next welcome looks again.
            Event::Untested { .. } | Event::Tick => {}
            Event::Stop => {
                self.goodbye();
                self.end(SessionEnd::Stopped);
            }
        }
        self.settle(now);
    }

    /// The next attempt: at once at another address, `elsewhere`, if this one does not serve the device; otherwise at all of them, after a
    /// delay.
    fn disconnected(&mut self, now: Duration, elsewhere: bool) {
        let unserved = match self.connection {
            ConnState::Waiting(_) | ConnState::Reading | ConnState::Over => return,
            ConnState::Leaving(_) => {
                self.connection = ConnState::Leaving(false);
                return;
            }
            // Every address was tried.
            ConnState::Connecting => false,
            // What an operator has to decide is the same everywhere.
            ConnState::Greeting => self.put_off.is_none(),
            // A server without room for an update cuts the connection.
            ConnState::Joined(_) => {
                self.backoff.disconnected(now);
                matches!(self.activity, Activity::Holding(_)) && !self.backoff.lasted(now)
            }
        };
        let delay = if unserved && elsewhere {
            self.pass = Pass::Rest;
            Duration::ZERO
        } else {
            self.backoff.next()
        };
        self.connection = ConnState::Waiting(now + delay);
    }

    fn greet(&mut self) {
        self.connection = ConnState::Greeting;
        self.put_off = None;
        self.early = None;
        self.failed = None;
        self.conditions = Eligibility::default();
        self.overtaken = None;
        self.counted = None;
        if self.device.asks {
            let hello = Hello::asking(self.device.client, SOFTWARE.to_owned());
            self.actions.push_back(Action::Send(ToServer::Hello(hello)));
            return;
        }
        let holds = match &self.activity {
            Activity::Idle => None,
            Activity::Training(id) | Activity::Holding(id) => Some(*id),
        };
        self.actions.push_back(Action::Send(ToServer::Hello(Hello {
            client: self.device.client,
            software: SOFTWARE.to_owned(),
            samples: self.device.samples,
            shape: self.device.shape.clone(),
            classes: self.device.classes,
            holds,
        })));
    }

    fn message(&mut self, now: Duration, message: ToClient) {
        if matches!(self.connection, ConnState::Leaving(_)) {
            return;
        }
        match message {
            ToClient::Welcome { spec, wants } => self.welcome(now, registry::read_spec(&spec), wants),
            ToClient::PositionalWelcome { spec, wants } => self.welcome(now, spec.into_spec(), wants),
            ToClient::Refused(refusal) if refusal.may_pass() => self.put_off = Some(refusal),
            ToClient::Refused(refusal) if refusal.is_about_samples() => self.samples_refused(now, refusal),
            ToClient::Refused(refusal) => self.end(SessionEnd::Refused(refusal)),
            // The transport handles the server's key, its addresses and resumed transfers, and gives every task as the plain one; the
            // driver handles frozen parameters and secure aggregation.
            ToClient::ServerKey { .. }
            | ToClient::ResumePoint(_)
            | ToClient::TaskRest { .. }
            | ToClient::TaskAfterFailures { .. }
            | ToClient::BaseTask { .. }
            | ToClient::Frozen { .. }
            | ToClient::Servers { .. }
            | ToClient::Secure { .. } => {}
            ToClient::Conditions(conditions) => self.conditions = conditions,
            ToClient::Counted { update } => self.counted = Some(Stands(update)),
            ToClient::Samples { reading } => self.told_how(&reading),
            ToClient::Task { round, work } => self.task(round, work),
            ToClient::Receipt { round, verdict } => self.receipt(round, verdict),
            ToClient::Finished { rounds }
                if self.personal && matches!(self.activity, Activity::Training(_)) =>
            {
                self.connection = ConnState::Leaving(true);
                self.leaving = Some(SessionEnd::Completed { rounds });
            }
            ToClient::Finished { rounds } => {
                self.abandon();
                self.end(SessionEnd::Completed { rounds });
            }
        }
    }

    fn goodbye(&mut self) {
        if matches!(self.connection, ConnState::Joined(_)) {
            self.actions.push_back(Action::Send(ToServer::Goodbye));
        }
    }

    fn end(&mut self, end: SessionEnd) {
        if matches!(self.activity, Activity::Training(_)) {
            self.abandon();
        }
        if matches!(self.connection, ConnState::Greeting | ConnState::Joined(_) | ConnState::Leaving(true)) {
            self.actions.push_back(Action::Disconnect);
        }
        self.connection = ConnState::Over;
        self.actions.push_back(Action::Finish(end));
    }

    /// Does what is due at `now`; called after every event.
    fn settle(&mut self, now: Duration) {
        match self.connection {
            ConnState::Waiting(moment) if now >= moment => {
                self.connection = ConnState::Connecting;
                let pass = std::mem::replace(&mut self.pass, Pass::All);
                self.actions.push_back(Action::Connect(pass));
            }
            ConnState::Joined(moment) if now >= moment => {
                let heartbeat =
                    self.spec.as_ref().map_or(MAX_DELAY, |spec| spec.heartbeat.max(MIN_HEARTBEAT));
                // The server chose the number, so any must be survived.
                self.connection = ConnState::Joined(now.saturating_add(heartbeat));
                self.actions.push_back(Action::Send(ToServer::Heartbeat(self.progress)));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
