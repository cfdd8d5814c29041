//! The store of a simulated client.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use shared::id::RunId;
use shared::message::{CountedUpdate, TaskId, TrainReport, Verdict};
use shared::payload::Payload;

use super::download::{Beginning, SharedDownload};
use super::error::StoreError;
use super::{RUNS_KEPT, Standing, Store, SyncHandle, Update};

/// Keeps everything in memory, without copying payloads. Survives lost connections, but not the process.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    /// The update without a receipt.
    update: Option<Update>,
    /// The client state of each run, behind the update that it stands after. The last written run comes last.
    locals: VecDeque<(TaskId, TrainReport, Vec<u8>)>,
    personal: Option<(RunId, Vec<u8>)>,
    /// The state of secure aggregation of each run.
    masking: BTreeMap<RunId, Bytes>,
    download: Arc<Mutex<Option<Beginning>>>,
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The personal model that was saved last, and its run.
    #[must_use]
    pub fn personal(&self) -> Option<(RunId, &[u8])> {
        self.personal.as_ref().map(|(run, bytes)| (*run, bytes.as_slice()))
    }
}

impl Store for MemoryStore {
    fn pending(&mut self) -> Result<Option<(TaskId, TrainReport)>, StoreError> {
        Ok(self.update.as_ref().map(|update| (update.id, update.report)))
    }

    fn payload(&mut self) -> Result<Payload, StoreError> {
        self.update.as_ref().map(|update| update.payload.clone()).ok_or(StoreError::NothingHeld)
    }

    fn save(&mut self, update: &Update) -> Result<(), StoreError> {
        self.update = Some(update.clone());
        self.discard_download(Some(update.id.round));
        Ok(())
    }

    fn sync_handle(&self) -> Option<SyncHandle> {
        None
    }

    fn forget(&mut self, verdict: Option<&Verdict>) -> Result<(), StoreError> {
        let update = self.update.take().filter(|_| verdict.is_some_and(Verdict::counts));
        if let Some(Update { id, report, local: Some(local), .. }) = update {
            self.locals.retain(|(of, ..)| of.run != id.run);
            self.locals.push_back((id, report, local));
            if self.locals.len() > RUNS_KEPT {
                self.locals.pop_front();
            }
        }
        Ok(())
    }

    fn client_state(&mut self, run: RunId) -> Result<Option<Vec<u8>>, StoreError> {
        let held = self.update.as_ref().filter(|update| update.id.run == run);
        let newest = held.and_then(|update| update.local.as_ref());
        let before = || self.locals.iter().find(|(of, ..)| of.run == run).map(|(.., local)| local);
        Ok(newest.or_else(before).cloned())
    }

    fn standing(&mut self, run: RunId) -> Result<Standing, StoreError> {
        let kept = self.locals.iter().find(|(of, ..)| of.run == run);
        Ok(kept
            .map_or(Standing::Absent, |(of, report, _)| Standing::After(CountedUpdate::of(of.round, report))))
    }

    fn masking(&mut self, run: RunId) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.masking.get(&run).map(|state| state.to_vec()))
    }

    fn keep_masking(&mut self, run: RunId, state: &[u8]) -> Result<(), StoreError> {
        self.masking.insert(run, Bytes::copy_from_slice(state));
        Ok(())
    }

    fn save_personal(&mut self, run: RunId, bytes: &[u8]) -> Result<(), StoreError> {
        self.personal = Some((run, bytes.to_vec()));
        Ok(())
    }

    fn download(&self) -> Option<SharedDownload> {
        Some(self.download.clone())
    }
}
