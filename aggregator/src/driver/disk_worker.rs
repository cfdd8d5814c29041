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

/// A durable step to make, as the coordinator's [actions](crate::coordinator::Action) of these names say.
#[expect(missing_docs, reason = "they are those of the actions")]
pub enum Job {
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

/// A durable step that was made, as the coordinator's [events](crate::coordinator::Event) of these names say.
#[expect(missing_docs, reason = "they are those of the events")]
pub enum Done {
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
pub fn spawn(mut run: Run, jobs: Receiver<Job>, done: UnboundedSender<Done>) -> JoinHandle<Run> {
    let thread = std::thread::Builder::new().name("disk worker".to_owned());
    let thread = thread.spawn(move || {
        let mut jobs = jobs;
        // A driver that receives no more has hung up: the end of the queue says so.
        let mut tell = |made| drop(done.send(made));
        if let Err(error) = work(&mut run, &mut jobs, &mut tell) {
            tell(Done::Failed(error));
        }
        run
    });
    thread.expect("the operating system gives the aggregator one thread")
}

/// Where jobs come from.
pub trait Jobs {
    /// The next job, which is waited for as long as this, or without end.
    ///
    /// # Errors
    /// There is none.
    fn next(&mut self, most: Option<Duration>) -> Result<Job, RecvTimeoutError>;
}

impl Jobs for Receiver<Job> {
    fn next(&mut self, most: Option<Duration>) -> Result<Job, RecvTimeoutError> {
        match most {
            None => self.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(most) => self.recv_timeout(most),
        }
    }
}

/// Makes durable steps in order until there are no more jobs, and tells what was made.
///
/// # Errors
/// Those of the steps: nothing more is to be made.
pub fn work(run: &mut Run, jobs: &mut dyn Jobs, done: &mut dyn FnMut(Done)) -> Result<(), RunError> {
    let mut next = None;
    // The round that is closed and not settled.
    let mut closed = None;
    while let Some(job) = next.take().or_else(|| wait(jobs, closed.is_some())) {
        match job {
            Job::Due => settle(run, &mut closed, done)?,
            Job::Open(opening) => {
                done(Done::Opened(run.open(&opening)?));
                settle(run, &mut closed, done)?;
            }
            Job::SaveRoster(known) => {
                run.save_roster(&known)?;
                run.keep()?;
                done(Done::RosterSaved);
            }
            Job::Fold { round, client, upload } => {
                let mut uploads = vec![(client, upload)];
                while uploads.len() < MAX_BATCH {
                    match jobs.next(Some(Duration::ZERO)) {
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
                    done(match outcome {
                        Some(outcome) => Done::Folded { round, client, outcome },
                        None => Done::Lost { round, client },
                    });
                }
            }
            Job::Discard(upload) => run.discard(&upload),
            Job::Agree { round, agreement } => {
                run.agree(round, &agreement)?;
                done(Done::Agreed { round });
            }
            Job::Decide { round, tally, traffic } => {
                run.decide_hidden(&tally, traffic)?;
                done(Done::Decided { round });
            }
            Job::Close { round, tally, traffic, revealed } => {
                let record = Box::new(run.close_revealed(round, &tally, traffic, &revealed)?);
                let void = record.void;
                if run.is_settled() {
                    done(Done::Settled(record));
                } else {
                    closed = Some(record);
                }
                done(Done::Closed { round, void, enough: run.ended().is_some() });
            }
        }
    }
    if closed.is_some() { settle(run, &mut closed, done) } else { Ok(()) }
}

/// Settles the closed round and reports it.
fn settle(
    run: &mut Run,
    closed: &mut Option<Box<RoundRecord>>,
    done: &mut dyn FnMut(Done),
) -> Result<(), RunError> {
    run.settle()?;
    if let Some(record) = closed.take() {
        done(Done::Settled(record));
    }
    Ok(())
}

/// The next job; `None` when there will be none. After a close, settling falls due.
fn wait(jobs: &mut dyn Jobs, closed: bool) -> Option<Job> {
    if !closed {
        return jobs.next(None).ok();
    }
    match jobs.next(Some(CHECKPOINT_DELAY)) {
        Err(RecvTimeoutError::Timeout) => Some(Job::Due),
        job => job.ok(),
    }
}
