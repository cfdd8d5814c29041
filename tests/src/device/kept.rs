//! What a simulated device keeps: in memory, where nothing is ever lost, or in a state directory whose disk fails as a test says.

use std::path::PathBuf;
use std::rc::Rc;

use edge_client::store::{DiskStore, MemoryStore, PersonalModels, SharedDownload, Store, StoreError, faults};
use shared::id::RunId;

use crate::faulty_disk::{FaultyDisk, Loss};

/// A store that outlives the device's processes.
pub(super) enum Kept {
    Memory(Box<MemoryStore>),
    Disk(Box<OnDisk>),
}

/// A state directory.
pub(super) struct OnDisk {
    directory: PathBuf,
    disk: FaultyDisk,
    /// While a process has it open.
    store: Option<DiskStore>,
}

impl Kept {
    pub(super) fn on_disk(directory: PathBuf) -> Self {
        Self::Disk(Box::new(OnDisk { directory, disk: FaultyDisk::counting(), store: None }))
    }

    /// A process uses the store. An error is its death: a store in memory has none.
    pub(super) fn with<T>(
        &mut self,
        work: impl FnOnce(&mut dyn Store) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match self {
            Self::Memory(store) => work(&mut **store),
            Self::Disk(kept) => {
                let OnDisk { directory, disk, store } = &mut **kept;
                let disk = disk.clone();
                faults::with(Rc::new(move |operation| disk.before(operation)), || {
                    if store.is_none() {
                        *store = Some(DiskStore::open(directory)?);
                    }
                    work(store.as_mut().expect("opened above"))
                })
            }
        }
    }

    /// The partial download, while a process has the store open.
    pub(super) fn download(&self) -> Option<SharedDownload> {
        match self {
            Self::Memory(store) => store.download(),
            Self::Disk(kept) => kept.store.as_ref()?.download(),
        }
    }

    /// The process has ended.
    pub(super) fn close(&mut self) {
        if let Self::Disk(kept) = self {
            kept.store = None;
        }
    }

    /// The power fails, now that the process has ended: the next one finds what was synced. It dies at the operation `fatal` of its
    /// own, if it comes to that.
    pub(super) fn lose(&mut self, loss: Loss) {
        if let Self::Disk(kept) = self {
            kept.disk.cut_power(loss);
            kept.disk = kept.disk.next_life(usize::MAX, Loss::Nothing);
        }
    }

    pub(super) fn die_at(&mut self, fatal: usize, loss: Loss) {
        if let Self::Disk(kept) = self {
            kept.disk = kept.disk.next_life(fatal, loss);
        }
    }

    /// Operations of the disk's present life.
    pub(super) fn operations(&self) -> usize {
        match self {
            Self::Memory(_) => 0,
            Self::Disk(kept) => kept.disk.operations(),
        }
    }

    pub(super) fn personal(&self, run: RunId) -> Option<Vec<u8>> {
        match self {
            Self::Memory(store) => store.personal().map(|(_, bytes)| bytes.to_vec()),
            Self::Disk(kept) => std::fs::read(PersonalModels::of(&kept.directory).path(run)).ok(),
        }
    }
}
