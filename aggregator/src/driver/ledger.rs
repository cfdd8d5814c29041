//! The ledger: the thread on which durable steps are made, one at a time and in order.

use std::sync::mpsc::Receiver;

use shared::id::ClientId;
use shared::message::Rejection;
use tokio::sync::mpsc::UnboundedSender;

use crate::coordinator::{Opening, Tally};
use crate::report::RoundRecord;
use crate::run::{Broadcast, Run, RunError, Traffic, Upload};

/// So many updates are accepted together at most: their receipts wait for the last of them.
const TOGETHER: usize = 16;

/// What is to be done.
pub(super) enum Job {
    Open(Opening),
    Fold { round: u32, client: ClientId, upload: Upload },
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
///
/// Updates that came in while the thread was busy are accepted together: they share a sync, and most of them come at
/// about the same time.
pub(super) fn keep_ledger(mut run: Run, jobs: &Receiver<Job>, done: &UnboundedSender<Done>) -> Run {
    let mut next = None;
    while let Some(job) = next.take().or_else(|| jobs.recv().ok()) {
        let opened = matches!(job, Job::Open(_));
        let result = match job {
            Job::Open(opening) => run.open(&opening).map(|broadcast| vec![Done::Opened(broadcast)]),
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
                run.fold(round, &uploads).map(|outcomes| {
                    let clients = uploads.iter().map(|(client, _)| *client);
                    let folded = |(client, outcome)| Done::Folded { round, client, outcome };
                    clients.zip(outcomes).map(folded).collect()
                })
            }
            Job::Close { round, tally, traffic } => {
                run.close(round, &tally, traffic).map(|record| vec![Done::Closed(Box::new(record))])
            }
        };
        let failed = result.is_err();
        let all = result.unwrap_or_else(|error| vec![Done::Failed(error)]);
        if all.into_iter().any(|one| done.send(one).is_err()) || failed {
            break;
        }
        if opened && let Err(error) = run.tidy() {
            let _ = done.send(Done::Failed(error));
            break;
        }
    }
    run
}
