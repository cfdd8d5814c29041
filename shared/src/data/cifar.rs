//! The binary files of CIFAR-10 and CIFAR-100 (Krizhevsky 2009), 32x32 images in colour.
//!
//! ```text
//! CIFAR-10  data_batch_1.bin ... data_batch_5.bin, test_batch.bin: records of class and 3072 pixels
//! CIFAR-100 train.bin, test.bin: records of coarse class, fine class and 3072 pixels
//! ```
//!
//! Each number is a byte; the pixels are those of the red channel, row by row, then of the green, then of the blue: the
//! layout of [`Dataset`]. CIFAR-100 is read with its 100 fine classes. The files may be in the named folder, or in the
//! subfolder that the published archive unpacks to.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::error::{FormatError, check_directory};
use super::format::{About, Evidence, MAX_CONTENT, SampleFormat};
use super::{DataError, Dataset, ReadOptions, Split};

/// Shape of every image.
pub const SHAPE: [usize; 3] = [3, 32, 32];

const PIXELS: usize = 3 * 32 * 32;

/// One of the two data sets.
#[derive(Debug)]
pub struct Cifar {
    name: &'static str,
    classes: usize,
    /// Bytes before the pixels; the last of them is the class.
    label_bytes: usize,
    /// The folder that the published archive unpacks to.
    folder: &'static str,
    train: &'static [&'static str],
    test: &'static [&'static str],
}

impl Cifar {
    /// CIFAR-10.
    pub const TEN: Self = Self {
        name: "CIFAR-10 binary files",
        classes: 10,
        label_bytes: 1,
        folder: "cifar-10-batches-bin",
        train: &[
            "data_batch_1.bin",
            "data_batch_2.bin",
            "data_batch_3.bin",
            "data_batch_4.bin",
            "data_batch_5.bin",
        ],
        test: &["test_batch.bin"],
    };

    /// CIFAR-100, with its fine classes.
    pub const HUNDRED: Self = Self {
        name: "CIFAR-100 binary files",
        classes: 100,
        label_bytes: 2,
        folder: "cifar-100-binary",
        train: &["train.bin"],
        test: &["test.bin"],
    };

    /// The files of a split, in order.
    #[must_use]
    pub fn files(&self, split: Split) -> &'static [&'static str] {
        match split {
            Split::Train => self.train,
            Split::Test => self.test,
        }
    }

    /// The folder of a split's first file: `directory` or the archive's folder within it.
    fn find(&self, directory: &Path, split: Split) -> Option<PathBuf> {
        let first = self.files(split)[0];
        [directory.to_path_buf(), directory.join(self.folder)]
            .into_iter()
            .find(|directory| directory.join(first).is_file())
    }

    /// Appends the images and labels of a file.
    fn read(&self, path: &Path, pixels: &mut Vec<u8>, labels: &mut Vec<u8>) -> Result<(), DataError> {
        let mut file = File::open(path)?;
        let bytes = file.metadata()?.len();
        let record = self.label_bytes + PIXELS;
        if bytes > MAX_CONTENT {
            return Err(DataError::TooLarge { dimensions: vec![bytes as usize], limit: MAX_CONTENT });
        }
        if bytes == 0 || bytes % record as u64 != 0 {
            return Err(CifarError::Records { record, found: bytes }.into());
        }
        let count = bytes as usize / record;
        pixels.reserve(count * PIXELS);
        labels.reserve(count);
        let mut buffer = vec![0; record];
        for row in 0..count {
            file.read_exact(&mut buffer)?;
            let (classes, image) = buffer.split_at(self.label_bytes);
            let label = classes[self.label_bytes - 1];
            if usize::from(label) >= self.classes {
                return Err(DataError::Label { row, label: label.into(), classes: self.classes });
            }
            labels.push(label);
            pixels.extend_from_slice(image);
        }
        Ok(())
    }
}

impl SampleFormat for Cifar {
    fn about(&self) -> About {
        let help = ("CIFAR", "the binary files of CIFAR-10 or CIFAR-100");
        About { name: self.name, help, evidence: Evidence::Certain }
    }

    fn signature(&self, split: Split) -> String {
        self.files(split)[0].to_owned()
    }

    fn is_in(&self, directory: &Path, split: Split) -> Result<bool, DataError> {
        Ok(self.find(directory, split).is_some())
    }

    /// All files of the split must exist; each may hold any number of images.
    fn load(&self, directory: &Path, split: Split, options: &ReadOptions) -> Result<Dataset, DataError> {
        check_directory(directory)?;
        options.check_plain(directory, self.about().name)?;
        let files = self.files(split);
        let absent =
            |directory: PathBuf, name: &str| DataError::NoFile { directory, names: vec![name.to_owned()] };
        let folder = self.find(directory, split);
        let folder = folder.ok_or_else(|| absent(directory.to_path_buf(), files[0]))?;
        let (mut pixels, mut labels) = (Vec::new(), Vec::new());
        for name in files {
            let path = folder.join(name);
            if !path.is_file() {
                return Err(absent(folder, name));
            }
            self.read(&path, &mut pixels, &mut labels).map_err(|error| error.in_file(path))?;
        }
        let dataset = Dataset::new(SHAPE.to_vec(), pixels, labels, self.classes)?;
        Ok(if options.labels.is_some() { dataset } else { dataset.without_labels() })
    }
}

/// Errors of CIFAR files.
#[derive(Debug, Error)]
enum CifarError {
    #[error(
        "has {found} bytes, which is no whole number of records of {record} bytes, at least one: is the copy complete?"
    )]
    Records { record: usize, found: u64 },
}

impl FormatError for CifarError {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::data::Samples;

    fn load(cifar: &Cifar, folder: &Path, split: Split) -> Result<Dataset, DataError> {
        cifar.load(folder, split, &ReadOptions::default())
    }

    fn record(labels: &[u8], first_pixel: u8) -> Vec<u8> {
        let mut record = labels.to_vec();
        record.extend((0..PIXELS).map(|pixel| first_pixel.wrapping_add(pixel as u8)));
        record
    }

    fn ten(folder: &Path) {
        for (number, name) in Cifar::TEN.files(Split::Train).iter().enumerate() {
            let records = [record(&[number as u8], 7), record(&[9], number as u8)].concat();
            std::fs::write(folder.join(name), records).unwrap();
        }
        std::fs::write(folder.join("test_batch.bin"), record(&[3], 0)).unwrap();
    }

    #[test]
    fn records_are_read_in_the_order_of_files() {
        let folder = tempfile::tempdir().unwrap();
        ten(folder.path());
        let train = load(&Cifar::TEN, folder.path(), Split::Train).unwrap();
        assert_eq!((train.len(), train.shape(), train.classes()), (10, &[3, 32, 32][..], 10));
        assert_eq!(train.labels(), [0, 9, 1, 9, 2, 9, 3, 9, 4, 9]);
        let Samples::Bytes(pixels) = train.samples() else { panic!("images are bytes") };
        assert_eq!((pixels[0], pixels[1], pixels[3 * PIXELS]), (7, 8, 1));
        let test = load(&Cifar::TEN, folder.path(), Split::Test).unwrap();
        assert_eq!((test.len(), test.labels()), (1, &[3][..]));
    }

    #[test]
    fn the_fine_class_counts_and_the_archives_folder_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("cifar-100-binary");
        std::fs::create_dir(&inner).unwrap();
        std::fs::write(inner.join("train.bin"), [record(&[4, 99], 0), record(&[0, 1], 0)].concat()).unwrap();
        let train = load(&Cifar::HUNDRED, folder.path(), Split::Train).unwrap();
        assert_eq!((train.labels(), train.classes()), (&[99, 1][..], 100));
    }

    #[test]
    fn errors_name_the_file_and_the_image() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |split| load(&Cifar::TEN, folder.path(), split).unwrap_err().to_string();
        assert!(refused(Split::Train).contains("contains no `data_batch_1.bin`"));
        ten(folder.path());
        std::fs::remove_file(folder.path().join("data_batch_4.bin")).unwrap();
        assert!(refused(Split::Train).contains("contains no `data_batch_4.bin`"));
        std::fs::write(folder.path().join("test_batch.bin"), [record(&[1], 0), vec![1]].concat()).unwrap();
        let cut = refused(Split::Test);
        assert!(cut.contains("test_batch.bin: has 3074 bytes") && cut.contains("of 3073 bytes"), "{cut}");
        std::fs::write(folder.path().join("test_batch.bin"), []).unwrap();
        assert!(refused(Split::Test).contains("has 0 bytes"));
        std::fs::write(folder.path().join("test_batch.bin"), [record(&[1], 0), record(&[10], 0)].concat())
            .unwrap();
        let label = refused(Split::Test);
        assert!(label.contains("test_batch.bin: sample 1 has label 10"), "{label}");
        let absent = load(&Cifar::TEN, &folder.path().join("nowhere"), Split::Test).unwrap_err();
        assert!(matches!(absent, DataError::DirectoryAbsent { .. }));
    }

    #[test]
    fn the_real_one_is_what_it_is_known_to_be() {
        let Some(data) = std::env::var_os("FEDERATION_DATA") else {
            println!("skipped: FEDERATION_DATA is not set");
            return;
        };
        let folder = Path::new(&data).join("cifar-10");
        if Cifar::TEN.find(&folder, Split::Train).is_none() {
            println!("skipped: {} has no data_batch_1.bin", folder.display());
            return;
        }
        for (split, each) in [(Split::Train, 5000), (Split::Test, 1000)] {
            let set = load(&Cifar::TEN, &folder, split).unwrap();
            assert_eq!(set.histogram(), [each; 10]);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(
            start in prop::collection::vec(0_u8..12, 0..4),
            length in 0_usize..6200,
            hundred: bool,
        ) {
            let folder = tempfile::tempdir().unwrap();
            let cifar = if hundred { &Cifar::HUNDRED } else { &Cifar::TEN };
            let mut bytes = start;
            bytes.resize(length, 5);
            std::fs::write(folder.path().join(cifar.files(Split::Test)[0]), bytes).unwrap();
            if let Ok(set) = load(cifar, folder.path(), Split::Test) {
                prop_assert_eq!(set.len(), length / (cifar.label_bytes + PIXELS));
            }
        }
    }
}
