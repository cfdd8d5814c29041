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
        .ok_or_else(|| DataError::FileAbsent { directory: directory.into(), plain })
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
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use proptest::prelude::*;

    fn image_file(dimensions: [u32; 3], pixels: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0, 0, 8, 3];
        bytes.extend(dimensions.iter().flat_map(|dimension| dimension.to_be_bytes()));
        bytes.extend(pixels);
        bytes
    }

    fn label_file(labels: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0, 0, 8, 1];
        bytes.extend((labels.len() as u32).to_be_bytes());
        bytes.extend(labels);
        bytes
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn small() -> Dataset {
        Dataset::new(vec![1, 2, 3], (0..24).collect(), [3_u8, 0, 1, 3], 4).unwrap()
    }

    #[test]
    fn both_forms_are_read() {
        let expected = Images { count: 2, height: 1, width: 3, pixels: vec![1, 2, 3, 4, 5, 6] };
        let plain = image_file([2, 1, 3], &[1, 2, 3, 4, 5, 6]);
        assert_eq!(read_images(&plain).unwrap(), expected);
        assert_eq!(read_images(&gzip(&plain)).unwrap(), expected);
        assert_eq!(read_labels(&label_file(&[7, 8])).unwrap(), [7, 8]);
        assert_eq!(read_labels(&gzip(&label_file(&[7, 8]))).unwrap(), [7, 8]);
    }

    #[test]
    fn each_malformation_has_its_error() {
        let good = image_file([2, 1, 3], &[1, 2, 3, 4, 5, 6]);
        for compressed in [false, true] {
            let read = |bytes: &[u8]| {
                let file = if compressed { gzip(bytes) } else { bytes.to_vec() };
                read_images(&file).unwrap_err()
            };
            assert!(matches!(read(&[]), DataError::HeaderTruncated { needed: 16, found: 0 }));
            assert!(matches!(read(&good[..15]), DataError::HeaderTruncated { needed: 16, found: 15 }));
            assert!(matches!(read(&good[..21]), DataError::Truncated { declared: 6, found: 5 }));
            assert!(matches!(read(&good[..16]), DataError::Truncated { declared: 6, found: 0 }));
            assert!(matches!(read(&[&good[..], &[0]].concat()), DataError::TrailingBytes { declared: 6 }));
            assert!(matches!(read(&image_file([0, 1, 3], &[])), DataError::Empty));
            assert!(matches!(
                read(&label_file(&[1, 2])),
                DataError::Magic { expected_kind: "images", expected: 0x803, found: 0x801 }
            ));
            assert!(matches!(
                read(&image_file([u32::MAX; 3], &[])),
                DataError::TooLarge { limit: MAX_CONTENT, .. }
            ));
            assert!(matches!(read(&image_file([1, 1 << 16, 1 << 16], &[])), DataError::TooLarge { .. }));
        }
    }

    #[test]
    fn damaged_compression_is_refused() {
        let plain = image_file([100, 28, 28], &vec![7; 78_400]);
        let good = gzip(&plain);
        assert!(matches!(read_images(&good[..good.len() - 8]), Err(DataError::Io(_))));
        assert!(matches!(
            read_images(&good[..good.len() / 2]),
            Err(DataError::Truncated { declared: 78_400, .. })
        ));
        let mut wrong_checksum = good.clone();
        wrong_checksum[good.len() - 6] ^= 1;
        assert!(matches!(read_images(&wrong_checksum), Err(DataError::Io(_))));
        let two_members = [good.clone(), gzip(&[1])].concat();
        assert!(matches!(read_images(&two_members), Err(DataError::TrailingBytes { declared: 78_400 })));
    }

    #[test]
    fn a_promise_of_much_content_allocates_little() {
        // 2 GiB declared, 3 bytes present.
        let error = read_images(&image_file([1 << 11, 1 << 10, 1 << 10], &[1, 2, 3])).unwrap_err();
        assert!(matches!(error, DataError::Truncated { declared: MAX_CONTENT, found: 3 }));
    }

    #[test]
    fn a_split_written_is_read_back() {
        let directory = tempfile::tempdir().unwrap();
        write_split(directory.path(), Split::Train, &small()).unwrap();
        assert_eq!(load_split(directory.path(), Split::Train, 4).unwrap(), small());
        let bytes = std::fs::read(directory.path().join("train-labels-idx1-ubyte")).unwrap();
        assert_eq!(bytes, [0, 0, 8, 1, 0, 0, 0, 4, 3, 0, 1, 3]);
        let images = directory.path().join("train-images-idx3-ubyte");
        let compressed = gzip(&std::fs::read(&images).unwrap());
        std::fs::write(directory.path().join("train-images-idx3-ubyte.gz"), compressed).unwrap();
        std::fs::remove_file(images).unwrap();
        assert_eq!(load_split(directory.path(), Split::Train, 4).unwrap(), small());
    }

    #[test]
    fn errors_name_the_file_and_the_row() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let load = |classes| load_split(path, Split::Test, classes).unwrap_err().to_string();
        let absent = load_split(&path.join("nowhere"), Split::Test, 4).unwrap_err().to_string();
        assert!(absent.contains("nowhere: no such directory"), "{absent}");
        assert!(load(4).contains("neither `t10k-images-idx3-ubyte` nor `t10k-images-idx3-ubyte.gz`"));

        write_split(path, Split::Test, &small()).unwrap();
        let wrong_label = load(3);
        assert!(wrong_label.contains("t10k-labels-idx1-ubyte: sample 0 has label 3"), "{wrong_label}");

        std::fs::write(path.join("t10k-labels-idx1-ubyte"), label_file(&[0, 1])).unwrap();
        let counts = load(4);
        assert!(counts.contains("4 images") && counts.contains("2 labels"), "{counts}");

        std::fs::write(path.join("t10k-images-idx3-ubyte"), [0, 0]).unwrap();
        let header = load(4);
        assert!(header.contains("t10k-images-idx3-ubyte: ends inside its header"), "{header}");

        std::fs::write(path.join("t10k-images-idx3-ubyte"), image_file([2, 0, 3], &[])).unwrap();
        let shape = load(4);
        assert!(shape.contains("t10k-images-idx3-ubyte: a sample has shape"), "{shape}");
    }

    #[test]
    fn what_idx_files_cannot_say_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let write = |dataset| write_split(directory.path(), Split::Train, &dataset).unwrap_err().to_string();
        let colour = Dataset::new(vec![3, 1, 1], vec![1, 2, 3], [0_u8], 1).unwrap();
        let error = write(colour);
        assert!(error.contains("images of shape [3, 1, 1]"), "{error}");
        let many = Dataset::new(vec![1, 1, 1], vec![1], [256_u16], 257).unwrap();
        assert!(write(many).contains("257 classes"));
        let features = Dataset::features(vec![1, 1, 1], vec![0.5], vec![0], 1).unwrap();
        assert!(write(features).contains("features"));
    }

    #[test]
    fn mnist_is_what_it_is_known_to_be() {
        let data = std::env::var_os("FEDERATION_DATA")
            .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data"), PathBuf::from);
        let mnist = data.join("mnist");
        for (split, samples) in [(Split::Train, 60_000), (Split::Test, 10_000)] {
            match load_split(&mnist, split, 10) {
                Err(error @ (DataError::DirectoryAbsent { .. } | DataError::FileAbsent { .. })) => {
                    println!("skipped: {error}");
                }
                other => {
                    let set = other.unwrap();
                    assert_eq!((set.len(), set.shape()), (samples, &[1, 28, 28][..]));
                    if split == Split::Test {
                        // Published class counts of the test set.
                        assert_eq!(set.histogram(), [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]);
                    }
                }
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes: Vec<u8>, compressed: bool, magic: bool) {
            let mut file = if magic { vec![0, 0, 8, 3, 0, 0, 0] } else { Vec::new() };
            file.extend(bytes);
            let file = if compressed { gzip(&file) } else { file };
            let _ = read_images(&file);
            let _ = read_labels(&file);
        }

        #[test]
        fn any_damage_to_a_compressed_file_is_an_error_or_harmless(at in 0_usize..1000, bit in 0_u8..8) {
            let plain = label_file(&(0..=255).cycle().take(1000).collect::<Vec<u8>>());
            let mut bytes = gzip(&plain);
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            // The gzip header has bytes without meaning (time, system); the content is protected by a checksum.
            if let Ok(labels) = read_labels(&bytes) {
                prop_assert_eq!(&labels, &plain[8..]);
            }
        }
    }
}
