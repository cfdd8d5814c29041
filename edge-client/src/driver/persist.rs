//! Saves each update before it is announced, durably if client state goes with it, and keeps it until the server acknowledges it.

use std::time::Duration;

use shared::message::{TaskId, Verdict};
use tokio::task::JoinHandle;
use tracing::warn;

use super::training::Finished;
use super::{Driver, Notice};
use crate::failure::Failure;
use crate::session::Event;
use crate::store::{Store, StoreError, Update};
use crate::task::{Output, TaskOutput};
use crate::transport::Connector;

/// An update without client state that took less time to train is not synced: after a power failure it is trained again, unless
/// the server has it, which wears a memory card less than a sync in every round. A crash of the process loses neither. The
/// [store](crate::store) and `edge-client --help` promise this.
const MIN_SYNCED_TRAINING: Duration = Duration::from_secs(1);

/// The first wait for room on a full disk. It doubles with every attempt, which may write a whole update to a memory card.
const FIRST_WAIT: Duration = Duration::from_secs(2);
/// The longest wait for room on a full disk.
const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// A finished task that the store has no room for.
pub(super) struct Unsaved {
    pub(super) output: TaskOutput,
    /// How long it waits.
    waits: Duration,
    pub(super) retry_at: tokio::time::Instant,
}

/// An acknowledged update whose client state the store has no room for.
pub(super) struct Unforgotten {
    round: u32,
    verdict: Option<Verdict>,
    /// How long it waits.
    waits: Duration,
    pub(super) retry_at: tokio::time::Instant,
}

/// A sync that the held update waits for.
pub(super) struct Syncing {
    round: u32,
    /// How long it has waited for room, if the disk was full before.
    waited: Option<Duration>,
    pub(super) job: JoinHandle<Result<(), StoreError>>,
}

/// How long the next attempt waits for room, after one that has `waited`.
fn next_wait(waited: Option<Duration>) -> Duration {
    waited.map_or(FIRST_WAIT, |waited| (waited * 2).min(LONGEST_WAIT))
}

impl<C: Connector, S: Store> Driver<'_, C, S> {
    /// Takes a finished job in.
    pub(super) fn finished(&mut self, finished: Finished) -> Option<Event> {
        let finished = match finished {
            Finished::Task(finished) => finished,
            Finished::Hidden(masked) => return self.masked(masked),
        };
        let (id, result) = self.training.finish(finished)?;
        match result {
            Ok(Output::Ready(output)) => self.save(*output, None),
            Ok(Output::Plain { plain, personal }) => self.hide(*plain, personal.as_deref()),
            Err(failure) => Some(self.failed(id.round, failure)),
        }
    }

    /// Saves a finished task, now or as soon as the disk has room, for which it may have `waited` before. The personal model
    /// comes first: in a round without training the server counts the model's test and never asks for it again.
    pub(super) fn save(&mut self, mut output: TaskOutput, waited: Option<Duration>) -> Option<Event> {
        let TaskId { run, round } = output.update.id;
        let saved = output.personal.as_deref().map_or(Ok(()), |model| self.store.save_personal(run, model));
        match saved {
            // The update is of use to the others all the same, and a later round makes another personal model.
            Err(error) if output.work.train => warn!("the personal model of round {round} is lost: {error}"),
            Err(error) => return self.unsaved(output, waited, &error),
            Ok(()) => {}
        }
        output.personal = None;
        if let Err(error) = self.store.save(&output.update) {
            return self.unsaved(output, waited, &error);
        }
        // Saving has dropped the update before this one.
        self.unforgotten = None;
        let Update { report: told, payload, local, .. } = output.update;
        if local.is_none()
            && told.duration >= MIN_SYNCED_TRAINING
            && let Some(sync) = self.store.sync_handle()
        {
            // An earlier sync that still runs has nothing left to do.
            self.syncing = Some(tokio::task::spawn_blocking(move || {
                if let Err(error) = sync() {
                    warn!("the update is saved, but a power failure may lose it: {error}");
                }
            }));
        }
        let TaskOutput { work, report, .. } = output;
        (self.notice)(Notice::Trained { round, work, report, bytes: payload.len() });
        Some(Event::Trained { round, outcome: Ok(told), keeps: local.is_some() })
    }

    /// Begins to sync the held update.
    pub(super) fn sync(&mut self, round: u32) -> Option<Event> {
        let Some(sync) = self.store.sync_handle() else { return Some(Event::Synced { round }) };
        self.promise = Some(Syncing { round, waited: None, job: tokio::task::spawn_blocking(sync) });
        None
    }

    /// The sync that the held update waits for has ended: it is durable, or a full disk is tried again, or it is given up.
    pub(super) fn synced(&mut self, result: Result<(), StoreError>) -> Option<Event> {
        let Syncing { round, waited, .. } = self.promise.take()?;
        match result {
            Ok(()) => Some(Event::Synced { round }),
            Err(error) if error.is_full() => {
                if waited.is_none() {
                    (self.notice)(Notice::NoRoom { round, reason: error.to_string() });
                }
                let sync = self.store.sync_handle()?;
                let waits = next_wait(waited);
                let job = tokio::spawn(async move {
                    tokio::time::sleep(waits).await;
                    let synced = tokio::task::spawn_blocking(sync).await;
                    synced.unwrap_or_else(|error| Err(StoreError::Unsynced(error.to_string())))
                });
                self.promise = Some(Syncing { round, waited: Some(waits), job });
                None
            }
            Err(error) => {
                (self.notice)(Notice::Failed { round, failure: error.failure() });
                Some(Event::Lost { round, reason: error.to_string() })
            }
        }
    }

    /// The task's output cannot be saved: retries on a full disk, fails on any other error.
    fn unsaved(&mut self, output: TaskOutput, waited: Option<Duration>, error: &StoreError) -> Option<Event> {
        let round = output.update.id.round;
        if !error.is_full() {
            return Some(self.failed(round, error.failure()));
        }
        if waited.is_none() {
            (self.notice)(Notice::NoRoom { round, reason: error.to_string() });
        }
        let waits = next_wait(waited);
        self.unsaved = Some(Unsaved { output, waits, retry_at: tokio::time::Instant::now() + waits });
        None
    }

    /// Saves again what found no room.
    pub(super) fn retry_save(&mut self) -> Option<Event> {
        let Unsaved { output, waits, .. } = self.unsaved.take()?;
        self.save(output, Some(waits))
    }

    /// Drops the update of `round`, on which this is the verdict, now or as soon as the disk has room for its client state.
    pub(super) fn forget(&mut self, round: u32, verdict: Option<Verdict>) -> Result<(), StoreError> {
        self.promise = None;
        let waited = self.unforgotten.take().map(|before| before.waits);
        match self.store.forget(verdict.as_ref()) {
            Err(error) if error.is_full() => {
                if waited.is_none() {
                    (self.notice)(Notice::NoRoomForState { round, reason: error.to_string() });
                }
                let waits = next_wait(waited);
                let retry_at = tokio::time::Instant::now() + waits;
                self.unforgotten = Some(Unforgotten { round, verdict, waits, retry_at });
                Ok(())
            }
            done => done,
        }
    }

    /// Drops again what found no room.
    pub(super) fn retry_forget(&mut self) -> Result<(), StoreError> {
        match &self.unforgotten {
            Some(Unforgotten { round, verdict, .. }) => self.forget(*round, verdict.clone()),
            None => Ok(()),
        }
    }

    /// Reports a failed task, through the session also to the server.
    pub(super) fn failed(&mut self, round: u32, failure: Failure) -> Event {
        self.store.discard_download(Some(round));
        (self.notice)(Notice::Failed { round, failure: failure.clone() });
        Event::Trained { round, outcome: Err(failure), keeps: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_stays_full_is_tried_ever_less_often_but_once_a_minute() {
        let waits = std::iter::successors(Some(next_wait(None)), |waited| Some(next_wait(Some(*waited))));
        let seconds: Vec<u64> = waits.take(7).map(|waits| waits.as_secs()).collect();
        assert_eq!(seconds, [2, 4, 8, 16, 32, 60, 60]);
    }
}
