//! The simulated aggregator: the real coordinator over the real durable steps.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aggregator::config::Config;
use aggregator::coordinator::{
    Action, Agreement, Arrival, Coordinator, Event, Opening, Outcome, PeerId, Resume, Revealed,
    RosterSnapshot, UploadId,
};
use aggregator::database::Database;
use aggregator::history::{Health, RoundLog, RoundLogError};
use aggregator::round::Tally;
use aggregator::run::{Broadcast, Run, RunError, Traffic, Upload};
use aggregator::start::{StartError, start_on};
use aggregator::storage::FileLayer;
use aggregator::storage::checksum::Checksum;
use bytes::Bytes;
use shared::frame;
use shared::id::ClientId;
use shared::message::{CountedUpdate, Rejection, ToClient, ToServer, UpdateHeader};

/// What the server asks of the simulator.
#[derive(Debug)]
pub enum Effect {
    /// Deliver a message, with a payload if it is a task.
    Deliver(PeerId, ToClient, Option<Bytes>),
    /// Cut a connection.
    Cut(PeerId),
    /// The operator is told that a device's client state is not what it must be.
    StateDiffers {
        /// The device.
        client: ClientId,
        /// The update that the server knows.
        server: Option<CountedUpdate>,
        /// The update that the device says.
        device: Option<CountedUpdate>,
    },
}

/// A durable step, as the ledger's thread of the program makes it.
#[derive(Debug)]
enum Step {
    Open(Opening),
    SaveRoster(RosterSnapshot),
    Fold { round: u32, client: ClientId, file: PathBuf },
    Agree { round: u32, agreement: Box<Agreement> },
    Decide { round: u32, tally: Tally },
    Close { round: u32, tally: Tally, revealed: Revealed },
}

/// One life of the aggregator's process.
pub struct Server {
    coordinator: Coordinator,
    run: Run,
    files: Arc<dyn FileLayer>,
    _lock: File,
    continued: Resume,
    broadcast: Option<Broadcast>,
    uploads: BTreeMap<UploadId, PathBuf>,
    next_upload: u64,
    /// Steps that are to be made, in this order.
    steps: VecDeque<Step>,
    /// Whose updates this life has accepted.
    accepted: BTreeSet<(u32, ClientId)>,
    /// Whether the last closed round is settled when the next thing happens. Settling is as late as it can be: the disk
    /// is slower than the clients.
    unsettled: bool,
    /// How the run ended, once it has.
    pub outcome: Option<Outcome>,
}

impl Server {
    /// Begins or continues the run of `config` under `runs`, as the program does.
    pub fn start(
        files: Arc<dyn FileLayer>,
        runs: &Path,
        config: Config,
        now: Duration,
    ) -> Result<Self, StartError> {
        let (started, ()) = start_on(files.clone(), config, runs, false, |_| Ok(()))?;
        assert_eq!(started.passed, [""; 0], "no other directory than the first is taken");
        let (run, resume, lock) = started.into_parts();
        let broadcast = match &resume.open {
            Some(reopened) if reopened.decided().is_none() => {
                Some(run.broadcast(reopened.opening.round, reopened.opening.work)?)
            }
            _ => None,
        };
        let continued = resume.clone();
        let coordinator = Coordinator::new(run.spec().clone(), run.config().policy, resume, now);
        Ok(Self {
            coordinator,
            run,
            files,
            _lock: lock,
            continued,
            broadcast,
            uploads: BTreeMap::new(),
            next_upload: 0,
            steps: VecDeque::new(),
            accepted: BTreeSet::new(),
            unsettled: false,
            outcome: None,
        })
    }

    /// The run on disk.
    #[must_use]
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// Enters the run in a database, as the program does.
    pub fn enter(&mut self, database: &Database) -> Result<(), RoundLogError> {
        let health = Health::default();
        let mut log =
            RoundLog::begin(database.clone(), &self.run, &self.continued, health, SystemTime::now())?;
        self.run.on_closed(move |round| log.enter(round));
        Ok(())
    }

    /// Where this life began.
    #[must_use]
    pub fn continued(&self) -> &Resume {
        &self.continued
    }

    /// The state machine.
    #[must_use]
    pub fn coordinator(&self) -> &Coordinator {
        &self.coordinator
    }

    /// When the server wants to be called again.
    #[must_use]
    pub fn deadline(&self, now: Duration) -> Option<Duration> {
        self.coordinator.deadline(now)
    }

    /// An update arrives: spools it as the transport would. An error is the death of the process.
    pub fn upload(
        &mut self,
        peer: PeerId,
        header: UpdateHeader,
        payload: &[u8],
        synced: bool,
    ) -> io::Result<Event> {
        let upload = UploadId(self.next_upload);
        self.next_upload += 1;
        let file = self.run.directory().spool().join(format!("{}.upload", upload.0));
        let mut bytes = frame::encode(&ToServer::Update(header), payload.len() as u64);
        bytes.extend_from_slice(payload);
        let mut sum = Checksum::default();
        sum.update(&bytes);
        bytes.extend_from_slice(sum.trailer().as_bytes());
        let mut spooled = self.files.create(&file)?;
        spooled.write_all(&bytes)?;
        if synced {
            spooled.sync()?;
        }
        self.uploads.insert(upload, file);
        Ok(Event::Uploaded(Arrival { peer, header, upload }))
    }

    /// Takes an event in and does what follows from it at once; durable steps are [made](Self::make) later. An error is
    /// the death of the process.
    pub fn handle(&mut self, now: Duration, event: Event) -> Result<Vec<Effect>, RunError> {
        let mut effects = Vec::new();
        if std::mem::take(&mut self.unsettled) {
            self.run.settle()?;
        }
        self.coordinator.handle(now, event);
        self.act(&mut effects)?;
        Ok(effects)
    }

    /// Whether there are durable steps to be made.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        !self.steps.is_empty()
    }

    /// The next durable step; updates that wait for it together are accepted together. Gives what the machine is to be told.
    pub fn make(&mut self) -> Result<Vec<Event>, RunError> {
        match self.steps.pop_front() {
            None => Ok(Vec::new()),
            Some(Step::Open(opening)) => {
                let broadcast = self.run.open(&opening)?;
                // What is not settled then is settled by the first update that is accepted.
                self.unsettled = opening.round % 2 == 1;
                let event = Event::Opened { round: broadcast.round };
                self.broadcast = Some(broadcast);
                Ok(vec![event])
            }
            Some(Step::SaveRoster(known)) => {
                self.run.save_roster(&known)?;
                Ok(vec![Event::RosterSaved])
            }
            Some(Step::Fold { round, client, file }) => {
                let mut clients = vec![client];
                let mut uploads = vec![(client, Upload::from(file))];
                while let Some(Step::Fold { round: other, .. }) = self.steps.front()
                    && *other == round
                    && let Some(Step::Fold { client, file, .. }) = self.steps.pop_front()
                {
                    clients.push(client);
                    uploads.push((client, file.into()));
                }
                let outcomes = self.run.fold(round, &uploads)?;
                let told = |(client, outcome): (ClientId, Result<u32, Rejection>)| {
                    let again = outcome.is_ok() && !self.accepted.insert((round, client));
                    assert!(!again, "the update of {} in round {round} is folded twice", client.short());
                    Event::Folded { round, client, outcome }
                };
                Ok(clients.into_iter().zip(outcomes).map(told).collect())
            }
            Some(Step::Agree { round, agreement }) => {
                self.run.agree(round, &agreement)?;
                Ok(vec![Event::Agreed { round }])
            }
            Some(Step::Decide { round, tally }) => {
                self.run.decide_hidden(&tally, Traffic::default())?;
                Ok(vec![Event::Decided { round }])
            }
            Some(Step::Close { round, tally, revealed }) => {
                let void = self.run.close_revealed(round, &tally, Traffic::default(), &revealed)?.void;
                Ok(vec![Event::Closed { round, void, enough: self.run.ended().is_some() }])
            }
        }
    }

    fn act(&mut self, effects: &mut Vec<Effect>) -> Result<(), RunError> {
        while let Some(action) = self.coordinator.poll() {
            match action {
                Action::Send { peer, message } => effects.push(Effect::Deliver(peer, message, None)),
                Action::Disconnect { peer } => effects.push(Effect::Cut(peer)),
                Action::Open(opening) => self.steps.push_back(Step::Open(opening)),
                Action::Broadcast { peer, round } => {
                    let broadcast = self.broadcast.as_ref().expect("a round was opened");
                    assert_eq!(broadcast.round, round, "the broadcast of the open round is at hand");
                    let payload = broadcast.model.read().expect("the broadcast was written");
                    assert_eq!(payload.len() as u64, broadcast.model.length);
                    effects.push(Effect::Deliver(peer, broadcast.to(None).task(), Some(payload)));
                }
                Action::Fold { round, client, upload } => {
                    let file = self.uploads.remove(&upload).expect("an upload is used once");
                    self.steps.push_back(Step::Fold { round, client, file });
                }
                Action::Drop { upload } => {
                    let file = self.uploads.remove(&upload).expect("an upload is used once");
                    self.files.remove(&file).map_err(|source| RunError::Disk {
                        action: "remove",
                        path: file,
                        source,
                    })?;
                }
                Action::Agree { round, agreement } => self.steps.push_back(Step::Agree { round, agreement }),
                Action::Decide { round, tally } => self.steps.push_back(Step::Decide { round, tally }),
                Action::Close { round, tally } => {
                    self.steps.push_back(Step::Close { round, tally, revealed: Revealed::new() });
                }
                Action::Unmask { round, tally, revealed } => {
                    self.steps.push_back(Step::Close { round, tally, revealed });
                }
                Action::SaveRoster(known) => self.steps.push_back(Step::SaveRoster(known)),
                Action::Alarm { .. } | Action::Outgrown { .. } => {}
                Action::StateDiffers { client, server, device } => {
                    effects.push(Effect::StateDiffers { client, server, device });
                }
                Action::Finish(outcome) => {
                    self.run.write_model()?;
                    self.run.write_report("a report", outcome != Outcome::Stopped)?;
                    self.outcome = Some(outcome);
                }
            }
        }
        Ok(())
    }
}
