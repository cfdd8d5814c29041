//! The payload of a task: files, or what they hold, one behind the other.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _};

use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use shared::message::ResumePoint;

use super::connection::PeerError;
use crate::run::{Delivery, Part};

/// Bytes that are read from a file at a time.
const CHUNK: usize = 128 << 10;

/// What is left of a payload.
#[derive(Debug)]
pub(super) struct Source(VecDeque<Piece>);

#[derive(Debug)]
enum Piece {
    Memory(Bytes),
    /// The file, and the bytes of it that are left.
    File(File, u64),
}

impl Source {
    /// A payload in memory.
    pub(super) fn whole(bytes: Bytes) -> Self {
        Self(VecDeque::from([Piece::Memory(bytes)]))
    }

    /// Opens what is sent. If its round has closed, a file may be gone. The connection is closed then: where late updates
    /// count, the peer would otherwise be taken to work on a task that it has never received, and its next hello says so.
    pub(super) fn of(delivery: &Delivery) -> Result<Self, PeerError> {
        let piece = |part: &Part| match &part.content {
            Some(content) => Ok(Piece::Memory(content.clone())),
            None => match File::open(&part.path) {
                Ok(file) => Ok(Piece::File(file, part.length)),
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    Err(PeerError::Fault("the round of the task that it was to be sent is over"))
                }
                Err(error) => Err(PeerError::Broadcast(error)),
            },
        };
        delivery.parts().iter().map(piece).collect::<Result<_, _>>().map(Self)
    }

    /// Opens what is sent behind what the peer has, if that is its beginning; also returns the bytes that it has.
    pub(super) fn behind(delivery: &Delivery, partial: ResumePoint) -> Result<(Self, u64), PeerError> {
        if partial.bytes < delivery.length() {
            let mut rest = Self::of(delivery)?;
            if rest.digest(partial.bytes).map_err(PeerError::Broadcast)? == partial.digest {
                return Ok((rest, partial.bytes));
            }
        }
        Self::of(delivery).map(|source| (source, 0))
    }

    /// Passes over this many bytes, and returns their SHA-256.
    fn digest(&mut self, bytes: u64) -> io::Result<[u8; 32]> {
        let (mut left, mut hash) = (bytes, Sha256::new());
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
            let chunk = self.next(most)?.ok_or(ErrorKind::UnexpectedEof)?;
            hash.update(&chunk);
            left -= chunk.len() as u64;
        }
        Ok(hash.finalize().into())
    }

    /// The next bytes; none at the end.
    pub(super) fn chunk(&mut self) -> io::Result<Option<Bytes>> {
        self.next(usize::MAX)
    }

    fn next(&mut self, most: usize) -> io::Result<Option<Bytes>> {
        loop {
            match self.0.front_mut() {
                None => return Ok(None),
                Some(Piece::Memory(content)) if !content.is_empty() => {
                    return Ok(Some(content.split_to(most.min(content.len()))));
                }
                Some(Piece::File(file, left)) if *left > 0 => {
                    let length = usize::try_from(*left).unwrap_or(CHUNK).min(CHUNK).min(most);
                    let mut chunk = vec![0; length];
                    file.read_exact(&mut chunk)?;
                    *left -= length as u64;
                    return Ok(Some(chunk.into()));
                }
                Some(_) => {}
            }
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use shared::message::{TaskKind, ToClient};

    use super::*;
    use crate::run::{Broadcast, Difference};

    /// A model, and two differences to it, of which the first is in memory.
    fn broadcast(folder: &Path) -> Broadcast {
        let part = |name: &str, length| Part { path: folder.join(name), length, content: None };
        let content = Some(Bytes::from_static(b"12345"));
        Broadcast {
            round: 3,
            work: TaskKind::TRAIN,
            failed: 0,
            model: part("model", 300_000),
            digest: Some([3; 32]),
            differences: vec![
                Difference { from: [1; 32], part: Part { content, ..part("gone", 5) } },
                Difference { from: [2; 32], part: part("second", 200_000) },
            ],
        }
    }

    fn all(mut source: Source) -> Vec<u8> {
        let mut bytes = Vec::new();
        while let Some(chunk) = source.chunk().unwrap() {
            bytes.extend_from_slice(&chunk);
        }
        bytes
    }

    #[test]
    fn a_task_that_is_gone_is_not_passed_over_in_silence() {
        let folder = tempfile::tempdir().unwrap();
        let delivery = broadcast(folder.path()).to(None);
        let gone = "the round of the task that it was to be sent is over";
        assert!(matches!(Source::of(&delivery), Err(PeerError::Fault(said)) if said == gone));
        // A checksum follows in the file.
        std::fs::write(folder.path().join("model"), vec![7; 300_016]).unwrap();
        assert_eq!(all(Source::of(&delivery).unwrap()), vec![7; 300_000]);
        // Small ones are in memory, even if their files are deleted.
        let small =
            Part { path: folder.path().join("gone"), length: 1, content: Some(Bytes::from_static(b"1")) };
        let small = Broadcast { model: small, ..broadcast(folder.path()) }.to(None);
        assert_eq!(all(Source::of(&small).unwrap()), b"1");
    }

    #[test]
    fn a_device_is_sent_what_leads_from_its_model_or_the_whole() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("model"), vec![7; 300_000]).unwrap();
        std::fs::write(folder.path().join("second"), vec![8; 200_000]).unwrap();
        let broadcast = broadcast(folder.path());
        let both = [&b"12345"[..], &vec![8; 200_000]].concat();
        let whole = vec![7; 300_000];
        let cases = [
            (Some([1; 32]), &[5, 200_000][..], &both[..]),
            (Some([2; 32]), &[200_000], &both[5..]),
            (Some([9; 32]), &[], &whole),
            (None, &[], &whole),
        ];
        for (base, lengths, payload) in cases {
            let delivery = broadcast.to(base.as_ref());
            assert_eq!(delivery.length(), payload.len() as u64);
            assert_eq!(all(Source::of(&delivery).unwrap()), payload);
            let ToClient::BaseTask { differences, digest, .. } = delivery.task() else { panic!("no task") };
            assert_eq!((&differences[..], digest), (lengths, [3; 32]));
            // It goes on in any part, if what the device has is its beginning.
            for at in [1, 4, 5, 6, 150_000] {
                let partial = ResumePoint::of(3, &payload[..at]);
                let (rest, offset) = Source::behind(&delivery, partial).unwrap();
                assert_eq!((offset, all(rest)), (at as u64, payload[at..].to_vec()));
                let other = ResumePoint { digest: [0; 32], ..partial };
                let (rest, offset) = Source::behind(&delivery, other).unwrap();
                assert_eq!((offset, all(rest).len()), (0, payload.len()));
            }
            let whole = ResumePoint::of(3, payload);
            assert_eq!(Source::behind(&delivery, whole).unwrap().1, 0, "nothing would be left to send");
        }
    }
}
