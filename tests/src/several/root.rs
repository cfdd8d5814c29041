//! The root of a simulated run: the real coordinator, and the real disk worker on a thread of its own, which asks the real leaves.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aggregator::cluster::error::StoreError;
use aggregator::cluster::experiments::Claim;
use aggregator::config::Config;
use aggregator::coordinator::{
    Action, Arrival, Coordinator, Event, Outcome, PeerId, Resume, Revealed, UploadId,
};
use aggregator::driver::disk_worker::{Done, Job, Jobs, work};
use aggregator::leaves::answers::{Answer, Answers, NoAnswer};
use aggregator::leaves::at_leaves::AtLeaves;
use aggregator::leaves::fetch::{fetch_run, put_secret};
use aggregator::leaves::hub::Hub;
use aggregator::leaves::keeper::Keeper;
use aggregator::leaves::leadership::Led;
use aggregator::leaves::standing::ServedRun;
use aggregator::peer::{FromPeer, ToPeer};
use aggregator::round::RoundPolicy;
use aggregator::run::directory::RunDirectory;
use aggregator::run::{Broadcast, LeavesError, RunError, Traffic, Upload};
use aggregator::start::{StartError, start_on};
use shared::message::{ToClient, Verdict};
use shared::spec::RunSpec;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, error, unbounded_channel};

use super::baton::{Baton, Pause, Runner};
use super::store::FakeStore;
use crate::faulty_disk::FaultyDisk;
use crate::planted::SECRET;

/// What the disk worker has to do.
#[derive(Clone, Default)]
struct JobQueue(Arc<Mutex<(VecDeque<Job>, Option<Outcome>)>>);

/// How a root's turn has ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// The run is over.
    Over,
    /// Another one goes on with it, or this one in another turn.
    GoesOn,
    /// The machine failed.
    Failed(String),
}

enum Told {
    Ready(Box<Ready>),
    Done(Box<Done>),
    Ended(Ended),
}

struct Ready {
    spec: RunSpec,
    policy: RoundPolicy,
    resume: Resume,
    broadcast: Option<Broadcast>,
}

/// What a turn of leading takes.
pub(super) struct Setup {
    pub(super) server: usize,
    pub(super) store: FakeStore,
    pub(super) run: ServedRun,
    pub(super) claim: Claim,
    pub(super) led: Led,
    pub(super) files: FaultyDisk,
    pub(super) runs: PathBuf,
    pub(super) config: Config,
    /// Its disk takes up to this for a step.
    pub(super) disk: Duration,
}

/// The root, while it is in a process.
pub(super) struct Root {
    pub(super) epoch: i64,
    pub(super) claim: Claim,
    pub(super) hub: Hub,
    pub(super) runner: Runner,
    pub(super) pause: Option<Pause>,
    /// Counts its pauses: a moment that one waited for says nothing to the next.
    pub(super) turn: u64,
    told: Receiver<Told>,
    peers: UnboundedReceiver<FromPeer>,
    machine: Option<(Coordinator, Duration)>,
    /// When the store was last asked who leads, and before when no other root does.
    lease: (Duration, Duration),
    jobs: JobQueue,
    broadcast: Option<Broadcast>,
    uploads: BTreeMap<UploadId, Upload>,
    next_upload: u64,
    commands: BTreeMap<PeerId, UnboundedSender<ToPeer>>,
    /// Whether there is something that its thread may wait for.
    pub(super) nudged: bool,
    /// The rounds of which it has said that updates count.
    pub(super) receipts: Vec<u32>,
}

impl Root {
    pub(super) fn new(setup: Setup) -> Self {
        let (to_driver, peers) = unbounded_channel();
        let (answers, queue) = channel();
        let (tell, told) = channel();
        let hub = Hub::new(setup.claim.epoch, to_driver, answers);
        let (jobs, claim) = (JobQueue::default(), setup.claim.clone());
        let (for_thread, theirs) = (hub.clone(), jobs.clone());
        let runner = Runner::new(move |baton| {
            let ended = match lead(setup, for_thread, &theirs, queue, &tell, baton) {
                Ok(ended) => ended,
                Err(Failure::Run(RunError::Leaves(left))) if left.goes_on() => Ended::GoesOn,
                Err(failure) => Ended::Failed(failure.to_string()),
            };
            let _ = tell.send(Told::Ended(ended));
        });
        Self {
            epoch: claim.epoch,
            claim,
            hub,
            runner,
            pause: None,
            turn: 0,
            told,
            peers,
            machine: None,
            lease: (Duration::ZERO, Duration::ZERO),
            jobs,
            broadcast: None,
            uploads: BTreeMap::new(),
            next_upload: 0,
            commands: BTreeMap::new(),
            nudged: false,
            receipts: Vec::new(),
        }
    }

    /// When the coordinator wants to be called again.
    pub(super) fn deadline(&self, now: Duration) -> Option<Duration> {
        let (machine, begun) = self.machine.as_ref()?;
        Some(machine.deadline(now.saturating_sub(*begun))?.saturating_add(*begun))
    }

    /// The store, asked at this moment, has said that no other root leads before `until`.
    pub(super) fn is_confirmed(&mut self, now: Duration, (asked, until): (Duration, Duration)) {
        self.lease = (asked, until);
        let Some((_, begun)) = &self.machine else { return };
        let [asked, until] = [asked, until].map(|moment| moment.saturating_sub(*begun));
        self.handle(now, Event::Leads { asked, until });
    }

    /// The coordinator takes an event in, if there is one already.
    pub(super) fn handle(&mut self, now: Duration, event: Event) {
        let Some((machine, begun)) = &mut self.machine else { return };
        machine.handle(now.saturating_sub(*begun), event);
        self.act();
    }

    /// Does all that what was said asks for.
    pub(super) fn pump(&mut self, now: Duration) -> Option<Ended> {
        loop {
            match self.told.try_recv() {
                Ok(Told::Ready(ready)) => {
                    let Ready { spec, policy, resume, broadcast } = *ready;
                    self.broadcast = broadcast;
                    self.machine = Some((Coordinator::new(spec, policy, resume, Duration::ZERO), now));
                    self.is_confirmed(now, self.lease);
                    self.handle(now, Event::Tick);
                }
                Ok(Told::Done(done)) => {
                    if let Some(event) = self.done(*done) {
                        self.handle(now, event);
                    }
                }
                Ok(Told::Ended(ended)) => return Some(ended),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
            }
        }
        while self.machine.is_some() {
            match self.peers.try_recv() {
                Ok(event) => {
                    if let Some(event) = self.said(event) {
                        self.handle(now, event);
                    }
                }
                Err(error::TryRecvError::Empty | error::TryRecvError::Disconnected) => break,
            }
        }
        None
    }

    fn done(&mut self, done: Done) -> Option<Event> {
        Some(match done {
            Done::Opened(broadcast) => {
                let round = broadcast.round;
                self.broadcast = Some(broadcast);
                Event::Opened { round }
            }
            Done::Folded { round, client, outcome } => Event::Folded { round, client, outcome },
            Done::Lost { round, client } => Event::Lost { round, client },
            Done::RosterSaved => Event::RosterSaved,
            Done::Agreed { round } => Event::Agreed { round },
            Done::Decided { round } => Event::Decided { round },
            Done::Closed { round, void, enough } => Event::Closed { round, void, enough },
            Done::Settled(_) => return None,
            Done::Failed(_) => unreachable!("a failure ends the turn"),
        })
    }

    fn said(&mut self, event: FromPeer) -> Option<Event> {
        match event {
            FromPeer::Connected { peer, commands } => {
                self.commands.insert(peer, commands);
                None
            }
            FromPeer::Message { peer, message, .. } => Some(Event::Message { peer, message }),
            FromPeer::Uploaded { peer, header, upload, .. } => {
                let id = UploadId(self.next_upload);
                self.next_upload += 1;
                self.uploads.insert(id, upload);
                Some(Event::Uploaded(Arrival { peer, header, upload: id }))
            }
            FromPeer::ServerLeft => Some(Event::ServerLeft),
            FromPeer::Disconnected { peer, .. } => {
                self.commands.remove(&peer);
                Some(Event::Disconnected { peer })
            }
            other => unreachable!("no device of the simulation does {other:?}"),
        }
    }

    fn act(&mut self) {
        while let Some(action) = self.machine.as_mut().and_then(|(machine, _)| machine.poll()) {
            match action {
                Action::Send { peer, message } => {
                    if let ToClient::Receipt { round, verdict: Verdict::Accepted } = &message {
                        self.receipts.push(*round);
                    }
                    self.command(peer, ToPeer::Message(message));
                }
                Action::Disconnect { peer } => self.command(peer, ToPeer::Disconnect),
                Action::Open(opening) => self.job(Job::Open(opening)),
                Action::Broadcast { peer, round } => {
                    let broadcast = self.broadcast.as_ref().filter(|broadcast| broadcast.round == round);
                    let delivery = broadcast.expect("a round was opened").to(None);
                    self.command(peer, ToPeer::Task(delivery));
                }
                Action::Fold { round, client, upload } => {
                    let upload = self.uploads.remove(&upload).expect("an upload is used once");
                    self.job(Job::Fold { round, client, upload });
                }
                Action::Drop { upload } => {
                    let upload = self.uploads.remove(&upload).expect("an upload is used once");
                    self.job(Job::Discard(upload));
                }
                Action::Agree { round, agreement } => self.job(Job::Agree { round, agreement }),
                Action::Decide { round, tally } => {
                    self.job(Job::Decide { round, tally, traffic: Traffic::default() });
                }
                Action::Close { round, tally } => {
                    let (traffic, revealed) = (Traffic::default(), Revealed::new());
                    self.job(Job::Close { round, tally, traffic, revealed });
                }
                Action::Unmask { round, tally, revealed } => {
                    self.job(Job::Close { round, tally, traffic: Traffic::default(), revealed });
                }
                Action::SaveRoster(known) => self.job(Job::SaveRoster(known)),
                Action::Alarm { .. } | Action::Outgrown { .. } | Action::StateDiffers { .. } => {}
                Action::Finish(outcome) => {
                    self.jobs.lock().1 = Some(outcome);
                    self.nudged = true;
                    self.machine = None;
                }
            }
        }
    }

    fn job(&mut self, job: Job) {
        self.nudged = true;
        self.jobs.lock().0.push_back(job);
    }

    fn command(&self, peer: PeerId, command: ToPeer) {
        if let Some(commands) = self.commands.get(&peer) {
            let _ = commands.send(command);
        }
    }
}

impl JobQueue {
    fn lock(&self) -> std::sync::MutexGuard<'_, (VecDeque<Job>, Option<Outcome>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a turn ends early.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<LeavesError> for Failure {
    fn from(error: LeavesError) -> Self {
        Self::Run(RunError::Leaves(error))
    }
}

/// The thread of a root: as `serve --store` leads a run.
fn lead(
    setup: Setup,
    hub: Hub,
    jobs: &JobQueue,
    answers: Receiver<Answer>,
    tell: &Sender<Told>,
    baton: &Baton,
) -> Result<Ended, Failure> {
    let Setup { server, store, run: served, claim: _, led, files, runs, config, disk } = setup;
    let mut store = store.with(baton, server);
    fetch_run(&mut store, &served, (&files, &runs), &|| true)?;
    if config.promise.is_some() {
        // Servers derive it from their key.
        put_secret(&RunDirectory::new(runs.join(&served.name)), &SECRET)?;
    }
    let (started, ()) = start_on(Arc::new(files), config, &runs, false, |_| Ok(()))?;
    hub.is_of(started.run.spec().run);
    let (mut run, mut resume, _lock) = started.into_parts();
    let answers = Box::new(Pausing { answers, baton: baton.clone() });
    let keeper = Keeper::new(Box::new(store.clone()), led.clone(), "any");
    run.serve_with(Box::new(AtLeaves::new(hub, answers, keeper)), &mut resume)?;
    let broadcast = match &resume.open {
        Some(reopened) if reopened.decided().is_none() => {
            Some(run.broadcast(reopened.opening.round, reopened.opening.work)?)
        }
        _ => None,
    };
    let (spec, policy) = (run.spec().clone(), run.config().policy);
    let _ = tell.send(Told::Ready(Box::new(Ready { spec, policy, resume, broadcast })));
    let mut queue = Working { jobs: jobs.clone(), baton: baton.clone(), disk, store: store.clone() };
    work(&mut run, &mut queue, &mut |done| drop(tell.send(Told::Done(Box::new(done)))))?;
    let outcome = jobs.lock().1.clone();
    if outcome == Some(Outcome::Stopped) {
        led.check()?;
    }
    run.write_model()?;
    run.write_report("a report", outcome != Some(Outcome::Stopped))?;
    Keeper::new(Box::new(store), led, "any").keep_whole(run.directory(), run.closed())?;
    Ok(Ended::Over)
}

/// Jobs that are waited for in virtual time, on a disk that takes its time.
struct Working {
    jobs: JobQueue,
    baton: Baton,
    disk: Duration,
    store: FakeStore,
}

impl Jobs for Working {
    fn next(&mut self, most: Option<Duration>) -> Result<Job, RecvTimeoutError> {
        let until = most.map(|most| self.baton.now() + most);
        loop {
            let (job, over) = {
                let mut jobs = self.jobs.lock();
                (jobs.0.pop_front(), jobs.1.is_some())
            };
            if let Some(job) = job {
                if most != Some(Duration::ZERO) {
                    let share = rand::RngExt::random_range(&mut self.store.state().chance, 0.0..1.0);
                    self.baton.sleep(self.disk.mul_f64(share), false);
                }
                return Ok(job);
            }
            if over {
                return Err(RecvTimeoutError::Disconnected);
            }
            if until.is_some_and(|until| until <= self.baton.now()) {
                return Err(RecvTimeoutError::Timeout);
            }
            self.baton.pause(Pause { until, listens: true, at_store: false });
        }
    }
}

/// Answers that are waited for in virtual time.
#[derive(Debug)]
struct Pausing {
    answers: Receiver<Answer>,
    baton: Baton,
}

impl Answers for Pausing {
    fn now(&self) -> Duration {
        self.baton.now()
    }

    fn next(&mut self, most: Duration) -> Result<Answer, NoAnswer> {
        let until = self.baton.now() + most;
        loop {
            match self.answers.try_recv() {
                Ok(answer) => return Ok(answer),
                Err(TryRecvError::Disconnected) => return Err(NoAnswer::Ended),
                Err(TryRecvError::Empty) if self.baton.now() >= until => return Err(NoAnswer::Late),
                Err(TryRecvError::Empty) => {
                    self.baton.pause(Pause { until: Some(until), listens: true, at_store: false });
                }
            }
        }
    }
}
