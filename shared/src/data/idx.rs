//! IDX files, the format of MNIST and its relatives: big-endian header, then bytes.
//!
//! ```text
//! images: 0x00000803, count, height, width (u32 each), then count * height * width pixels
//! labels: 0x00000801, count                (u32 each), then count class numbers
//! ```
//!
//! A file may be compressed with gzip; the content decides, not the name. Reading is bounded: the header comes
//! first, no more is decompressed than it declares, and it may not declare more than [`MAX_CONTENT`].

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use flate2::bufread::GzDecoder;

use super::{DataError, Dataset, Samples, Split};

/// The most bytes of pixels or labels that one file may declare: 2 GiB, forty times the MNIST training images.
pub const MAX_CONTENT: u64 = 2 << 30;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The name of a split's file of images.
#[must_use]
pub fn images_name(split: Split) -> String {
    file_name(split, Kind::Images)
}

/// `train-images-idx3-ubyte` and `train-labels-idx1-ubyte`, or `t10k-images-idx3-ubyte` and `t10k-labels-idx1-ubyte`.
fn file_name(split: Split, kind: Kind) -> String {
    let split = match split {
        Split::Train => "train",
        Split::Test => "t10k",
    };
    match kind {
        Kind::Images => format!("{split}-images-idx3-ubyte"),
        Kind::Labels => format!("{split}-labels-idx1-ubyte"),
    }
}

/// Images as an IDX file holds them: grey, one byte per pixel, row by row.
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

#[derive(Clone, Copy)]
enum Kind {
    Images,
    Labels,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Images => "images",
            Self::Labels => "labels",
        }
    }

    /// Two zero bytes, the type (8: unsigned byte), the number of dimensions.
    fn magic(self) -> u32 {
        match self {
            Self::Images => 0x0000_0803,
            Self::Labels => 0x0000_0801,
        }
    }
}

/// Reads a file of images from memory, plain or compressed.
pub fn read_images(bytes: &[u8]) -> Result<Images, DataError> {
    images(bytes)
}

/// Reads a file of labels from memory, plain or compressed.
pub fn read_labels(bytes: &[u8]) -> Result<Vec<u8>, DataError> {
    labels(bytes)
}

/// Reads the images and labels of one split from a directory.
///
/// Each of the two files may be plain or have `.gz` appended to its name; the plain one is preferred.
/// Every error names the file it is about.
pub fn load_split(directory: &Path, split: Split, classes: usize) -> Result<Dataset, DataError> {
    super::error::check_directory(directory)?;
    let images_path = find(directory, split, Kind::Images)?;
    let labels_path = find(directory, split, Kind::Labels)?;
    let images = open(&images_path).and_then(images).map_err(|error| error.in_file(&images_path))?;
    let labels = open(&labels_path).and_then(labels).map_err(|error| error.in_file(&labels_path))?;
    if images.count != labels.len() {
        return Err(DataError::CountsDiffer {
            images_path,
            labels_path,
            images: images.count,
            labels: labels.len(),
        });
    }
    Dataset::new(vec![1, images.height, images.width], images.pixels, labels, classes).map_err(|error| {
        let at_fault = match error {
            DataError::Shape { .. } => images_path,
            _ => labels_path,
        };
        error.in_file(at_fault)
    })
}

/// Reads the images of one split from a directory, without their labels: the file of labels is not looked for.
pub fn load_unlabelled(directory: &Path, split: Split) -> Result<Dataset, DataError> {
    super::error::check_directory(directory)?;
    let path = find(directory, split, Kind::Images)?;
    let images = open(&path).and_then(images).map_err(|error| error.in_file(&path))?;
    let samples = Samples::Bytes(images.pixels);
    Dataset::unlabelled(vec![1, images.height, images.width], samples).map_err(|error| error.in_file(path))
}

/// Whether [`write_split`] can write these samples: grey images of at most 256 classes.
#[must_use]
pub fn fits(dataset: &Dataset) -> bool {
    matches!((dataset.samples(), dataset.shape()), (Samples::Bytes(_), [1, _, _])) && dataset.classes() <= 256
}

/// Writes a grey data set as the two plain IDX files of one split, replacing files of these names. Others are refused, see
/// [`fits`].
pub fn write_split(directory: &Path, split: Split, dataset: &Dataset) -> Result<(), DataError> {
    let (Samples::Bytes(pixels), &[_, height, width], true) =
        (dataset.samples(), dataset.shape(), fits(dataset))
    else {
        return Err(DataError::NotIdx {
            kind: dataset.samples().kind(),
            shape: dataset.shape().to_vec(),
            classes: dataset.classes(),
        });
    };
    let labels: Vec<u8> = dataset.labels().iter().map(|&label| label as u8).collect();
    let write = |kind: Kind, dimensions: &[usize], content: &[u8]| {
        let path = directory.join(file_name(split, kind));
        write_file(&path, kind, dimensions, content).map_err(|error| error.in_file(path))
    };
    write(Kind::Images, &[dataset.len(), height, width], pixels)?;
    write(Kind::Labels, &[dataset.len()], &labels)
}

fn find(directory: &Path, split: Split, kind: Kind) -> Result<PathBuf, DataError> {
    let plain = file_name(split, kind);
    [directory.join(&plain), directory.join(format!("{plain}.gz"))]
        .into_iter()
        .find(|path| path.is_file())
        .ok_or_else(|| match kind {
            Kind::Images => DataError::FileAbsent { directory: directory.into(), plain },
            Kind::Labels => DataError::LabelsAbsent { directory: directory.into(), plain },
        })
}

fn open(path: &Path) -> Result<BufReader<File>, DataError> {
    Ok(BufReader::new(File::open(path)?))
}

fn images(input: impl BufRead) -> Result<Images, DataError> {
    let ([count, height, width], pixels) = decode(Kind::Images, input)?;
    Ok(Images { count, height, width, pixels })
}

fn labels(input: impl BufRead) -> Result<Vec<u8>, DataError> {
    let ([_count], labels) = decode(Kind::Labels, input)?;
    Ok(labels)
}

/// Tells gzip from plain by the first two bytes, and refuses anything after the content of either.
fn decode<const D: usize>(kind: Kind, mut input: impl BufRead) -> Result<([usize; D], Vec<u8>), DataError> {
    let mut start = Vec::with_capacity(GZIP_MAGIC.len());
    input.by_ref().take(GZIP_MAGIC.len() as u64).read_to_end(&mut start)?;
    let mut whole = start.chain(input);
    if start == GZIP_MAGIC {
        let mut decoder = GzDecoder::new(whole);
        let content = decode_plain(kind, &mut decoder)?;
        // A second compressed member would be content as well.
        whole = decoder.into_inner();
        if !whole.fill_buf()?.is_empty() {
            return Err(DataError::TrailingBytes { declared: content.1.len() as u64 });
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
    // Four bytes are enough to tell that the file is something else, however short it is.
    match words.next() {
        Some(found) if found != kind.magic() => {
            return Err(DataError::Magic { expected_kind: kind.name(), expected: kind.magic(), found });
        }
        Some(_) if header.len() == needed => {}
        _ => return Err(DataError::HeaderTruncated { needed, found: header.len() }),
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
        return Err(DataError::Truncated { declared, found: content.len() as u64 });
    }
    // For gzip, reaching the end is also what verifies the checksum.
    if !read_up_to(input, 1)?.is_empty() {
        return Err(DataError::TrailingBytes { declared });
    }
    Ok((dimensions, content))
}

/// Reads `limit` bytes or to the end. Memory grows with what arrives, not with what a header promised.
fn read_up_to(input: &mut impl Read, limit: u64) -> Result<Vec<u8>, DataError> {
    let mut bytes = Vec::new();
    match input.take(limit).read_to_end(&mut bytes) {
        // How gzip reports that its own stream is cut short: the caller knows how much is missing.
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
