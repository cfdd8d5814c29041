//! Folders of images, one per class: `train/CLASS/*.png` and `test/CLASS/*.jpg`, PNG and JPEG in any mixture.
//!
//! Class folders without a folder `train` or `test` above them are the training split. Their names must be known class
//! names; a class may have no folder, but a folder must have images. Hidden files and notes (`readme.txt`, `Thumbs.db`) are
//! ignored; images of other formats are errors, like damaged images. Samples are ordered by class folder, then by file name.
//!
//! Every image is decoded once, when it is read, on the threads of the current rayon pool, and becomes bytes of the shape
//! `[channels, height, width]`: one channel is grey, three are red, green and blue. Transparency and the orientation in a
//! photograph's metadata are dropped. An image of another size is scaled to cover the wanted size (bilinear, averaging
//! when it shrinks) and cropped to its centre. Without a wanted shape all images must have the same size, and all are in
//! colour if the first one is.
//!
//! Memory is bounded: files by [`MAX_FILE`], a decoder by [`MAX_SIDE`] and [`MAX_DECODED`], and the result by
//! [`MAX_CONTENT`] before anything is decoded.
//!
//! * `listing`: which files there are, and of which classes;
//! * `decoding`: files and bytes become pixels.

mod decoding;
mod error;
mod jpeg;
mod limits;
mod listing;

use std::path::{Path, PathBuf};

use super::error::{FormatError as _, check_directory};
use super::format::{About, Evidence, MAX_CONTENT, SampleFormat};
use super::{DataError, DataSet, Dataset, Labels, OnError, ReadOptions, Samples, SetSamples, Skipped, Split};
use decoding::{Decoded, decode_all, natural_of, pixels};
use error::ImagesError;
use listing::{entries, is_image, list, list_unlabelled};

pub(super) use decoding::{colours, size};
pub use decoding::{decode_bytes, is_image_content};
pub use limits::{MAX_DECODED, MAX_FILE, MAX_SIDE};
pub(super) use listing::{class_folders, folder};

/// A folder of images per class. Without labels the images may also lie in one folder, and folders may have any names.
#[derive(Debug)]
pub struct Images;

/// Images of the user's own, as a configuration names them.
pub const SET: DataSet = DataSet {
    name: "images",
    format: Some(&Images),
    files: "train/CLASS/ and test/CLASS/",
    labels_each: Some(1),
    samples: SetSamples::Own { by_names: true, by_number: false },
    training_samples: None,
    moments: None,
};

impl SampleFormat for Images {
    fn about(&self) -> About {
        let files = "a folder of PNG or JPEG files per class, in train/ and test/, or without these to train on all; \
                     the classes are named with --classes, and images are scaled to cover --shape and cut";
        About { name: "images by class", help: ("images", files), evidence: Evidence::Certain }
    }

    fn signature(&self, split: Split) -> String {
        let files = match split {
            Split::Train => "CLASS/*.png or *.jpg, or train/CLASS/ with such",
            Split::Test => "test/CLASS/*.png or *.jpg",
        };
        files.to_owned()
    }

    fn is_in(&self, directory: &Path, split: Split) -> Result<bool, DataError> {
        let Some(folder) = folder(directory, split) else { return Ok(false) };
        // A folder that cannot be listed, such as a disk's `lost+found`, is not one of images.
        let of_images =
            |class: &PathBuf| entries(class).is_ok_and(|files| files.iter().any(|file| is_image(file)));
        Ok(entries(&folder)?.iter().any(of_images))
    }

    fn is_in_unlabelled(&self, directory: &Path, split: Split) -> Result<bool, DataError> {
        let Some(folder) = folder(directory, split) else { return Ok(false) };
        Ok(entries(&folder)?.iter().any(|file| is_image(file)))
    }

    fn load(&self, directory: &Path, split: Split, options: &ReadOptions) -> Result<Dataset, DataError> {
        Ok(load_named(directory, split, options)?.0)
    }
}

/// Reads a split, and the files of its samples in their order.
///
/// # Errors
/// As [`SampleFormat::load`].
pub(super) fn load_named(
    directory: &Path,
    split: Split,
    options: &ReadOptions,
) -> Result<(Dataset, Vec<PathBuf>), DataError> {
    check_directory(directory)?;
    options.check_plain(directory, Images.about().name)?;
    let names = || vec![split.name().to_owned()];
    let folder = folder(directory, split)
        .ok_or_else(|| DataError::NoFile { directory: directory.to_path_buf(), names: names() })?;
    let mut skipped = Skipped::default();
    let files = match &options.labels {
        Some(labels @ Labels::Names(_)) => list(&folder, labels, options.on_error, &mut skipped)?,
        Some(_) => {
            let found = class_folders(&folder)?;
            return Err(ImagesError::NoClassNames { found }.in_file(folder));
        }
        None => list_unlabelled(&folder, options.on_error, &mut skipped)?,
    };
    read_files(&folder, files, options, skipped)
}

/// Decodes files of a folder, each with its class, which counts if there are labels.
fn read_files(
    folder: &Path,
    mut files: Vec<(PathBuf, u32)>,
    options: &ReadOptions,
    mut skipped: Skipped,
) -> Result<(Dataset, Vec<PathBuf>), DataError> {
    let Decoded { shape, pixels, kept } = decode_all(folder, &files, options, &mut skipped)?;
    let mut kept = kept.into_iter();
    files.retain(|_| kept.next().unwrap_or(false));
    let classes = files.iter().map(|(_, class)| *class);
    let dataset = match &options.labels {
        Some(labels) => Dataset::new(shape, pixels, classes, labels.classes())
            .map(|dataset| dataset.named(labels.names().to_vec())),
        None => Dataset::unlabelled(shape, Samples::Bytes(pixels)),
    };
    let dataset = skipped.finish(dataset, folder)?;
    Ok((dataset, files.into_iter().map(|(path, _)| path).collect()))
}

/// Reads an image file as one sample without a label.
pub(super) fn read_one(path: &Path, options: &ReadOptions) -> Result<Dataset, DataError> {
    let options = ReadOptions { labels: None, on_error: OnError::Stop, ..options.clone() };
    Ok(read_files(path.parent().unwrap_or(path), vec![(path.to_owned(), 0)], &options, Skipped::default())?.0)
}

/// Whether images can be brought to this shape: they have one channel or three.
pub(super) fn is_shape(shape: &[usize]) -> bool {
    matches!(shape, [1 | 3, _, _])
}

/// Reads an image as one sample without a label; without a wanted shape it has its own.
///
/// # Errors
/// As [`decode_bytes`], and [`DataError`] for a shape that no image has.
pub fn read_bytes(bytes: &[u8], shape: Option<&[usize]>) -> Result<Dataset, DataError> {
    let image = decode_bytes(bytes)?;
    let shape = shape.map_or_else(|| natural_of(&image), <[usize]>::to_vec);
    let &[channels @ (1 | 3), height, width] = &shape[..] else {
        return Err(ImagesError::Channels { shape }.into());
    };
    if height.max(width) > MAX_SIDE as usize {
        return Err(DataError::TooLarge { dimensions: shape, limit: MAX_CONTENT });
    }
    let pixels = pixels(&image, channels, height, width);
    Dataset::unlabelled(shape, Samples::Bytes(pixels))
}

/// Whether a folder holds images of this split in no folder of a class.
pub(super) fn holds_unlabelled(directory: &Path, split: Split) -> bool {
    Images.is_in_unlabelled(directory, split).unwrap_or(false)
}

/// The files of a split whose classes are named.
pub(super) fn files(directory: &Path, split: Split, labels: &Labels) -> Result<Vec<PathBuf>, DataError> {
    let names = || vec![split.name().to_owned()];
    let folder = folder(directory, split)
        .ok_or_else(|| DataError::NoFile { directory: directory.to_path_buf(), names: names() })?;
    let files = list(&folder, labels, OnError::Skip, &mut Skipped::default())?;
    Ok(files.into_iter().map(|(path, _)| path).collect())
}

#[cfg(test)]
mod tests;
