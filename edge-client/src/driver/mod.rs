//! The driver: does the I/O of the [`Session`].
//!
//! Training runs in a [`TrainPool`](crate::pool::TrainPool), so the driver's own thread can always answer. A finished update is saved first. With client
//! state it is synced to the disk before it is uploaded; without, beside the upload, and until then a power failure costs at most
//! the training, which can be repeated.

mod actions;
mod frozen;
mod hiding;
mod notice;
mod participant;
mod persist;
mod received;
mod samples;
mod shutdown;
mod training;
mod wait;

use std::time::{Duration, Instant};

use bytes::Bytes;
use shared::message::ToClient;
use shared::watchdog::Watchdog;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Interval, sleep, sleep_until};

use crate::failure::{Blame, Failure};
use crate::masking::Masking;
use crate::session::{Event, Session, SessionEnd};
use crate::store::{Store, StoreError};
use crate::task::Untested;
use crate::transport::{Channel, ConnectError, Connector, Incoming};
use persist::{Syncing, Unforgotten, Unsaved};
use training::{Finished, Training};
use wait::armed;

pub use notice::Notice;
pub use participant::Participant;
pub use samples::{DeviceSamples, ReadSamples, Source};

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
    let profile = participant.profile();
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
}

#[cfg(test)]
mod tests;
