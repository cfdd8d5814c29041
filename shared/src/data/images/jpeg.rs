//! JPEG, and damage to it.
//!
//! Decoders of browsers show what they can of a damaged file and make up the rest in grey. That is a picture of something else, and
//! nobody is to learn from it: here a file is an image if its scans can be read from their beginning to their end. Damage
//! that happens to be valid codes of other pixels cannot be told from an image. Oddities of the headers, which cameras have of
//! their own, are passed over.

use image::{DynamicImage, GrayImage, RgbImage};
use zune_jpeg::JpegDecoder;
use zune_jpeg::errors::DecodeErrors;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use super::{MAX_DECODED, MAX_SIDE};
use crate::data::DataError;

/// Decodes a JPEG, grey or in colour.
///
/// # Errors
/// [`DataError::Image`] for anything else, damage, or an image beyond the limits of the module above.
pub(super) fn decode(bytes: &[u8]) -> Result<DynamicImage, DataError> {
    let damaged = |error: DecodeErrors| DataError::Image { reason: error.to_string() };
    let wrong = |reason: String| DataError::Image { reason };
    if !is_complete(bytes) {
        return Err(wrong("it is cut short: the end of its last scan is missing".to_owned()));
    }
    let side = MAX_SIDE as usize;
    let lenient = DecoderOptions::default().set_strict_mode(false).set_max_width(side).set_max_height(side);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), lenient);
    decoder.decode_headers().map_err(damaged)?;
    let (Some(info), Some(stored)) = (decoder.info(), decoder.input_colorspace()) else {
        return Err(wrong("its header says nothing of its size".to_owned()));
    };
    let (width, height) = (u32::from(info.width), u32::from(info.height));
    let (colours, channels) = if stored == ColorSpace::Luma { (stored, 1) } else { (ColorSpace::RGB, 3) };
    // Of progressive images the decoder keeps all coefficients, in 16 bits each, beside the pixels.
    let decoded = 3 * channels * u64::from(width) * u64::from(height);
    if width.max(height) > MAX_SIDE || decoded > MAX_DECODED {
        return Err(wrong(format!("its {width} by {height} pixels are too many")));
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

/// Whether a JPEG has an end, which the decoder does not ask for: it makes up what is missing.
///
/// It goes from segment to segment, so that neither the end of a thumbnail within one of them nor what cameras append to
/// photographs is taken for the image's own.
fn is_complete(jpeg: &[u8]) -> bool {
    const END_OF_IMAGE: u8 = 0xd9;
    // In the data of a scan 0xff stands for itself with a 0 behind it, and markers of restarts come in between.
    let alone = |byte: u8| matches!(byte, 0x00 | 0x01 | 0xd0..=0xd8 | 0xff);
    let mut rest = jpeg;
    loop {
        let marker = rest.windows(2).position(|pair| pair[0] == 0xff && !alone(pair[1]));
        let Some(after) = marker.map(|at| &rest[at + 1..]) else { return false };
        if after[0] == END_OF_IMAGE {
            return true;
        }
        // Every other marker begins a segment, whose length counts itself.
        let length = after.get(1..3).map(|length| usize::from(u16::from_be_bytes([length[0], length[1]])));
        let Some(next) = length.and_then(|length| after.get(1 + length..)) else { return false };
        rest = next;
    }
}
