//! JPEG decoding that refuses damaged files.
//!
//! Browsers fill the missing part of a damaged file with grey, which would be a wrong sample. Here every error of the
//! decoder within the scans is an error, and so is a file without an end marker. Some damage cannot be detected: changed
//! bytes that are valid codes, and a scan that ends early but properly. Unusual headers, which cameras write, are accepted.

use image::{DynamicImage, GrayImage, RgbImage};
use zune_jpeg::JpegDecoder;
use zune_jpeg::errors::DecodeErrors;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use super::error::ImagesError;
use super::limits::{MAX_DECODED, MAX_SIDE};

/// Decodes a JPEG, grey or in colour.
///
/// # Errors
/// [`ImagesError::Undecodable`] for any other format, damage, or an image beyond the [limits](super::limits).
pub(super) fn decode(bytes: &[u8]) -> Result<DynamicImage, ImagesError> {
    let damaged = |error: DecodeErrors| ImagesError::Undecodable { reason: error.to_string() };
    let wrong = |reason: String| ImagesError::Undecodable { reason };
    let Some(scans) = scans(bytes) else {
        return Err(wrong("it is cut short: the end of its last scan is missing".to_owned()));
    };
    let side = MAX_SIDE as usize;
    let lenient = DecoderOptions::default().set_strict_mode(false).set_max_width(side).set_max_height(side);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), lenient);
    decoder.decode_headers().map_err(damaged)?;
    let (Some(info), Some(stored)) = (decoder.info(), decoder.input_colorspace()) else {
        return Err(wrong("its header says nothing of its size".to_owned()));
    };
    let (width, height) = (u32::from(info.width), u32::from(info.height));
    let (colours, channels) = if stored == ColorSpace::Luma { (stored, 1) } else { (ColorSpace::RGB, 3) };
    // With several scans the decoder keeps all coefficients of all components, in 16 bits each, beside the pixels.
    let kept = if scans > 1 { 2 * u64::from(info.components) } else { 0 };
    let decoded = (channels + kept) * u64::from(width) * u64::from(height);
    if width.max(height) > MAX_SIDE || decoded > MAX_DECODED {
        let (needed, most) = (decoded >> 20, MAX_DECODED >> 20);
        return Err(wrong(format!(
            "its {width} by {height} pixels would take {needed} MiB to decode: at most {most} MiB and {MAX_SIDE} pixels a side are \
             taken; scale it down"
        )));
    }
    decoder.set_options(lenient.set_strict_mode(true).jpeg_set_out_colorspace(colours));
    let pixels = decoder.decode().map_err(damaged)?;
    let image = if channels == 1 {
        GrayImage::from_raw(width, height, pixels).map(DynamicImage::from)
    } else {
        RgbImage::from_raw(width, height, pixels).map(DynamicImage::from)
    };
    image.ok_or_else(|| wrong("it has other pixels than its header says".to_owned()))
}

/// The number of scans of a JPEG: more than one if it is progressive or stores colours separately. `None` without an end
/// marker, which the decoder does not require.
///
/// Walks from segment to segment, so that neither the end marker of an embedded thumbnail nor data that cameras append
/// is mistaken for the image's.
fn scans(jpeg: &[u8]) -> Option<u32> {
    const SCAN: u8 = 0xda;
    const END_OF_IMAGE: u8 = 0xd9;
    // In the data of a scan, 0xff is followed by 0, and restart markers may occur.
    let alone = |byte: u8| matches!(byte, 0x00 | 0x01 | 0xd0..=0xd8 | 0xff);
    let (mut rest, mut scans) = (jpeg, 0);
    loop {
        let marker = rest.windows(2).position(|pair| pair[0] == 0xff && !alone(pair[1]))?;
        let after = &rest[marker + 1..];
        match after[0] {
            END_OF_IMAGE => return Some(scans),
            SCAN => scans += 1,
            _ => {}
        }
        // Every other marker begins a segment. Its length includes the length field.
        let length = usize::from(u16::from_be_bytes([*after.get(1)?, *after.get(2)?]));
        rest = after.get(1 + length..)?;
    }
}
