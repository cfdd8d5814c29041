//! A folder of images per class: `train/CLASS/*.png`, `test/CLASS/*.jpg`, PNG and JPEG mixed as they come.
//!
//! A folder that holds the folders of the classes itself is the training split. The folders are the names of classes that the
//! reader knows; a class may lack a folder, but not a folder its images. Hidden files are passed over; anything else that is
//! no image is a mistake like a damaged image. Files are taken in the order of their names, class after class.
//!
//! Every image is decoded once, when it is read, on the threads of the current rayon pool, and becomes bytes of the shape
//! `[channels, height, width]`: one channel is grey, three are red, green and blue. Transparency is dropped, and so is the
//! orientation that a camera noted. An image of another size is scaled until it covers the wanted one (bilinear, averaging
//! where it shrinks) and what sticks out is cut off evenly. Without a wanted shape all images must have the same size, and
//! they are in colour if the first one is.
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

use super::error::check_directory;
use super::idx::MAX_CONTENT;
use super::reading::{Labels, Reading, Skipped};
use super::{DataError, Dataset, Samples, Split};

/// The largest file, in bytes.
pub const MAX_FILE: u64 = 64 << 20;
/// The longest side of an image, in pixels.
pub const MAX_SIDE: u32 = 1 << 14;
/// The most memory that a decoder may take, in bytes.
pub const MAX_DECODED: u64 = 512 << 20;

/// The folder that holds the classes of a split: the one named after it, or for training the directory itself if there is
/// no folder of either name.
#[must_use]
pub fn folder(directory: &Path, split: Split) -> Option<PathBuf> {
    let of = |split: Split| Some(directory.join(split.name())).filter(|folder| folder.is_dir());
    of(split).or_else(|| {
        let none = of(Split::Train).is_none() && of(Split::Test).is_none();
        (split == Split::Train && none).then(|| directory.to_path_buf())
    })
}

/// The visible entries of a folder, by name.
pub(super) fn entries(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
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

/// Whether a file is called as images are.
pub(super) fn is_image(path: &Path) -> bool {
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase());
    matches!(extension.as_deref(), Some("png" | "jpg" | "jpeg"))
}

/// Reads a split.
///
/// # Errors
/// [`DataError`], which names the file or folder.
pub fn load_split(directory: &Path, split: Split, reading: &Reading) -> Result<Dataset, DataError> {
    check_directory(directory)?;
    let Some(folder) = folder(directory, split) else {
        return Err(DataError::NoFile { directory: directory.to_path_buf(), name: split.name().to_owned() });
    };
    let Labels::Names(_) = &reading.labels else {
        return Err(DataError::NoClassNames.in_file(folder));
    };
    let mut skipped = Skipped::default();
    let files = list(&folder, reading, &mut skipped)?;
    let Decoded { shape, pixels, labels } = decode_all(&folder, &files, reading, &mut skipped)?;
    let dataset = Dataset::new(shape, pixels, labels, reading.labels.classes());
    Ok(dataset
        .map_err(|error| skipped.explain(error).in_file(folder))?
        .named(reading.labels.names().to_vec())
        .leaving_out(skipped))
}

/// Reads the images of a split without their labels, whether they lie in the folder itself or in others within it, whose
/// names are not looked at.
///
/// # Errors
/// [`DataError`], which names the file or folder.
pub fn load_unlabelled(directory: &Path, split: Split, reading: &Reading) -> Result<Dataset, DataError> {
    check_directory(directory)?;
    let Some(folder) = folder(directory, split) else {
        return Err(DataError::NoFile { directory: directory.to_path_buf(), name: split.name().to_owned() });
    };
    let (mut files, mut skipped) = (Vec::new(), Skipped::default());
    for entry in entries(&folder)? {
        let within = if entry.is_dir() { entries(&entry)? } else { vec![entry] };
        for file in within {
            if is_image(&file) {
                files.push((file, 0));
            } else {
                skipped.pass_over(reading.on_error, DataError::NoImage.in_file(file))?;
            }
        }
    }
    let Decoded { shape, pixels, .. } = decode_all(&folder, &files, reading, &mut skipped)?;
    let dataset = Dataset::unlabelled(shape, Samples::Bytes(pixels));
    Ok(dataset.map_err(|error| skipped.explain(error).in_file(folder))?.leaving_out(skipped))
}

/// Images that were read.
struct Decoded {
    shape: Vec<usize>,
    pixels: Vec<u8>,
    /// Those of the files that could be read.
    labels: Vec<u32>,
}

/// Reads files, each with its class.
fn decode_all(
    folder: &Path,
    files: &[(PathBuf, u32)],
    reading: &Reading,
    skipped: &mut Skipped,
) -> Result<Decoded, DataError> {
    let shape = match (&reading.shape, files.first()) {
        (_, None) => return Err(skipped.explain(DataError::Empty).in_file(folder)),
        (Some(shape), _) => shape.clone(),
        (None, Some(_)) => natural(files, reading)?,
    };
    let &[channels @ (1 | 3), height, width] = &shape[..] else {
        return Err(DataError::ImageShape { shape }.in_file(folder));
    };
    let length = shape.iter().try_fold(1_usize, |product, &side| product.checked_mul(side));
    let total = length.and_then(|length| length.checked_mul(files.len()));
    if total.is_none_or(|total| total as u64 > MAX_CONTENT) || height.max(width) > MAX_SIDE as usize {
        let dimensions = [&[files.len()], &shape[..]].concat();
        return Err(DataError::TooLarge { dimensions, limit: MAX_CONTENT }.in_file(folder));
    }
    let exact = reading.shape.is_none();
    let decoded: Vec<Result<Vec<u8>, DataError>> = files
        .par_iter()
        .map(|(path, _)| {
            let pixels = decode(path).and_then(|image| {
                if exact && (image.height() as usize, image.width() as usize) != (height, width) {
                    let found = [image.height() as usize, image.width() as usize];
                    return Err(DataError::SizesDiffer { found, first: [height, width] });
                }
                Ok(pixels(&image, channels, height, width))
            });
            pixels.map_err(|error| error.in_file(path))
        })
        .collect();
    let (mut all, mut labels) = (Vec::with_capacity(total.unwrap_or(0)), Vec::with_capacity(files.len()));
    for (pixels, (_, class)) in decoded.into_iter().zip(files) {
        match pixels {
            Ok(pixels) => {
                all.extend(pixels);
                labels.push(*class);
            }
            Err(error) => skipped.take(reading.on_error, error)?,
        }
    }
    Ok(Decoded { shape, pixels: all, labels })
}

/// The files of all classes with their class.
fn list(folder: &Path, reading: &Reading, skipped: &mut Skipped) -> Result<Vec<(PathBuf, u32)>, DataError> {
    let mut files = Vec::new();
    for class in entries(folder)? {
        let name = class.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !class.is_dir() {
            skipped.pass_over(reading.on_error, DataError::NoClassFolder.in_file(&class))?;
            continue;
        }
        // A folder of an unknown name holds a whole class, perhaps under a wrong name: that is no damaged sample.
        let number = reading.labels.class(&name).map_err(|error| error.in_file(&class))?;
        let before = files.len();
        for file in entries(&class)? {
            if is_image(&file) {
                files.push((file, number));
            } else {
                skipped.pass_over(reading.on_error, DataError::NoImage.in_file(file))?;
            }
        }
        if files.len() == before {
            skipped.pass_over(reading.on_error, DataError::EmptyClass.in_file(class))?;
        }
    }
    Ok(files)
}

/// The shape that the first readable image has.
fn natural(files: &[(PathBuf, u32)], reading: &Reading) -> Result<Vec<usize>, DataError> {
    let mut failure = DataError::Empty;
    for (path, _) in files {
        match decode(path) {
            Ok(image) => {
                let channels = if image.color().has_color() { 3 } else { 1 };
                return Ok(vec![channels, image.height() as usize, image.width() as usize]);
            }
            Err(error) => failure = error.in_file(path),
        }
        if reading.on_error == super::reading::OnError::Stop {
            break;
        }
    }
    Err(failure)
}

fn decode(path: &Path) -> Result<DynamicImage, DataError> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(DataError::TooLarge { dimensions: vec![bytes.len()], limit: MAX_FILE });
    }
    decode_bytes(&bytes)
}

/// Decodes a PNG or JPEG; the content decides, not the name.
///
/// # Errors
/// [`DataError::Image`] for anything else, damage, or an image beyond the limits of this module.
pub fn decode_bytes(bytes: &[u8]) -> Result<DynamicImage, DataError> {
    let damaged = |error: image::ImageError| DataError::Image { reason: error.to_string() };
    let format = image::guess_format(bytes).map_err(damaged)?;
    if !matches!(format, ImageFormat::Png | ImageFormat::Jpeg) {
        return Err(DataError::Image { reason: format!("it is {format:?}") });
    }
    if format == ImageFormat::Jpeg {
        return jpeg::decode(bytes);
    }
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    let mut limits = Limits::default();
    limits.max_image_width = Some(MAX_SIDE);
    limits.max_image_height = Some(MAX_SIDE);
    limits.max_alloc = Some(MAX_DECODED);
    reader.limits(limits);
    reader.decode().map_err(damaged)
}

/// An image's bytes, channel by channel, cut and scaled to size if need be: cut first, since an image that is much longer than
/// wide would take a multiple of its memory once it is scaled to cover.
fn pixels(image: &DynamicImage, channels: usize, height: usize, width: usize) -> Vec<u8> {
    // Sides are at most MAX_SIDE.
    let (tall, wide) = (height as u32, width as u32);
    let resized = ((image.height(), image.width()) != (tall, wide)).then(|| {
        // The middle of it that has the shape of what is wanted.
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
