//! What devices have of the model, where it travels as [differences](shared::differences).
//!
//! `base-N` is what the devices of round N train from, and `difference-N` leads to it from the base of the round before. The base of
//! round N follows from all rounds before, and no checkpoint tells it. Both files are written when round N-1 closes, in time to be sent,
//! and are durable before its checkpoint is; a process that dies in between closes that round again, to the same bytes. Should an older
//! difference be lost, devices are sent the whole model.

use std::path::Path;

use bytes::Bytes;
use shared::differences::{Base, Digest, base_of};
use shared::record::Record;

use super::broadcast::{Difference, Part};
use super::directory::round_in;
use super::error::{damaged, disk};
use super::{Run, RunError, SMALL};
use crate::storage::checksum::{ChecksumMismatch, read_checked, write_summed};
use crate::storage::partial;
use crate::storage::retry_full::retry_while_full;

/// The newest base, and what leads to it.
#[derive(Default)]
pub(super) struct Bases {
    /// The digest of the newest.
    pub(super) digest: Option<Digest>,
    /// The newest and its round, if it is small.
    newest: Option<(u32, Base)>,
    /// The newest differences, the oldest first: together they are shorter than the model.
    pub(super) differences: Vec<(u32, Difference)>,
}

impl Bases {
    fn hold(&mut self, round: u32, base: Base) {
        self.digest = Some(base.digest());
        self.newest = Some((round, base)).filter(|(_, base)| base.bytes().len() as u64 <= SMALL);
    }

    /// The base of `round`, if it is in memory.
    fn held(&self, round: u32) -> Option<&Base> {
        self.newest.as_ref().filter(|(newest, _)| *newest == round).map(|(_, base)| base)
    }

    /// Drops differences that a device is not sent: the whole model is shorter.
    fn shorten(&mut self, whole: u64) {
        let length = |differences: &[(u32, Difference)]| -> u64 {
            differences.iter().map(|(_, difference)| difference.part.length).sum()
        };
        while !self.differences.is_empty() && length(&self.differences) >= whole {
            self.differences.remove(0);
        }
    }

    /// Whether a file of this name in `state/` is superseded once round `closed` is settled. The base of that round stays for runs
    /// that take it back because there are to be more rounds.
    pub(super) fn supersede(&self, name: &str, closed: u32) -> bool {
        let oldest = self.differences.first().map_or(u32::MAX, |(round, _)| *round);
        round_in(name, "base-", ".safetensors").is_some_and(|round| round < closed)
            || round_in(name, "difference-", ".safetensors").is_some_and(|round| round < oldest)
    }
}

impl Run {
    /// Makes the base of `round` of what is broadcast in it. Not durable yet.
    pub(super) fn write_base(&mut self, round: u32, record: Record) -> Result<(), RunError> {
        let base = if round == 1 {
            self.bases.differences.clear();
            Base::first(&record)
        } else {
            let before = self.base(round - 1)?;
            let path = self.directory.base(round - 1);
            let difference = before.difference(record, &self.config.spec, round).map_err(damaged(&path))?;
            let base = before.after(&difference).map_err(damaged(&path))?;
            let path = self.directory.difference(round);
            self.write_unsynced(&path, &difference)?;
            let part = Part::of(path, difference);
            self.bases.differences.push((round, Difference { from: before.digest(), part }));
            base
        };
        self.write_unsynced(&self.directory.base(round), base.bytes())?;
        self.bases.shorten(base.bytes().len() as u64);
        self.bases.hold(round, base);
        Ok(())
    }

    /// The base of `round`: from memory, or from its file.
    fn base(&self, round: u32) -> Result<Base, RunError> {
        self.bases.held(round).map_or_else(|| self.read_base(round), |base| Ok(base.clone()))
    }

    fn read_base(&self, round: u32) -> Result<Base, RunError> {
        let path = self.directory.base(round);
        let read = read_checked(&*self.files, &path).map_err(disk("read", &path))?;
        let bytes = read.ok_or_else(|| {
            let reason = "the model that devices have is not there".to_owned();
            RunError::Damaged { path: path.clone(), reason }
        })?;
        Base::stored(bytes.into()).map_err(damaged(&path))
    }

    /// The file of the base of `round`.
    pub(super) fn base_part(&self, round: u32) -> Result<Part, RunError> {
        let path = self.directory.base(round);
        let bytes = self.base(round)?.bytes().clone();
        Ok(Part::of(path, bytes))
    }

    fn write_unsynced(&self, path: &Path, bytes: &Bytes) -> Result<(), RunError> {
        let partial = partial(path);
        let write = || {
            let mut file = self.files.create(&partial)?;
            write_summed(&mut *file, |out| out.write_all(bytes))?;
            file.flush()?;
            drop(file);
            self.files.rename(&partial, path)
        };
        retry_while_full(&*self.files, path, write).map_err(disk("write", path))
    }

    /// Makes the base of `round` durable, before the checkpoint that it belongs to.
    pub(super) fn sync_base(&self, round: u32) -> Result<(), RunError> {
        if !self.config.spec.update.broadcast().is_difference() {
            return Ok(());
        }
        for path in [self.directory.base(round), self.directory.difference(round)] {
            if self.files.length(&path).map_err(disk("look at", &path))?.is_some() {
                self.files.sync_written(&path).map_err(disk("sync", &path))?;
            }
        }
        let state = self.directory.state();
        self.files.sync_dir(&state).map_err(disk("sync", &state))
    }

    /// What an earlier process has left for the round after `closed`.
    pub(super) fn restore_bases(&mut self, closed: u32) -> Result<(), RunError> {
        if !self.config.spec.update.broadcast().is_difference() {
            return Ok(());
        }
        let state = self.directory.state();
        for name in self.files.list(&state).map_err(disk("list", &state))? {
            let round = |begins| round_in(&name, begins, ".safetensors");
            // Of a round that is closed again.
            if round("base-").or(round("difference-")).is_some_and(|round| round > closed + 1) {
                let path = state.join(&name);
                self.files.remove(&path).map_err(disk("remove", &path))?;
            }
        }
        let base = match self.read_base(closed + 1) {
            Ok(base) => base,
            Err(error) => self.made_again(closed)?.ok_or(error)?,
        };
        let mut round = closed + 1;
        while let Some(difference) = self.read_difference(round)? {
            self.bases.differences.insert(0, (round, difference));
            round -= 1;
        }
        self.bases.shorten(base.bytes().len() as u64);
        self.bases.hold(closed + 1, base);
        Ok(())
    }

    /// The base of the round after `closed`, which is damaged, from what it was made of; `None` if that is not there either.
    fn made_again(&mut self, closed: u32) -> Result<Option<Base>, RunError> {
        let base = if closed == 0 {
            self.load(0).ok().map(|global| Base::first(&self.algorithm.broadcast(&global)))
        } else {
            let difference =
                read_checked(&*self.files, &self.directory.difference(closed + 1)).ok().flatten();
            let before = self.read_base(closed).ok();
            before.zip(difference).and_then(|(before, difference)| before.after(&difference.into()).ok())
        };
        if let Some(base) = &base {
            let path = self.directory.base(closed + 1);
            self.write_unsynced(&path, base.bytes())?;
            self.sync_base(closed + 1)?;
            self.warnings.push(format!("{} was damaged, and is made again", path.display()));
        }
        Ok(base)
    }

    /// The difference that leads to the base of `round`; `None` if it is not there as it was written.
    fn read_difference(&self, round: u32) -> Result<Option<Difference>, RunError> {
        let path = self.directory.difference(round);
        let bytes: Bytes = match read_checked(&*self.files, &path) {
            Ok(Some(bytes)) => bytes.into(),
            Ok(None) => return Ok(None),
            Err(error) if ChecksumMismatch::is(&error) => return Ok(None),
            Err(error) => return Err(disk("read", &path)(error)),
        };
        Ok(base_of(&bytes).ok().map(|from| Difference { from, part: Part::of(path, bytes) }))
    }
}

#[cfg(test)]
mod tests {
    use models::ParamSet;
    use models::params::Array;

    use super::*;

    #[test]
    fn a_base_in_memory_is_that_of_its_round_alone() {
        let tensor = |value: f32| Array::new([3], vec![value; 3]).expect("three values");
        let base = |value| {
            let tensors = ParamSet::from_iter([("w".to_owned(), tensor(value))]);
            Base::first(&Record { tensors, ..Record::default() })
        };
        let mut bases = Bases::default();
        assert!(bases.held(0).is_none());
        for round in [1, 2] {
            let newest = base(round as f32);
            bases.hold(round, newest.clone());
            assert_eq!(bases.held(round).map(Base::digest), Some(newest.digest()));
            assert!(bases.held(round - 1).is_none() && bases.held(round + 1).is_none(), "{round}");
            assert_eq!(bases.digest, Some(newest.digest()));
        }
    }
}
