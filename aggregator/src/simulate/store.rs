//! Client state of a simulation, on disk.
//!
//! A simulation that was killed resumes from its last closed round: the clients of the round that was open train again,
//! and must find their state (control variates, the previous local model) as it was before that round. Each client
//! therefore has two files, with the state of the last two rounds in which its update was accepted, and resumes from the
//! newer one that is still valid. A third file holds the state that belongs to an update without a receipt: it replaces
//! the older of the two if the update is accepted, and is deleted otherwise. Idle clients take no memory.
//!
//! The files have the format of a device's client state, with its checksum. They are not synced: what a power failure has damaged is
//! removed with a warning, and if the client then resumes from an earlier state than the run knows, the operator is told as of a
//! device ([`client_state`](shared::client_state)).

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use edge_client::store::{
    MemoryStore, Standing, Store, StoreError, SyncHandle, Update, read_state, write_state,
};
use shared::durable::absent_is_ok;
use shared::id::{ClientId, RunId};
use shared::message::{CountedUpdate, TaskId, TrainReport, Verdict};
use shared::payload::Payload;
use tracing::warn;

/// The store of one simulated client in one run.
#[derive(Clone, Debug)]
pub(super) struct ClientStore {
    /// The pending update; connections are lost in simulations too.
    memory: MemoryStore,
    run: RunId,
    slots: [PathBuf; 2],
    /// The state that belongs to the pending update, and whether there is any.
    pending: PathBuf,
    pends: bool,
    /// The personal model. It is reproducible and needs no second copy.
    personal: PathBuf,
    /// Which files of an earlier process are valid, until they have been checked.
    left: Option<Left>,
    /// The slot of the newest valid round.
    newest: Option<usize>,
}

/// Which rounds of an earlier process are valid.
#[derive(Clone, Copy, Debug)]
struct Left {
    /// The last closed round.
    closed: u32,
    /// The last round that accepted an update of the client: at most the round that was open.
    counted: Option<u32>,
}

impl ClientStore {
    /// The store of `client` of `run` in `folder`, which need not exist. Stored states are valid up to round `closed`, and up to the
    /// round `counted` of the client's last accepted update.
    pub(super) fn new(
        folder: &Path,
        run: RunId,
        client: ClientId,
        closed: u32,
        counted: Option<u32>,
    ) -> Self {
        let file = |name: &str| folder.join(format!("{client}.{name}"));
        Self {
            memory: MemoryStore::new(),
            run,
            slots: [file("a"), file("b")],
            pending: file("pending"),
            pends: false,
            personal: file("personal.safetensors"),
            left: Some(Left { closed, counted }),
            newest: None,
        }
    }

    /// Recovers the files of an earlier process. Invalid ones are removed, since their round may close without the update.
    fn newest(&mut self) -> Result<Option<usize>, StoreError> {
        let Some(Left { closed, counted }) = self.left else { return Ok(self.newest) };
        let mut found: Option<(u32, usize)> = None;
        for (slot, path) in self.slots.iter().enumerate() {
            match self.read(path)?.map(|(after, _)| after.round) {
                Some(round) if round <= closed.max(counted.unwrap_or(0)) => {
                    found = found.max(Some((round, slot)));
                }
                Some(_) => remove(path)?,
                None => {}
            }
        }
        self.newest = found.map(|(_, slot)| slot);
        match self.read(&self.pending)?.map(|(after, _)| after.round) {
            None => {}
            // The process died before its client had the receipt.
            pending if pending == counted => self.adopt()?,
            Some(_) => remove(&self.pending)?,
        }
        self.left = None;
        Ok(self.newest)
    }

    /// The update that it stands after and the state in a file; `None` without a file. A damaged one is removed.
    fn read(&self, path: &Path) -> Result<Option<(CountedUpdate, Vec<u8>)>, StoreError> {
        match read_state(path, self.run) {
            Ok(found) => Ok(found.and_then(|found| Some((found.after?, found.state)))),
            Err(StoreError::Damaged { problem, .. }) => {
                if let Some((round, state)) = read_old(path).map_err(|error| failed("read", path, error))? {
                    return Ok(Some((CountedUpdate { round, fingerprint: None }, state)));
                }
                warn!("removing client state of a simulation in {}: {problem}", path.display());
                remove(path)?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Commits the state of the pending update. The state before it stays, for a restart from the round before.
    fn adopt(&mut self) -> Result<(), StoreError> {
        let slot = self.newest.map_or(0, |slot| 1 - slot);
        let path = &self.slots[slot];
        fs::rename(&self.pending, path).map_err(|error| failed("move a finished file to", path, error))?;
        self.newest = Some(slot);
        Ok(())
    }
}

impl Store for ClientStore {
    fn pending(&mut self) -> Result<Option<(TaskId, TrainReport)>, StoreError> {
        self.memory.pending()
    }

    fn payload(&mut self) -> Result<Payload, StoreError> {
        self.memory.payload()
    }

    fn save(&mut self, update: &Update) -> Result<(), StoreError> {
        self.newest()?;
        self.forget(None)?;
        let Update { id, report, ref payload, ref local } = *update;
        self.memory.save(&Update { id, report, payload: payload.clone(), local: None })?;
        let Some(local) = local else { return Ok(()) };
        let path = &self.pending;
        replace(path, |partial| write_state(partial, id, &report, local))?;
        self.pends = true;
        Ok(())
    }

    fn sync_handle(&self) -> Option<SyncHandle> {
        None
    }

    fn forget(&mut self, verdict: Option<&Verdict>) -> Result<(), StoreError> {
        if std::mem::take(&mut self.pends) {
            if verdict.is_some_and(Verdict::counts) {
                self.adopt()?;
            } else {
                remove(&self.pending)?;
            }
        }
        self.memory.forget(verdict)
    }

    fn client_state(&mut self, _: RunId) -> Result<Option<Vec<u8>>, StoreError> {
        let newest = self.newest()?;
        let path = if self.pends { Some(&self.pending) } else { newest.map(|slot| &self.slots[slot]) };
        let Some(path) = path else { return Ok(None) };
        let lost = || failed("read", path, io::ErrorKind::NotFound.into());
        self.read(path)?.map(|(_, local)| Some(local)).ok_or_else(lost)
    }

    fn standing(&mut self, _: RunId) -> Result<Standing, StoreError> {
        let Some(slot) = self.newest()? else { return Ok(Standing::Absent) };
        Ok(self.read(&self.slots[slot])?.map_or(Standing::Absent, |(after, _)| Standing::After(after)))
    }

    fn save_personal(&mut self, _: RunId, bytes: &[u8]) -> Result<(), StoreError> {
        let path = &self.personal;
        replace(path, |partial| {
            let written = File::create(partial).and_then(|mut file| file.write_all(bytes));
            written.map_err(|error| failed("write", path, error))
        })
    }
}

/// The round and the state in a file of an earlier program, which wrote the round's number before the state; `None` if it is none of
/// those.
fn read_old(path: &Path) -> io::Result<Option<(u32, Vec<u8>)>> {
    let bytes = fs::read(path)?;
    let Some((round, local)) = bytes.split_first_chunk() else { return Ok(None) };
    // As a number, the beginning of the present format is greater than any run's rounds; and there is no round 0.
    let round = Some(u32::from_le_bytes(*round)).filter(|round| *round > 0 && !bytes.starts_with(b"FLL"));
    Ok(round.map(|round| (round, local.to_vec())))
}

fn remove(path: &Path) -> Result<(), StoreError> {
    absent_is_ok(fs::remove_file(path)).map_err(|error| failed("remove", path, error))
}

/// Writes a file under another name and then renames it.
fn replace(path: &Path, write: impl FnOnce(&Path) -> Result<(), StoreError>) -> Result<(), StoreError> {
    let folder = crate::storage::parent(path);
    fs::create_dir_all(folder).map_err(|error| failed("create", folder, error))?;
    let partial = crate::storage::partial(path);
    write(&partial)?;
    fs::rename(partial, path).map_err(|error| failed("move a finished file to", path, error))
}

fn failed(action: &'static str, path: &Path, error: io::Error) -> StoreError {
    StoreError::Io { action, path: path.to_owned(), error }
}

#[cfg(test)]
mod tests {
    use shared::message::Discard;

    use super::*;

    const CLIENT: ClientId = ClientId::from_bytes([3; 16]);
    const RUN: RunId = RunId::from_bytes([1; 8]);

    fn save(store: &mut ClientStore, round: u32, local: &str) {
        let (id, report) = (TaskId { run: RUN, round }, TrainReport::default());
        let local = Some(local.as_bytes().to_vec());
        store.save(&Update { id, report, payload: Payload::default(), local }).expect("kept");
    }

    fn train(store: &mut ClientStore, round: u32, local: &str) {
        save(store, round, local);
        store.forget(Some(&Verdict::Accepted)).expect("forgotten");
    }

    fn found(store: &mut ClientStore) -> Option<String> {
        let found = store.client_state(RUN).expect("readable");
        found.map(|bytes| String::from_utf8(bytes).expect("text"))
    }

    /// A new process.
    fn opened(folder: &Path, closed: u32, counted: Option<u32>) -> ClientStore {
        ClientStore::new(folder, RUN, CLIENT, closed, counted)
    }

    #[test]
    fn a_new_process_finds_the_state_of_the_last_round_that_counts() {
        let temporary = tempfile::tempdir().expect("a temporary folder");
        let folder = temporary.path().join("clients");
        let mut store = opened(&folder, 0, None);
        assert_eq!(found(&mut store), None);
        for (round, kept) in [(1, "one"), (4, "four"), (5, "five")] {
            train(&mut store, round, kept);
            assert_eq!(found(&mut store).as_deref(), Some(kept));
        }
        assert_eq!(found(&mut opened(&folder, 5, None)).as_deref(), Some("five"));
        // Round 5 was open when the process died, and the update is there.
        assert_eq!(found(&mut opened(&folder, 4, Some(5))).as_deref(), Some("five"));
        // It is not, and is trained again, which must not replace what it begins with.
        let mut store = opened(&folder, 4, Some(4));
        assert_eq!(found(&mut store).as_deref(), Some("four"));
        train(&mut store, 5, "five again");
        assert_eq!(found(&mut opened(&folder, 5, None)).as_deref(), Some("five again"));
        assert_eq!(found(&mut opened(&folder, 4, None)).as_deref(), Some("four"));
        // This time the round closed without it.
        assert_eq!(found(&mut opened(&folder, 5, Some(4))).as_deref(), Some("four"));
    }

    #[test]
    fn what_an_update_leaves_that_does_not_count_is_gone_with_it() {
        let temporary = tempfile::tempdir().expect("a temporary folder");
        let folder = temporary.path().join("clients");
        let mut store = opened(&folder, 0, None);
        train(&mut store, 1, "one");
        for verdict in [None, Some(Verdict::Discarded(Discard::Late))] {
            save(&mut store, 2, "two");
            store.forget(verdict.as_ref()).expect("forgotten");
            assert_eq!(found(&mut store).as_deref(), Some("one"));
        }
        assert_eq!(found(&mut opened(&folder, 2, Some(1))).as_deref(), Some("one"));
        train(&mut store, 3, "three");
        assert_eq!(found(&mut opened(&folder, 3, Some(3))).as_deref(), Some("three"));
    }

    #[test]
    fn a_process_that_died_before_the_receipt_leaves_what_its_run_says_of_the_update() {
        let temporary = tempfile::tempdir().expect("a temporary folder");
        for (closed, counted, expected) in [
            (2, Some(2), "two"),
            (1, Some(2), "two"),
            (1, Some(1), "one"),
            (2, Some(1), "one"),
            (2, None, "one"),
            // A straggler's of long ago.
            (7, Some(1), "one"),
        ] {
            let folder = temporary.path().join(format!("{closed}-{counted:?}"));
            let mut store = opened(&folder, 0, None);
            train(&mut store, 1, "one");
            save(&mut store, 2, "two");
            drop(store);
            assert_eq!(found(&mut opened(&folder, closed, counted)).as_deref(), Some(expected));
            // The next process sees the same.
            assert_eq!(found(&mut opened(&folder, closed, counted)).as_deref(), Some(expected));
        }
    }

    #[test]
    fn clients_that_keep_nothing_leave_no_files() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("clients");
        let mut store = opened(&path, 0, None);
        store
            .save(&Update {
                id: TaskId { run: RUN, round: 1 },
                report: TrainReport::default(),
                payload: Payload::default(),
                local: None,
            })
            .expect("kept");
        assert!(store.pending().expect("held").is_some() && !path.exists());
        store.forget(None).expect("forgotten");
    }

    #[test]
    fn damage_is_noticed_and_files_of_an_earlier_program_are_read() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let old = [&4_u32.to_le_bytes()[..], b"four"].concat();
        fs::write(folder.path().join(format!("{CLIENT}.a")), old).expect("written");
        let mut store = opened(folder.path(), 4, None);
        assert_eq!(found(&mut store).as_deref(), Some("four"));
        let four = CountedUpdate { round: 4, fingerprint: None };
        assert_eq!(store.standing(RUN).expect("readable"), Standing::After(four));
        train(&mut store, 5, "five");
        assert_eq!(
            store.standing(RUN).expect("readable"),
            Standing::After(CountedUpdate::of(5, &TrainReport::default()))
        );
        let path = folder.path().join(format!("{CLIENT}.b"));
        let whole = fs::read(&path).expect("readable");
        let flipped = whole.iter().enumerate().map(|(at, byte)| byte ^ u8::from(at + 2 == whole.len()));
        for damaged in [Vec::new(), vec![0; whole.len()], whole[..20].to_vec(), flipped.collect()] {
            fs::write(&path, damaged).expect("written");
            let mut store = opened(folder.path(), 5, Some(5));
            assert_eq!(found(&mut store).as_deref(), Some("four"), "the state before it");
            assert_eq!(
                store.standing(RUN).expect("readable"),
                Standing::After(four),
                "which the run hears of"
            );
            assert!(!path.exists());
        }
    }
}
