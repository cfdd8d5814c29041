//! The driver: does the I/O of the [`Session`].
//!
//! Training runs in a [`TrainPool`], so the driver's own thread can always answer. A finished update is saved first. With client
//! state it is synced to the disk before it is uploaded; without, beside the upload, and until then a power failure costs at most
//! the training, which can be repeated.

mod frozen;
mod hiding;
mod notice;
mod persist;
mod samples;
mod shutdown;
mod training;
mod wait;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use models::Backend;
use shared::id::ClientId;
use shared::identity::SecretKey;
use shared::message::{TaskId, TaskKind, ToClient};
use shared::spec::RunSpec;
use shared::watchdog::Watchdog;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Interval, sleep, sleep_until};
use tracing::{debug, warn};

use crate::allowance::Allowance;
use crate::failure::{Blame, Failure};
use crate::masking::Masking;
use crate::pool::TrainPool;
use crate::sensors::Sensors;
use crate::session::{Action, DeviceProfile, Event, Session, SessionEnd};
use crate::store::{Standing, Store, StoreError};
use crate::task::{PrivateOnly, Task, Untested};
use crate::transport::{Channel, ConnectError, Connector, Incoming, Outgoing};
use frozen::Waiting;
use persist::{Syncing, Unforgotten, Unsaved};
use training::{Finished, Training};
use wait::armed;

pub use notice::Notice;
pub use samples::{DeviceSamples, ReadSamples, Source};

/// Quiet time after a round until the client counts as idle.
const IDLE_AFTER: Duration = Duration::from_secs(1);

/// What a client brings to a run.
#[derive(Clone)]
pub struct Participant {
    /// Its id.
    pub client: ClientId,
    /// The key that the id is the fingerprint of, by which it takes part in secure aggregation; a simulated one has none.
    pub identity: Option<SecretKey>,
    /// The least number of devices among which its updates must be hidden; without it, they need not be.
    pub secure_only: Option<u32>,
    /// What the noise of devices must keep all rounds within; without it, there need be none.
    pub private_only: Option<PrivateOnly>,
    /// Its samples.
    pub samples: Source,
    /// Whether the device is eligible to train.
    pub sensors: Sensors,
    /// What its memory allows; without it, there is no bound.
    pub memory: Option<Allowance>,
    /// The processor that it trains on.
    pub backend: Backend,
    /// The threads that train.
    pub pool: TrainPool,
    /// Called once when the client has been idle for a while after a round.
    pub at_rest: fn(),
    /// Interval of [`Notice::Progress`] while training; without it, there is none.
    pub progress: Option<Duration>,
    /// Interval of [`Notice::Alive`] while the client makes progress; without it, there is none.
    pub alive: Option<Duration>,
}

impl Participant {
    /// What the owner of the device does not go beyond, in its profile.
    fn bounds(&self, profile: DeviceProfile) -> DeviceProfile {
        let Self { memory, secure_only, private_only, .. } = *self;
        DeviceProfile { memory, secure_only, private_only, ..profile }
    }
}

/// Why a client cannot go on. The owner of the device has to act.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The state directory fails.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Another server than the trusted one answers, and this process has not met the trusted one; or the network cannot be used.
    #[error(transparent)]
    Connect(ConnectError),
}

/// Where notices go.
pub type NoticeSink<'a> = &'a mut (dyn FnMut(Notice) + Send);

/// Takes part in the runs of one server until the session ends, or `stop` turns true.
pub async fn take_part<C: Connector, S: Store>(
    participant: Participant,
    connector: C,
    mut store: S,
    stop: watch::Receiver<bool>,
    notice: NoticeSink<'_>,
) -> Result<SessionEnd, DriverError> {
    let started = Instant::now();
    let profile = profile(&participant);
    let session = Session::new(profile, store.pending()?, started.elapsed());
    let (finished, trained) = mpsc::unbounded_channel();
    let mut driver = Driver::new(participant, session, connector, store, Training::new(finished), notice);
    let result = driver.run(started, stop, trained).await;
    if result.as_ref().is_ok_and(|end| *end != SessionEnd::Stopped) {
        // The run goes on without this device, or not at all.
        driver.store.discard_download(None);
    }
    driver.shut_down().await;
    result
}

/// What the server learns of the device.
fn profile(participant: &Participant) -> DeviceProfile {
    let profile = match &participant.samples {
        Source::Read(samples) => DeviceProfile::of(participant.client, &samples.data, samples.skipped),
        Source::AsTheRunSays(_) => DeviceProfile::asking(participant.client),
    };
    participant.bounds(profile)
}

/// A task that was received.
struct Received {
    round: u32,
    /// Rounds of training before it that have failed.
    failed: u32,
    /// The broadcast.
    payload: Bytes,
}

struct Driver<'a, C, S> {
    participant: Participant,
    session: Session,
    connector: C,
    store: S,
    notice: NoticeSink<'a>,
    channel: Option<Channel>,
    connecting: Option<JoinHandle<Result<Channel, ConnectError>>>,
    /// Reads the samples as the run says.
    reading: Option<JoinHandle<Result<DeviceSamples, Failure>>>,
    /// The samples, once they are read.
    samples: Option<DeviceSamples>,
    /// Looks whether there are any to test the run's models on.
    looking: Option<JoinHandle<Option<Untested>>>,
    /// What is missing for that, if it was told.
    untested: Option<String>,
    /// Whether the server has admitted this client since the process began.
    welcomed: bool,
    /// The newest task received.
    task: Option<Received>,
    training: Training,
    masking: Masking,
    frozen: frozen::Frozen,
    /// The server believes that this task is still training.
    unsaved: Option<Unsaved>,
    unforgotten: Option<Unforgotten>,
    /// Syncs the update that was saved last, beside its upload.
    syncing: Option<JoinHandle<()>>,
    /// Syncs the held update, which is not sent before.
    promise: Option<Syncing>,
    /// The server whose connection was lost and why, until a notice has reported it.
    lost: Option<(String, String)>,
    /// When the client will count as idle.
    idle_at: Option<tokio::time::Instant>,
    end: Option<SessionEnd>,
}

impl<'a, C: Connector, S: Store> Driver<'a, C, S> {
    fn new(
        participant: Participant,
        session: Session,
        connector: C,
        store: S,
        training: Training,
        notice: NoticeSink<'a>,
    ) -> Self {
        let samples = match &participant.samples {
            Source::Read(samples) => Some(samples.clone()),
            Source::AsTheRunSays(_) => None,
        };
        Self {
            masking: Masking::new(participant.client, participant.identity.clone()),
            participant,
            samples,
            reading: None,
            looking: None,
            untested: None,
            session,
            connector,
            store,
            notice,
            channel: None,
            connecting: None,
            welcomed: false,
            task: None,
            training,
            frozen: frozen::Frozen::default(),
            unsaved: None,
            unforgotten: None,
            syncing: None,
            promise: None,
            lost: None,
            idle_at: None,
            end: None,
        }
    }

    /// Takes part until the session ends.
    async fn run(
        &mut self,
        started: Instant,
        mut stop: watch::Receiver<bool>,
        mut trained: mpsc::UnboundedReceiver<Box<Finished>>,
    ) -> Result<SessionEnd, DriverError> {
        let mut alive = self.participant.alive.map(tokio::time::interval);
        let mut watchdog = Watchdog::default();
        loop {
            self.act(started.elapsed())?;
            if let Some(end) = self.end.take() {
                return Ok(end);
            }
            let wake = self
                .session
                .deadline()
                .map_or(Duration::from_hours(1), |moment| moment.saturating_sub(started.elapsed()));
            let event = tokio::select! {
                result = armed(self.connecting.as_mut()) => {
                    self.connecting = None;
                    self.connected(result.unwrap_or_else(|error| Err(ConnectError::Local(error.to_string()))))?
                }
                read = armed(self.reading.as_mut()) => {
                    self.reading = None;
                    Some(self.samples_read(read.unwrap_or_else(|error| Err(Failure::new(Blame::Program, error)))))
                }
                looked = armed(self.looking.as_mut()) => {
                    self.looking = None;
                    self.looked_for_tests(looked.ok().flatten())
                }
                incoming = armed(self.channel.as_mut().map(|channel| channel.incoming.recv())) => {
                    let ended = || Incoming::Closed { reason: "the connection ended".to_owned() };
                    self.incoming(incoming.unwrap_or_else(ended))
                }
                Some(finished) = trained.recv() => self.finished(*finished),
                () = sleep(wake) => Some(Event::Tick),
                () = armed(self.unsaved.as_ref().map(|unsaved| sleep_until(unsaved.retry_at))) => self.retry_save(),
                () = armed(self.unforgotten.as_ref().map(|unforgotten| sleep_until(unforgotten.retry_at))) => {
                    self.retry_forget()?;
                    None
                }
                result = armed(self.promise.as_mut().map(|syncing| &mut syncing.job)) => {
                    self.synced(result.unwrap_or_else(|error| Err(StoreError::Unsynced(error.to_string()))))
                }
                () = armed(self.idle_at.map(sleep_until)) => {
                    self.idle_at = None;
                    (self.participant.at_rest)();
                    None
                }
                () = armed(self.training.progress().and(self.participant.progress).map(sleep)) => {
                    self.training.progress().into_iter().for_each(|progress| (self.notice)(Notice::Progress(progress)));
                    None
                }
                _ = armed(alive.as_mut().map(Interval::tick)) => {
                    if watchdog.advanced(self.training.steps()) {
                        (self.notice)(Notice::Alive);
                    }
                    None
                }
                Ok(()) = stop.changed() => Some(Event::Stop),
            };
            if let Some(progress) = self.training.progress() {
                self.session.handle(started.elapsed(), Event::Progressed(progress));
            }
            if let Some(event) = event {
                let lost = matches!(event, Event::Disconnected { .. });
                let welcome = matches!(
                    event,
                    Event::Message(ToClient::Welcome { .. } | ToClient::PositionalWelcome { .. })
                );
                self.session.handle(started.elapsed(), event);
                if let Some(spec) = self.session.run().filter(|_| welcome) {
                    self.welcomed = true;
                    (self.notice)(Notice::Joined { spec: spec.clone() });
                }
                if welcome {
                    self.ask_for_frozen();
                }
                if lost
                    && let (Some((server, reason)), Some(retry)) =
                        (self.lost.take(), self.session.next_attempt(started.elapsed()))
                {
                    (self.notice)(Notice::Disconnected { server, reason, retry });
                }
            }
        }
    }

    /// Carries out the session's actions.
    fn act(&mut self, now: Duration) -> Result<(), DriverError> {
        while let Some(action) = self.session.poll() {
            debug!(?action);
            match action {
                Action::Connect(pass) => {
                    let mut connector = self.connector.clone();
                    self.connecting = Some(tokio::spawn(async move { connector.connect(pass).await }));
                }
                Action::Send(message) => self.send(Outgoing::Message(Box::new(message))),
                Action::HangUp => self.channel = None,
                Action::Read(reading) => self.read(reading),
                Action::Sync { round } => {
                    if let Some(event) = self.sync(round) {
                        self.session.handle(now, event);
                    }
                }
                Action::LookUpState { run } => {
                    let after = match self.store.standing(run) {
                        Ok(Standing::After(update)) => Some(update),
                        Ok(Standing::Absent) => None,
                        Ok(Standing::Unknown) => continue,
                        // Both sides hear of it when it is needed: the task fails.
                        Err(error) => {
                            warn!("client state cannot be read: {error}");
                            continue;
                        }
                    };
                    self.session.handle(now, Event::State { after });
                }
                Action::NotifyState { server, device } => (self.notice)(Notice::State { server, device }),
                Action::LookForTests { spec } => self.look_for_tests(spec),
                Action::Upload(header) => match self.store.payload() {
                    Ok(payload) => self.send(Outgoing::Update(Box::new(header), payload)),
                    Err(error) => {
                        warn!("the finished update of round {} cannot be read: {error}", header.round);
                        self.session
                            .handle(now, Event::Lost { round: header.round, reason: error.to_string() });
                    }
                },
                Action::Train { round, work, spec } => {
                    if let Err(reason) = self.participant.sensors.check(self.session.conditions()) {
                        self.task = None;
                        (self.notice)(Notice::Ineligible { round, reason });
                        self.session.handle(now, Event::Ineligible { round, reason });
                        continue;
                    }
                    self.idle_at = None;
                    (self.notice)(Notice::Training { round, work });
                    if let Some(event) = self.train(round, work, spec) {
                        self.session.handle(now, event);
                    }
                }
                Action::Cancel => {
                    self.training.cancel();
                    self.masking.cancel();
                    self.forget_waiting();
                    let unsaved = self.unsaved.take().filter(|unsaved| unsaved.output.personal.is_some());
                    if let Some(Unsaved { output, .. }) = unsaved {
                        let round = output.update.id.round;
                        warn!("the personal model of round {round} is lost: the disk stayed full");
                    }
                }
                Action::Forget { round, verdict } => {
                    self.idle_at = Some(tokio::time::Instant::now() + IDLE_AFTER);
                    self.forget(round, verdict.clone())?;
                    if verdict.is_some() {
                        self.round_over(round);
                    }
                    if let Some(verdict) = verdict {
                        (self.notice)(Notice::Receipt { round, verdict });
                    }
                }
                Action::NotifyVerdict { round, verdict } => (self.notice)(Notice::Receipt { round, verdict }),
                // The session's end follows, and shutting down closes the connection.
                Action::Disconnect => {}
                Action::Finish(end) => self.end = Some(end),
            }
        }
        Ok(())
    }

    /// Sends, unless the connection is lost: the session learns of that next.
    fn send(&mut self, outgoing: Outgoing) {
        if let Some(channel) = &self.channel {
            let _ = channel.outgoing.send(outgoing);
        }
    }

    fn connected(&mut self, result: Result<Channel, ConnectError>) -> Result<Option<Event>, DriverError> {
        match result {
            Ok(channel) => {
                (self.notice)(Notice::Connected { server: channel.server.clone() });
                self.channel = Some(channel);
                self.task = None;
                self.forget_asked();
                Ok(Some(Event::Connected))
            }
            Err(error) => {
                // After a change of networks another server may answer for a while at the trusted server's address.
                let passes = self.welcomed || !matches!(error, ConnectError::Untrusted { .. });
                let Some(server) = error.server().filter(|_| passes) else {
                    return Err(DriverError::Connect(error));
                };
                let reason = error.to_string();
                self.lost = Some((server.to_owned(), reason.clone()));
                Ok(Some(Event::Disconnected { reason, elsewhere: false }))
            }
        }
    }

    fn incoming(&mut self, incoming: Incoming) -> Option<Event> {
        Some(match incoming {
            Incoming::Message(ToClient::Secure { round, attempt, step }) => {
                return self.secure_step(round, attempt, *step);
            }
            Incoming::Message(message) => {
                match &message {
                    ToClient::Refused(refusal) if refusal.may_pass() => {
                        (self.notice)(Notice::TurnedBack { refusal: refusal.clone() });
                    }
                    ToClient::ServerKey { key } => (self.notice)(Notice::ServerKey { key: *key }),
                    ToClient::Servers { addresses } => {
                        (self.notice)(Notice::Servers { addresses: addresses.clone() });
                    }
                    _ => {}
                }
                Event::Message(message)
            }
            Incoming::Arriving { round, received, total } => {
                (self.notice)(Notice::Receiving { round, received, total });
                return None;
            }
            Incoming::Task { round, work, failed, payload } => {
                // Each task comes on a stream of its own, so a newer one may arrive first.
                if self.task.as_ref().is_none_or(|newest| newest.round <= round) {
                    self.task = Some(Received { round, failed, payload });
                }
                Event::Message(ToClient::Task { round, work })
            }
            Incoming::Frozen { digest: _, payload } => return self.frozen_received(&payload),
            Incoming::Closed { reason } => {
                let (server, elsewhere) = self
                    .channel
                    .take()
                    .map(|channel| (channel.server, channel.elsewhere))
                    .unwrap_or_default();
                self.lost = Some((server, reason.clone()));
                Event::Disconnected { reason, elsewhere }
            }
        })
    }

    /// Begins a task.
    fn train(&mut self, round: u32, work: TaskKind, spec: Arc<RunSpec>) -> Option<Event> {
        let Received { failed, payload: broadcast, .. } =
            self.task.take().filter(|task| task.round == round)?;
        self.begin(Waiting { round, failed, work, spec, broadcast })
    }

    /// Starts to train. Client state that cannot be read fails the task, not the process: it concerns only its run.
    fn start(&mut self, task: Waiting) -> Option<Event> {
        let Waiting { round, failed, work, spec, broadcast } = task;
        if let Some(failure) = self.cannot_hide(&spec, round, work) {
            return Some(self.failed(round, failure));
        }
        let local = match self.store.client_state(spec.run) {
            Ok(local) => local,
            Err(error) => return Some(self.failed(round, error.failure())),
        };
        // A task comes after the welcome, and that after a hello with what was read.
        let samples = self.samples.clone()?;
        let id = TaskId { run: spec.run, round };
        let task = Task {
            local,
            spec,
            round,
            failed,
            work,
            client: self.participant.client,
            data: samples.data,
            tests: samples.tests,
            trainer: samples.trainer,
            backend: self.participant.backend.clone(),
            broadcast,
        };
        self.training.begin(&self.participant.pool, id, task);
        None
    }
}

#[cfg(test)]
mod tests;
