//! The driver: does for the [`Session`] what a state machine may not do itself.
//!
//! Training runs in a [`TrainPool`], so the driver's own thread is always free to answer. A finished update is
//! written to the store first and uploaded at once; that it becomes durable goes on beside the upload, since
//! until then the worst that a power failure costs is the training, which can be repeated.

mod notice;
mod persist;
mod shutdown;
mod training;
mod wait;

use std::time::{Duration, Instant};

use bytes::Bytes;
use models::Backend;
use shared::data::View;
use shared::id::ClientId;
use shared::message::{TaskId, TaskKind, ToClient};
use shared::spec::RunSpec;
use shared::watchdog::Watchdog;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tracing::{debug, warn};

use crate::pool::TrainPool;
use crate::sensors::Sensors;
use crate::session::{Action, DeviceProfile, Event, Session, SessionEnd};
use crate::store::{Store, StoreError};
use crate::task::{Task, TestSamples};
use crate::transport::{Channel, ConnectError, Connector, Incoming, Outgoing};
use persist::{Unforgotten, Unsaved, failed};
use training::{Finished, Training};
use wait::{attempt, pause, receive, rest, tick};

pub use notice::Notice;

/// So long after its last round a client counts as at rest.
const REST: Duration = Duration::from_secs(1);

/// What a client brings to a run.
#[derive(Clone)]
pub struct Participant {
    /// Its identity.
    pub client: ClientId,
    /// Its data.
    pub data: View,
    /// So many more training samples cannot be used and were left out when its data was read.
    pub skipped: u64,
    /// Its test samples, for runs that ask for tests.
    pub tests: TestSamples,
    /// Whether it is in a state to train.
    pub sensors: Sensors,
    /// Where it trains.
    pub backend: Backend,
    /// Who trains.
    pub pool: TrainPool,
    /// Called once when nothing has been in hand for a while after a round.
    pub at_rest: fn(),
    /// How often [`Notice::Progress`] is told while training; never without it.
    pub progress: Option<Duration>,
    /// How often [`Notice::Alive`] is told as long as the client gets on; never without it.
    pub alive: Option<Duration>,
}

/// Why a client cannot go on. The user's to mend.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The state directory fails.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The server is not the one that is trusted, which this client has not found yet, or the network cannot be used at all.
    #[error(transparent)]
    Connect(ConnectError),
}

/// Takes part in runs of one server until it says that the run is over, or `stop` turns true.
pub async fn take_part<C: Connector, S: Store>(
    participant: Participant,
    connector: C,
    mut store: S,
    stop: watch::Receiver<bool>,
    notice: &mut (dyn FnMut(Notice) + Send),
) -> Result<SessionEnd, DriverError> {
    let started = Instant::now();
    let device = DeviceProfile::of(participant.client, &participant.data, participant.skipped);
    let session = Session::new(device, store.pending()?, started.elapsed());
    let (finished, trained) = mpsc::unbounded_channel();
    let mut driver = Driver::new(participant, session, Training::new(finished));
    let result = driver.run(started, connector, &mut store, stop, trained, notice).await;
    driver.leave().await;
    result
}

struct Driver {
    participant: Participant,
    session: Session,
    link: Option<Channel>,
    connecting: Option<JoinHandle<Result<Channel, ConnectError>>>,
    /// Whether the server has taken this client since the process began.
    welcomed: bool,
    task: Option<(u32, Bytes)>,
    training: Training,
    /// To the server this client is still training.
    unsaved: Option<Unsaved>,
    unforgotten: Option<Unforgotten>,
    /// What makes the update durable that was kept last.
    syncing: Option<JoinHandle<()>>,
    /// The server whose connection is gone, and why, until that was told.
    lost: Option<(String, String)>,
    /// When the client will count as at rest.
    rest: Option<tokio::time::Instant>,
    outcome: Option<SessionEnd>,
}

impl Driver {
    fn new(participant: Participant, session: Session, training: Training) -> Self {
        Self {
            participant,
            session,
            link: None,
            connecting: None,
            welcomed: false,
            task: None,
            training,
            unsaved: None,
            unforgotten: None,
            syncing: None,
            lost: None,
            rest: None,
            outcome: None,
        }
    }

    /// Takes part until there is an outcome.
    async fn run<C: Connector, S: Store>(
        &mut self,
        started: Instant,
        connector: C,
        store: &mut S,
        mut stop: watch::Receiver<bool>,
        mut trained: mpsc::UnboundedReceiver<Box<Finished>>,
        notice: &mut (dyn FnMut(Notice) + Send),
    ) -> Result<SessionEnd, DriverError> {
        let mut alive = self.participant.alive.map(tokio::time::interval);
        let mut watchdog = Watchdog::default();
        loop {
            self.act(started.elapsed(), &connector, store, notice)?;
            if let Some(outcome) = self.outcome.take() {
                return Ok(outcome);
            }
            let wake = self
                .session
                .deadline()
                .map_or(Duration::from_secs(3600), |moment| moment.saturating_sub(started.elapsed()));
            let event = tokio::select! {
                result = attempt(&mut self.connecting) => self.connected(result, notice)?,
                incoming = receive(&mut self.link) => self.incoming(incoming, notice),
                Some(result) = trained.recv() => self.trained(*result, store, notice),
                () = tokio::time::sleep(wake) => Some(Event::Tick),
                () = rest(self.unsaved.as_ref().map(|unsaved| unsaved.again)) => {
                    let unsaved = self.unsaved.take();
                    unsaved.and_then(|unsaved| self.save(unsaved.held, unsaved.result, true, store, notice))
                }
                () = rest(self.unforgotten.as_ref().map(|unforgotten| unforgotten.again)) => {
                    self.forget_again(store, notice)?;
                    None
                }
                () = rest(self.rest) => {
                    self.rest = None;
                    (self.participant.at_rest)();
                    None
                }
                () = pause(self.training.progress().and(self.participant.progress)) => {
                    self.training.progress().into_iter().for_each(|progress| notice(Notice::Progress(progress)));
                    None
                }
                () = tick(&mut alive) => {
                    if watchdog.advanced(self.training.beats()) {
                        notice(Notice::Alive);
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
                self.session.handle(started.elapsed(), event);
                if lost
                    && let (Some((server, reason)), Some(next)) = (self.lost.take(), self.session.deadline())
                {
                    let retry = next.saturating_sub(started.elapsed());
                    notice(Notice::Disconnected { server, reason, retry });
                }
            }
        }
    }

    fn act<C: Connector, S: Store>(
        &mut self,
        now: Duration,
        connector: &C,
        store: &mut S,
        notice: &mut (dyn FnMut(Notice) + Send),
    ) -> Result<(), DriverError> {
        while let Some(action) = self.session.poll() {
            debug!(?action);
            match action {
                Action::Connect => {
                    let mut connector = connector.clone();
                    self.connecting = Some(tokio::spawn(async move { connector.connect().await }));
                }
                Action::Send(message) => self.send(Outgoing::Message(Box::new(message))),
                Action::Upload(header) => match store.payload() {
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
                        notice(Notice::Ineligible { round, reason });
                        self.session.handle(now, Event::Ineligible { round, reason });
                        continue;
                    }
                    self.rest = None;
                    notice(Notice::Training { round, work });
                    if let Some(event) = self.train(round, work, spec, store, notice) {
                        self.session.handle(now, event);
                    }
                }
                Action::Cancel => {
                    self.training.cancel();
                    let unsaved = self.unsaved.take().filter(|unsaved| unsaved.result.personal.is_some());
                    if let Some(Unsaved { held, .. }) = unsaved {
                        warn!("the personal model of round {} is lost: it found no room in time", held.round);
                    }
                }
                Action::Forget { round, verdict } => {
                    self.rest = Some(tokio::time::Instant::now() + REST);
                    self.forget(round, verdict.clone(), store, notice)?;
                    if let Some(verdict) = verdict {
                        notice(Notice::Receipt { round, verdict });
                    }
                }
                Action::NotifyVerdict { round, verdict } => notice(Notice::Receipt { round, verdict }),
                // The loop ends with the outcome that follows, and hangs up.
                Action::Disconnect => {}
                Action::Finish(outcome) => self.outcome = Some(outcome),
            }
        }
        Ok(())
    }

    /// What is sent into a connection that is gone is moot: the session hears of that next.
    fn send(&mut self, outgoing: Outgoing) {
        if let Some(link) = &self.link {
            let _ = link.outgoing.send(outgoing);
        }
    }

    fn connected(
        &mut self,
        result: Result<Channel, ConnectError>,
        notice: &mut (dyn FnMut(Notice) + Send),
    ) -> Result<Option<Event>, DriverError> {
        match result {
            Ok(link) => {
                notice(Notice::Connected { server: link.server.clone() });
                self.link = Some(link);
                self.task = None;
                Ok(Some(Event::Connected))
            }
            Err(error) => {
                // Where this client's server was a while ago another one may answer for a while, as after a change of networks.
                let passes = self.welcomed || !matches!(error, ConnectError::Untrusted { .. });
                let Some(server) = error.server().filter(|_| passes) else {
                    return Err(DriverError::Connect(error));
                };
                let reason = error.to_string();
                self.lost = Some((server.to_owned(), reason.clone()));
                Ok(Some(Event::Disconnected { reason }))
            }
        }
    }

    fn incoming(&mut self, incoming: Incoming, notice: &mut (dyn FnMut(Notice) + Send)) -> Option<Event> {
        Some(match incoming {
            Incoming::Message(message) => {
                match &message {
                    ToClient::Welcome { spec, .. } => {
                        self.welcomed = true;
                        notice(Notice::Joined { spec: spec.clone() });
                    }
                    ToClient::Refused(refusal) if refusal.may_pass() => {
                        notice(Notice::TurnedBack { refusal: refusal.clone() });
                    }
                    ToClient::ServerKey { key } => notice(Notice::ServerKey { key: *key }),
                    _ => {}
                }
                Event::Message(message)
            }
            Incoming::Arriving { round, received, total } => {
                notice(Notice::Receiving { round, received, total });
                return None;
            }
            Incoming::Task { round, work, payload } => {
                // Tasks come on streams of their own: an older one may be overtaken.
                if self.task.as_ref().is_none_or(|(newest, _)| *newest <= round) {
                    self.task = Some((round, payload));
                }
                Event::Message(ToClient::Task { round, work })
            }
            Incoming::Closed { reason } => {
                let server = self.link.take().map(|link| link.server).unwrap_or_default();
                self.lost = Some((server, reason.clone()));
                Event::Disconnected { reason }
            }
        })
    }

    /// Begins a task, or says why it cannot: of what the algorithm has kept in a run, that run alone depends.
    fn train<S: Store>(
        &mut self,
        round: u32,
        work: TaskKind,
        spec: Box<RunSpec>,
        store: &mut S,
        notice: &mut (dyn FnMut(Notice) + Send),
    ) -> Option<Event> {
        let (_, broadcast) = self.task.take().filter(|(of, _)| *of == round)?;
        let local = match store.client_state(spec.run) {
            Ok(local) => local,
            Err(error) => return Some(failed(round, error.to_string(), notice)),
        };
        let held = TaskId { run: spec.run, round };
        let task = Task {
            local,
            spec,
            round,
            work,
            client: self.participant.client,
            data: self.participant.data.clone(),
            tests: self.participant.tests.clone(),
            backend: self.participant.backend.clone(),
            broadcast,
        };
        self.training.begin(&self.participant.pool, held, task);
        None
    }
}

#[cfg(test)]
mod tests;
