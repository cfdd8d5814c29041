//! What a simulated client keeps from round to round, on disk.
//!
//! A simulation that was killed goes on from its last closed round. The updates of the round that was open then are gone,
//! and their clients train again; an algorithm whose clients keep something (control variates, the previous local model)
//! must find it as it was before that round. Each client therefore has two files, for the last two rounds that it trained
//! in, and begins with the newer one that counts. In memory is nothing of a client that does not train.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};

use edge_client::store::{MemoryStore, Store, StoreError, SyncHandle};
use shared::id::{ClientId, RunId};
use shared::message::{Held, TrainReport};
use shared::payload::Payload;

/// The store of one simulated client in one run.
#[derive(Clone, Debug)]
pub(super) struct ClientStore {
    /// The update; a client's connection may be cut even here.
    memory: MemoryStore,
    slots: [PathBuf; 2],
    /// The personal model: whoever makes it again makes the same.
    personal: PathBuf,
    /// The last round that counts of what an earlier process left.
    limit: u32,
    newest: Newest,
}

/// The slot of the newest round that counts.
#[derive(Clone, Copy, Debug)]
enum Newest {
    /// Nobody has looked yet.
    Unknown,
    /// No round counts.
    None,
    Slot(usize),
}

impl ClientStore {
    /// The store of `client` in `folder`, which need not exist. Of what lies there, rounds up to `limit` count.
    pub(super) fn new(folder: &Path, client: ClientId, limit: u32) -> Self {
        let slot = |name: &str| folder.join(format!("{client}.{name}"));
        let (slots, personal) = ([slot("a"), slot("b")], slot("personal.safetensors"));
        Self { memory: MemoryStore::new(), slots, personal, limit, newest: Newest::Unknown }
    }

    fn newest(&mut self) -> Result<Option<usize>, StoreError> {
        match self.newest {
            Newest::Unknown => {}
            Newest::None => return Ok(None),
            Newest::Slot(slot) => return Ok(Some(slot)),
        }
        let mut found: Option<(u32, usize)> = None;
        for (slot, path) in self.slots.iter().enumerate() {
            let round = round(path).map_err(|error| failed("read", path, error))?;
            found = found.max(round.filter(|&round| round <= self.limit).map(|round| (round, slot)));
        }
        let newest = found.map(|(_, slot)| slot);
        self.newest = newest.map_or(Newest::None, Newest::Slot);
        Ok(newest)
    }
}

impl Store for ClientStore {
    fn held(&mut self) -> Result<Option<(Held, TrainReport)>, StoreError> {
        self.memory.held()
    }

    fn payload(&mut self) -> Result<Payload, StoreError> {
        self.memory.payload()
    }

    fn keep(
        &mut self,
        held: Held,
        report: &TrainReport,
        payload: &Payload,
        local: Option<&[u8]>,
    ) -> Result<(), StoreError> {
        self.memory.keep(held, report, payload, None)?;
        let Some(local) = local else { return Ok(()) };
        // What counts is left alone until the new state is whole.
        let slot = self.newest()?.map_or(0, |slot| 1 - slot);
        let path = &self.slots[slot];
        write(path, &[&held.round.to_le_bytes(), local]).map_err(|error| failed("write", path, error))?;
        self.newest = Newest::Slot(slot);
        Ok(())
    }

    fn sync_handle(&self) -> SyncHandle {
        Box::new(|| Ok(()))
    }

    fn forget(&mut self) -> Result<(), StoreError> {
        self.memory.forget()
    }

    fn local(&mut self, _: RunId) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(slot) = self.newest()? else { return Ok(None) };
        let path = &self.slots[slot];
        let read = || {
            let mut file = File::open(path)?;
            file.read_exact(&mut [0; ROUND])?;
            let mut local = Vec::new();
            file.read_to_end(&mut local)?;
            Ok(Some(local))
        };
        read().map_err(|error| failed("read", path, error))
    }

    fn keep_personal(&mut self, _: RunId, bytes: &[u8]) -> Result<(), StoreError> {
        let path = &self.personal;
        write(path, &[bytes]).map_err(|error| failed("write", path, error))
    }
}

/// Bytes of the round's number before the state.
const ROUND: usize = size_of::<u32>();

/// The round whose state lies in a file; `None` if there is none.
fn round(path: &Path) -> io::Result<Option<u32>> {
    let mut bytes = [0; ROUND];
    match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened?.read_exact(&mut bytes)?,
    }
    Ok(Some(u32::from_le_bytes(bytes)))
}

fn write(path: &Path, pieces: &[&[u8]]) -> io::Result<()> {
    fs::create_dir_all(crate::files::parent(path))?;
    let partial = crate::files::partial(path);
    let mut file = File::create(&partial)?;
    pieces.iter().try_for_each(|piece| file.write_all(piece))?;
    drop(file);
    fs::rename(partial, path)
}

fn failed(action: &'static str, path: &Path, error: io::Error) -> StoreError {
    StoreError::Io { action, path: path.to_owned(), error }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: ClientId = ClientId::from_bytes([3; 16]);
    const RUN: RunId = RunId::from_bytes([1; 8]);

    fn train(store: &mut ClientStore, round: u32, local: &str) {
        let held = Held { run: RUN, round };
        store.keep(held, &TrainReport::default(), &Payload::default(), Some(local.as_bytes())).expect("kept");
        store.forget().expect("forgotten");
    }

    fn local(folder: &Path, limit: u32) -> Option<String> {
        let found = ClientStore::new(folder, CLIENT, limit).local(RUN).expect("readable");
        found.map(|bytes| String::from_utf8(bytes).expect("text"))
    }

    #[test]
    fn a_new_process_finds_the_state_of_the_last_round_that_counts() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let folder = folder.path().join("clients");
        let mut store = ClientStore::new(&folder, CLIENT, 0);
        assert_eq!(store.local(RUN).expect("readable"), None);
        for (round, kept) in [(1, "one"), (4, "four"), (5, "five")] {
            train(&mut store, round, kept);
            assert_eq!(store.local(RUN).expect("readable").as_deref(), Some(kept.as_bytes()));
        }
        // Round 5 was open when the process died.
        assert_eq!(local(&folder, 4).as_deref(), Some("four"));
        assert_eq!(local(&folder, 5).as_deref(), Some("five"));
        // It is trained again, and must not replace what it begins with.
        let mut store = ClientStore::new(&folder, CLIENT, 4);
        train(&mut store, 5, "five again");
        assert_eq!(
            (local(&folder, 4).as_deref(), local(&folder, 5).as_deref()),
            (Some("four"), Some("five again"))
        );
    }

    #[test]
    fn clients_that_keep_nothing_leave_no_files() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("clients");
        let mut store = ClientStore::new(&path, CLIENT, 0);
        store
            .keep(Held { run: RUN, round: 1 }, &TrainReport::default(), &Payload::default(), None)
            .expect("kept");
        assert!(store.held().expect("held").is_some() && !path.exists());
    }
}
