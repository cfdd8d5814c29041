//! Resumption of uploads that were cut off.
//!
//! The part of an update that has arrived stays in the spool, one per device and [`MAX_PARTIAL_UPLOADS`] in all. A device that
//! reconnects is told its length and hash before the welcome
//! ([`ToClient::ResumePoint`](shared::message::ToClient::ResumePoint)), and sends the rest if it holds the same update, or else
//! everything. A server that was stopped or killed finds the parts in its spool again; hashes reveal what a crash has damaged.
//! A server whose run is over for good removes them.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use shared::id::ClientId;
use shared::message::ResumePoint;
use tokio::sync::watch;

use super::partial_upload::{PartialUpload, remove};
use crate::run::directory::uploader_in;

/// Partial uploads that are kept at a time; of more, the oldest is removed.
pub(super) const MAX_PARTIAL_UPLOADS: usize = 64;

#[derive(Debug)]
enum Slot {
    /// It is arriving; `true` in the channel stops it.
    Active(u64, watch::Sender<bool>),
    Kept(u64, Box<PartialUpload>),
    /// The device was revoked: nothing of it is kept.
    Revoked,
}

/// The partial uploads, by device.
#[derive(Debug)]
pub(super) struct PartialUploads {
    slots: Mutex<(u64, BTreeMap<ClientId, Slot>)>,
    /// Number of this process, larger than that of any process whose uploads are in the spool.
    life: u64,
    /// Files that this process has named.
    named: AtomicU64,
    /// Whether the run is over for good.
    over: Arc<AtomicBool>,
}

impl Drop for PartialUploads {
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

impl PartialUploads {
    /// None yet. If `over` is set when this is dropped, the run is not continued, and all are removed.
    pub(super) fn new(over: Arc<AtomicBool>) -> Self {
        Self { slots: Mutex::default(), life: 0, named: AtomicU64::new(0), over }
    }

    fn lock(&self) -> MutexGuard<'_, (u64, BTreeMap<ClientId, Slot>)> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over the partial uploads that an earlier process has left in the spool: the largest of each device, and
    /// [`MAX_PARTIAL_UPLOADS`] in all. The others are removed.
    pub(super) fn adopt(&mut self, spool: &Path, max_payload: u64) {
        let names = std::fs::read_dir(spool)
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let names: Vec<_> = names.collect();
        // Names of this process must differ from those of earlier ones.
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
            let found = PartialUpload::read(&path, max_payload).filter(|part| part.bytes > kept);
            let Some(part) = found.filter(|_| kept > 0 || slots.1.len() < MAX_PARTIAL_UPLOADS) else {
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

    /// A suffix that makes the next upload's file name unique, among those of earlier processes as well.
    pub(super) fn fresh_number(&self) -> String {
        format!("{}-{}", self.life, self.named.fetch_add(1, Ordering::Relaxed))
    }

    /// Registers an upload of `client`: its number, and a channel that says when it must stop.
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

    /// The upload with this number has ended; early, if there is a part. A part worth resuming is kept.
    pub(super) fn end(&self, client: ClientId, number: u64, part: Option<PartialUpload>) {
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

    /// Takes the kept part of the update of `client` for `round`. An upload that still runs on an older connection of the device
    /// is told to stop.
    pub(super) fn take(&self, client: ClientId, round: Option<u32>) -> Taken {
        let mut slots = self.lock();
        if let Some(Slot::Active(_, stop)) = slots.1.get(&client) {
            stop.send_replace(true);
            return Taken::Later(stop.clone());
        }
        match slots.1.remove(&client) {
            Some(Slot::Kept(_, part)) if Some(part.header.round) == round => return Taken::Part(part),
            Some(Slot::Kept(_, part)) => remove(&part),
            Some(Slot::Active(..) | Slot::Revoked) | None => {}
        }
        Taken::Nothing
    }

    /// The device was revoked: removes its kept part, and stops its upload.
    pub(super) fn revoke(&self, client: ClientId) {
        match self.lock().1.insert(client, Slot::Revoked) {
            Some(Slot::Kept(_, part)) => remove(&part),
            Some(Slot::Active(_, stop)) => drop(stop.send_replace(true)),
            Some(Slot::Revoked) | None => {}
        }
    }
}

/// A part that was taken by a connection. Unless an upload continues it, it is put back when this is dropped.
#[derive(Debug)]
pub(super) struct Resumable<'a> {
    pub(super) partials: &'a PartialUploads,
    pub(super) client: ClientId,
    /// What [`PartialUploads::take`] has given, until an upload takes it.
    pub(super) part: Option<Box<PartialUpload>>,
}

impl Drop for Resumable<'_> {
    fn drop(&mut self) {
        let Some(part) = self.part.take() else { return };
        let mut slots = self.partials.lock();
        slots.0 += 1;
        let number = slots.0;
        // If another connection has brought a newer one, that is kept.
        match slots.1.entry(self.client) {
            Entry::Occupied(_) => remove(&part),
            Entry::Vacant(vacant) => drop(vacant.insert(Slot::Kept(number, part))),
        }
        trim(&mut slots.1);
    }
}

/// Removes the oldest parts beyond [`MAX_PARTIAL_UPLOADS`].
fn trim(slots: &mut BTreeMap<ClientId, Slot>) {
    let kept = |slot: &Slot| match slot {
        Slot::Kept(number, _) => Some(*number),
        Slot::Active(..) | Slot::Revoked => None,
    };
    while slots.values().filter(|slot| kept(slot).is_some()).count() > MAX_PARTIAL_UPLOADS {
        let oldest = slots.iter().filter_map(|(client, slot)| Some((kept(slot)?, *client))).min();
        if let Some((_, oldest)) = oldest
            && let Some(Slot::Kept(_, part)) = slots.remove(&oldest)
        {
            remove(&part);
        }
    }
}

/// What [`PartialUploads::take`] finds.
#[derive(Debug)]
pub(super) enum Taken {
    /// No part of that round.
    Nothing,
    /// The part.
    Part(Box<PartialUpload>),
    /// An upload still runs on another connection. It has ended when this channel has no receiver any more.
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

    fn part(folder: &std::path::Path, name: &str, round: u32, bytes: usize) -> PartialUpload {
        let path = folder.join(name);
        fs::write(&path, [vec![1; 20], vec![2; bytes]].concat()).expect("written");
        let header = UpdateHeader { round, report: TrainReport::default() };
        PartialUpload { header, path, begins: 20, bytes: bytes as u64, total: 1 << 30 }
    }

    #[test]
    fn a_part_is_kept_for_its_device_and_round_and_given_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let partials = PartialUploads::new(Arc::default());
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
        let mut partials = PartialUploads::new(Arc::default());
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
        let partials = PartialUploads::new(over.clone());
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
        let whole = PartialUpload {
            total: ResumePoint::MIN_BYTES as u64,
            ..part(folder.path(), "whole", 3, ResumePoint::MIN_BYTES)
        };
        partials.end(client(1), number, Some(whole));
        assert_eq!(files(), 0, "all of it, none of which was taken");
        keep(1, 3);
        for _ in 0..3 {
            // Connections that end before their uploads go on.
            let Taken::Part(part) = partials.take(client(1), Some(3)) else { panic!("it is kept") };
            drop(Resumable { partials: &partials, client: client(1), part: Some(part) });
            assert_eq!(files(), 1);
        }
        let Taken::Part(part) = partials.take(client(1), Some(3)) else { panic!("it is kept") };
        let begun = Resumable { partials: &partials, client: client(1), part: Some(part) };
        partials.begin(client(1));
        drop(begun);
        assert_eq!(files(), 0, "a newer connection has begun anew");
        (0..MAX_PARTIAL_UPLOADS as u8 + 5).for_each(|n| keep(n, 3));
        assert_eq!(files(), MAX_PARTIAL_UPLOADS);
        assert!(matches!(partials.take(client(0), Some(3)), Taken::Nothing), "the oldest goes");
        assert!(matches!(partials.take(client(MAX_PARTIAL_UPLOADS as u8 + 4), Some(3)), Taken::Part(_)));
        let kept = files();
        over.store(true, Ordering::Relaxed);
        drop(partials);
        assert_eq!((kept, files()), (MAX_PARTIAL_UPLOADS, 1), "at the end all go but what was taken");
    }

    #[test]
    fn of_a_device_that_is_revoked_nothing_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let files = || fs::read_dir(folder.path()).expect("a folder").count();
        let partials = PartialUploads::new(Arc::default());
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
        let begun = Resumable { partials: &partials, client: client(1), part: Some(taken) };
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
        let partials = PartialUploads::new(Arc::default());
        let (number, _) = partials.begin(client(1));
        partials.end(client(1), number, Some(part(folder.path(), "a", 3, ResumePoint::MIN_BYTES)));
        drop(partials);
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
    }
}
