//! The ledger: the thread on which durable steps are made, one at a time and in order.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use shared::id::ClientId;
use shared::message::Rejection;
use tokio::sync::mpsc::UnboundedSender;

use crate::coordinator::{Known, Opening};
use crate::round::{RoundRecord, Tally};
use crate::run::{Broadcast, Run, RunError, Traffic, Upload};

/// So many updates are accepted together at most: their receipts wait for the last of them.
const TOGETHER: usize = 16;

/// What is to be done.
pub(super) enum Job {
    Open(Opening),
    Fold {
        round: u32,
        client: ClientId,
        upload: Upload,
    },
    Close {
        round: u32,
        tally: Tally,
        traffic: Traffic,
    },
    Remember(Known),
    /// The closed round has waited for the next one long enough.
    Due,
}

/// What was done.
pub(super) enum Done {
    Opened(Broadcast),
    Folded {
        round: u32,
        client: ClientId,
        outcome: Result<(), Rejection>,
    },
    Closed {
        round: u32,
        enough: bool,
    },
    Remembered,
    /// A closed round is on disk with all that follows from it.
    Settled(Box<RoundRecord>),
    Failed(RunError),
}

/// The next round usually opens at once. A checkpoint that has waited so long for it waits no longer.
const SOON: Duration = Duration::from_millis(100);

/// Carries out durable steps in order until the driver hangs up; gives the run back.
///
/// Updates that came in while the thread was busy are accepted together: they share a sync, and most of them come at
/// about the same time. A closed round is settled when the next one is open: then its clients are at work.
pub(super) fn keep_ledger(mut run: Run, jobs: &Receiver<Job>, done: &UnboundedSender<Done>) -> Run {
    if let Err(error) = keep(&mut run, jobs, done) {
        let _ = done.send(Done::Failed(error));
    }
    run
}

fn keep(run: &mut Run, jobs: &Receiver<Job>, done: &UnboundedSender<Done>) -> Result<(), RunError> {
    let mut next = None;
    // What was closed and is not settled.
    let mut closed = None;
    while let Some(job) = next.take().or_else(|| wait(jobs, closed.is_some())) {
        match job {
            Job::Due => settle(run, &mut closed, done)?,
            Job::Open(opening) => {
                // If nobody listens any more, the driver has hung up: the queue's end says so.
                let _ = done.send(Done::Opened(run.open(&opening)?));
                settle(run, &mut closed, done)?;
            }
            Job::Remember(known) => {
                run.remember(&known)?;
                let _ = done.send(Done::Remembered);
            }
            Job::Fold { round, client, upload } => {
                let mut uploads = vec![(client, upload)];
                while uploads.len() < TOGETHER {
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
                let outcomes = run.fold(round, &uploads)?;
                for ((client, _), outcome) in uploads.into_iter().zip(outcomes) {
                    let _ = done.send(Done::Folded { round, client, outcome });
                }
            }
            Job::Close { round, tally, traffic } => {
                let record = Box::new(run.close(round, &tally, traffic)?);
                if run.is_settled() {
                    let _ = done.send(Done::Settled(record));
                } else {
                    closed = Some(record);
                }
                let _ = done.send(Done::Closed { round, enough: run.ended().is_some() });
            }
        }
    }
    if closed.is_some() { settle(run, &mut closed, done) } else { Ok(()) }
}

/// Settles what was closed, and says so.
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
    match jobs.recv_timeout(SOON) {
        Err(RecvTimeoutError::Timeout) => Some(Job::Due),
        job => job.ok(),
    }
}
