//! The store of a simulated client.

use std::collections::VecDeque;

use shared::id::RunId;
use shared::message::{Held, TrainReport};
use shared::payload::Payload;

use super::error::StoreError;
use super::{RUNS_KEPT, Store, SyncHandle};

/// Keeps everything in memory, without copying payloads. It survives lost connections, not the process.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    update: Option<(Held, TrainReport, Payload)>,
    /// The most recently written run last.
    locals: VecDeque<(RunId, Vec<u8>)>,
    personal: Option<(RunId, Vec<u8>)>,
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The personal model that was kept last, and its run.
    #[must_use]
    pub fn personal(&self) -> Option<(RunId, &[u8])> {
        self.personal.as_ref().map(|(run, bytes)| (*run, bytes.as_slice()))
    }
}

impl Store for MemoryStore {
    fn held(&mut self) -> Result<Option<(Held, TrainReport)>, StoreError> {
        Ok(self.update.as_ref().map(|&(held, report, _)| (held, report)))
    }

    fn payload(&mut self) -> Result<Payload, StoreError> {
        self.update.as_ref().map(|(_, _, payload)| payload.clone()).ok_or(StoreError::NothingHeld)
    }

    fn keep(
        &mut self,
        held: Held,
        report: &TrainReport,
        payload: &Payload,
        local: Option<&[u8]>,
    ) -> Result<(), StoreError> {
        self.update = Some((held, *report, payload.clone()));
        if let Some(local) = local {
            self.locals.retain(|(run, _)| *run != held.run);
            self.locals.push_back((held.run, local.to_vec()));
            if self.locals.len() > RUNS_KEPT {
                self.locals.pop_front();
            }
        }
        Ok(())
    }

    fn sync_handle(&self) -> SyncHandle {
        Box::new(|| Ok(()))
    }

    fn forget(&mut self) -> Result<(), StoreError> {
        self.update = None;
        Ok(())
    }

    fn local(&mut self, run: RunId) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.locals.iter().find(|(kept, _)| *kept == run).map(|(_, local)| local.clone()))
    }

    fn keep_personal(&mut self, run: RunId, bytes: &[u8]) -> Result<(), StoreError> {
        self.personal = Some((run, bytes.to_vec()));
        Ok(())
    }
}
