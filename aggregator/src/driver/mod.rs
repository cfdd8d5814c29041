//! The driver: the I/O of the [`Coordinator`], a state machine without I/O.
//!
//! Peers (real connections or simulated ones) send [`FromPeer`] events and receive [`ToPeer`] commands through channels: the
//! driver knows no transport. Durable steps run on a thread of their own, the disk worker, one at a time and in order, so that a
//! slow disk never delays a heartbeat.

mod counter;
mod disk_space;
pub mod disk_worker;
mod dispatch;
mod frozen;
mod shutdown;
mod watchdog;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

use shared::differences::Digest;
use shared::frame;
use shared::id::ClientId;
use shared::message::{ToClient, Verdict};
use tokio::sync::{mpsc, watch};
use tracing::{debug, warn};

use crate::coordinator::{
    Action, Coordinator, Event, Outcome, PeerId, Resume, Revealed, Status, UploadId, WaitingFor,
};
use crate::events::{Events, Notice, Party, Sink, TaskResult};
use crate::peer::{FromPeer, ToPeer};
use crate::round::Tally;
use crate::run::{Broadcast, Confirmed, Lease, OwnProgress, Run, RunError, Upload, disk};
use crate::storage::{Disk, FileLayer as _};
use counter::Counter;
use disk_space::DiskSpace;
use disk_worker::{Done, Job};
use frozen::Frozen;
use watchdog::{DiskWatchdog, StallDetector};

pub use shutdown::Drain;

/// Interval of status reports while nothing happens.
const STATUS_INTERVAL: Duration = Duration::from_millis(500);

/// Shortest interval of status reports, each of which takes a walk over the cohort.
const MIN_STATUS_INTERVAL: Duration = Duration::from_millis(50);

/// The result of [`drive`] when the run has ended or was stopped.
pub struct Ended {
    /// The run, for its model and its report.
    pub run: Run,
    /// How it ended.
    pub outcome: Outcome,
    /// The devices that have not been notified of the end. Dropping it closes the transport.
    pub drain: Drain,
}

/// Runs rounds until the run is over or `stop` turns true.
pub async fn drive(
    mut run: Run,
    resume: Resume,
    mut peers: mpsc::UnboundedReceiver<FromPeer>,
    mut stop: watch::Receiver<bool>,
    sink: &mut dyn Sink,
) -> Result<Ended, RunError> {
    let reclosed = run.take_reclosed();
    let policy = run.config().policy;
    let (own, lease) = (run.own_progress(), run.lease());
    let disk_space = DiskSpace::of(&run);
    let reopened = match &resume.open {
        Some(reopened) if reopened.decided().is_none() => {
            Some(Box::new(run.broadcast(reopened.opening.round, reopened.opening.work)?))
        }
        _ => None,
    };
    let frozen = Frozen::of(&run);
    let traffic = Counter::of(&run, reopened.as_deref(), resume.closed);
    let coordinator = Coordinator::new(run.spec().clone(), policy, resume, Duration::ZERO);
    let (jobs, job_queue) = std::sync::mpsc::channel();
    let (done_sender, mut done) = mpsc::unbounded_channel();
    let disk_worker = disk_worker::spawn(run, job_queue, done_sender);
    let mut driver = Driver {
        started: Instant::now(),
        lease,
        coordinator,
        frozen,
        events: Events::new(sink),
        jobs,
        watchdog: DiskWatchdog::default(),
        commands: BTreeMap::new(),
        known: BTreeMap::new(),
        uploads: BTreeMap::new(),
        next_upload: 0,
        broadcast: reopened,
        bases: BTreeMap::new(),
        traffic,
        disk_space,
        reported: None,
        cohort: 0,
        folded: None,
        outcome: None,
    };

    if let Some(record) = reclosed {
        driver.events.record(&record);
    }
    let started = driver.started;
    let (mut failure, mut handled, mut stalls) = (None, Duration::ZERO, StallDetector::default());
    let mut ticker = tokio::time::interval(STATUS_INTERVAL);
    loop {
        driver.act();
        driver.report_status(started.elapsed(), &own);
        if driver.outcome.is_some() {
            break;
        }
        // From the coordinator's last event, so that a deadline that has passed since then is due at once.
        let deadline = driver.coordinator.deadline(handled);
        let wake =
            deadline.map_or(Duration::from_hours(1), |moment| moment.saturating_sub(started.elapsed()));
        let event = tokio::select! {
            Some(event) = peers.recv() => match event {
                FromPeer::SpoolFailed { path, error: source, .. } if is_fatal(&source, &path) => {
                    failure = Some(disk("spool an update in", &path)(source));
                    Some(Event::Stop)
                }
                event => driver.handle_peer(event),
            },
            result = done.recv() => match result.map(|result| driver.handle_done(result)) {
                // The disk worker panicked; joining it below propagates the panic.
                None => break,
                Some(Ok(event)) => event,
                Some(Err(error)) => {
                    failure = Some(error);
                    Some(Event::Stop)
                }
            },
            () = tokio::time::sleep(wake) => Some(Event::Tick),
            _ = ticker.tick() => {
                driver.tick(own.of(), Instant::now());
                None
            }
            Ok(()) = stop.changed() => Some(Event::Stop),
        };
        for event in driver.noticed(&mut stalls).into_iter().flatten().chain(event) {
            handled = started.elapsed();
            driver.coordinator.handle(handled, event);
        }
    }
    let outcome = driver.outcome.take();
    let over = matches!(outcome, Some(Outcome::Completed | Outcome::NoProgress { .. }));
    let rounds = over.then_some(driver.coordinator.trained());
    let Driver { coordinator, mut events, commands, jobs, .. } = driver;
    let mut drain = Drain::new(peers, commands, &coordinator, rounds);
    drain.dismiss_all().await;
    // The disk worker ends when its queue is closed.
    drop(jobs);
    let run = disk_worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    failure = failure.or(report_rest(&mut done, &mut events, coordinator.status(started.elapsed())));
    if let Some(error) = failure {
        return Err(error);
    }
    let outcome = outcome.expect("without a failure or a panic the loop ends with an outcome");
    Ok(Ended { run, outcome, drain })
}

/// Reports the jobs that the disk worker finished after the loop ended: a round may have closed since the last `status`. Returns its
/// failure, if any.
fn report_rest(
    done: &mut mpsc::UnboundedReceiver<Done>,
    events: &mut Events<'_>,
    mut status: Status,
) -> Option<RunError> {
    let mut failure = None;
    while let Ok(late) = done.try_recv() {
        match late {
            Done::Failed(error) => failure = failure.or(Some(error)),
            Done::Settled(record) => {
                events.record(&record);
                if record.round > status.closed {
                    let failed = u32::from(record.void && !record.closing);
                    status.closed = record.round;
                    status.failed += failed;
                    status.rounds += failed;
                    status.waiting_for = WaitingFor::Nothing;
                    events.tell(&Notice::Status(&status));
                }
            }
            Done::Opened(_)
            | Done::Folded { .. }
            | Done::Lost { .. }
            | Done::Closed { .. }
            | Done::RosterSaved
            | Done::Agreed { .. }
            | Done::Decided { .. } => {}
        }
    }
    failure
}

/// A peer that has sent its hello, and what the operator was notified of.
struct Known {
    client: ClientId,
    /// The operator was notified of the connection and will be of its end.
    told: bool,
    /// The device has reported how many samples it skips.
    skipped: bool,
    /// The connection ends because of a spooling error that the operator knows from other connections.
    unspooled: bool,
}

struct Driver<'s> {
    /// The moment from which the coordinator counts time.
    started: Instant,
    lease: Option<Lease>,
    coordinator: Coordinator,
    frozen: Option<Frozen>,
    events: Events<'s>,
    jobs: std::sync::mpsc::Sender<Job>,
    watchdog: DiskWatchdog,
    commands: BTreeMap<PeerId, mpsc::UnboundedSender<ToPeer>>,
    known: BTreeMap<PeerId, Known>,
    uploads: BTreeMap<UploadId, Upload>,
    next_upload: u64,
    /// The broadcast of the open round.
    broadcast: Option<Box<Broadcast>>,
    /// The model that a peer has said it has.
    bases: BTreeMap<PeerId, Digest>,
    traffic: Counter,
    disk_space: DiskSpace,
    /// The time of the last status report.
    reported: Option<Duration>,
    /// Size of the cohort of the newest round.
    cohort: usize,
    /// The client whose update was just folded or rejected, and whose result is already recorded.
    folded: Option<ClientId>,
    outcome: Option<Outcome>,
}

impl Driver<'_> {
    /// What has changed beside what peers and the disk worker say. It is looked at before each of their events, of which thousands may wait.
    fn noticed(&mut self, stalls: &mut StallDetector) -> [Option<Event>; 3] {
        let stalled = stalls.check(self.started.elapsed()).map(|by| {
            self.events.tell(&Notice::Stalled { by });
            Event::Stalled { by }
        });
        let leads = self.lease.as_mut().and_then(Lease::renewed);
        let leads = leads.map(|Confirmed { asked, until, .. }| {
            let [asked, until] = [asked, until].map(|moment| moment.saturating_duration_since(self.started));
            Event::Leads { asked, until }
        });
        // A lease that was renewed in time has not lapsed in a stall.
        [leads, stalled, self.disk_space.change()]
    }

    fn act(&mut self) {
        while let Some(action) = self.coordinator.poll() {
            debug!(?action);
            match action {
                Action::Send { peer, message } => {
                    match &message {
                        ToClient::Receipt { round, verdict } => self.report_verdict(peer, *round, verdict),
                        ToClient::Refused(refusal)
                            if self.known.get(&peer).is_none_or(|known| known.told) =>
                        {
                            let party = self.party(peer);
                            self.events.tell(&Notice::Refused { party, refusal });
                        }
                        _ => {}
                    }
                    self.traffic.down(&message, frame::encode(&message, 0).len() as u64);
                    self.command(peer, ToPeer::Message(message));
                }
                Action::Disconnect { peer } => self.command(peer, ToPeer::Disconnect),
                Action::Open(opening) => {
                    self.cohort = opening.cohort.len();
                    self.job(Job::Open(opening));
                }
                Action::Broadcast { peer, round } => {
                    let broadcast = self.broadcast.as_ref().filter(|broadcast| broadcast.round == round);
                    let broadcast = broadcast.expect("a broadcast is asked for after its round was opened");
                    let delivery = broadcast.to(self.bases.get(&peer));
                    self.traffic.task(delivery.wire_bytes());
                    self.command(peer, ToPeer::Task(delivery));
                }
                Action::Fold { round, client, upload } => {
                    let upload = self.uploads.remove(&upload).expect("uploads are folded or dropped once");
                    self.job(Job::Fold { round, client, upload });
                }
                Action::Drop { upload } => {
                    let upload = self.uploads.remove(&upload).expect("uploads are folded or dropped once");
                    if let Upload::Leaf(_) = upload {
                        self.job(Job::Discard(upload));
                    } else {
                        drop_upload(upload);
                    }
                }
                Action::Agree { round, agreement } => self.job(Job::Agree { round, agreement }),
                Action::Decide { round, tally } => {
                    self.job(Job::Decide { round, tally, traffic: self.traffic.sum() });
                }
                Action::Close { round, tally } => self.close(round, tally, Revealed::new()),
                Action::Unmask { round, tally, revealed } => self.close(round, tally, revealed),
                Action::SaveRoster(known) => self.job(Job::SaveRoster(known)),
                Action::Alarm { rounds, reasons, pause } => {
                    self.events.tell(&Notice::NoProgress { rounds, reasons: &reasons, pause });
                }
                Action::StateDiffers { client, server, device } => {
                    self.events.tell(&Notice::ClientState { client, server, device });
                }
                Action::Outgrown { known, devices } => {
                    self.events.tell(&Notice::Outgrown { known, devices });
                }
                Action::Finish(outcome) => self.outcome = Some(outcome),
            }
        }
        // The actions above included the receipt for the folded update.
        self.folded = None;
    }

    fn close(&mut self, round: u32, tally: Tally, revealed: Revealed) {
        let traffic = self.traffic.take();
        self.job(Job::Close { round, tally, traffic, revealed });
    }

    /// Reports an update that was rejected or discarded, when its client gets the receipt.
    fn report_verdict(&mut self, peer: PeerId, round: u32, verdict: &Verdict) {
        let Some(client) = self.known.get(&peer).map(|known| known.client) else { return };
        let (rejected, reason) = match verdict {
            Verdict::Accepted => return,
            Verdict::Rejected(rejection) => (true, rejection.to_string()),
            Verdict::Discarded(discard) => (false, discard.to_string()),
        };
        let result = if rejected { TaskResult::Rejected(&reason) } else { TaskResult::Discarded(&reason) };
        if rejected && self.folded == Some(client) {
            self.events.tell(&Notice::Result { round, client, result, shown: true, recorded: false });
        } else {
            self.report_result(client, round, result);
        }
    }

    fn report_result(&mut self, client: ClientId, round: u32, result: TaskResult<'_>) {
        let current = self.coordinator.is_current(round);
        self.events.result(round, client, result, current);
    }

    /// Sends a command to a peer. A disconnected peer has dropped its receiver and ignores it.
    fn command(&mut self, peer: PeerId, command: ToPeer) {
        if let Some(commands) = self.commands.get(&peer) {
            let _ = commands.send(command);
        }
    }

    /// Reports the status if the last report is old enough or the run has ended.
    fn report_status(&mut self, now: Duration, own: &OwnProgress) {
        let due = self.reported.is_none_or(|reported| now >= reported + MIN_STATUS_INTERVAL);
        if due || self.outcome.is_some() {
            self.events.tell(&Notice::Status(&Status { own: own.of(), ..self.coordinator.status(now) }));
            self.reported = Some(now);
        }
    }

    fn party(&self, peer: PeerId) -> Party {
        self.known.get(&peer).map_or(Party::Connection(peer.0), |known| Party::Client(known.client))
    }

    /// Reports throttled notices, and that the run is alive if it makes progress.
    fn tick(&mut self, own: Option<(u64, u64)>, now: Instant) {
        self.events.flush(now);
        if self.disk_space.recovered(now) {
            self.events.tell(&Notice::SpoolRecovered);
        }
        // A run that waits for disk space or the database is not stuck: ending the process would not help.
        if self.watchdog.advanced(own) || self.coordinator.is_paused(self.started.elapsed()) {
            self.events.tell(&Notice::Alive);
        }
    }

    /// Queues a job. The disk worker closes its queue only after reporting a failure, which ends the loop.
    fn job(&mut self, job: Job) {
        self.watchdog.asked += 1;
        let _ = self.jobs.send(job);
    }
}

/// Deletes an update that is not needed. Not on the disk worker, which may spend some time on closing a round: a client that
/// uploads garbage in the meantime would fill the disk, and a full disk pauses the run.
fn drop_upload(upload: Upload) {
    let Upload::File(file) = upload else { return };
    tokio::task::spawn_blocking(move || {
        if let Err(error) = Disk.remove(&file) {
            warn!("cannot remove {}: {error}", file.display());
        }
    });
}

/// Whether the disk is read-only or broken or the folder of `path` was deleted, so that no update can be accepted until the operator
/// repairs it. Other errors, such as too many open files or a full disk, may be temporary.
fn is_fatal(error: &std::io::Error, path: &Path) -> bool {
    /// `EIO`, for which `ErrorKind` has no variant; the same number on every Unix.
    const INPUT_OUTPUT: i32 = 5;
    error.kind() == ErrorKind::ReadOnlyFilesystem
        || (cfg!(unix) && error.raw_os_error() == Some(INPUT_OUTPUT))
        || (error.kind() == ErrorKind::NotFound && !crate::storage::parent(path).exists())
}
