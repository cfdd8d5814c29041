//! The ledger: the thread on which durable steps are made, one at a time and in order.

use std::path::PathBuf;
use std::sync::mpsc::Receiver;

use shared::id::ClientId;
use shared::message::Rejection;
use tokio::sync::mpsc::UnboundedSender;

use crate::coordinator::{Opening, Tally};
use crate::report::RoundRecord;
use crate::run::{Broadcast, Run, RunError, Traffic};

/// What is to be done.
pub(super) enum Job {
    Open(Opening),
    Fold { round: u32, client: ClientId, file: PathBuf },
    Close { round: u32, tally: Tally, traffic: Traffic },
}

/// What was done.
pub(super) enum Done {
    Opened(Broadcast),
    Folded { round: u32, client: ClientId, outcome: Result<(), Rejection> },
    Closed(Box<RoundRecord>),
    Failed(RunError),
}

/// Carries out durable steps in order until the driver hangs up; gives the run back.
pub(super) fn keep_ledger(mut run: Run, jobs: &Receiver<Job>, done: &UnboundedSender<Done>) -> Run {
    while let Ok(job) = jobs.recv() {
        let opened = matches!(job, Job::Open(_));
        let result = match job {
            Job::Open(opening) => run.open(&opening).map(Done::Opened),
            Job::Fold { round, client, file } => {
                run.fold(round, client, &file).map(|outcome| Done::Folded { round, client, outcome })
            }
            Job::Close { round, tally, traffic } => {
                run.close(round, &tally, traffic).map(|record| Done::Closed(Box::new(record)))
            }
        };
        let failed = result.is_err();
        if done.send(result.unwrap_or_else(Done::Failed)).is_err() || failed {
            break;
        }
        if opened && let Err(error) = run.tidy() {
            let _ = done.send(Done::Failed(error));
            break;
        }
    }
    run
}
