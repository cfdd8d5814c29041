//! Files and bytes become pixels.

use std::io::Cursor;
use std::path::{Path, PathBuf};

use image::imageops::FilterType;
use image::{DynamicImage, ImageFormat, ImageReader, Limits};
use rayon::prelude::*;

use super::super::error::FormatError as _;
use super::super::format::{MAX_CONTENT, read_file};
use super::super::{DataError, OnError, ReadOptions, Skipped};
use super::error::ImagesError;
use super::jpeg;
use super::limits::{MAX_DECODED, MAX_FILE, MAX_SIDE};

/// Height and width that a file's header says; `None` for a file that cannot be read.
pub(in crate::data) fn size(path: &Path) -> Option<(usize, usize)> {
    let (width, height) = ImageReader::open(path).ok()?.with_guessed_format().ok()?.into_dimensions().ok()?;
    Some((height as usize, width as usize))
}

/// 1 for a grey image, 3 for one in colour; `None` for a file that cannot be read.
pub(in crate::data) fn colours(path: &Path) -> Option<usize> {
    decode(path).ok().map(|image| if image.color().has_color() { 3 } else { 1 })
}

/// Whether these bytes begin as a PNG or JPEG does.
#[must_use]
pub fn is_image_content(bytes: &[u8]) -> bool {
    matches!(image::guess_format(bytes), Ok(ImageFormat::Png | ImageFormat::Jpeg))
}

/// Decoded images.
pub(super) struct Decoded {
    pub(super) shape: Vec<usize>,
    pub(super) pixels: Vec<u8>,
    /// Of each file, whether it could be decoded.
    pub(super) kept: Vec<bool>,
}

/// Decodes files, each with its class.
pub(super) fn decode_all(
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

pub(super) fn natural_of(image: &DynamicImage) -> Vec<usize> {
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
pub(super) fn pixels(image: &DynamicImage, channels: usize, height: usize, width: usize) -> Vec<u8> {
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
