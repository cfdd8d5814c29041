//! Uploads that a connection did not bring to their end: the device's next connection brings the rest.
//!
//! What is here of an update stays in the spool, one per device, [`MOST`] in all. A device that comes back is told how much
//! that is, with its hash, before it is welcomed ([`ToClient::ResumePoint`](shared::message::ToClient::ResumePoint)); one that holds
//! something else sends everything. A server that was stopped or killed finds them in its spool again: what a crash has made of
//! them, their hashes tell. One whose run is over for good removes them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use shared::id::ClientId;
use shared::message::ResumePoint;
use tokio::sync::watch;

use super::part::{Part, remove};
use crate::run::directory::uploader_in;

/// Parts of updates that are kept at a time; of more, the oldest goes.
pub(super) const MOST: usize = 64;

#[derive(Debug)]
enum Slot {
    /// It is coming in; whoever wants it to stop says so here.
    Active(u64, watch::Sender<bool>),
    Kept(u64, Box<Part>),
    /// The device may not take part any more: what still comes back of it is not kept.
    Revoked,
}

/// The parts, by the device that brings them.
#[derive(Debug)]
pub(super) struct Partials {
    slots: Mutex<(u64, BTreeMap<ClientId, Slot>)>,
    /// Larger than that of any process whose uploads are still here.
    life: u64,
    /// Files that this process has named.
    named: AtomicU64,
    /// Whether the run is over for good.
    over: Arc<AtomicBool>,
}

impl Drop for Partials {
    fn drop(&mut self) {
        if !self.over.load(Ordering::Relaxed) {
            return;
        }
        for slot in std::mem::take(&mut self.lock().1).into_values() {
            if let Slot::Kept(_, part) = slot {
                remove(&part);
            }
        }
    }
}

impl Partials {
    /// None yet. If `over` is true at the end, so that nobody continues the run, none stays.
    pub(super) fn new(over: Arc<AtomicBool>) -> Self {
        Self { slots: Mutex::default(), life: 0, named: AtomicU64::new(0), over }
    }

    fn lock(&self) -> MutexGuard<'_, (u64, BTreeMap<ClientId, Slot>)> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over what an earlier process has left of updates in the spool, the largest of each device and [`MOST`] in all; the rest
    /// goes.
    pub(super) fn adopt(&mut self, spool: &Path, max_payload: u64) {
        let names = std::fs::read_dir(spool)
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let names: Vec<_> = names.collect();
        // No file of this process has the name of one of theirs.
        let lives = names.iter().filter_map(|name| name.split('-').nth(1)?.parse::<u64>().ok());
        self.life = lives.max().map_or(0, |life| life.saturating_add(1));
        let mut slots = self.lock();
        for (client, path) in
            names.into_iter().filter_map(|name| Some((uploader_in(&name)?, spool.join(name))))
        {
            let kept = match slots.1.get(&client) {
                Some(Slot::Kept(_, part)) => part.bytes,
                Some(Slot::Active(..) | Slot::Revoked) => continue,
                None => 0,
            };
            let found = Part::read(&path, max_payload).filter(|part| part.bytes > kept);
            let Some(part) = found.filter(|_| kept > 0 || slots.1.len() < MOST) else {
                let _ = std::fs::remove_file(&path);
                continue;
            };
            slots.0 += 1;
            let number = slots.0;
            if let Some(Slot::Kept(_, smaller)) = slots.1.insert(client, Slot::Kept(number, Box::new(part))) {
                remove(&smaller);
            }
        }
    }

    /// What tells the next upload's file from all others, also from those of earlier processes.
    pub(super) fn fresh_number(&self) -> String {
        format!("{}-{}", self.life, self.named.fetch_add(1, Ordering::Relaxed))
    }

    /// An upload of `client` begins: its number, and what says when it is to stop.
    pub(super) fn begin(&self, client: ClientId) -> (u64, watch::Receiver<bool>) {
        let (stop, stopped) = watch::channel(false);
        let mut slots = self.lock();
        slots.0 += 1;
        let number = slots.0;
        if let Some(Slot::Kept(_, part)) = slots.1.insert(client, Slot::Active(number, stop)) {
            remove(&part);
        }
        (number, stopped)
    }

    /// The upload with this number ended; with a part that is worth keeping if it did so too early.
    pub(super) fn end(&self, client: ClientId, number: u64, part: Option<Part>) {
        let mut slots = self.lock();
        let ours = matches!(slots.1.get(&client), Some(Slot::Active(active, _)) if *active == number);
        if ours {
            slots.1.remove(&client);
        }
        if let Some(part) = part {
            let worth = part.bytes >= ResumePoint::MIN_BYTES as u64 && part.bytes < part.total;
            if ours && worth {
                slots.1.insert(client, Slot::Kept(number, Box::new(part)));
            } else {
                remove(&part);
            }
        }
        trim(&mut slots.1);
    }

    /// Takes what is kept of an update of `client`, for `round`. An upload on an older connection of the device, which is as
    /// good as dead, is told to stop.
    pub(super) fn take(&self, client: ClientId, round: Option<u32>) -> Taken {
        let mut slots = self.lock();
        match slots.1.get(&client) {
            None => Taken::Nothing,
            Some(Slot::Active(_, stop)) => {
                stop.send_replace(true);
                Taken::Later(stop.clone())
            }
            Some(Slot::Kept(..)) => match slots.1.remove(&client) {
                Some(Slot::Kept(_, part)) if Some(part.header.round) == round => Taken::Part(part),
                Some(Slot::Kept(_, part)) => {
                    remove(&part);
                    Taken::Nothing
                }
                Some(Slot::Active(..) | Slot::Revoked) | None => Taken::Nothing,
            },
            Some(Slot::Revoked) => {
                slots.1.remove(&client);
                Taken::Nothing
            }
        }
    }

    /// The device may not take part any more: what is here of its update goes, and what comes in of it ends.
    pub(super) fn revoke(&self, client: ClientId) {
        match self.lock().1.insert(client, Slot::Revoked) {
            Some(Slot::Kept(_, part)) => remove(&part),
            Some(Slot::Active(_, stop)) => drop(stop.send_replace(true)),
            Some(Slot::Revoked) | None => {}
        }
    }
}

/// A part that was taken, for the upload that may go on with it. If there is none, it is kept again.
#[derive(Debug)]
pub(super) struct Begun<'a> {
    partials: &'a Partials,
    client: ClientId,
    part: Option<Box<Part>>,
}

impl<'a> Begun<'a> {
    /// What [`Partials::take`] has given, if anything.
    pub(super) fn new(partials: &'a Partials, client: ClientId, part: Option<Box<Part>>) -> Self {
        Self { partials, client, part }
    }

    /// What there is.
    pub(super) fn part(&self) -> Option<&Part> {
        self.part.as_deref()
    }

    /// An upload begins: this is its own from now on.
    pub(super) fn take(&mut self) -> Option<Box<Part>> {
        self.part.take()
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        let Some(part) = self.part.take() else { return };
        let mut slots = self.partials.lock();
        slots.0 += 1;
        let number = slots.0;
        // Another connection has brought something newer.
        match slots.1.entry(self.client) {
            Entry::Occupied(_) => remove(&part),
            Entry::Vacant(vacant) => drop(vacant.insert(Slot::Kept(number, part))),
        }
        trim(&mut slots.1);
    }
}

/// Of more than [`MOST`] parts the oldest go.
fn trim(slots: &mut BTreeMap<ClientId, Slot>) {
    let kept = |slot: &Slot| match slot {
        Slot::Kept(number, _) => Some(*number),
        Slot::Active(..) | Slot::Revoked => None,
    };
    while slots.values().filter(|slot| kept(slot).is_some()).count() > MOST {
        let oldest = slots.iter().filter_map(|(client, slot)| Some((kept(slot)?, *client))).min();
        if let Some((_, oldest)) = oldest
            && let Some(Slot::Kept(_, part)) = slots.remove(&oldest)
        {
            remove(&part);
        }
    }
}

/// What [`Partials::take`] finds.
#[derive(Debug)]
pub(super) enum Taken {
    /// There is nothing of use.
    Nothing,
    /// This is here.
    Part(Box<Part>),
    /// Something comes in on another connection. It has ended when nobody listens to this any more.
    Later(watch::Sender<bool>),
}

#[cfg(test)]
mod tests {
    use std::fs;

    use shared::frame;
    use shared::message::{ToServer, TrainReport, UpdateHeader};

    use super::*;
    use crate::run::directory::upload_of;

    fn client(n: u8) -> ClientId {
        ClientId::from_bytes([n; 16])
    }

    fn part(folder: &std::path::Path, name: &str, round: u32, bytes: usize) -> Part {
        let path = folder.join(name);
        fs::write(&path, [vec![1; 20], vec![2; bytes]].concat()).expect("written");
        let header = UpdateHeader { round, report: TrainReport::default() };
        Part { header, path, begins: 20, bytes: bytes as u64, total: 1 << 30 }
    }

    #[test]
    fn a_part_is_kept_for_its_device_and_round_and_given_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let partials = Partials::new(Arc::default());
        assert!(matches!(partials.take(client(1), Some(3)), Taken::Nothing));
        let (number, stopped) = partials.begin(client(1));
        assert!(matches!(partials.take(client(1), Some(3)), Taken::Later(_)));
        assert!(*stopped.borrow(), "it is told to stop");
        partials.end(client(1), number, Some(part(folder.path(), "a", 3, ResumePoint::MIN_BYTES)));
        let Taken::Part(kept) = partials.take(client(1), Some(3)) else { panic!("it is kept") };
        let partial = kept.partial().expect("readable");
        assert_eq!(partial.offset_in(3, &vec![2; ResumePoint::MIN_BYTES + 1]), Some(ResumePoint::MIN_BYTES));
        assert!(matches!(partials.take(client(1), Some(3)), Taken::Nothing));
    }

    #[test]
    fn what_an_earlier_process_has_left_goes_on_and_rubbish_leaves_the_disk() {
        let folder = tempfile::tempdir().expect("a folder");
        let left = |n: u8, number: &str, there: usize, total: usize| {
            let header = UpdateHeader { round: 3, report: TrainReport::default() };
            let frame = frame::encode(&ToServer::Update(header), total as u64);
            let path = folder.path().join(upload_of(client(n), number));
            fs::write(&path, [frame, vec![2; there]].concat()).expect("written");
        };
        let much = 2 * ResumePoint::MIN_BYTES;
        left(1, "0-1", much, 1 << 20);
        left(1, "0-2", ResumePoint::MIN_BYTES, 1 << 20);
        left(2, "0-1", ResumePoint::MIN_BYTES - 1, 1 << 20);
        left(3, "0-1", much, much);
        left(4, "0-1", much, 1 << 21);
        fs::write(folder.path().join(upload_of(client(5), "0-1")), "rubbish").expect("written");
        let mut partials = Partials::new(Arc::default());
        partials.adopt(folder.path(), 1 << 20);
        assert!(partials.fresh_number().starts_with("1-"), "no name is given twice");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 2);
        let taken = |n: u8| match partials.take(client(n), Some(3)) {
            Taken::Part(part) => Some(part.partial().expect("readable").bytes),
            _ => None,
        };
        let found: Vec<_> = (1..=5).map(taken).collect();
        assert_eq!(found, [Some(much as u64), None, Some(much as u64 - 1), None, None]);
    }

    #[test]
    fn what_is_of_no_use_leaves_the_disk() {
        let folder = tempfile::tempdir().expect("a folder");
        let files = || fs::read_dir(folder.path()).expect("a folder").count();
        let over = Arc::<AtomicBool>::default();
        let partials = Partials::new(over.clone());
        let keep = |n: u8, round| {
            let (number, _) = partials.begin(client(n));
            partials.end(
                client(n),
                number,
                Some(part(folder.path(), &n.to_string(), round, ResumePoint::MIN_BYTES)),
            );
        };
        keep(1, 3);
        assert!(matches!(partials.take(client(1), Some(4)), Taken::Nothing));
        assert_eq!(files(), 0, "of another round");
        keep(1, 3);
        let (number, _) = partials.begin(client(1));
        assert_eq!(files(), 0, "another upload began");
        partials.end(client(1), number, Some(part(folder.path(), "little", 3, ResumePoint::MIN_BYTES - 1)));
        assert_eq!(files(), 0, "little is not worth it");
        let (number, _) = partials.begin(client(1));
        let whole = Part {
            total: ResumePoint::MIN_BYTES as u64,
            ..part(folder.path(), "whole", 3, ResumePoint::MIN_BYTES)
        };
        partials.end(client(1), number, Some(whole));
        assert_eq!(files(), 0, "all of it, of which nobody has taken anything");
        keep(1, 3);
        for _ in 0..3 {
            // Connections that end before their uploads go on.
            let Taken::Part(part) = partials.take(client(1), Some(3)) else { panic!("it is kept") };
            drop(Begun::new(&partials, client(1), Some(part)));
            assert_eq!(files(), 1);
        }
        let Taken::Part(part) = partials.take(client(1), Some(3)) else { panic!("it is kept") };
        let begun = Begun::new(&partials, client(1), Some(part));
        partials.begin(client(1));
        drop(begun);
        assert_eq!(files(), 0, "a newer connection has begun anew");
        (0..MOST as u8 + 5).for_each(|n| keep(n, 3));
        assert_eq!(files(), MOST);
        assert!(matches!(partials.take(client(0), Some(3)), Taken::Nothing), "the oldest goes");
        assert!(matches!(partials.take(client(MOST as u8 + 4), Some(3)), Taken::Part(_)));
        let kept = files();
        over.store(true, Ordering::Relaxed);
        drop(partials);
        assert_eq!((kept, files()), (MOST, 1), "at the end all go but what was taken");
    }

    #[test]
    fn of_a_device_that_is_revoked_nothing_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let files = || fs::read_dir(folder.path()).expect("a folder").count();
        let partials = Partials::new(Arc::default());
        let keep = || {
            let (number, _) = partials.begin(client(1));
            partials.end(client(1), number, Some(part(folder.path(), "a", 3, ResumePoint::MIN_BYTES)));
        };
        keep();
        partials.revoke(client(1));
        assert_eq!(files(), 0, "kept");
        // It was let in again.
        assert!(matches!(partials.take(client(1), Some(3)), Taken::Nothing));
        keep();
        let Taken::Part(taken) = partials.take(client(1), Some(3)) else { panic!("it is kept") };
        let begun = Begun::new(&partials, client(1), Some(taken));
        partials.revoke(client(1));
        drop(begun);
        assert_eq!(files(), 0, "taken by a connection that is cut");
        let (number, stopped) = partials.begin(client(1));
        partials.revoke(client(1));
        assert!(*stopped.borrow(), "it is told to stop");
        partials.end(client(1), number, Some(part(folder.path(), "b", 3, ResumePoint::MIN_BYTES)));
        assert_eq!(files(), 0, "coming in");
    }

    #[test]
    fn a_run_that_goes_on_finds_what_was_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let partials = Partials::new(Arc::default());
        let (number, _) = partials.begin(client(1));
        partials.end(client(1), number, Some(part(folder.path(), "a", 3, ResumePoint::MIN_BYTES)));
        drop(partials);
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
    }
}
