//! The driver: does for the [`Coordinator`] what a state machine may not do itself.
//!
//! Peers (real connections or simulated ones) feed [`FromPeer`] events in and take [`ToPeer`] commands out,
//! through channels: the driver knows no transport. Durable steps run on a thread of their own, the ledger,
//! one at a time and in order, so that a slow disk never delays a heart-beat.

mod attention;
mod channels;
mod farewell;
mod hearing;
mod ledger;
mod left_out;
mod room;
mod said;
mod strangers;
mod turned_away;
mod watchdog;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use shared::frame;
use shared::id::ClientId;
use shared::message::{ToClient, Verdict};
use tokio::sync::{mpsc, watch};
use tracing::{debug, warn};

use crate::coordinator::{Action, Coordinator, Event, Outcome, PeerId, Resume, Status, UploadId};
use crate::peer::{FromPeer, ToPeer};
use crate::run::{Broadcast, OwnProgress, Run, RunError, Traffic, Upload};
use crate::storage::{Disk, FileLayer as _};
use attention::Attention;
use ledger::{Done, Job, keep_ledger};
use left_out::LeftOut;
use room::Room;
use said::{Said, Worth};
use strangers::Strangers;
use turned_away::TurnedAway;
use watchdog::LedgerWatchdog;

pub use channels::{Arrived, Notice};
pub use farewell::Latecomers;

/// How often the status is told although nothing happened.
const STATUS_INTERVAL: Duration = Duration::from_millis(500);

/// However much happens, the status is told no more often: it goes through the whole cohort.
const STATUS_PACE: Duration = Duration::from_millis(50);

/// What is left when no more rounds are run.
pub struct Ended {
    /// The run, for its model and its report.
    pub run: Run,
    /// How it ended.
    pub outcome: Outcome,
    /// Whoever has not heard of it yet. When this is dropped, the transport closes.
    pub latecomers: Latecomers,
}

/// Runs rounds until the run is over or `stop` turns true.
pub async fn drive(
    mut run: Run,
    resume: Resume,
    mut peers: mpsc::UnboundedReceiver<FromPeer>,
    mut stop: watch::Receiver<bool>,
    notice: &mut (dyn FnMut(Notice<'_>) + Send),
) -> Result<Ended, RunError> {
    let started = Instant::now();
    if let Some(record) = run.take_reclosed() {
        notice(Notice::Round(&record));
    }
    let policy = run.config().policy;
    let own = run.own_progress();
    let room = Room::of(&run);
    let reopened = match &resume.open {
        Some(reopened) if reopened.decided().is_none() => {
            Some(run.broadcast(reopened.opening.round, reopened.opening.work)?)
        }
        _ => None,
    };
    let earlier = reopened.as_ref().map_or(Traffic::default(), |broadcast| run.earlier_traffic(broadcast));
    let coordinator = Coordinator::new(run.spec().clone(), policy, resume, Duration::ZERO);
    let (jobs, job_queue) = std::sync::mpsc::channel();
    let (done_sender, mut done) = mpsc::unbounded_channel();
    let ledger = std::thread::Builder::new()
        .name("ledger".to_owned())
        .spawn(move || keep_ledger(run, &job_queue, &done_sender))
        .expect("the operating system gives the aggregator one thread");
    let mut driver = Driver::new(coordinator, jobs, room, reopened, earlier);

    let mut failure = None;
    let mut handled = Duration::ZERO;
    let mut attention = Attention::default();
    let mut ticker = tokio::time::interval(STATUS_INTERVAL);
    loop {
        driver.act(notice);
        let now = started.elapsed();
        driver.tell_status(now, &own, notice);
        if driver.outcome.is_some() {
            break;
        }
        // Counted from what the coordinator has last seen: a moment that went by since then is due at once.
        let deadline = driver.coordinator.deadline(handled);
        let wake =
            deadline.map_or(Duration::from_secs(3600), |moment| moment.saturating_sub(started.elapsed()));
        let event = tokio::select! {
            Some(event) = peers.recv() => match event {
                FromPeer::SpoolFailed { path, error: source, .. } if is_of_the_disk(&source) => {
                    failure = Some(RunError::Disk { action: "spool an update in", path, source });
                    Some(Event::Stop)
                }
                event => driver.hear_peer(event, notice),
            },
            result = done.recv() => match result.map(|result| driver.hear_ledger(result, notice)) {
                // The ledger panicked: joining it below passes that on.
                None => break,
                Some(Ok(event)) => event,
                Some(Err(error)) => {
                    failure = Some(error);
                    Some(Event::Stop)
                }
            },
            () = tokio::time::sleep(wake) => Some(Event::Tick),
            _ = ticker.tick() => driver.keep_alive(own.of(), notice),
            Ok(()) = stop.changed() => Some(Event::Stop),
        };
        let stalled = attention.at(started.elapsed()).map(|by| attention::stalled(by, notice));
        for event in stalled.into_iter().chain(driver.room.change()).chain(event) {
            handled = started.elapsed();
            driver.coordinator.handle(handled, event);
        }
    }
    let outcome = driver.outcome.take();
    let over = matches!(outcome, Some(Outcome::Completed | Outcome::NoProgress { .. }));
    let rounds = over.then_some(driver.coordinator.trained());
    let commands = std::mem::take(&mut driver.commands);
    let mut latecomers = Latecomers::new(peers, commands, &driver.coordinator, rounds);
    latecomers.farewell().await;
    drop(driver);
    let run = ledger.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    // What the ledger was still at when the loop ended.
    while let Ok(late) = done.try_recv() {
        match late {
            Done::Failed(error) => failure = failure.or(Some(error)),
            Done::Settled(record) => notice(Notice::Round(&record)),
            Done::Opened(_) | Done::Folded { .. } | Done::Closed { .. } | Done::Remembered => {}
        }
    }
    if let Some(error) = failure {
        return Err(error);
    }
    let outcome = outcome.expect("without a failure or a panic the loop ends with an outcome");
    Ok(Ended { run, outcome, latecomers })
}

/// What an operator is told about a peer.
struct Known {
    client: ClientId,
    /// Its coming was told, and its going will be.
    told: bool,
    /// It has said what it leaves out.
    left_out: bool,
    /// It goes for a reason that the operator was told when others went for it.
    unspooled: bool,
}

struct Driver {
    coordinator: Coordinator,
    jobs: std::sync::mpsc::Sender<Job>,
    ledger: LedgerWatchdog,
    commands: BTreeMap<PeerId, mpsc::UnboundedSender<ToPeer>>,
    known: BTreeMap<PeerId, Known>,
    uploads: BTreeMap<UploadId, Upload>,
    next_upload: u64,
    broadcast: Option<Broadcast>,
    traffic: Traffic,
    room: Room,
    /// When the status was told last.
    told: Option<Duration>,
    /// Members of the round that was opened last.
    cohort: usize,
    /// A client whose rejected update somebody was told of already, when it was looked into.
    judged: Option<ClientId>,
    turned_away: TurnedAway,
    strangers: Strangers,
    said: Said,
    left_out: LeftOut,
    outcome: Option<Outcome>,
}

impl Driver {
    /// Nobody is connected; `broadcast` is that of a round that was open before, with its `traffic`.
    fn new(
        coordinator: Coordinator,
        jobs: std::sync::mpsc::Sender<Job>,
        room: Room,
        broadcast: Option<Broadcast>,
        traffic: Traffic,
    ) -> Self {
        Self {
            coordinator,
            jobs,
            ledger: LedgerWatchdog::default(),
            commands: BTreeMap::new(),
            known: BTreeMap::new(),
            uploads: BTreeMap::new(),
            next_upload: 0,
            broadcast,
            traffic,
            room,
            told: None,
            cohort: 0,
            judged: None,
            turned_away: TurnedAway::default(),
            strangers: Strangers::default(),
            said: Said::default(),
            left_out: LeftOut::default(),
            outcome: None,
        }
    }

    fn act(&mut self, notice: &mut (dyn FnMut(Notice<'_>) + Send)) {
        while let Some(action) = self.coordinator.poll() {
            debug!(?action);
            match action {
                Action::Send { peer, message } => {
                    if let ToClient::Receipt { round, verdict } = &message {
                        self.tell_receipt(peer, *round, verdict, notice);
                    }
                    let told = self.known.get(&peer).is_none_or(|known| known.told);
                    if let ToClient::Refused(refusal) = &message
                        && told
                    {
                        let refusal = printable(&refusal.to_string());
                        notice(Notice::Remark(format!("{} refused: {refusal}", self.name(peer))));
                    }
                    self.traffic.down += frame::encode(&message, 0).len() as u64;
                    self.command(peer, ToPeer::Message(message));
                }
                Action::Disconnect { peer } => {
                    self.command(peer, ToPeer::Disconnect);
                }
                Action::Open(opening) => {
                    self.cohort = opening.cohort.len();
                    self.job(Job::Open(opening));
                }
                Action::Broadcast { peer, round } => {
                    let broadcast = self.broadcast.clone().filter(|broadcast| broadcast.round == round);
                    let broadcast = broadcast.expect("a broadcast is asked for after its round was opened");
                    self.traffic.down += broadcast.wire_bytes();
                    self.command(peer, ToPeer::Task(broadcast));
                }
                Action::Fold { round, client, upload, .. } => {
                    let upload = self.uploads.remove(&upload).expect("uploads are folded or dropped once");
                    self.job(Job::Fold { round, client, upload });
                }
                Action::Drop { upload } => {
                    let upload = self.uploads.remove(&upload).expect("uploads are folded or dropped once");
                    drop_upload(upload);
                }
                Action::Close { round, tally } => {
                    let traffic = std::mem::take(&mut self.traffic);
                    self.job(Job::Close { round, tally, traffic });
                }
                Action::Remember(known) => self.job(Job::Remember(known)),
                Action::Alarm { rounds, reasons, pause } => {
                    let next = match pause.as_secs() {
                        0 => "at once".to_owned(),
                        seconds => format!("in {seconds} s"),
                    };
                    notice(Notice::Alarm(format!(
                        "{rounds} rounds in a row had too few acceptable updates ({}); the next one begins {next}. Ctrl-C \
                         stops the run, and the same command continues it once the clients are mended",
                        printable_reasons(&reasons)
                    )));
                }
                Action::Finish(outcome) => self.outcome = Some(outcome),
            }
        }
        // The receipt of what was looked into comes at once.
        self.judged = None;
    }

    /// Tells of an update that does not count, for what its client is told of it.
    fn tell_receipt(
        &mut self,
        peer: PeerId,
        round: u32,
        verdict: &Verdict,
        notice: &mut (dyn FnMut(Notice<'_>) + Send),
    ) {
        let Some(client) = self.known.get(&peer).map(|known| known.client) else { return };
        let (rejected, reason) = match verdict {
            Verdict::Accepted => return,
            Verdict::Rejected(rejection) => (true, rejection.to_string()),
            Verdict::Discarded(discard) => (false, discard.to_string()),
        };
        let what = if rejected { Arrived::Rejected(&reason) } else { Arrived::Discarded(&reason) };
        // What was looked into was asked for, and is written down already.
        let judged = rejected && self.judged == Some(client);
        let worth = if judged { Worth::Told } else { self.worth(client, round, what) };
        if worth == Worth::Told || worth == Worth::Written && rejected {
            let (name, reason) = (self.name(peer), printable(&reason));
            notice(Notice::Remark(format!("{name}: update of round {round} {}: {reason}", what.name())));
        }
        if worth == Worth::Written {
            notice(Notice::Arrival { round, client, what });
        }
    }

    /// What it is worth that a device says, or sends, this of a round.
    fn worth(&mut self, client: ClientId, round: u32, what: Arrived<'_>) -> Worth {
        let matters = self.coordinator.concerns(round);
        self.said.says(client, what.name(), round, matters)
    }

    /// A peer that is gone has dropped its receiver; what was meant for it is moot.
    fn command(&mut self, peer: PeerId, command: ToPeer) {
        if let Some(commands) = self.commands.get(&peer) {
            let _ = commands.send(command);
        }
    }

    /// Tells the status unless it has just been told; at the end in any case.
    fn tell_status(&mut self, now: Duration, own: &OwnProgress, notice: &mut (dyn FnMut(Notice<'_>) + Send)) {
        if self.outcome.is_some() || self.told.is_none_or(|told| now >= told + STATUS_PACE) {
            notice(Notice::Status(&Status { own: own.of(), ..self.coordinator.status(now) }));
            self.told = Some(now);
        }
    }

    /// A peer's name for people.
    fn name(&self, peer: PeerId) -> String {
        name(peer, self.known.get(&peer))
    }

    /// Tells that the run gets on, if it does, and what has waited to be told. That is no event.
    fn keep_alive(
        &mut self,
        own: Option<(u64, u64)>,
        notice: &mut (dyn FnMut(Notice<'_>) + Send),
    ) -> Option<Event> {
        if let Some(text) = self.strangers.due(Instant::now()) {
            notice(Notice::Aside(text));
        }
        if let Some(text) = self.room.recovered(Instant::now()) {
            notice(Notice::Remark(text));
        }
        // Waiting for room, nothing is stuck: ending the process would not help.
        if self.ledger.advanced(own) || self.room.is_paused() {
            notice(Notice::Alive);
        }
        None
    }

    /// The ledger hangs up only after it has reported a failure, which ends the loop.
    fn job(&mut self, job: Job) {
        self.ledger.asked += 1;
        let _ = self.jobs.send(job);
    }
}

/// Removes an update that is of no use. Not on the ledger, which may be at a close for a while: whoever uploads
/// rubbish in the meantime would fill the disk, and a full disk pauses the run.
fn drop_upload(upload: Upload) {
    let Upload::File(file) = upload else { return };
    tokio::task::spawn_blocking(move || {
        if let Err(error) = Disk.remove(&file) {
            warn!("cannot remove {}: {error}", file.display());
        }
    });
}

fn name(peer: PeerId, known: Option<&Known>) -> String {
    match known {
        Some(known) => format!("client {}", known.client.short()),
        None => format!("connection {}", peer.0),
    }
}

/// The disk itself is closed or broken: no update can be taken until the operator has mended it. Anything else may pass,
/// such as too many open files, or a disk that is full.
fn is_of_the_disk(error: &std::io::Error) -> bool {
    /// `EIO`, for which there is no kind; the same number on every Unix.
    const INPUT_OUTPUT: i32 = 5;
    error.kind() == ErrorKind::ReadOnlyFilesystem
        || (cfg!(unix) && error.raw_os_error() == Some(INPUT_OUTPUT))
}

/// A peer's text, fit for a terminal: bounded, which is seen, and without control characters.
pub(crate) fn printable(text: &str) -> String {
    const MOST: usize = 300;
    let cut = if text.chars().nth(MOST).is_some() { "..." } else { "" };
    let fit = text.chars().take(MOST).map(|c| if c.is_control() { ' ' } else { c });
    fit.collect::<String>() + cut
}

/// Why updates were not accepted, of which there may be as many as devices: the first few, and how many more there are.
pub(crate) fn printable_reasons(reasons: &[String]) -> String {
    const SHOWN: usize = 2;
    let first = reasons.iter().take(SHOWN).map(|reason| printable(reason)).collect::<Vec<_>>().join("; ");
    match reasons.len().saturating_sub(SHOWN) {
        _ if reasons.is_empty() => "no reasons were given".to_owned(),
        0 => first,
        more => format!("{first}; and {more} more"),
    }
}
