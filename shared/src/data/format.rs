//! In which format a folder holds samples: what a device finds out for itself, since only it knows its files.

use std::fmt;
use std::path::Path;

use super::cifar::Cifar;
use super::error::check_directory;
use super::reading::Reading;
use super::{DataError, Dataset, Split, idx, images, table, tensors, text};

/// The formats that are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// See [`idx`].
    Idx,
    /// See [`cifar`](super::cifar).
    Cifar(Cifar),
    /// See [`tensors`].
    Safetensors,
    /// See [`table`].
    Csv,
    /// See [`text`].
    Text,
    /// See [`images`].
    Images,
}

impl Format {
    const ALL: [Self; 7] = [
        Self::Idx,
        Self::Cifar(Cifar::Ten),
        Self::Cifar(Cifar::Hundred),
        Self::Safetensors,
        Self::Csv,
        Self::Images,
        Self::Text,
    ];

    /// The one format of which `directory` holds this split. A text counts only where there is nothing else: many data
    /// sets come with a note.
    ///
    /// # Errors
    /// [`DataError::Unclear`] for none or several, with what was looked for; [`DataError::OtherSplit`] where there are samples
    /// of the other split alone.
    pub fn detect(directory: &Path, split: Split) -> Result<Self, DataError> {
        check_directory(directory)?;
        let mut found = Vec::new();
        for format in Self::ALL {
            if (format != Self::Text || found.is_empty()) && format.is_in(directory, split)? {
                found.push(format);
            }
        }
        Self::only(&found, directory, split)
    }

    /// The same where labels are not needed: images need no folders of classes then.
    ///
    /// # Errors
    /// As [`Format::detect`].
    pub fn detect_unlabelled(directory: &Path, split: Split) -> Result<Self, DataError> {
        let flat = || -> Result<bool, DataError> {
            let Some(folder) = images::folder(directory, split) else { return Ok(false) };
            Ok(images::entries(&folder)?.iter().any(|file| images::is_image(file)))
        };
        match Self::detect(directory, split) {
            // Beside images a table, a text and tensors are a note, or a list of them.
            Err(DataError::Unclear { .. } | DataError::OtherSplit { .. })
            | Ok(Self::Text | Self::Csv | Self::Safetensors)
                if flat()? =>
            {
                Ok(Self::Images)
            }
            found => found,
        }
    }

    fn only(found: &[Self], directory: &Path, split: Split) -> Result<Self, DataError> {
        if let &[only] = found {
            return Ok(only);
        }
        let (directory, wanted) = (directory.to_path_buf(), split.name());
        let looked_for = Self::ALL.map(|format| format!("{} ({format})", format.sign(split))).join(", ");
        if found.is_empty() {
            let other = if split == Split::Train { Split::Test } else { Split::Train };
            for format in Self::ALL {
                if format.is_in(&directory, other)? {
                    return Err(DataError::OtherSplit { directory, wanted, there: other.name(), looked_for });
                }
            }
            let found = format!("holds no samples of the {wanted} split");
            return Err(DataError::Unclear { directory, found, looked_for });
        }
        let names = found.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ");
        let found = format!("holds {names}; leave one of them in it");
        Err(DataError::Unclear { directory, found, looked_for })
    }

    /// The file or folder that gives the format away.
    fn sign(self, split: Split) -> String {
        match self {
            Self::Idx => idx::images_name(split),
            Self::Cifar(cifar) => cifar.files(split)[0].to_owned(),
            Self::Safetensors => tensors::file_name(split),
            Self::Csv => table::file_name(split),
            Self::Text => "one .txt file".to_owned(),
            Self::Images if split == Split::Train => {
                "CLASS/*.png or *.jpg, or train/CLASS/ with such".to_owned()
            }
            Self::Images => "test/CLASS/*.png or *.jpg".to_owned(),
        }
    }

    /// Whether a directory holds this split in this format.
    pub fn is_in(self, directory: &Path, split: Split) -> Result<bool, DataError> {
        let sign = self.sign(split);
        Ok(match self {
            Self::Idx => {
                [sign.clone(), format!("{sign}.gz")].iter().any(|name| directory.join(name).is_file())
            }
            Self::Cifar(cifar) => cifar.find(directory, split).is_some(),
            Self::Safetensors | Self::Csv => directory.join(sign).is_file(),
            Self::Text => !text::find(directory)?.is_empty(),
            Self::Images => match images::folder(directory, split) {
                None => false,
                Some(folder) => {
                    // A folder that cannot be looked into, such as a disk's `lost+found`, is none of images.
                    let of_images = |class: &Path| {
                        images::entries(class)
                            .is_ok_and(|files| files.iter().any(|file| images::is_image(file)))
                    };
                    images::entries(&folder)?.iter().any(|class| of_images(class))
                }
            },
        })
    }

    /// Reads a split that is in this format.
    ///
    /// # Errors
    /// [`DataError`], which names the file, and where it is one's fault the sample.
    pub fn load(self, directory: &Path, split: Split, reading: &Reading) -> Result<Dataset, DataError> {
        match self {
            Self::Idx => idx::load_split(directory, split, reading.labels.classes()),
            Self::Cifar(cifar) => cifar.load_split(directory, split),
            Self::Safetensors => tensors::load_split(directory, split, reading),
            Self::Csv => table::load_split(directory, split, reading),
            Self::Text => text::load_split(directory, split),
            Self::Images => images::load_split(directory, split, reading),
        }
    }

    /// Reads the samples of a split without their labels, which need not be there. Of tensors `x` alone is read, and of a table
    /// all columns but the one that [`Reading::column`] names.
    ///
    /// # Errors
    /// As [`Format::load`], and [`DataError::LabelsInside`] for text, which is its own labels.
    pub fn load_unlabelled(
        self,
        directory: &Path,
        split: Split,
        reading: &Reading,
    ) -> Result<Dataset, DataError> {
        match self {
            Self::Idx => idx::load_unlabelled(directory, split),
            Self::Cifar(cifar) => Ok(cifar.load_split(directory, split)?.without_labels()),
            Self::Images => images::load_unlabelled(directory, split, reading),
            Self::Safetensors => tensors::load_unlabelled(directory, split, reading),
            Self::Csv => table::load_unlabelled(directory, split, reading),
            Self::Text => Err(DataError::LabelsInside { format: self.to_string() }.in_file(directory)),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Idx => "IDX files",
            Self::Cifar(Cifar::Ten) => "CIFAR-10 binary files",
            Self::Cifar(Cifar::Hundred) => "CIFAR-100 binary files",
            Self::Safetensors => "safetensors",
            Self::Csv => "a CSV table",
            Self::Text => "text by role",
            Self::Images => "images by class",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_only_format_is_found() {
        for (files, format) in [
            (&["train-images-idx3-ubyte.gz"][..], Format::Idx),
            (&["data_batch_1.bin", "batches.meta.txt"], Format::Cifar(Cifar::Ten)),
            (&["cifar-100-binary/train.bin"], Format::Cifar(Cifar::Hundred)),
            (&["train.safetensors"], Format::Safetensors),
            (&["train.csv", "test.csv", "README.txt"], Format::Csv),
            (&["play.txt"], Format::Text),
            (&["cat/1.png"], Format::Images),
            (&["train/cat/1.JPG", "test/cat/1.png"], Format::Images),
        ] {
            let folder = tempfile::tempdir().unwrap();
            for file in files {
                let path = folder.path().join(file);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, "").unwrap();
            }
            assert_eq!(Format::detect(folder.path(), Split::Train).unwrap(), format, "{files:?}");
        }
    }

    #[test]
    fn samples_are_read_without_labels_wherever_these_are_apart() {
        let reading = Reading::default();
        let load = |folder: &Path| {
            let format = Format::detect_unlabelled(folder, Split::Train)?;
            format.load_unlabelled(folder, Split::Train, &reading)
        };
        let folder = tempfile::tempdir().unwrap();
        let pixels: Vec<u8> = (0..8).collect();
        let labelled = Dataset::new(vec![1, 2, 2], pixels, [0_u8, 1], 2).unwrap();
        idx::write_split(folder.path(), Split::Train, &labelled).unwrap();
        let labels = folder.path().join("train-labels-idx1-ubyte");
        std::fs::write(&labels, "damaged").unwrap();
        assert_eq!(load(folder.path()).unwrap(), labelled.clone().without_labels(), "it is not read");
        std::fs::remove_file(&labels).unwrap();
        let unlabelled = load(folder.path()).unwrap();
        assert_eq!((unlabelled.len(), unlabelled.classes(), unlabelled.labels_each()), (2, 0, 0));
        let needs = Format::Idx.load(folder.path(), Split::Train, &reading).unwrap_err().to_string();
        assert!(needs.contains("train-labels-idx1-ubyte"), "{needs}");

        let image = image::GrayImage::from_fn(2, 2, |x, y| image::Luma([(2 * y + x) as u8]));
        for places in
            [&["1.png", "2.png"][..], &["cat/1.png", "what/2.png"], &["train/1.png", "train/dog/2.png"]]
        {
            let folder = tempfile::tempdir().unwrap();
            for place in places {
                let path = folder.path().join(place);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                image.save(path).unwrap();
            }
            let found = load(folder.path()).unwrap();
            assert_eq!((found.len(), found.shape()), (2, &[1, 2, 2][..]), "{places:?}");
            assert_eq!(found.samples(), &super::super::Samples::Bytes(vec![0, 1, 2, 3, 0, 1, 2, 3]));
        }

        // What lies beside images without folders.
        for note in ["README.txt", "train.csv", "train.safetensors"] {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join(note), "id,label\n").unwrap();
            std::fs::create_dir(folder.path().join("train")).unwrap();
            image.save(folder.path().join("train/1.png")).unwrap();
            assert_eq!(load(folder.path()).unwrap().len(), 1, "{note}");
        }

        for (name, table) in [("labelled", "a,label\n1,0\n"), ("unlabelled", "a\n1\n")] {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("train.csv"), table).unwrap();
            let found = load(folder.path()).unwrap();
            assert_eq!((found.len(), found.shape(), found.classes()), (1, &[1][..], 0), "{name}");
        }
        let folder = tempfile::tempdir().unwrap();
        let set = Dataset::features(vec![1], vec![0.5], vec![3], 10).unwrap();
        tensors::write_split(folder.path(), Split::Train, &set).unwrap();
        assert_eq!(load(folder.path()).unwrap(), set.without_labels());

        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("play.txt"), "A: x\n").unwrap();
        let inside = load(folder.path()).unwrap_err().to_string();
        assert!(inside.contains("text by role") && inside.contains("join without --unlabelled"), "{inside}");
        assert!(load(&folder.path().join("absent")).is_err());
    }

    #[test]
    fn nothing_and_several_are_errors_that_say_what_was_looked_for() {
        let folder = tempfile::tempdir().unwrap();
        let detect = |split| Format::detect(folder.path(), split).unwrap_err().to_string();
        let nothing = detect(Split::Train);
        for part in
            ["holds no samples of the train split", "train.csv", "train-images-idx3-ubyte", "CLASS/*.png"]
        {
            assert!(nothing.contains(part), "{nothing}");
        }
        std::fs::write(folder.path().join("train.csv"), "").unwrap();
        let other = detect(Split::Test);
        assert!(other.contains("no samples of the test split, but some of the train split"), "{other}");
        assert!(other.contains("test.csv"), "{other}");
        std::fs::write(folder.path().join("train.safetensors"), "").unwrap();
        let both = detect(Split::Train);
        assert!(both.contains("holds safetensors and a CSV table"), "{both}");
        let absent = Format::detect(&folder.path().join("x"), Split::Train).unwrap_err();
        assert!(matches!(absent, DataError::DirectoryAbsent { .. }));
    }

    #[test]
    fn what_is_found_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let set = Dataset::features(vec![1], vec![0.5], vec![3], 10).unwrap();
        tensors::write_split(folder.path(), Split::Train, &set).unwrap();
        let format = Format::detect(folder.path(), Split::Train).unwrap();
        let loaded = format.load(folder.path(), Split::Train, &Reading::default()).unwrap();
        assert_eq!(loaded, set);
    }
}
