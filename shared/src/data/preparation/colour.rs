//! Changes of pixel values: brightness, contrast, saturation, hue and erasing.

use std::ops::Range;

/// Luma weights of red, green and blue (ITU-R BT.601).
const WEIGHTS: [f32; 3] = [0.299, 0.587, 0.114];

pub(super) fn brighten(image: &mut [f32], factor: f32) {
    for value in image {
        *value = (*value * factor).clamp(0.0, 1.0);
    }
}

/// Scales the difference of all values to the mean brightness of the image.
pub(super) fn contrast(image: &mut [f32], channels: usize, factor: f32) {
    let area = image.len() / channels;
    let mean_of = |plane: &[f32]| plane.iter().map(|&value| f64::from(value)).sum::<f64>() / area as f64;
    let means = image.chunks_exact(area).map(mean_of);
    let mean: f64 = if channels == 3 {
        means.zip(WEIGHTS).map(|(mean, weight)| mean * f64::from(weight)).sum()
    } else {
        means.sum::<f64>() / channels as f64
    };
    let mean = mean as f32;
    for value in image {
        *value = (mean + factor * (*value - mean)).clamp(0.0, 1.0);
    }
}

/// Scales the difference of each pixel of a colour image to its own brightness.
pub(super) fn saturate(image: &mut [f32], factor: f32) {
    let (red, rest) = image.split_at_mut(image.len() / 3);
    let (green, blue) = rest.split_at_mut(rest.len() / 2);
    for ((r, g), b) in red.iter_mut().zip(green).zip(blue) {
        let grey = WEIGHTS[0] * *r + WEIGHTS[1] * *g + WEIGHTS[2] * *b;
        for value in [r, g, b] {
            *value = (grey + factor * (*value - grey)).clamp(0.0, 1.0);
        }
    }
}

/// Turns the hue of each pixel of a colour image by this share of the colour circle, in HSV.
pub(super) fn turn(image: &mut [f32], share: f32) {
    let (red, rest) = image.split_at_mut(image.len() / 3);
    let (green, blue) = rest.split_at_mut(rest.len() / 2);
    for ((r, g), b) in red.iter_mut().zip(green).zip(blue) {
        let value = r.max(*g).max(*b);
        let chroma = value - r.min(*g).min(*b);
        if chroma <= 0.0 {
            continue;
        }
        // In sixths of the circle, from red on.
        let hue = if *r >= *g && *r >= *b {
            (*g - *b) / chroma
        } else if *g >= *b {
            2.0 + (*b - *r) / chroma
        } else {
            4.0 + (*r - *g) / chroma
        };
        let turned = hue + 6.0 * share;
        for (channel, offset) in [(r, 5.0), (g, 3.0), (b, 1.0)] {
            let place = (turned + offset).rem_euclid(6.0);
            *channel = value - chroma * place.min(4.0 - place).clamp(0.0, 1.0);
        }
    }
}

/// Replaces a rectangle by the mean colour of the image.
pub(super) fn erase(
    image: &mut [f32],
    channels: usize,
    width: usize,
    rows: Range<usize>,
    columns: Range<usize>,
) {
    let area = image.len() / channels;
    for plane in image.chunks_exact_mut(area) {
        let mean = (plane.iter().map(|&value| f64::from(value)).sum::<f64>() / area as f64) as f32;
        for row in rows.clone() {
            plane[row * width..][columns.clone()].fill(mean);
        }
    }
}
