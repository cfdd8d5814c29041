//! One simulated device: the real session, the real training, a store that survives its crashes.

mod kept;

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use edge_client::failure::Failure;
use edge_client::session::{Action, DeviceProfile, Event, Session, SessionEnd};
use edge_client::store::{Beginning, Standing, StoreError};
use edge_client::task::{Task, TaskHandle, TaskOutput, TestSamples, run_task};
use models::Backend;
use shared::data::View;
use shared::id::{ClientId, RunId};
use shared::message::{CountedUpdate, TaskId, ToServer};

use crate::faulty_disk::Loss;
use kept::Kept;

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
    /// Its disk fails, and its process with it.
    Die,
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
    kept: Kept,
    task: Option<(u32, Bytes)>,
    /// What it has begun to train with, by round: the broadcast, and what it had kept.
    pub begun: Vec<(u32, Bytes, Option<Vec<u8>>)>,
    running: Option<TaskId>,
    /// How many times it was started.
    pub life: u32,
    /// The differences in client state that its user was notified of: the round of the server, and its own.
    pub told: Vec<(Option<CountedUpdate>, Option<CountedUpdate>)>,
    /// How its session ended, once it has.
    pub outcome: Option<SessionEnd>,
}

impl Device {
    /// A device that is switched off.
    #[must_use]
    pub fn new(client: ClientId, data: View) -> Self {
        let identity = DeviceProfile::of(client, &data, 0);
        let kept = Kept::Memory(Box::default());
        let (begun, session, task, running, outcome) = (Vec::new(), None, None, None, None);
        Self { identity, data, session, kept, task, begun, running, life: 0, told: Vec::new(), outcome }
    }

    /// The same device with a state directory on a disk that can fail.
    #[must_use]
    pub fn on_disk(self, directory: PathBuf) -> Self {
        Self { kept: Kept::on_disk(directory), ..self }
    }

    /// Lets the device die at the disk operation `fatal` from now, with this loss.
    pub fn die_at(&mut self, fatal: usize, loss: Loss) {
        self.kept.die_at(fatal, loss);
    }

    /// The disk operations of the device's present life.
    #[must_use]
    pub fn operations(&self) -> usize {
        self.kept.operations()
    }

    /// Its identity.
    #[must_use]
    pub fn client(&self) -> ClientId {
        self.identity.client
    }

    /// Its personal model of a run, as the bytes of a file.
    #[must_use]
    pub fn personal(&self, run: RunId) -> Option<Vec<u8>> {
        self.kept.personal(run)
    }

    /// Its committed client state of a run.
    ///
    /// # Panics
    /// If it cannot be read.
    pub fn client_state(&mut self, run: RunId) -> Option<Vec<u8>> {
        self.kept.with(|store| store.client_state(run)).expect("it can be read")
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
    pub fn start(&mut self, now: Duration) -> Vec<Effect> {
        self.life += 1;
        match self.kept.with(|store| store.pending()) {
            Ok(held) => {
                self.session = Some(Session::new(self.identity.clone(), held, now));
                self.act(now)
            }
            Err(error) => self.dies(&error),
        }
    }

    /// Kills the process: all is lost but the store.
    pub fn crash(&mut self) {
        self.session = None;
        self.task = None;
        self.running = None;
        self.kept.close();
    }

    /// The power fails: of the store, what was not synced is lost as well.
    pub fn lose_power(&mut self, loss: Loss) {
        self.crash();
        self.kept.lose(loss);
    }

    fn dies(&mut self, error: &StoreError) -> Vec<Effect> {
        assert!(self.kept.operations() > 0, "memory does not fail: {error}");
        vec![Effect::Die]
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
        let download = self.kept.download().expect("this store keeps downloads");
        download.lock().expect("no holder panics").keep(round, total, beginning);
    }

    /// The beginning of a task that it has kept.
    #[must_use]
    pub fn download(&self) -> Option<Beginning> {
        self.kept.download()?.lock().ok()?.load()
    }

    /// A task's payload arrives, just before its message, after this number of rounds that have failed.
    pub fn receive(&mut self, failed: u32, payload: Bytes) {
        self.task = Some((failed, payload));
    }

    /// Takes an event in and does all that follows from it.
    pub fn handle(&mut self, now: Duration, event: Event) -> Vec<Effect> {
        match &mut self.session {
            None => Vec::new(),
            Some(session) => {
                session.handle(now, event);
                self.act(now)
            }
        }
    }

    /// The training thread is done.
    pub fn trained(&mut self, now: Duration, trained: Trained) -> Vec<Effect> {
        if trained.life != self.life || self.running != Some(trained.held) {
            return Vec::new();
        }
        self.running = None;
        let (run, round) = (trained.held.run, trained.held.round);
        let mut keeps = false;
        let outcome = match trained.result {
            Ok(result) => {
                let saved = self.kept.with(|store| {
                    result.personal.as_deref().map_or(Ok(()), |model| store.save_personal(run, model))?;
                    store.save(&result.update)
                });
                if let Err(error) = saved {
                    return self.dies(&error);
                }
                keeps = result.update.local.is_some();
                Ok(result.update.report)
            }
            Err(failure) => Err(failure),
        };
        self.handle(now, Event::Trained { round, outcome, keeps })
    }

    /// Carries out the session's actions.
    fn act(&mut self, now: Duration) -> Vec<Effect> {
        let mut effects = Vec::new();
        while let Some(action) = self.session.as_mut().and_then(Session::poll) {
            if let Err(error) = self.carry_out(action, now, &mut effects) {
                effects.extend(self.dies(&error));
                break;
            }
        }
        effects
    }

    fn carry_out(
        &mut self,
        action: Action,
        now: Duration,
        effects: &mut Vec<Effect>,
    ) -> Result<(), StoreError> {
        let session = self.session.as_mut().expect("it has asked for this");
        match action {
            Action::Connect => effects.push(Effect::Connect),
            Action::Read(_) | Action::HangUp => unreachable!("this device has read its samples"),
            Action::Send(message) => effects.push(Effect::Deliver(message, None)),
            Action::Sync { round } => {
                self.kept.with(|store| store.sync_handle().map_or(Ok(()), |sync| sync()))?;
                session.handle(now, Event::Synced { round });
            }
            Action::LookUpState { run } => {
                let after = match self.kept.with(|store| store.standing(run))? {
                    Standing::After(update) => Some(update),
                    Standing::Absent => None,
                    Standing::Unknown => return Ok(()),
                };
                session.handle(now, Event::State { after });
            }
            Action::NotifyState { server, device } => self.told.push((server, device)),
            Action::Upload(header) => {
                let payload = self.kept.with(|store| store.payload())?;
                effects.push(Effect::Deliver(ToServer::Update(header), Some(payload.to_bytes())));
            }
            Action::Train { round, work, spec } => {
                let held = TaskId { run: spec.run, round };
                self.running = Some(held);
                let (failed, broadcast) = self.task.take().expect("a task comes with its payload");
                let task = Task {
                    local: self.kept.with(|store| store.client_state(spec.run))?,
                    spec,
                    round,
                    failed,
                    work,
                    tests: TestSamples::none(),
                    client: self.identity.client,
                    data: self.data.clone(),
                    backend: Backend::cpu(),
                    trainer: None,
                    broadcast,
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
            Action::Forget { verdict, .. } => self.kept.with(|store| store.forget(verdict.as_ref()))?,
            // For people alone.
            Action::NotifyVerdict { .. } | Action::LookForTests { .. } => {}
            Action::Disconnect => effects.push(Effect::Cut),
            Action::Finish(outcome) => self.outcome = Some(outcome),
        }
        Ok(())
    }
}
