//! IDX files, the format of MNIST and its relatives: big-endian header, then bytes.
//!
//! ```text
//! images: 0x00000803, count, height, width (u32 each), then count * height * width pixels
//! labels: 0x00000801, count                (u32 each), then count class numbers
//! ```
//!
//! A file may be compressed with gzip; its content decides, not its name. Reading is bounded: the header comes
//! first, no more is decompressed than it declares, and it may not declare more than [`MAX_CONTENT`].

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use flate2::bufread::GzDecoder;
use thiserror::Error;

use models::shape::spelled;

use super::error::{FormatError, check_directory, existing_file};
use super::format::{About, Evidence, MAX_CONTENT, SampleFormat};
use super::{DataError, Dataset, ReadOptions, Samples, Split};

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// `train-images-idx3-ubyte` and `train-labels-idx1-ubyte`, or `t10k-images-idx3-ubyte` and `t10k-labels-idx1-ubyte`,
/// each plain or with `.gz` appended. The plain file is preferred.
#[derive(Debug)]
pub struct Idx;

impl SampleFormat for Idx {
    fn about(&self) -> About {
        let files = "MNIST's four files, plain or with .gz appended: train-* and t10k-*-ubyte";
        About { name: "IDX files", help: ("IDX", files), evidence: Evidence::Certain }
    }

    fn signature(&self, split: Split) -> String {
        Kind::IMAGES.file_name(split)
    }

    fn is_in(&self, directory: &Path, split: Split) -> Result<bool, DataError> {
        Ok(Kind::IMAGES.find(directory, split).is_ok())
    }

    fn load(&self, directory: &Path, split: Split, options: &ReadOptions) -> Result<Dataset, DataError> {
        check_directory(directory)?;
        options.check_plain(directory, self.about().name)?;
        let images_path = Kind::IMAGES.find(directory, split)?;
        let Some(written) = &options.labels else {
            let Images { height, width, pixels, .. } = read_path(&images_path, read_images)?;
            let dataset = Dataset::unlabelled(vec![1, height, width], Samples::Bytes(pixels));
            return dataset.map_err(|error| error.in_file(images_path));
        };
        let labels_path = Kind::LABELS
            .find(directory, split)
            .map_err(|_| IdxError::NoLabels { plain: Kind::LABELS.file_name(split) }.in_file(directory))?;
        let images = read_path(&images_path, read_images)?;
        let labels = read_path(&labels_path, read_labels)?;
        if images.count != labels.len() {
            let (images, labels) = (images.count, labels.len());
            return Err(IdxError::CountsDiffer { images_path, labels_path, images, labels }.into());
        }
        let shape = vec![1, images.height, images.width];
        let dataset = Dataset::new(shape, images.pixels, labels, written.classes());
        dataset.map(|dataset| dataset.named(written.names().to_vec())).map_err(|error| {
            let at_fault = if matches!(error, DataError::Shape { .. }) { images_path } else { labels_path };
            error.in_file(at_fault)
        })
    }
}

/// The images of an IDX file: grey, one byte per pixel, row by row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Images {
    /// Number of images.
    pub count: usize,
    /// Rows of each.
    pub height: usize,
    /// Columns of each.
    pub width: usize,
    /// `count * height * width` bytes.
    pub pixels: Vec<u8>,
}

/// What a file holds.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    dimensions: u32,
}

impl Kind {
    const IMAGES: Self = Self { name: "images", dimensions: 3 };
    const LABELS: Self = Self { name: "labels", dimensions: 1 };

    fn file_name(self, split: Split) -> String {
        let split = match split {
            Split::Train => "train",
            Split::Test => "t10k",
        };
        format!("{split}-{}-idx{}-ubyte", self.name, self.dimensions)
    }

    fn find(self, directory: &Path, split: Split) -> Result<PathBuf, DataError> {
        let plain = self.file_name(split);
        existing_file(directory, vec![plain.clone(), format!("{plain}.gz")])
    }

    /// Two zero bytes, the type (8: unsigned byte), the number of dimensions.
    fn magic(self) -> u32 {
        0x0000_0800 | self.dimensions
    }
}

/// Errors of IDX files.
#[derive(Debug, Error)]
enum IdxError {
    #[error("holds samples without their labels: neither `{plain}` nor `{plain}.gz` is there")]
    NoLabels { plain: String },
    #[error("is not an IDX file of {kind}: it starts with {found:#010x}, not {expected:#010x}")]
    Magic { kind: &'static str, expected: u32, found: u32 },
    #[error("ends inside its header: {needed} bytes needed, {found} found")]
    HeaderTruncated { needed: usize, found: usize },
    #[error("is truncated: its header declares {declared} bytes of content, {found} follow")]
    Truncated { declared: u64, found: u64 },
    #[error("continues after the {declared} bytes of content that its header declares")]
    TrailingBytes { declared: u64 },
    #[error(
        "{} holds {images} images but {} holds {labels} labels: they are not of the same data set",
        .images_path.display(), .labels_path.display()
    )]
    CountsDiffer { images_path: PathBuf, labels_path: PathBuf, images: usize, labels: usize },
    #[error(
        "{kind} of shape {} with {classes} classes cannot be written as IDX files, which hold grey images of at most 256",
        spelled(.shape)
    )]
    NotGrey { kind: &'static str, shape: Vec<usize>, classes: usize },
}

impl FormatError for IdxError {
    fn lacks_labels(&self) -> bool {
        matches!(self, Self::NoLabels { .. })
    }
}

/// Whether [`write_split`] can write these samples: grey images of at most 256 classes.
#[must_use]
pub fn fits(dataset: &Dataset) -> bool {
    let is_grey = matches!((dataset.samples(), dataset.shape()), (Samples::Bytes(_), [1, _, _]));
    is_grey && dataset.classes() <= 256 && !dataset.has_values()
}

/// Writes a grey data set as the two plain IDX files of one split, replacing existing ones. Refuses samples that do not
/// [fit](fits).
pub fn write_split(directory: &Path, split: Split, dataset: &Dataset) -> Result<(), DataError> {
    let (Samples::Bytes(pixels), &[_, height, width], true) =
        (dataset.samples(), dataset.shape(), fits(dataset))
    else {
        let (kind, shape) = (dataset.samples().kind(), dataset.shape().to_vec());
        return Err(IdxError::NotGrey { kind, shape, classes: dataset.classes() }.into());
    };
    let labels: Vec<u8> = dataset.labels().iter().map(|&label| label as u8).collect();
    let write = |kind: Kind, dimensions: &[usize], content: &[u8]| {
        let path = directory.join(kind.file_name(split));
        write_file(&path, kind, dimensions, content).map_err(|error| error.in_file(path))
    };
    write(Kind::IMAGES, &[dataset.len(), height, width], pixels)?;
    write(Kind::LABELS, &[dataset.len()], &labels)
}

fn read_path<T>(path: &Path, decode: fn(BufReader<File>) -> Result<T, DataError>) -> Result<T, DataError> {
    let file = File::open(path).map_err(DataError::from);
    file.and_then(|file| decode(BufReader::new(file))).map_err(|error| error.in_file(path))
}

/// Reads a file of images, plain or compressed.
pub fn read_images(input: impl BufRead) -> Result<Images, DataError> {
    let ([count, height, width], pixels) = decode(Kind::IMAGES, input)?;
    Ok(Images { count, height, width, pixels })
}

/// Reads a file of labels, plain or compressed.
pub fn read_labels(input: impl BufRead) -> Result<Vec<u8>, DataError> {
    let ([_count], labels) = decode(Kind::LABELS, input)?;
    Ok(labels)
}

/// Decodes a file, which is compressed if it begins with gzip's magic number. Refuses trailing bytes.
fn decode<const D: usize>(kind: Kind, mut input: impl BufRead) -> Result<([usize; D], Vec<u8>), DataError> {
    let mut start = Vec::with_capacity(GZIP_MAGIC.len());
    input.by_ref().take(GZIP_MAGIC.len() as u64).read_to_end(&mut start)?;
    let mut whole = start.chain(input);
    if start == GZIP_MAGIC {
        let mut decoder = GzDecoder::new(whole);
        let content = decode_plain(kind, &mut decoder)?;
        // A second gzip member would be content too.
        whole = decoder.into_inner();
        if !whole.fill_buf()?.is_empty() {
            return Err(IdxError::TrailingBytes { declared: content.1.len() as u64 }.into());
        }
        Ok(content)
    } else {
        decode_plain(kind, &mut whole)
    }
}

/// Reads a magic number, `D` dimensions and their product of bytes.
fn decode_plain<const D: usize>(
    kind: Kind,
    input: &mut impl Read,
) -> Result<([usize; D], Vec<u8>), DataError> {
    let needed = 4 * (1 + D);
    let header = read_up_to(input, needed as u64)?;
    let mut words = header
        .chunks_exact(4)
        .map(|word| u32::from_be_bytes(word.try_into().expect("a chunk has four bytes")));
    // A wrong magic number is reported even if the header is cut short.
    match words.next() {
        Some(found) if found != kind.magic() => {
            return Err(IdxError::Magic { kind: kind.name, expected: kind.magic(), found }.into());
        }
        Some(_) if header.len() == needed => {}
        _ => return Err(IdxError::HeaderTruncated { needed, found: header.len() }.into()),
    }
    let dimensions: [usize; D] =
        std::array::from_fn(|_| words.next().expect("the header has its full length") as usize);
    let declared = dimensions
        .iter()
        .try_fold(1_u64, |product, &dimension| product.checked_mul(dimension as u64))
        .filter(|&declared| declared <= MAX_CONTENT)
        .ok_or_else(|| DataError::TooLarge { dimensions: dimensions.to_vec(), limit: MAX_CONTENT })?;
    if dimensions[0] == 0 {
        return Err(DataError::Empty);
    }
    let content = read_up_to(input, declared)?;
    if (content.len() as u64) < declared {
        return Err(IdxError::Truncated { declared, found: content.len() as u64 }.into());
    }
    // For gzip, reading to the end also verifies the checksum.
    if !read_up_to(input, 1)?.is_empty() {
        return Err(IdxError::TrailingBytes { declared }.into());
    }
    Ok((dimensions, content))
}

/// Reads `limit` bytes or to the end. Memory grows with the bytes read, not with the length that a header declares.
fn read_up_to(input: &mut impl Read, limit: u64) -> Result<Vec<u8>, DataError> {
    let mut bytes = Vec::new();
    match input.take(limit).read_to_end(&mut bytes) {
        // gzip reports a truncated stream like this; the caller finds out how much is missing.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && !bytes.is_empty() => Ok(bytes),
        Err(error) => Err(error.into()),
        Ok(_) => Ok(bytes),
    }
}

fn write_file(path: &Path, kind: Kind, dimensions: &[usize], content: &[u8]) -> Result<(), DataError> {
    let mut out = BufWriter::new(File::create(path)?);
    out.write_all(&kind.magic().to_be_bytes())?;
    for &dimension in dimensions {
        let word = u32::try_from(dimension)
            .map_err(|_| DataError::TooLarge { dimensions: dimensions.to_vec(), limit: MAX_CONTENT })?;
        out.write_all(&word.to_be_bytes())?;
    }
    out.write_all(content)?;
    out.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests;
