//! The disk worker: the thread that makes durable steps, one at a time and in order.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use shared::id::ClientId;
use shared::message::Rejection;
use tokio::sync::mpsc::UnboundedSender;

use crate::coordinator::{Agreement, Opening, Revealed, RosterSnapshot};
use crate::round::{RoundRecord, Tally};
use crate::run::{Broadcast, Run, RunError, Traffic, Upload};

/// The most updates that are accepted together: their receipts wait for the last of them.
const MAX_BATCH: usize = 16;

/// A durable step to make.
pub(super) enum Job {
    Open(Opening),
    Fold {
        round: u32,
        client: ClientId,
        upload: Upload,
    },
    /// An update at a leaf is not needed.
    Discard(Upload),
    Agree {
        round: u32,
        agreement: Box<Agreement>,
    },
    Decide {
        round: u32,
        tally: Tally,
        traffic: Traffic,
    },
    Close {
        round: u32,
        tally: Tally,
        traffic: Traffic,
        revealed: Revealed,
    },
    SaveRoster(RosterSnapshot),
    /// The checkpoint of the closed round has waited long enough for the next round to open.
    Due,
}

/// A durable step that was made.
pub(super) enum Done {
    Opened(Broadcast),
    Folded {
        round: u32,
        client: ClientId,
        outcome: Result<u32, Rejection>,
    },
    /// An update was lost with its leaf before it was accepted.
    Lost {
        round: u32,
        client: ClientId,
    },
    Agreed {
        round: u32,
    },
    Decided {
        round: u32,
    },
    Closed {
        round: u32,
        void: bool,
        enough: bool,
    },
    RosterSaved,
    /// A closed round is on disk, with its checkpoint and evaluation.
    Settled(Box<RoundRecord>),
    Failed(RunError),
}

/// How long a checkpoint waits for the next round to open, which it usually does at once.
const CHECKPOINT_DELAY: Duration = Duration::from_millis(100);

/// A thread that makes durable steps in order until the driver hangs up, and gives the run back.
///
/// Updates that arrive while the thread is busy are accepted together and share one sync. A closed round is settled once the next
/// one is open, while its clients train.
pub(super) fn spawn(mut run: Run, jobs: Receiver<Job>, done: UnboundedSender<Done>) -> JoinHandle<Run> {
    let thread = std::thread::Builder::new().name("disk worker".to_owned());
    let thread = thread.spawn(move || {
        if let Err(error) = work(&mut run, &jobs, &done) {
            let _ = done.send(Done::Failed(error));
        }
        run
    });
    thread.expect("the operating system gives the aggregator one thread")
}

fn work(run: &mut Run, jobs: &Receiver<Job>, done: &UnboundedSender<Done>) -> Result<(), RunError> {
    let mut next = None;
    // The round that is closed and not settled.
    let mut closed = None;
    while let Some(job) = next.take().or_else(|| wait(jobs, closed.is_some())) {
        match job {
            Job::Due => settle(run, &mut closed, done)?,
            Job::Open(opening) => {
                // A driver that receives no more has hung up: the end of the queue says so.
                let _ = done.send(Done::Opened(run.open(&opening)?));
                settle(run, &mut closed, done)?;
            }
            Job::SaveRoster(known) => {
                run.save_roster(&known)?;
                run.keep()?;
                let _ = done.send(Done::RosterSaved);
            }
            Job::Fold { round, client, upload } => {
                let mut uploads = vec![(client, upload)];
                while uploads.len() < MAX_BATCH {
                    match jobs.try_recv() {
                        Ok(Job::Fold { round: same, client, upload }) if same == round => {
                            uploads.push((client, upload));
                        }
                        other => {
                            next = other.ok();
                            break;
                        }
                    }
                }
                let outcomes = run.accept(round, &uploads)?;
                for ((client, _), outcome) in uploads.into_iter().zip(outcomes) {
                    let _ = done.send(match outcome {
                        Some(outcome) => Done::Folded { round, client, outcome },
                        None => Done::Lost { round, client },
                    });
                }
            }
            Job::Discard(upload) => run.discard(&upload),
            Job::Agree { round, agreement } => {
                run.agree(round, &agreement)?;
                let _ = done.send(Done::Agreed { round });
            }
            Job::Decide { round, tally, traffic } => {
                run.decide_hidden(&tally, traffic)?;
                let _ = done.send(Done::Decided { round });
            }
            Job::Close { round, tally, traffic, revealed } => {
                let record = Box::new(run.close_revealed(round, &tally, traffic, &revealed)?);
                let void = record.void;
                if run.is_settled() {
                    let _ = done.send(Done::Settled(record));
                } else {
                    closed = Some(record);
                }
                let _ = done.send(Done::Closed { round, void, enough: run.ended().is_some() });
            }
        }
    }
    if closed.is_some() { settle(run, &mut closed, done) } else { Ok(()) }
}

/// Settles the closed round and reports it.
fn settle(
    run: &mut Run,
    closed: &mut Option<Box<RoundRecord>>,
    done: &UnboundedSender<Done>,
) -> Result<(), RunError> {
    run.settle()?;
    if let Some(record) = closed.take() {
        let _ = done.send(Done::Settled(record));
    }
    Ok(())
}

/// The next job; `None` when there will be none. After a close, settling falls due.
fn wait(jobs: &Receiver<Job>, closed: bool) -> Option<Job> {
    if !closed {
        return jobs.recv().ok();
    }
    match jobs.recv_timeout(CHECKPOINT_DELAY) {
        Err(RecvTimeoutError::Timeout) => Some(Job::Due),
        job => job.ok(),
    }
}
