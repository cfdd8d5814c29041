//! Registry of formats and data sets: the format that a folder holds, the data set that a configuration names.

use std::path::Path;
use std::sync::LazyLock;

use serde::{Deserialize, Deserializer};

use super::error::check_directory;
use super::format::{Evidence, Format};
use super::{DATA_SETS, DataError, DataSet, Dataset, FORMATS, ReadOptions, Split};
use crate::settings::{Kind, SettingType, Shape};

/// Detects the format of a folder and reads a split.
///
/// # Errors
/// As [`detect`] and [`SampleFormat::load`](super::format::SampleFormat::load).
pub fn read(directory: &Path, split: Split, options: &ReadOptions) -> Result<(Format, Dataset), DataError> {
    let format = detect(directory, split, options)?;
    Ok((format, format.load(directory, split, options)?))
}

/// The formats and their files, one line each, for `--help`.
#[must_use]
pub fn help() -> String {
    let mut lines: Vec<String> = FORMATS
        .iter()
        .map(|format| format.about().help)
        .map(|(name, files)| format!("      {name:<13} {files}"))
        .collect();
    // Variants of one format share their line.
    lines.dedup();
    lines.join("\n")
}

/// The one format of which `directory` holds this split. Without [`ReadOptions::labels`] the arrangements count that
/// only samples without labels have; tables, tensors and texts beside such samples are notes or lists of them.
///
/// # Errors
/// [`DataError::Unclear`] for no format or several; [`DataError::OtherSplit`] for samples of the other split only.
pub fn detect(directory: &Path, split: Split, options: &ReadOptions) -> Result<Format, DataError> {
    check_directory(directory)?;
    let mut found: Vec<Format> = Vec::new();
    for format in FORMATS {
        let counts = format.about().evidence > Evidence::Weak || found.is_empty();
        if counts && format.is_in(directory, split)? {
            found.push(*format);
        }
    }
    let certain = matches!(found[..], [only] if only.about().evidence == Evidence::Certain);
    if options.labels.is_none() && !certain {
        for format in FORMATS {
            if format.is_in_unlabelled(directory, split)? {
                return Ok(*format);
            }
        }
    }
    match found[..] {
        [only] => Ok(only),
        _ => refuse(&found, directory, split),
    }
}

/// Refuses a folder that holds no format, or several.
fn refuse(found: &[Format], directory: &Path, split: Split) -> Result<Format, DataError> {
    let (directory, wanted) = (directory.to_path_buf(), split.name());
    let looked_for = FORMATS.iter().map(|format| format!("{} ({format})", format.signature(split)));
    let looked_for = looked_for.collect::<Vec<_>>().join(", ");
    if found.is_empty() {
        for format in FORMATS {
            if format.is_in(&directory, split.other())? {
                let there = split.other().name();
                return Err(DataError::OtherSplit { directory, wanted, there, looked_for });
            }
        }
        let found = format!("holds no samples of the {wanted} split");
        return Err(DataError::Unclear { directory, found, looked_for });
    }
    let names = found.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ");
    let found = format!("holds {names}; leave one of them in it");
    Err(DataError::Unclear { directory, found, looked_for })
}

/// The data set of this name.
#[must_use]
pub fn data_set(name: &str) -> Option<&'static DataSet> {
    DATA_SETS.iter().copied().find(|set| set.name == name)
}

impl<'de> Deserialize<'de> for &'static DataSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        data_set(&name).ok_or_else(|| serde::de::Error::custom(format!("there is no data set {name:?}")))
    }
}

impl SettingType for &'static DataSet {
    fn shape() -> Shape {
        static NAMES: LazyLock<Vec<&str>> = LazyLock::new(|| DATA_SETS.iter().map(|set| set.name).collect());
        Shape::Value(Kind::OneOf(&NAMES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::cifar::Cifar;
    use crate::data::csv::Csv;
    use crate::data::idx::{self, Idx};
    use crate::data::images::Images;
    use crate::data::safetensors::{self, Safetensors};
    use crate::data::text::Text;
    use crate::data::{Samples, format::SampleFormat};

    #[test]
    fn the_only_format_is_found() {
        for (files, format) in [
            (&["train-images-idx3-ubyte.gz"][..], &Idx as &dyn SampleFormat),
            (&["data_batch_1.bin", "batches.meta.txt"], &Cifar::TEN),
            (&["cifar-100-binary/train.bin"], &Cifar::HUNDRED),
            (&["train.safetensors"], &Safetensors),
            (&["train.csv", "test.csv", "README.txt"], &Csv),
            (&["play.txt"], &Text),
            (&["cat/1.png"], &Images),
            (&["train/cat/1.JPG", "test/cat/1.png"], &Images),
        ] {
            let folder = tempfile::tempdir().unwrap();
            for file in files {
                let path = folder.path().join(file);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, "").unwrap();
            }
            let found = detect(folder.path(), Split::Train, &ReadOptions::default()).unwrap();
            assert_eq!(found.to_string(), format.to_string(), "{files:?}");
        }
    }

    #[test]
    fn samples_are_read_without_labels_wherever_these_are_apart() {
        let options = ReadOptions::unlabelled();
        let load = |folder: &Path| read(folder, Split::Train, &options).map(|(_, samples)| samples);
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
        let labelled = ReadOptions::default();
        let needs = Idx.load(folder.path(), Split::Train, &labelled).unwrap_err().to_string();
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
            assert_eq!(found.samples(), &Samples::Bytes(vec![0, 1, 2, 3, 0, 1, 2, 3]));
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
        let set = Dataset::labelled(vec![1], Samples::Floats(vec![0.5]), vec![3], 10).unwrap();
        safetensors::write_split(folder.path(), Split::Train, &set).unwrap();
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
        let options = ReadOptions::default();
        let refused = |split| detect(folder.path(), split, &options).unwrap_err().to_string();
        let nothing = refused(Split::Train);
        for part in
            ["holds no samples of the train split", "train.csv", "train-images-idx3-ubyte", "CLASS/*.png"]
        {
            assert!(nothing.contains(part), "{nothing}");
        }
        std::fs::write(folder.path().join("train.csv"), "").unwrap();
        let other = refused(Split::Test);
        assert!(other.contains("no samples of the test split, but some of the train split"), "{other}");
        assert!(other.contains("test.csv"), "{other}");
        std::fs::write(folder.path().join("train.safetensors"), "").unwrap();
        let both = refused(Split::Train);
        assert!(both.contains("holds safetensors and a CSV table"), "{both}");
        let absent = detect(&folder.path().join("x"), Split::Train, &options).unwrap_err();
        assert!(matches!(absent, DataError::DirectoryAbsent { .. }));
    }

    #[test]
    fn what_is_found_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let set = Dataset::labelled(vec![1], Samples::Floats(vec![0.5]), vec![3], 10).unwrap();
        safetensors::write_split(folder.path(), Split::Train, &set).unwrap();
        let (_, loaded) = read(folder.path(), Split::Train, &ReadOptions::default()).unwrap();
        assert_eq!(loaded, set);
    }
}
