//! The driver: does for the [`Session`] what a state machine may not do itself.
//!
//! Training runs in a [`Workshop`], so the driver's own thread is always free to answer. A finished update is written
//! to the store first and uploaded at once; that it becomes durable goes on beside the upload, since until then the
//! worst that a power failure costs is the training, which can be repeated.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use models::Backend;
use shared::data::View;
use shared::id::ClientId;
use shared::message::{Held, Progress, ToClient, TrainReport, Verdict};
use shared::spec::RunSpec;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tracing::{debug, warn};

use crate::link::{ConnectError, Connector, Incoming, Link, Outgoing};
use crate::session::{Action, Device, Event, Outcome, Session};
use crate::store::{Store, StoreError};
use crate::work::{self, Handle, Task};
use crate::workshop::Workshop;

/// Training that took less is repeated after a power failure rather than synced after every round: memory cards wear
/// out by it. A crash of the process loses neither.
const WORTH_A_SYNC: Duration = Duration::from_secs(1);

/// So long after its last round a client counts as at rest.
const REST: Duration = Duration::from_secs(1);

/// What a client brings to a run.
#[derive(Clone)]
pub struct Participant {
    /// Its identity.
    pub client: ClientId,
    /// Its data.
    pub data: View,
    /// Where it trains.
    pub backend: Backend,
    /// Who trains.
    pub workshop: Workshop,
    /// Called once when nothing has been in hand for a while after a round.
    pub at_rest: fn(),
}

/// What the driver tells whoever watches.
#[derive(Clone, Debug)]
pub enum Notice {
    /// A connection was made.
    Connected {
        /// Where to.
        server: String,
    },
    /// There is no connection, or it is gone; the client tries again after `retry`.
    Disconnected {
        /// Why.
        reason: String,
        /// Until the next attempt.
        retry: Duration,
    },
    /// The server takes the client into its run.
    Joined {
        /// The run's specification.
        spec: Box<RunSpec>,
    },
    /// Training begins.
    Training {
        /// The round.
        round: u32,
    },
    /// Training ended.
    Trained {
        /// The round.
        round: u32,
        /// How it went.
        report: TrainReport,
        /// Bytes of the update.
        bytes: usize,
    },
    /// Training failed.
    Failed {
        /// The round.
        round: u32,
        /// Why.
        reason: String,
    },
    /// The server said what became of the update.
    Receipt {
        /// The round.
        round: u32,
        /// What it said.
        verdict: Verdict,
    },
}

/// Why a client cannot go on. The user's to mend.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The state directory fails.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The server is not the one that is trusted, or the network cannot be used at all.
    #[error(transparent)]
    Connect(ConnectError),
}

/// Takes part in runs of one server until it says that the run is over, or `stop` turns true.
pub async fn take_part<C: Connector, S: Store>(
    participant: Participant,
    connector: C,
    mut store: S,
    mut stop: watch::Receiver<bool>,
    notice: &mut (dyn FnMut(Notice) + Send),
) -> Result<Outcome, DriverError> {
    let started = Instant::now();
    let device = Device {
        client: participant.client,
        samples: participant.data.len() as u64,
        shape: participant.data.shape().iter().map(|&axis| axis as u32).collect(),
        classes: participant.data.classes() as u32,
    };
    let session = Session::new(device, store.held()?, started.elapsed());
    let (finished, mut trained) = mpsc::unbounded_channel();
    let mut driver = Driver {
        participant,
        session,
        link: None,
        connecting: None,
        task: None,
        running: None,
        finished,
        lost: None,
        rest: None,
        outcome: None,
    };
    loop {
        driver.act(started.elapsed(), &connector, &mut store, notice)?;
        if let Some(outcome) = driver.outcome.take() {
            driver.hang_up().await;
            return Ok(outcome);
        }
        let wake = driver
            .session
            .deadline()
            .map_or(Duration::from_secs(3600), |moment| moment.saturating_sub(started.elapsed()));
        let event = tokio::select! {
            result = attempt(&mut driver.connecting) => driver.connected(result, notice)?,
            incoming = receive(&mut driver.link) => Some(driver.incoming(incoming, notice)),
            Some(result) = trained.recv() => driver.trained(result, &mut store, notice),
            () = tokio::time::sleep(wake) => Some(Event::Tick),
            () = rest(driver.rest) => {
                driver.rest = None;
                (driver.participant.at_rest)();
                None
            }
            Ok(()) = stop.changed() => Some(Event::Stop),
        };
        driver.report_progress(started.elapsed());
        if let Some(event) = event {
            let lost = matches!(event, Event::Disconnected { .. });
            driver.session.handle(started.elapsed(), event);
            if lost && let (Some(reason), Some(next)) = (driver.lost.take(), driver.session.deadline()) {
                notice(Notice::Disconnected { reason, retry: next.saturating_sub(started.elapsed()) });
            }
        }
    }
}

/// Resolves at the moment; never, without one.
async fn rest(moment: Option<tokio::time::Instant>) {
    match moment {
        None => std::future::pending().await,
        Some(moment) => tokio::time::sleep_until(moment).await,
    }
}

/// The outcome of an attempt to connect; never, without one under way.
async fn attempt(
    connecting: &mut Option<JoinHandle<Result<Link, ConnectError>>>,
) -> Result<Link, ConnectError> {
    match connecting {
        None => std::future::pending().await,
        Some(attempt) => {
            let result = attempt.await;
            *connecting = None;
            result.unwrap_or_else(|error| Err(ConnectError::Local(error.to_string())))
        }
    }
}

/// The next thing from the server; never, without a connection.
async fn receive(link: &mut Option<Link>) -> Incoming {
    match link {
        None => std::future::pending().await,
        Some(link) => link
            .incoming
            .recv()
            .await
            .unwrap_or_else(|| Incoming::Closed { reason: "the connection ended".to_owned() }),
    }
}

struct Finished {
    round: u32,
    handle: Arc<Handle>,
    result: Result<work::Result, String>,
}

struct Running {
    held: Held,
    handle: Arc<Handle>,
}

struct Driver {
    participant: Participant,
    session: Session,
    link: Option<Link>,
    connecting: Option<JoinHandle<Result<Link, ConnectError>>>,
    task: Option<(u32, Bytes)>,
    running: Option<Running>,
    finished: mpsc::UnboundedSender<Finished>,
    lost: Option<String>,
    /// When the client will count as at rest.
    rest: Option<tokio::time::Instant>,
    outcome: Option<Outcome>,
}

impl Driver {
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
                Action::Send(message) => self.send(Outgoing::Message(message)),
                Action::Upload(header) => match store.payload() {
                    Ok(payload) => self.send(Outgoing::Update(header, payload)),
                    Err(error) => {
                        warn!("the finished update of round {} cannot be read: {error}", header.round);
                        self.session
                            .handle(now, Event::Lost { round: header.round, reason: error.to_string() });
                    }
                },
                Action::Train { round, spec } => {
                    self.rest = None;
                    notice(Notice::Training { round });
                    self.train(round, spec, store)?;
                }
                Action::Cancel => self.cancel(),
                Action::Forget { round, verdict } => {
                    self.rest = Some(tokio::time::Instant::now() + REST);
                    store.forget()?;
                    if let Some(verdict) = verdict {
                        notice(Notice::Receipt { round, verdict });
                    }
                }
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
        result: Result<Link, ConnectError>,
        notice: &mut (dyn FnMut(Notice) + Send),
    ) -> Result<Option<Event>, DriverError> {
        match result {
            Ok(link) => {
                notice(Notice::Connected { server: link.server.clone() });
                self.link = Some(link);
                self.task = None;
                Ok(Some(Event::Connected))
            }
            Err(ConnectError::Unreachable { server, reason }) => {
                let reason = format!("cannot reach {server}: {reason}");
                self.lost = Some(reason.clone());
                Ok(Some(Event::Disconnected { reason }))
            }
            Err(error) => Err(DriverError::Connect(error)),
        }
    }

    fn incoming(&mut self, incoming: Incoming, notice: &mut (dyn FnMut(Notice) + Send)) -> Event {
        match incoming {
            Incoming::Message(message) => {
                if let ToClient::Welcome { spec, .. } = &message {
                    notice(Notice::Joined { spec: spec.clone() });
                }
                Event::Message(message)
            }
            Incoming::Task { round, payload } => {
                // Tasks come on streams of their own: an older one may be overtaken.
                if self.task.as_ref().is_none_or(|(newest, _)| *newest <= round) {
                    self.task = Some((round, payload));
                }
                Event::Message(ToClient::Task { round })
            }
            Incoming::Closed { reason } => {
                self.link = None;
                self.lost = Some(reason.clone());
                Event::Disconnected { reason }
            }
        }
    }

    fn train<S: Store>(&mut self, round: u32, spec: Box<RunSpec>, store: &mut S) -> Result<(), DriverError> {
        let Some((_, broadcast)) = self.task.take().filter(|(of, _)| *of == round) else {
            return Ok(());
        };
        let held = Held { run: spec.run, round };
        let task = Task {
            local: store.local(spec.run)?,
            spec,
            round,
            client: self.participant.client,
            data: self.participant.data.clone(),
            backend: self.participant.backend.clone(),
            broadcast,
        };
        let handle = Arc::new(Handle::default());
        self.running = Some(Running { held, handle: handle.clone() });
        let finished = self.finished.clone();
        self.participant.workshop.submit(move || {
            let result = work::carry_out(&task, &handle).map_err(|error| error.to_string());
            let _ = finished.send(Finished { round, handle, result });
        });
        Ok(())
    }

    fn cancel(&mut self) {
        if let Some(running) = self.running.take() {
            running.handle.cancel();
        }
    }

    fn trained<S: Store>(
        &mut self,
        finished: Finished,
        store: &mut S,
        notice: &mut (dyn FnMut(Notice) + Send),
    ) -> Option<Event> {
        let Finished { round, handle, result } = finished;
        // A cancelled task may finish all the same; nobody waits for it.
        let running = self.running.take_if(|running| Arc::ptr_eq(&running.handle, &handle))?;
        let kept = result.and_then(|result| {
            store
                .keep(running.held, &result.report, &result.update, result.local.as_deref())
                .map_err(|error| error.to_string())?;
            Ok(result)
        });
        let outcome = match kept {
            Ok(result) => {
                if result.report.duration >= WORTH_A_SYNC {
                    let sync = store.sync_handle();
                    tokio::task::spawn_blocking(move || {
                        if let Err(error) = sync() {
                            warn!("the update is kept, but not safe from a power failure: {error}");
                        }
                    });
                }
                notice(Notice::Trained { round, report: result.report, bytes: result.update.len() });
                Ok(result.report)
            }
            Err(reason) => {
                notice(Notice::Failed { round, reason: reason.clone() });
                Err(reason)
            }
        };
        Some(Event::Trained { round, outcome })
    }

    fn report_progress(&mut self, now: Duration) {
        if let Some(running) = &self.running {
            let progress: Progress = running.handle.progress(running.held.round);
            self.session.handle(now, Event::Progressed(progress));
        }
    }

    /// Lets the connection deliver what was sent.
    async fn hang_up(&mut self) {
        self.cancel();
        if let Some(attempt) = self.connecting.take() {
            attempt.abort();
        }
        if let Some(Link { outgoing, mut incoming, .. }) = self.link.take() {
            drop(outgoing);
            while let Some(event) = incoming.recv().await {
                if matches!(event, Incoming::Closed { .. }) {
                    break;
                }
            }
        }
    }
}
