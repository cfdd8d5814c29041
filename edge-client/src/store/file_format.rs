//! The format of a stored file: kind, version, lengths and checksum, then a head and a body.
//!
//! ```text
//! offset  size  field
//!      0     3  kind: "FLU" an update, "FLL" client state, "FLM" the state of secure aggregation
//!      3     1  format version, counted separately for each kind
//!      4     4  head length H, little-endian
//!      8     8  body length B, little-endian
//!     16     4  CRC-32 of bytes 0..16, head and body, little-endian
//!     20     H  head (postcard)
//!   20+H     B  body
//! ```
//!
//! The checksum detects power failures, after which a file system may have a file's length without its bytes. It is not
//! cryptographic: only the client's user can write to the state directory.

use std::fs::File;
use std::io::{self, Read};
use std::ops::RangeInclusive;
use std::path::Path;

use bytes::Bytes;
use flate2::Crc;
use models::Limits;
use serde::Serialize;
use serde::de::DeserializeOwned;
use shared::id::RunId;
use shared::message::{CountedUpdate, TaskId, TrainReport};

use super::durable;
use super::error::StoreError;

/// Bytes before the head.
const FIXED: usize = 20;
/// Bytes before the checksum.
const CHECKED: usize = 16;
/// Longest head: a run id, five numbers of at most 10 bytes and a loss of 8 make 66 bytes, twelve metrics 192 more.
const MAX_HEAD: usize = 512;

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A trained update: head [`UpdateHead`], body a record.
    Update,
    /// Client state: head [`StateHead`], body the algorithm's own bytes.
    Local,
    /// The state of secure aggregation: head [`RunId`], body the machine's own bytes.
    Masking,
}

impl Kind {
    fn magic(self) -> [u8; 3] {
        match self {
            Self::Update => *b"FLU",
            Self::Local => *b"FLL",
            Self::Masking => *b"FLM",
        }
    }

    /// The format versions that this build reads; it writes the newest. Raise a kind's version when *its* head or body changes.
    /// An update of an older version is trained again, but client state of every older version must stay readable.
    fn versions(self) -> RangeInclusive<u8> {
        match self {
            // Version 4 brought whether client state lies beside it.
            Self::Update => 3..=4,
            // Versions 2 and 3 changed the report, which client state does not have; version 4 brought the round, version 5 the update's
            // fingerprint.
            Self::Local => 1..=5,
            Self::Masking => 1..=1,
        }
    }
}

/// The head of a file.
pub(super) trait Head: Sized {
    /// Its bytes, in the newest version.
    fn encode(&self) -> Vec<u8>;

    /// Reads it as this version has it; `None` if these are not its bytes.
    fn decode(version: u8, bytes: &[u8]) -> Option<Self>;
}

/// What an update is of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct UpdateHead {
    pub(super) id: TaskId,
    pub(super) report: TrainReport,
    /// Whether client state lies beside it, without which it is damaged. Version 3 did not say.
    pub(super) keeps: Option<bool>,
}

impl Head for UpdateHead {
    fn encode(&self) -> Vec<u8> {
        encoded(&(self.id, self.report, self.keeps))
    }

    fn decode(version: u8, bytes: &[u8]) -> Option<Self> {
        if version <= 3 {
            return whole(bytes).map(|(id, report)| Self { id, report, keeps: None });
        }
        whole(bytes).map(|(id, report, keeps)| Self { id, report, keeps })
    }
}

impl Head for RunId {
    fn encode(&self) -> Vec<u8> {
        encoded(self)
    }

    fn decode(_: u8, bytes: &[u8]) -> Option<Self> {
        whole(bytes)
    }
}

/// What client state belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StateHead {
    pub(super) run: RunId,
    /// The update that it stands after. Versions before 4 did not say, and version 4 did not have its fingerprint.
    pub(super) after: Option<CountedUpdate>,
}

impl Head for StateHead {
    fn encode(&self) -> Vec<u8> {
        encoded(&(self.run, self.after))
    }

    fn decode(version: u8, bytes: &[u8]) -> Option<Self> {
        match version {
            ..=3 => Some(Self { run: whole(bytes)?, after: None }),
            4 => {
                let (run, round): (RunId, Option<u32>) = whole(bytes)?;
                Some(Self { run, after: round.map(|round| CountedUpdate { round, fingerprint: None }) })
            }
            _ => whole(bytes).map(|(run, after)| Self { run, after }),
        }
    }
}

fn encoded(head: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(head).expect("heads are structs of numbers, which postcard encodes")
}

/// Reads a head that takes all of the bytes.
fn whole<H: DeserializeOwned>(bytes: &[u8]) -> Option<H> {
    match postcard::take_from_bytes(bytes) {
        Ok((head, [])) => Some(head),
        _ => None,
    }
}

/// Why a file does not open.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    /// The system refused, or a newer program wrote the file.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file is not as it was written. The text completes "the file is damaged: it".
    #[error("it {0}")]
    Damaged(String),
}

/// Writes a file; not synced.
pub(super) fn write(path: &Path, kind: Kind, head: &impl Head, body: &[u8]) -> Result<(), StoreError> {
    let head = head.encode();
    assert!(head.len() <= MAX_HEAD, "heads are a few numbers");
    let mut fixed = [0; FIXED];
    fixed[..3].copy_from_slice(&kind.magic());
    fixed[3] = *kind.versions().end();
    fixed[4..8].copy_from_slice(&(head.len() as u32).to_le_bytes());
    fixed[8..CHECKED].copy_from_slice(&(body.len() as u64).to_le_bytes());
    let sum = checksum(&[&fixed[..CHECKED], &head, body]);
    fixed[CHECKED..].copy_from_slice(&sum.to_le_bytes());
    durable::write(path, &[&fixed, &head, body])
}

/// Reads a file; `None` if there is none. Nothing is allocated that the file's own length does not cover.
pub(super) fn read<H: Head>(path: &Path, kind: Kind) -> Result<Option<(H, Bytes)>, OpenError> {
    let failed = |error| OpenError::Store(StoreError::io("read", path)(error));
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    let length = file.metadata().map_err(failed)?.len();
    if length < FIXED as u64 {
        return Err(OpenError::Damaged(format!("ends after {length} bytes")));
    }
    let mut fixed = [0; FIXED];
    file.read_exact(&mut fixed).map_err(failed)?;
    let (head_length, body_length) = lengths(&fixed, kind, path)?;
    if length != FIXED as u64 + head_length as u64 + body_length {
        return Err(OpenError::Damaged(format!("has {length} bytes and announces other lengths")));
    }
    let mut head = vec![0; head_length];
    file.read_exact(&mut head).map_err(failed)?;
    let mut body =
        vec![0; usize::try_from(body_length).map_err(|_| OpenError::Damaged(too_long(body_length)))?];
    file.read_exact(&mut body).map_err(failed)?;
    if checksum(&[&fixed[..CHECKED], &head, &body]).to_le_bytes() != fixed[CHECKED..] {
        return Err(OpenError::Damaged("fails its checksum".to_owned()));
    }
    match H::decode(fixed[3], &head) {
        Some(head) => Ok(Some((head, Bytes::from(body)))),
        None => Err(OpenError::Damaged("has a head that does not decode".to_owned())),
    }
}

/// Head and body length, checked against the largest that are written.
fn lengths(fixed: &[u8; FIXED], kind: Kind, path: &Path) -> Result<(usize, u64), OpenError> {
    if fixed[..3] != kind.magic() {
        return Err(OpenError::Damaged(format!("starts with {:02x?}", &fixed[..3])));
    }
    let known = kind.versions();
    match fixed[3] {
        found if known.contains(&found) => {}
        0 => return Err(OpenError::Damaged("has format version 0, which does not exist".to_owned())),
        found if found < *known.start() => {
            return Err(OpenError::Damaged(format!("is of an earlier edge-client (format version {found})")));
        }
        found => {
            let known = *known.end();
            return Err(StoreError::Newer { path: path.to_path_buf(), found, known }.into());
        }
    }
    let [a, b, c, d, rest @ ..] = &fixed[4..CHECKED] else { unreachable!("twelve bytes") };
    let head = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
    let body = u64::from_le_bytes(rest.try_into().expect("twelve bytes less four"));
    if head > MAX_HEAD {
        return Err(OpenError::Damaged(format!("announces a head of {head} bytes")));
    }
    // No reader takes a longer record, so none was written.
    if body > Limits::default().max_bytes {
        return Err(OpenError::Damaged(too_long(body)));
    }
    Ok((head, body))
}

fn too_long(body: u64) -> String {
    format!("announces a body of {body} bytes")
}

fn checksum(pieces: &[&[u8]]) -> u32 {
    let mut crc = Crc::new();
    for piece in pieces {
        crc.update(piece);
    }
    crc.sum()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use proptest::prelude::*;
    use shared::message::{Fraction, Metric};
    use shared::personalisation::Method;

    use super::*;

    fn head() -> UpdateHead {
        let report = TrainReport {
            samples: 300,
            steps: 5,
            loss: 0.5,
            duration: Duration::new(2, 7),
            metrics: [None; 12],
        };
        UpdateHead {
            id: TaskId { run: RunId::from_bytes(*b"run-0001"), round: 9 },
            report,
            keeps: Some(true),
        }
    }

    fn update(folder: &Path) -> (std::path::PathBuf, Vec<u8>) {
        let path = folder.join("update");
        write(&path, Kind::Update, &head(), b"payload").unwrap();
        let bytes = fs::read(&path).unwrap();
        (path, bytes)
    }

    fn read_update(path: &Path) -> Result<Option<(UpdateHead, Bytes)>, OpenError> {
        read(path, Kind::Update)
    }

    #[test]
    fn golden_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let (path, bytes) = update(folder.path());
        // CRC-32 computed with Python's zlib. Run, round, samples, steps, loss, seconds, nanoseconds, twelve metrics that are not there.
        let fields = b"run-0001\x09\xac\x02\x05\0\0\0\0\0\0\xe0\x3f\x02\x07\0\0\0\0\0\0\0\0\0\0\0\0";
        let mut expected = b"FLU\x04\x24\0\0\0\x07\0\0\0\0\0\0\0".to_vec();
        expected.extend(0x5055_4946u32.to_le_bytes());
        expected.extend([&fields[..], b"\x01\x01payload"].concat());
        assert_eq!(bytes, expected, "an old file would be misread: raise the version of updates");
        assert_eq!(read_update(&path).unwrap(), Some((head(), Bytes::from_static(b"payload"))));
        // Version 3 did not say whether client state goes with it.
        let mut third = b"FLU\x03\x22\0\0\0\x07\0\0\0\0\0\0\0".to_vec();
        third.extend(0x0674_a7d5u32.to_le_bytes());
        third.extend([&fields[..], b"payload"].concat());
        fs::write(&path, third).unwrap();
        let head = UpdateHead { keeps: None, ..head() };
        assert_eq!(read_update(&path).unwrap(), Some((head, Bytes::from_static(b"payload"))));
    }

    #[test]
    fn client_state_of_every_earlier_version_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("local");
        let run = RunId::from_bytes(*b"run-0001");
        // CRC-32 computed with Python's zlib.
        for (version, sum) in [(1, 0xba9e_190du32), (2, 0x48c9_f4f5), (3, 0xafd4_5262)] {
            let mut expected = b"FLL\0\x08\0\0\0\x05\0\0\0\0\0\0\0".to_vec();
            expected[3] = version;
            expected.extend(sum.to_le_bytes());
            expected.extend(b"run-0001state");
            fs::write(&path, &expected).unwrap();
            let found = read::<StateHead>(&path, Kind::Local).unwrap();
            let head = StateHead { run, after: None };
            assert_eq!(found, Some((head, Bytes::from_static(b"state"))), "version {version}");
        }
        let after = |fingerprint| StateHead { run, after: Some(CountedUpdate { round: 300, fingerprint }) };
        let mut fourth = b"FLL\x04\x0b\0\0\0\x05\0\0\0\0\0\0\0".to_vec();
        fourth.extend(0xd0bb_2391u32.to_le_bytes());
        fourth.extend(b"run-0001\x01\xac\x02state");
        fs::write(&path, fourth).unwrap();
        let found = read::<StateHead>(&path, Kind::Local).unwrap();
        assert_eq!(found, Some((after(None), Bytes::from_static(b"state"))));
        let head = after(Some(7));
        write(&path, Kind::Local, &head, b"state").unwrap();
        let mut expected = b"FLL\x05\x0d\0\0\0\x05\0\0\0\0\0\0\0".to_vec();
        expected.extend(0x91a2_51fau32.to_le_bytes());
        expected.extend(b"run-0001\x01\xac\x02\x01\x07state");
        let now = fs::read(&path).unwrap();
        assert_eq!(now, expected, "old state would be misread: raise the version of client state");
        let found = read::<StateHead>(&path, Kind::Local).unwrap();
        assert_eq!(found, Some((head, Bytes::from_static(b"state"))));
        fs::write(&path, b"FLL\x06\x08\0\0\0\x05\0\0\0\0\0\0\0\0\0\0\0run-0001state").unwrap();
        let newer = read::<StateHead>(&path, Kind::Local);
        assert!(matches!(newer, Err(OpenError::Store(StoreError::Newer { found: 6, known: 5, .. }))));
    }

    #[test]
    fn the_longest_head_fits() {
        let held = TaskId { run: RunId::from_bytes([0xff; 8]), round: u32::MAX };
        let report = TrainReport {
            samples: u64::MAX,
            steps: u64::MAX,
            loss: f64::MAX,
            duration: Duration::MAX,
            metrics: [Some(Metric::Tests(
                Some(Method::Fixed),
                Some(Fraction::of(1.0)),
                Some(Fraction::of(1.0)),
            )); 12],
        };
        assert!(UpdateHead { id: held, report, keeps: Some(true) }.encode().len() <= MAX_HEAD);
    }

    #[test]
    fn every_single_byte_changed_and_every_cut_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, bytes) = update(folder.path());
        for position in (0..bytes.len()).filter(|&position| position != 3) {
            let mut damaged = bytes.clone();
            damaged[position] ^= 0x40;
            fs::write(&path, damaged).unwrap();
            assert!(matches!(read_update(&path), Err(OpenError::Damaged(_))), "byte {position}");
        }
        for length in 0..bytes.len() {
            fs::write(&path, &bytes[..length]).unwrap();
            assert!(matches!(read_update(&path), Err(OpenError::Damaged(_))), "cut to {length}");
            // What a power failure leaves on some file systems: the length without the bytes.
            let zeroed = [&bytes[..length], &vec![0; bytes.len() - length]].concat();
            fs::write(&path, zeroed).unwrap();
            assert!(matches!(read_update(&path), Err(OpenError::Damaged(_))), "zeros from {length}");
        }
        fs::write(&path, [&bytes[..], b"x"].concat()).unwrap();
        assert!(matches!(read_update(&path), Err(OpenError::Damaged(_))));
        assert!(matches!(read::<StateHead>(&path, Kind::Local), Err(OpenError::Damaged(_))));
    }

    #[test]
    fn a_newer_version_is_not_damage_and_an_absent_file_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (path, mut bytes) = update(folder.path());
        bytes[3] = 5;
        fs::write(&path, &bytes).unwrap();
        let newer = read_update(&path);
        assert!(matches!(newer, Err(OpenError::Store(StoreError::Newer { found: 5, known: 4, .. }))));
        for older in 0..3 {
            bytes[3] = older;
            fs::write(&path, &bytes).unwrap();
            assert!(matches!(read_update(&path), Err(OpenError::Damaged(_))));
        }
        assert!(read_update(&folder.path().join("absent")).unwrap().is_none());
    }

    #[test]
    fn a_length_that_is_only_announced_is_not_allocated() {
        let folder = tempfile::tempdir().unwrap();
        let (path, mut bytes) = update(folder.path());
        for length in [u64::MAX, u64::MAX - 41, 5 << 30, 1 << 30] {
            bytes[8..16].copy_from_slice(&length.to_le_bytes());
            fs::write(&path, &bytes).unwrap();
            assert!(matches!(read_update(&path), Err(OpenError::Damaged(_))), "{length}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(
            mut bytes in prop::collection::vec(any::<u8>(), 0..200),
            plausible: bool,
        ) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("update");
            if plausible && bytes.len() >= FIXED {
                bytes[..8].copy_from_slice(b"FLU\x01\x10\0\0\0");
            }
            fs::write(&path, &bytes).unwrap();
            prop_assert!(read_update(&path).is_err());
        }
    }
}
