//! Sample formats: what a reader of files implements.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use super::{DataError, Dataset, ReadOptions, Split};

/// The most bytes of samples or labels that one file may hold: 2 GiB, forty times the MNIST training images.
pub const MAX_CONTENT: u64 = 2 << 30;

/// A format of the [registry](super::registry).
pub type Format = &'static dyn SampleFormat;

/// A file format of samples.
///
/// Its file in this folder holds the reader and its [`FormatError`](super::error::FormatError); a line in
/// [`FORMATS`](super::FORMATS) makes it known to every command.
pub trait SampleFormat: fmt::Debug + Sync {
    /// What it is.
    fn about(&self) -> About;

    /// The file or folder that identifies a split of this format, as messages name it.
    fn signature(&self, split: Split) -> String;

    /// Whether a folder holds a split of this format, labels included.
    fn is_in(&self, directory: &Path, split: Split) -> Result<bool, DataError> {
        Ok(directory.join(self.signature(split)).is_file())
    }

    /// Whether a folder holds samples in an arrangement that this format has only for samples without labels.
    fn is_in_unlabelled(&self, _directory: &Path, _split: Split) -> Result<bool, DataError> {
        Ok(false)
    }

    /// Reads a split. Without [`ReadOptions::labels`] the labels are neither read nor needed.
    ///
    /// # Errors
    /// [`DataError`] with the file, and the record if one is at fault.
    fn load(&self, directory: &Path, split: Split, options: &ReadOptions) -> Result<Dataset, DataError>;
}

impl fmt::Display for dyn SampleFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.about().name)
    }
}

/// What a format is.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// What messages call it: `a CSV table`.
    pub name: &'static str,
    /// Its short name and its files, for `--help`.
    pub help: (&'static str, &'static str),
    /// How much the presence of [its files](SampleFormat::signature) proves.
    pub evidence: Evidence,
}

/// How much the presence of a format's files proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Evidence {
    /// Only counts in a folder without another format: many data sets come with a note.
    Weak,
    /// Could also be a list of images, or notes about them.
    Common,
    /// No other files are named or arranged so.
    Certain,
}

/// Reads a whole file of at most `limit` bytes.
pub(super) fn read_file(path: &Path, limit: u64) -> Result<Vec<u8>, DataError> {
    let mut bytes = Vec::new();
    File::open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(DataError::TooLarge { dimensions: vec![bytes.len()], limit });
    }
    Ok(bytes)
}
