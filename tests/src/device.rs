//! One simulated device: the real session, the real training, a store that survives its crashes.

mod hiding;
mod kept;

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use edge_client::address_book::Pass;
use edge_client::failure::Failure;
use edge_client::masking::Masking;
use edge_client::session::{Action, DeviceProfile, Event, Session, SessionEnd};
use edge_client::store::{Beginning, Standing, StoreError, Update};
use edge_client::task::{Output, Task, TaskHandle, TestSamples, run_task};
use models::Backend;
use shared::data::View;
use shared::id::{ClientId, RunId};
use shared::identity::SecretKey;
use shared::message::{CountedUpdate, TaskId, ToClient, ToServer};

use crate::faulty_disk::Loss;
use crate::keys::device_key;
use crate::scenario::Scenario;
use kept::Kept;

/// What the device asks of the simulator.
#[derive(Debug)]
pub enum Effect {
    /// Connect it to the server, at one of these addresses.
    Connect(Pass),
    /// Deliver a message, with a payload if it is an update.
    Deliver(Box<ToServer>, Option<Bytes>),
    /// Let this much time pass, then report that the task is trained.
    Train(Trained),
    /// Cut its connection.
    Cut,
    /// Its disk fails, and its process with it.
    Die,
}

/// A finished task, on its way from the training thread to the session.
#[derive(Debug)]
pub struct Trained {
    /// Which life of the device trained it.
    pub life: u32,
    held: TaskId,
    result: Result<Output, Failure>,
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
    key: Option<SecretKey>,
    /// Its part in secure aggregation, while its process is alive.
    masking: Masking,
    /// Secrets that it has drawn, in all of its lives.
    drawn: u64,
    /// What it has refused in secure aggregation, or could not do, by round.
    pub refused: Vec<(u32, String)>,
    /// How many devices its updates were hidden among, by round.
    pub hidden: Vec<(u32, usize)>,
    /// What it adds to its masked updates, against the protocol.
    pub lies_by: Option<i64>,
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
    /// The devices of a scenario. Those of a [scenario of devices](Scenario::of_devices) have keys.
    pub fn all_of(scenario: &Scenario) -> impl Iterator<Item = Self> + use<> {
        let (config, shares) = (scenario.config.clone(), scenario.shares.clone());
        (0..).zip(shares).map(move |(index, share)| {
            let (client, key) = (config.client(index), device_key(index));
            Self::new(client, share, Some(key).filter(|key| key.public().client() == client))
        })
    }

    /// A device that is switched off. With a key, of which its id is the fingerprint, it takes part in secure aggregation.
    ///
    /// # Panics
    /// If the key is another client's.
    #[must_use]
    pub fn new(client: ClientId, data: View, key: Option<SecretKey>) -> Self {
        assert!(
            key.as_ref().is_none_or(|key| key.public().client() == client),
            "a device's id is of its key"
        );
        Self {
            identity: DeviceProfile::of(client, &data, 0),
            data,
            session: None,
            kept: Kept::Memory(Box::default()),
            masking: Masking::new(client, key.clone()),
            key,
            drawn: 0,
            refused: Vec::new(),
            hidden: Vec::new(),
            lies_by: None,
            task: None,
            begun: Vec::new(),
            running: None,
            life: 0,
            told: Vec::new(),
            outcome: None,
        }
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
        self.masking = Masking::new(self.identity.client, self.key.clone());
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
        let Some(session) = &mut self.session else { return Vec::new() };
        if let Event::Message(ToClient::Secure { round, attempt, step }) = event {
            return match session.run().cloned() {
                Some(spec) => self.secure_step(now, &spec, (round, attempt), *step),
                None => Vec::new(),
            };
        }
        session.handle(now, event);
        self.act(now)
    }

    /// The training thread is done.
    pub fn trained(&mut self, now: Duration, trained: Trained) -> Vec<Effect> {
        if trained.life != self.life || self.running != Some(trained.held) {
            return Vec::new();
        }
        self.running = None;
        let (run, round) = (trained.held.run, trained.held.round);
        let save = |kept: &mut Kept, personal: Option<Vec<u8>>| {
            kept.with(|store| personal.as_deref().map_or(Ok(()), |model| store.save_personal(run, model)))
        };
        match trained.result {
            Ok(Output::Ready(output)) => match save(&mut self.kept, output.personal) {
                Ok(()) => self.save(now, &output.update),
                Err(error) => self.dies(&error),
            },
            Ok(Output::Plain { plain, personal }) => {
                if let Err(error) = save(&mut self.kept, personal) {
                    return self.dies(&error);
                }
                let actions = self.masking.trained(*plain);
                self.hide(now, actions)
            }
            Err(failure) => self.handle(now, Event::Trained { round, outcome: Err(failure), keeps: false }),
        }
    }

    /// Saves an update that is ready to be sent.
    fn save(&mut self, now: Duration, update: &Update) -> Vec<Effect> {
        if let Err(error) = self.kept.with(|store| store.save(update)) {
            return self.dies(&error);
        }
        let (keeps, outcome) = (update.local.is_some(), Ok(update.report));
        self.handle(now, Event::Trained { round: update.id.round, outcome, keeps })
    }

    /// Carries out the session's actions.
    fn act(&mut self, now: Duration) -> Vec<Effect> {
        let mut effects = Vec::new();
        while let Some(action) = self.session.as_mut().and_then(Session::poll) {
            if let Action::Train { round, work, spec } = &action
                && work.train
                && spec.secure.enabled
                && let Some(failure) = self.cannot_hide(spec, *round)
            {
                self.task = None;
                let outcome = Err(failure);
                effects.extend(self.handle(now, Event::Trained { round: *round, outcome, keeps: false }));
                continue;
            }
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
            Action::Connect(pass) => effects.push(Effect::Connect(pass)),
            Action::Read(_) | Action::HangUp => unreachable!("this device has read its samples"),
            Action::Send(message) => effects.push(Effect::Deliver(Box::new(message), None)),
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
                effects.push(Effect::Deliver(Box::new(ToServer::Update(header)), Some(payload.to_bytes())));
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
                        match &mut result {
                            Output::Ready(output) => output.update.report.duration = Duration::ZERO,
                            Output::Plain { plain, .. } => plain.forget_duration(),
                        }
                        result
                    })
                    .map_err(|error| error.failure());
                effects.push(Effect::Train(Trained { life: self.life, held, result }));
            }
            Action::Cancel => {
                self.running = None;
                self.masking.cancel();
            }
            Action::Forget { round, verdict } => {
                self.kept.with(|store| store.forget(verdict.as_ref()))?;
                if verdict.is_some() {
                    let actions = self.masking.over(round);
                    effects.extend(self.hide(now, actions));
                }
            }
            // For people alone.
            Action::NotifyVerdict { .. } | Action::LookForTests { .. } => {}
            Action::Disconnect => effects.push(Effect::Cut),
            Action::Finish(outcome) => self.outcome = Some(outcome),
        }
        Ok(())
    }
}
