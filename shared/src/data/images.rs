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

mod jpeg;

use std::fs::File;
use std::io::{Cursor, Read as _};
use std::path::{Path, PathBuf};

use image::imageops::FilterType;
use image::{DynamicImage, ImageFormat, ImageReader, Limits};
use rayon::prelude::*;
use thiserror::Error;

use models::shape::spelled;

use super::error::{FormatError, check_directory};
use super::format::{About, Evidence, MAX_CONTENT, SampleFormat, read_file};
use super::{
    DataError, DataSet, Dataset, Labels, Lacks, OnError, ReadOptions, Samples, SetSamples, Skipped, Split,
};

/// The largest file, in bytes.
pub const MAX_FILE: u64 = 64 << 20;
/// The longest side of an image, in pixels.
pub const MAX_SIDE: u32 = 1 << 14;
/// The most memory that a decoder may take, in bytes.
pub const MAX_DECODED: u64 = 512 << 20;

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

/// Height and width that a file's header says; `None` for a file that cannot be read.
pub(super) fn size(path: &Path) -> Option<(usize, usize)> {
    let (width, height) = ImageReader::open(path).ok()?.with_guessed_format().ok()?.into_dimensions().ok()?;
    Some((height as usize, width as usize))
}

/// 1 for a grey image, 3 for one in colour; `None` for a file that cannot be read.
pub(super) fn colours(path: &Path) -> Option<usize> {
    decode(path).ok().map(|image| if image.color().has_color() { 3 } else { 1 })
}

/// Whether these bytes begin as a PNG or JPEG does.
#[must_use]
pub fn is_image_content(bytes: &[u8]) -> bool {
    matches!(image::guess_format(bytes), Ok(ImageFormat::Png | ImageFormat::Jpeg))
}

/// Errors of folders of images.
#[derive(Debug, Error)]
enum ImagesError {
    #[error("cannot be decoded as PNG or JPEG: {reason}")]
    Undecodable { reason: String },
    #[error(
        "cannot be read: images of a class are PNG or JPEG, and named .png, .jpg or .jpeg; convert it or take it away"
    )]
    NoImage,
    #[error("is no folder of a class, and only these are expected here")]
    NoClassFolder,
    #[error("is the folder of a class and holds no image; put images into it or remove it")]
    EmptyClass,
    #[error(
        "holds images by class ({}): the names of the classes are not said, in the order that all clients of the run share",
        .found.join(", ")
    )]
    NoClassNames { found: Vec<String> },
    #[error("images are read with one channel or three, as in 3x32x32, and not as {}", spelled(.shape))]
    Channels { shape: Vec<usize> },
    #[error(
        "is {}x{} and the first image {}x{}: the shape that all are to be brought to is not said",
        .found.0, .found.1, .first.0, .first.1
    )]
    SizesDiffer { found: (usize, usize), first: (usize, usize) },
}

impl FormatError for ImagesError {
    fn lacks(&self) -> Option<Lacks> {
        match self {
            Self::NoClassNames { found } => Some(Lacks::ClassNames(found.clone())),
            Self::SizesDiffer { .. } => Some(Lacks::Shape),
            _ => None,
        }
    }
}

/// The names of the folders in `folder` that hold images, sorted.
pub(super) fn class_folders(folder: &Path) -> Result<Vec<String>, DataError> {
    let holds = |class: &PathBuf| {
        class.is_dir() && entries(class).is_ok_and(|files| files.iter().any(|file| is_image(file)))
    };
    let name = |class: PathBuf| class.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(entries(folder)?.into_iter().filter(holds).map(name).collect())
}

/// The folder that holds the classes of a split: the one named after it, or for training the directory itself if there is
/// no folder of either name.
pub(super) fn folder(directory: &Path, split: Split) -> Option<PathBuf> {
    let of = |split: Split| Some(directory.join(split.name())).filter(|folder| folder.is_dir());
    of(split).or_else(|| {
        let none = of(Split::Train).is_none() && of(Split::Test).is_none();
        (split == Split::Train && none).then(|| directory.to_path_buf())
    })
}

/// The visible entries of a folder, sorted by name.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    let failed = |error: std::io::Error| DataError::from(error).in_file(folder);
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if !entry.file_name().to_string_lossy().starts_with('.') {
            entries.push(entry.path());
        }
    }
    entries.sort();
    Ok(entries)
}

/// Whether a file has the name of an image.
fn is_image(path: &Path) -> bool {
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase());
    matches!(extension.as_deref(), Some("png" | "jpg" | "jpeg"))
}

/// Whether it is a pipe, a socket or a machine's device, and no file of bytes.
fn is_special(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir())
}

/// Whether a file lies beside images by habit of people and systems (`readme.txt`, `Thumbs.db`, `desktop.ini`), and is
/// passed over in silence. An image of another format is none: its owner wants it to count.
fn is_note(path: &Path) -> bool {
    const OTHER_IMAGES: [&str; 18] = [
        "avif", "bmp", "cr2", "dcm", "dng", "gif", "heic", "heif", "ico", "jfif", "jp2", "nef", "pgm", "ppm",
        "svg", "tif", "tiff", "webp",
    ];
    if !path.is_file() || is_image(path) {
        return false;
    }
    if let Some(extension) = path.extension() {
        return !OTHER_IMAGES.contains(&extension.to_string_lossy().to_lowercase().as_str());
    }
    let mut beginning = Vec::new();
    let read = File::open(path).and_then(|file| file.take(16).read_to_end(&mut beginning));
    read.is_ok() && !is_image_content(&beginning)
}

/// Decoded images.
struct Decoded {
    shape: Vec<usize>,
    pixels: Vec<u8>,
    /// Of each file, whether it could be decoded.
    kept: Vec<bool>,
}

/// Decodes files, each with its class.
fn decode_all(
    folder: &Path,
    files: &[(PathBuf, u32)],
    options: &ReadOptions,
    skipped: &mut Skipped,
) -> Result<Decoded, DataError> {
    let shape = match (&options.shape, files.first()) {
        (_, None) => return Err(skipped.explain(DataError::Empty).in_file(folder)),
        (Some(shape), _) => shape.clone(),
        (None, Some(_)) => natural(files, options.on_error)?,
    };
    let &[channels @ (1 | 3), height, width] = &shape[..] else {
        return Err(ImagesError::Channels { shape }.in_file(folder));
    };
    let length = shape.iter().try_fold(1_usize, |product, &side| product.checked_mul(side));
    let total = length.and_then(|length| length.checked_mul(files.len()));
    if total.is_none_or(|total| total as u64 > MAX_CONTENT) || height.max(width) > MAX_SIDE as usize {
        let dimensions = [&[files.len()], &shape[..]].concat();
        return Err(DataError::TooLarge { dimensions, limit: MAX_CONTENT }.in_file(folder));
    }
    let exact = options.shape.is_none();
    let decoded: Vec<Result<Vec<u8>, DataError>> = files
        .par_iter()
        .map(|(path, _)| {
            let pixels = decode(path).and_then(|image| {
                let found = (image.height() as usize, image.width() as usize);
                if exact && found != (height, width) {
                    return Err(ImagesError::SizesDiffer { found, first: (height, width) }.into());
                }
                Ok(pixels(&image, channels, height, width))
            });
            pixels.map_err(|error| error.in_file(path))
        })
        .collect();
    let (mut all, mut kept) = (Vec::with_capacity(total.unwrap_or(0)), Vec::with_capacity(files.len()));
    for pixels in decoded {
        kept.push(pixels.is_ok());
        match pixels {
            Ok(pixels) => all.extend(pixels),
            Err(error) => skipped.take(options.on_error, error)?,
        }
    }
    Ok(Decoded { shape, pixels: all, kept })
}

/// The files of all class folders, each with its class.
fn list(
    folder: &Path,
    labels: &Labels,
    on_error: OnError,
    skipped: &mut Skipped,
) -> Result<Vec<(PathBuf, u32)>, DataError> {
    let mut files = Vec::new();
    for class in entries(folder)? {
        let name = class.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if is_note(&class) {
            continue;
        }
        if !class.is_dir() {
            skipped.pass_over(on_error, ImagesError::NoClassFolder.in_file(&class))?;
            continue;
        }
        // A folder of an unknown name is a whole class, perhaps misspelt: not a damaged sample to be skipped.
        let number = labels.class(&name).map_err(|error| error.in_file(&class))?;
        let before = files.len();
        add_images(entries(&class)?, number, &mut files, on_error, skipped)?;
        if files.len() == before {
            skipped.pass_over(on_error, ImagesError::EmptyClass.in_file(class))?;
        }
    }
    Ok(files)
}

/// The files of a folder and of the folders in it, all of class 0.
fn list_unlabelled(
    folder: &Path,
    on_error: OnError,
    skipped: &mut Skipped,
) -> Result<Vec<(PathBuf, u32)>, DataError> {
    let mut files = Vec::new();
    for entry in entries(folder)? {
        let within = if entry.is_dir() { entries(&entry)? } else { vec![entry] };
        add_images(within, 0, &mut files, on_error, skipped)?;
    }
    Ok(files)
}

/// Adds the images among some entries of a folder, and skips the others.
fn add_images(
    entries: Vec<PathBuf>,
    class: u32,
    files: &mut Vec<(PathBuf, u32)>,
    on_error: OnError,
    skipped: &mut Skipped,
) -> Result<(), DataError> {
    for file in entries {
        // A pipe would be waited for.
        if is_image(&file) && !is_special(&file) {
            files.push((file, class));
        } else if !is_note(&file) {
            skipped.pass_over(on_error, ImagesError::NoImage.in_file(file))?;
        }
    }
    Ok(())
}

/// The shape of the first image that can be decoded.
fn natural(files: &[(PathBuf, u32)], on_error: OnError) -> Result<Vec<usize>, DataError> {
    let mut failure = DataError::Empty;
    for (path, _) in files {
        match decode(path) {
            Ok(image) => return Ok(natural_of(&image)),
            Err(error) => failure = error.in_file(path),
        }
        if on_error == OnError::Stop {
            break;
        }
    }
    Err(failure)
}

fn natural_of(image: &DynamicImage) -> Vec<usize> {
    let channels = if image.color().has_color() { 3 } else { 1 };
    vec![channels, image.height() as usize, image.width() as usize]
}

fn decode(path: &Path) -> Result<DynamicImage, DataError> {
    decode_bytes(&read_file(path, MAX_FILE)?)
}

/// Decodes a PNG or JPEG; the content decides, not the name.
///
/// # Errors
/// [`DataError`] for any other format, damage, or an image beyond the limits of this module.
pub fn decode_bytes(bytes: &[u8]) -> Result<DynamicImage, DataError> {
    let damaged = |error: image::ImageError| ImagesError::Undecodable { reason: error.to_string() };
    let format = image::guess_format(bytes).map_err(damaged)?;
    if !matches!(format, ImageFormat::Png | ImageFormat::Jpeg) {
        return Err(ImagesError::Undecodable { reason: format!("it is {format:?}") }.into());
    }
    if format == ImageFormat::Jpeg {
        return Ok(jpeg::decode(bytes)?);
    }
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    let mut limits = Limits::default();
    limits.max_image_width = Some(MAX_SIDE);
    limits.max_image_height = Some(MAX_SIDE);
    limits.max_alloc = Some(MAX_DECODED);
    reader.limits(limits);
    Ok(reader.decode().map_err(damaged)?)
}

/// The bytes of an image, channel by channel, cropped and scaled to this size if it has another. Cropping comes first: a
/// long narrow image scaled to cover would take a multiple of its memory.
fn pixels(image: &DynamicImage, channels: usize, height: usize, width: usize) -> Vec<u8> {
    // Sides are at most MAX_SIDE.
    let (tall, wide) = (height as u32, width as u32);
    let resized = ((image.height(), image.width()) != (tall, wide)).then(|| {
        // The centre with the wanted ratio of sides.
        let side = |side: u32, of: u32, to: u32, most: u32| {
            let length = f64::from(side) * f64::from(of) / f64::from(to);
            (length.round() as u32).clamp(1, most)
        };
        let (whole_height, whole_width) = (image.height(), image.width());
        let cut_width = side(whole_height, wide, tall, whole_width);
        let cut_height = side(whole_width, tall, wide, whole_height);
        let (left, top) = ((whole_width - cut_width) / 2, (whole_height - cut_height) / 2);
        image.crop_imm(left, top, cut_width, cut_height).resize_exact(wide, tall, FilterType::Triangle)
    });
    let image = resized.as_ref().unwrap_or(image);
    if channels == 1 {
        return image.to_luma8().into_raw();
    }
    let colours = image.to_rgb8().into_raw();
    (0..3).flat_map(|channel| colours.iter().skip(channel).step_by(3)).copied().collect()
}

#[cfg(test)]
mod tests;
