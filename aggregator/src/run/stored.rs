//! The accepted updates of a round, read in step with each other.

use std::path::PathBuf;

use models::params::codec::{TensorCursor, TensorStream};
use shared::aggregation::{Chunk, Contributor, StoredError, StoredUpdates};
use shared::message::reason;

use super::update_file;
use crate::storage::checksum::content_length;
use crate::storage::{FileLayer, Reading};

/// Values that are read of all updates together: 4 MiB of them, however many updates there are.
const TOGETHER: usize = 1 << 20;

/// Updates that stay open while a rule reads them, far fewer than any system lets a process open. Beyond this number each update
/// is opened for every read, and reads are four times as large.
const OPEN: usize = 128;

/// Values that are read of one update at once at most: they stay in the second-level cache.
const MOST: usize = 4096;

/// Values of a tensor that are read at once from each of `updates` updates: an equal part of 4 MiB, but enough to make a read
/// worthwhile.
fn at_once(updates: usize) -> usize {
    let together = if updates > OPEN { 4 * TOGETHER } else { TOGETHER };
    (together / updates.max(1)).clamp(64, MOST)
}

/// A round's updates in `accepted-N/`, any number of them.
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
        update_file::tensors(self.files, &self.paths[index], self.max_payload)
            .map_err(|reason| self.failed(index, &reason))
    }
}

/// An update that a rule is going through.
struct Row {
    /// One of the first [`OPEN`] keeps its file.
    file: Option<Reading>,
    length: u64,
    cursor: TensorCursor,
}

impl StoredRound<'_> {
    fn row(&self, index: usize) -> Result<Row, StoredError> {
        let (file, cursor) = self.open(index)?.into_parts();
        let length =
            content_length(self.files, &self.paths[index]).map_err(|error| self.failed(index, &error))?;
        Ok(Row { file: (index < OPEN).then_some(file), length: length.unwrap_or(0), cursor })
    }

    /// Reads up to `limit` values of an update; gives their tensor and the offset of the first.
    fn read(
        &self,
        index: usize,
        row: &mut Row,
        limit: usize,
        values: &mut Vec<f32>,
    ) -> Result<Option<(String, usize)>, StoredError> {
        let mut again;
        let file = if let Some(file) = &mut row.file {
            file
        } else {
            // An update's data ends with its content.
            let start = row.length.saturating_sub(row.cursor.remaining());
            again = Reading::open_at(self.files, &self.paths[index], start)
                .map_err(|error| self.failed(index, &error))?;
            &mut again
        };
        let next =
            row.cursor.next(file, limit, values).map_err(|error| self.failed(index, &reason(&error)))?;
        Ok(next.map(|(tensor, offset)| (tensor.to_owned(), offset)))
    }
}

impl StoredUpdates for StoredRound<'_> {
    fn contributors(&self) -> &[Contributor] {
        &self.contributors
    }

    fn pass(&mut self, visit: &mut dyn FnMut(&Chunk<'_>)) -> Result<(), StoredError> {
        let mut open = (0..self.paths.len()).map(|index| self.row(index)).collect::<Result<Vec<_>, _>>()?;
        let mut rows = vec![Vec::new(); open.len()];
        let limit = at_once(open.len());
        loop {
            // All have the same tensors: what the first stream gives, the others must give too.
            let mut place: Option<Option<(String, usize)>> = None;
            for (index, (update, values)) in open.iter_mut().zip(&mut rows).enumerate() {
                let next = self.read(index, update, limit, values)?;
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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs;

    use models::{Array, ParamSet, Precision};
    use shared::frame;
    use shared::id::ClientId;
    use shared::message::{ToServer, TrainReport, UpdateHeader};
    use shared::record::Record;

    use super::*;
    use crate::storage::Disk;

    /// The value at a place of a tensor of an update.
    fn value(update: usize, tensor: &str, place: usize) -> f32 {
        (update * 1000 + place) as f32 + if tensor == "b" { 0.5 } else { 0.0 }
    }

    #[test]
    fn thousands_of_updates_are_read_with_few_of_them_open() {
        const UPDATES: usize = 5000;
        // The first does not fit into one read of this number of updates.
        let tensors = [("a", at_once(UPDATES) + 60), ("b", 3)];
        let folder = tempfile::tempdir().expect("a temporary folder");
        let report = TrainReport::default();
        let updates: Vec<_> = (0..UPDATES)
            .map(|update| {
                let mut record = Record::default();
                for (tensor, length) in tensors {
                    let values = (0..length).map(|place| value(update, tensor, place)).collect();
                    record.tensors.insert(tensor, Array::new([length], values).expect("one axis"));
                }
                let payload = record.to_bytes(Precision::F32);
                let header = ToServer::Update(UpdateHeader { round: 1, report });
                let path = folder.path().join(format!("{update:04}.update"));
                fs::write(&path, [frame::encode(&header, payload.len() as u64), payload].concat())
                    .expect("written");
                let client = ClientId::from_bytes((update as u128).to_be_bytes());
                (Contributor { client, weight: 1 }, path)
            })
            .collect();
        let open_now = || {
            let descriptors = fs::read_dir("/proc/self/fd").expect("Linux has it");
            let links = descriptors.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
            links.filter(|path| path.starts_with(folder.path())).count()
        };
        let mut round = StoredRound::new(&Disk, updates, 1 << 20);
        let mut seen = ParamSet::new();
        let mut chunks = 0;
        round
            .pass(&mut |chunk| {
                assert_eq!((chunk.rows.len(), open_now()), (UPDATES, OPEN));
                for (update, row) in chunk.rows.iter().enumerate() {
                    let expected = (chunk.offset..).map(|place| value(update, chunk.tensor, place));
                    assert!(row.iter().copied().eq(expected.take(row.len())), "{update} {}", chunk.tensor);
                }
                let before = seen.get(chunk.tensor).map_or(0, Array::len);
                assert_eq!(chunk.offset, before);
                seen.insert(chunk.tensor, Array::zeros([before + chunk.rows[UPDATES - 1].len()]));
                chunks += 1;
            })
            .expect("all can be read");
        let found: Vec<_> = seen.iter().map(|(tensor, array)| (tensor, array.len())).collect();
        assert_eq!((chunks, &found[..]), (3, &tensors[..]));
        let other = round.tensor(UPDATES - 1, "b").expect("it is there");
        assert_eq!(other, [0, 1, 2].map(|place| value(UPDATES - 1, "b", place)));
    }
}
