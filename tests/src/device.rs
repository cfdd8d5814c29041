//! One simulated device: the real session, the real training, a store that survives its crashes.

use std::time::Duration;

use bytes::Bytes;
use edge_client::failure::Failure;
use edge_client::session::{Action, DeviceProfile, Event, Session, SessionEnd};
use edge_client::store::{Beginning, MemoryStore, Store as _};
use edge_client::task::{Task, TaskHandle, TaskOutput, TestSamples, run_task};
use models::Backend;
use shared::data::View;
use shared::id::ClientId;
use shared::message::{TaskId, ToServer};

/// What the device asks of the simulator.
#[derive(Debug)]
pub enum Effect {
    /// Connect it to the server.
    Connect,
    /// Deliver a message, with a payload if it is an update.
    Deliver(ToServer, Option<Bytes>),
    /// Let this much time pass, then report that the task is trained.
    Train(Trained),
    /// Cut its connection.
    Cut,
}

/// A finished task, on its way from the training thread to the session.
#[derive(Clone, Debug)]
pub struct Trained {
    /// Which life of the device trained it.
    pub life: u32,
    held: TaskId,
    result: Result<TaskOutput, Failure>,
}

impl Trained {
    /// The round that it was trained in.
    #[must_use]
    pub fn round(&self) -> u32 {
        self.held.round
    }
}

/// A device.
pub struct Device {
    identity: DeviceProfile,
    data: View,
    session: Option<Session>,
    store: MemoryStore,
    task: Option<Bytes>,
    /// What it has begun to train with, by round: the broadcast, and what it had kept.
    pub begun: Vec<(u32, Bytes, Option<Vec<u8>>)>,
    running: Option<TaskId>,
    /// How many times it was started.
    pub life: u32,
    /// How its session ended, once it has.
    pub outcome: Option<SessionEnd>,
}

impl Device {
    /// A device that is switched off.
    #[must_use]
    pub fn new(client: ClientId, data: View) -> Self {
        let identity = DeviceProfile::of(client, &data, 0);
        let store = MemoryStore::default();
        let (begun, session, task, running, outcome) = (Vec::new(), None, None, None, None);
        Self { identity, data, session, store, task, begun, running, life: 0, outcome }
    }

    /// Its identity.
    #[must_use]
    pub fn client(&self) -> ClientId {
        self.identity.client
    }

    /// Its personal model, as the bytes of a file.
    #[must_use]
    pub fn personal(&self) -> Option<&[u8]> {
        self.store.personal().map(|(_, bytes)| bytes)
    }

    /// Its state machine, while its process is alive.
    #[must_use]
    pub fn session(&self) -> Option<&Session> {
        self.session.as_ref()
    }

    /// Is its process alive?
    #[must_use]
    pub fn alive(&self) -> bool {
        self.session.is_some()
    }

    /// Starts the process.
    ///
    /// # Panics
    /// Never: a store in memory does not fail.
    pub fn start(&mut self, now: Duration) -> Vec<Effect> {
        let held = self.store.pending().expect("memory does not fail");
        self.session = Some(Session::new(self.identity.clone(), held, now));
        self.life += 1;
        self.act()
    }

    /// Kills the process: all is lost but the store.
    pub fn crash(&mut self) {
        self.session = None;
        self.task = None;
        self.running = None;
    }

    /// When the session wants to be called again.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        self.session.as_ref().and_then(Session::deadline)
    }

    /// The beginning of a task's payload arrives, and no more of it.
    ///
    /// # Panics
    /// Never: a store in memory keeps downloads.
    pub fn begin(&mut self, round: u32, total: u64, beginning: &[u8]) {
        let download = self.store.download().expect("this store keeps downloads");
        download.lock().expect("no holder panics").keep(round, total, beginning);
    }

    /// The beginning of a task that it has kept.
    #[must_use]
    pub fn download(&self) -> Option<Beginning> {
        self.store.download()?.lock().ok()?.load()
    }

    /// A task's payload arrives, just before its message.
    pub fn receive(&mut self, payload: Bytes) {
        self.task = Some(payload);
    }

    /// Takes an event in and does all that follows from it.
    pub fn handle(&mut self, now: Duration, event: Event) -> Vec<Effect> {
        match &mut self.session {
            None => Vec::new(),
            Some(session) => {
                session.handle(now, event);
                self.act()
            }
        }
    }

    /// The training thread is done.
    ///
    /// # Panics
    /// Never: a store in memory does not fail.
    pub fn trained(&mut self, now: Duration, trained: Trained) -> Vec<Effect> {
        if trained.life != self.life || self.running != Some(trained.held) {
            return Vec::new();
        }
        self.running = None;
        let round = trained.held.round;
        let mut keeps = false;
        let outcome = trained.result.map(|result| {
            if let Some(personal) = &result.personal {
                self.store.save_personal(trained.held.run, personal).expect("memory does not fail");
            }
            self.store.save(&result.update).expect("memory does not fail");
            keeps = result.update.local.is_some();
            result.update.report
        });
        self.handle(now, Event::Trained { round, outcome, keeps })
    }

    fn act(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        while let Some(action) = self.session.as_mut().and_then(Session::poll) {
            match action {
                Action::Connect => effects.push(Effect::Connect),
                Action::Send(message) => effects.push(Effect::Deliver(message, None)),
                Action::Upload(header) => {
                    let payload = self.store.payload().expect("an upload is of a held update");
                    effects.push(Effect::Deliver(ToServer::Update(header), Some(payload.to_bytes())));
                }
                Action::Train { round, work, spec } => {
                    let held = TaskId { run: spec.run, round };
                    self.running = Some(held);
                    let task = Task {
                        local: self.store.client_state(spec.run).expect("memory does not fail"),
                        spec,
                        round,
                        work,
                        tests: TestSamples::none(),
                        client: self.identity.client,
                        data: self.data.clone(),
                        backend: Backend::cpu(),
                        broadcast: self.task.take().expect("a task comes with its payload"),
                    };
                    self.begun.push((round, task.broadcast.clone(), task.local.clone()));
                    let result = run_task(&task, &TaskHandle::default(), None)
                        .map(|mut result| {
                            // Wall time has no place in a simulation with its own clock.
                            result.update.report.duration = Duration::ZERO;
                            result
                        })
                        .map_err(|error| error.failure());
                    effects.push(Effect::Train(Trained { life: self.life, held, result }));
                }
                Action::Cancel => self.running = None,
                Action::Forget { verdict, .. } => {
                    self.store.forget(verdict.as_ref()).expect("memory does not fail");
                }
                Action::NotifyVerdict { .. } => {}
                Action::Disconnect => effects.push(Effect::Cut),
                Action::Finish(outcome) => self.outcome = Some(outcome),
            }
        }
        effects
    }
}
