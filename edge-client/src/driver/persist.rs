//! What was trained is kept in the store before anybody hears of it, until the server has said what became of it.

use std::time::Duration;

use shared::message::{TaskId, Verdict};
use tracing::warn;

use super::training::Finished;
use super::{Driver, Notice};
use crate::session::Event;
use crate::store::{Store, StoreError};
use crate::task::TaskOutput;

/// Training that took less is repeated after a power failure rather than synced after every round: memory
/// cards wear out by it. A crash of the process loses neither. The [store](crate::store) and `edge-client
/// --help` promise as much.
const WORTH_A_SYNC: Duration = Duration::from_secs(1);

/// How often a full disk is tried again.
const ROOM_AGAIN: Duration = Duration::from_secs(2);

/// What was trained, and finds no room in the store.
pub(super) struct Unsaved {
    pub(super) held: TaskId,
    pub(super) result: TaskOutput,
    /// When it is tried again.
    pub(super) again: tokio::time::Instant,
}

/// An update that nobody waits for any more, while there is no room to put away what the algorithm keeps with it.
pub(super) struct Unforgotten {
    round: u32,
    verdict: Option<Verdict>,
    /// When it is tried again.
    pub(super) again: tokio::time::Instant,
}

impl Driver {
    pub(super) fn trained<S: Store>(
        &mut self,
        finished: Finished,
        store: &mut S,
        notice: &mut (dyn FnMut(Notice) + Send),
    ) -> Option<Event> {
        let (held, result) = self.training.ended(finished)?;
        match result {
            Ok(result) => self.save(held, result, false, store, notice),
            Err(reason) => Some(failed(held.round, reason, notice)),
        }
    }

    /// Keeps what was trained, now or, if there is no room, as soon as there is. `again`: it was tried before. The personal model
    /// comes first: where nothing is trained any more, the server counts how good it is and will not ask for it again.
    pub(super) fn save<S: Store>(
        &mut self,
        held: TaskId,
        mut result: TaskOutput,
        again: bool,
        store: &mut S,
        notice: &mut (dyn FnMut(Notice) + Send),
    ) -> Option<Event> {
        let round = held.round;
        let kept =
            result.personal.as_deref().map_or(Ok(()), |personal| store.save_personal(held.run, personal));
        match kept {
            // The others have use for what was trained all the same, and another model is made in a later round.
            Err(error) if result.work.train => warn!("the personal model of round {round} is lost: {error}"),
            Err(error) if error.is_full() => return self.later(held, result, again, &error, notice),
            Err(error) => return Some(failed(round, error.to_string(), notice)),
            Ok(()) => {}
        }
        result.personal = None;
        match store.save(held, &result.report, &result.update, result.local.as_deref()) {
            Ok(()) => {
                // One that was held before was forgotten with that.
                self.unforgotten = None;
                if result.report.duration >= WORTH_A_SYNC {
                    let sync = store.sync_handle();
                    // One that still runs has nothing left to do that this one does not.
                    self.syncing = Some(tokio::task::spawn_blocking(move || {
                        if let Err(error) = sync() {
                            warn!("the update is kept, but not safe from a power failure: {error}");
                        }
                    }));
                }
                let (work, bytes) = (result.work, result.update.len());
                notice(Notice::Trained { round, work, report: result.report, bytes });
                let keeps = result.local.is_some();
                Some(Event::Trained { round, outcome: Ok(result.report), keeps })
            }
            Err(error) if error.is_full() => self.later(held, result, again, &error, notice),
            Err(error) => Some(failed(round, error.to_string(), notice)),
        }
    }

    /// There was no room.
    fn later(
        &mut self,
        held: TaskId,
        result: TaskOutput,
        again: bool,
        error: &StoreError,
        notice: &mut (dyn FnMut(Notice) + Send),
    ) -> Option<Event> {
        if !again {
            notice(Notice::NoRoom { round: held.round, reason: error.to_string() });
        }
        let again = tokio::time::Instant::now() + ROOM_AGAIN;
        self.unsaved = Some(Unsaved { held, result, again });
        None
    }

    /// Lets go of the update of this round, of which this became, now or, if there is no room, as soon as there is.
    pub(super) fn forget<S: Store>(
        &mut self,
        round: u32,
        verdict: Option<Verdict>,
        store: &mut S,
        notice: &mut (dyn FnMut(Notice) + Send),
    ) -> Result<(), StoreError> {
        let told = self.unforgotten.take();
        match store.forget(verdict.as_ref()) {
            Err(error) if error.is_full() => {
                if told.is_none() {
                    notice(Notice::NoRoomForState { round, reason: error.to_string() });
                }
                let again = tokio::time::Instant::now() + ROOM_AGAIN;
                self.unforgotten = Some(Unforgotten { round, verdict, again });
                Ok(())
            }
            done => done,
        }
    }

    /// Tries again what found no room.
    pub(super) fn forget_again<S: Store>(
        &mut self,
        store: &mut S,
        notice: &mut (dyn FnMut(Notice) + Send),
    ) -> Result<(), StoreError> {
        match &self.unforgotten {
            Some(Unforgotten { round, verdict, .. }) => self.forget(*round, verdict.clone(), store, notice),
            None => Ok(()),
        }
    }
}

/// A task came to nothing: whoever watches is told, and through the session the server.
pub(super) fn failed(round: u32, reason: String, notice: &mut (dyn FnMut(Notice) + Send)) -> Event {
    notice(Notice::Failed { round, reason: reason.clone() });
    Event::Trained { round, outcome: Err(reason), keeps: false }
}
