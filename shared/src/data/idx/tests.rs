use std::error::Error;

use super::super::Labels;
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

fn load(directory: &Path, split: Split, classes: usize) -> Result<Dataset, DataError> {
    let options = ReadOptions { labels: Some(Labels::Numbers(classes)), ..ReadOptions::default() };
    Idx.load(directory, split, &options)
}

/// The error that only this format has.
fn of_format(error: DataError) -> IdxError {
    let DataError::Format(error) = error else { panic!("{error}") };
    let error: Box<dyn Error> = error;
    *error.downcast().unwrap()
}

fn small() -> Dataset {
    Dataset::new(vec![1, 2, 3], (0..24).collect(), [3_u8, 0, 1, 3], 4).unwrap()
}

#[test]
fn both_forms_are_read() {
    let expected = Images { count: 2, height: 1, width: 3, pixels: vec![1, 2, 3, 4, 5, 6] };
    let plain = image_file([2, 1, 3], &[1, 2, 3, 4, 5, 6]);
    assert_eq!(read_images(&plain[..]).unwrap(), expected);
    assert_eq!(read_images(&gzip(&plain)[..]).unwrap(), expected);
    assert_eq!(read_labels(&label_file(&[7, 8])[..]).unwrap(), [7, 8]);
    assert_eq!(read_labels(&gzip(&label_file(&[7, 8]))[..]).unwrap(), [7, 8]);
}

#[test]
fn each_malformation_has_its_error() {
    let good = image_file([2, 1, 3], &[1, 2, 3, 4, 5, 6]);
    for compressed in [false, true] {
        let read = |bytes: &[u8]| {
            let file = if compressed { gzip(bytes) } else { bytes.to_vec() };
            read_images(&file[..]).unwrap_err()
        };
        assert!(matches!(of_format(read(&[])), IdxError::HeaderTruncated { needed: 16, found: 0 }));
        assert!(matches!(of_format(read(&good[..15])), IdxError::HeaderTruncated { needed: 16, found: 15 }));
        assert!(matches!(of_format(read(&good[..21])), IdxError::Truncated { declared: 6, found: 5 }));
        assert!(matches!(of_format(read(&good[..16])), IdxError::Truncated { declared: 6, found: 0 }));
        assert!(matches!(
            of_format(read(&[&good[..], &[0]].concat())),
            IdxError::TrailingBytes { declared: 6 }
        ));
        assert!(matches!(read(&image_file([0, 1, 3], &[])), DataError::Empty));
        assert!(matches!(
            of_format(read(&label_file(&[1, 2]))),
            IdxError::Magic { kind: "images", expected: 0x803, found: 0x801 }
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
        of_format(read_images(&good[..good.len() / 2]).unwrap_err()),
        IdxError::Truncated { declared: 78_400, .. }
    ));
    let mut wrong_checksum = good.clone();
    wrong_checksum[good.len() - 6] ^= 1;
    assert!(matches!(read_images(&wrong_checksum[..]), Err(DataError::Io(_))));
    let two_members = [good.clone(), gzip(&[1])].concat();
    assert!(matches!(
        of_format(read_images(&two_members[..]).unwrap_err()),
        IdxError::TrailingBytes { declared: 78_400 }
    ));
}

#[test]
fn a_promise_of_much_content_allocates_little() {
    // 2 GiB declared, 3 bytes present.
    let error = read_images(&image_file([1 << 11, 1 << 10, 1 << 10], &[1, 2, 3])[..]).unwrap_err();
    assert!(matches!(of_format(error), IdxError::Truncated { declared: MAX_CONTENT, found: 3 }));
}

#[test]
fn a_split_written_is_read_back() {
    let directory = tempfile::tempdir().unwrap();
    write_split(directory.path(), Split::Train, &small()).unwrap();
    assert_eq!(load(directory.path(), Split::Train, 4).unwrap(), small());
    let bytes = std::fs::read(directory.path().join("train-labels-idx1-ubyte")).unwrap();
    assert_eq!(bytes, [0, 0, 8, 1, 0, 0, 0, 4, 3, 0, 1, 3]);
    let images = directory.path().join("train-images-idx3-ubyte");
    let compressed = gzip(&std::fs::read(&images).unwrap());
    std::fs::write(directory.path().join("train-images-idx3-ubyte.gz"), compressed).unwrap();
    std::fs::remove_file(images).unwrap();
    assert_eq!(load(directory.path(), Split::Train, 4).unwrap(), small());
}

#[test]
fn errors_name_the_file_and_the_row() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let refused = |classes| load(path, Split::Test, classes).unwrap_err().to_string();
    let absent = load(&path.join("nowhere"), Split::Test, 4).unwrap_err().to_string();
    assert!(absent.contains("nowhere: no such directory"), "{absent}");
    assert!(refused(4).contains("neither `t10k-images-idx3-ubyte` nor `t10k-images-idx3-ubyte.gz`"));

    write_split(path, Split::Test, &small()).unwrap();
    let wrong_label = refused(3);
    assert!(wrong_label.contains("t10k-labels-idx1-ubyte: sample 0 has label 3"), "{wrong_label}");

    std::fs::write(path.join("t10k-labels-idx1-ubyte"), label_file(&[0, 1])).unwrap();
    let counts = refused(4);
    assert!(counts.contains("4 images") && counts.contains("2 labels"), "{counts}");

    std::fs::write(path.join("t10k-images-idx3-ubyte"), [0, 0]).unwrap();
    let header = refused(4);
    assert!(header.contains("t10k-images-idx3-ubyte: ends inside its header"), "{header}");

    std::fs::write(path.join("t10k-images-idx3-ubyte"), image_file([2, 0, 3], &[])).unwrap();
    let shape = refused(4);
    assert!(shape.contains("t10k-images-idx3-ubyte: a sample has shape"), "{shape}");
}

#[test]
fn what_idx_files_cannot_say_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let write = |dataset| write_split(directory.path(), Split::Train, &dataset).unwrap_err().to_string();
    let colour = Dataset::new(vec![3, 1, 1], vec![1, 2, 3], [0_u8], 1).unwrap();
    let error = write(colour);
    assert!(error.contains("images of shape 3x1x1"), "{error}");
    let many = Dataset::new(vec![1, 1, 1], vec![1], [256_u16], 257).unwrap();
    assert!(write(many).contains("257 classes"));
    let features = Dataset::labelled(vec![1, 1, 1], Samples::Floats(vec![0.5]), vec![0], 1).unwrap();
    assert!(write(features).contains("features"));
}

#[test]
fn mnist_is_what_it_is_known_to_be() {
    let data = std::env::var_os("FEDERATION_DATA")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data"), PathBuf::from);
    let mnist = data.join("mnist");
    for (split, samples) in [(Split::Train, 60_000), (Split::Test, 10_000)] {
        match load(&mnist, split, 10) {
            Err(error @ (DataError::DirectoryAbsent { .. } | DataError::NoFile { .. })) => {
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
        let _ = read_images(&file[..]);
        let _ = read_labels(&file[..]);
    }

    #[test]
    fn any_damage_to_a_compressed_file_is_an_error_or_harmless(at in 0_usize..1000, bit in 0_u8..8) {
        let plain = label_file(&(0..=255).cycle().take(1000).collect::<Vec<u8>>());
        let mut bytes = gzip(&plain);
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        // The gzip header has bytes without meaning (time, system); the content is protected by a checksum.
        if let Ok(labels) = read_labels(&bytes[..]) {
            prop_assert_eq!(&labels, &plain[8..]);
        }
    }
}
