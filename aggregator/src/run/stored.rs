//! The accepted updates of a round, read in step with each other.

use std::path::PathBuf;

use models::params::codec::TensorStream;
use shared::aggregation::{Chunk, Contributor, StoredError, StoredUpdates};
use shared::message::reason;

use super::update_file;
use crate::files::{FileLayer, Reading};

/// Values that are read of all updates together: 4 MiB of them, however many updates there are.
const TOGETHER: usize = 1 << 20;

/// Values that are read of one update at once at most: they stay in the second-level cache.
const MOST: usize = 4096;

/// Values of a tensor that are read of each of `updates` updates at once: what of 4 MiB is its share, but so many as make
/// reading worth while.
fn at_once(updates: usize) -> usize {
    (TOGETHER / updates.max(1)).clamp(64, MOST)
}

/// A round's updates in `accepted-N/`. While a rule goes through them each of their files is open, so there may be no more
/// than a process may open (`ulimit -n`).
pub(super) struct StoredRound<'a> {
    files: &'a dyn FileLayer,
    /// Ordered by client, one for each path.
    contributors: Vec<Contributor>,
    paths: Vec<PathBuf>,
    max_payload: u64,
}

impl<'a> StoredRound<'a> {
    /// The updates of these contributors, which are ordered by client, each with its file.
    pub(super) fn new(
        files: &'a dyn FileLayer,
        updates: impl IntoIterator<Item = (Contributor, PathBuf)>,
        max_payload: u64,
    ) -> Self {
        let (contributors, paths) = updates.into_iter().unzip();
        Self { files, contributors, paths, max_payload }
    }

    fn failed(&self, index: usize, reason: &dyn std::fmt::Display) -> StoredError {
        StoredError { update: self.paths[index].display().to_string(), reason: reason.to_string() }
    }

    fn open(&self, index: usize) -> Result<TensorStream<Reading>, StoredError> {
        let mut input =
            Reading::open(self.files, &self.paths[index]).map_err(|error| self.failed(index, &error))?;
        let (_, limits) = update_file::read_header(&mut input, self.max_payload)
            .map_err(|error| self.failed(index, &error))?;
        TensorStream::open(input, limits).map_err(|error| self.failed(index, &reason(&error)))
    }
}

impl StoredUpdates for StoredRound<'_> {
    fn contributors(&self) -> &[Contributor] {
        &self.contributors
    }

    fn pass(&mut self, visit: &mut dyn FnMut(&Chunk<'_>)) -> Result<(), StoredError> {
        let mut streams =
            (0..self.paths.len()).map(|index| self.open(index)).collect::<Result<Vec<_>, _>>()?;
        let mut rows = vec![Vec::new(); streams.len()];
        let values = at_once(streams.len());
        loop {
            // All have the same tensors: what the first stream gives, the others must give too.
            let mut place: Option<Option<(String, usize)>> = None;
            for (index, (stream, row)) in streams.iter_mut().zip(&mut rows).enumerate() {
                let next = stream.next(values, row).map_err(|error| self.failed(index, &reason(&error)))?;
                let next = next.map(|(tensor, offset)| (tensor.to_owned(), offset));
                if *place.get_or_insert_with(|| next.clone()) != next {
                    return Err(self.failed(index, &"its tensors are not those of the other updates"));
                }
            }
            let Some(Some((tensor, offset))) = place else { return Ok(()) };
            visit(&Chunk { tensor: &tensor, offset, rows: &rows });
        }
    }

    fn tensor(&mut self, contributor: usize, tensor: &str) -> Result<Vec<f32>, StoredError> {
        let mut stream = self.open(contributor)?;
        let (mut found, mut values) = (Vec::new(), Vec::new());
        loop {
            let next = stream.next(MOST, &mut values);
            match next.map_err(|error| self.failed(contributor, &reason(&error)))? {
                Some((name, _)) if name == tensor => found.extend_from_slice(&values),
                Some((name, _)) if name < tensor => {}
                _ if found.is_empty() => {
                    return Err(self.failed(contributor, &format!("it has no values of {tensor}")));
                }
                _ => return Ok(found),
            }
        }
    }
}
