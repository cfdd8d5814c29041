//! RandAugment: some operations out of fourteen, one after the other (Cubuk et al. 2020, arXiv 1909.13719).
//!
//! ```text
//! operation        of strength s, from -1 to 1
//! identity         nothing
//! autocontrast     each channel's values are stretched to 0..=1
//! equalise         each channel's 256 levels are spread so that all are as frequent
//! rotate           by 30 s degrees
//! solarise         values of at least 1 - |s| become their negatives
//! colour           the difference of each pixel to its own brightness, times 1 + 0.9 s
//! posterise        8 - 4 |s| bits are kept of 8, rounded
//! contrast         the difference of all values to the image's mean brightness, times 1 + 0.9 s
//! brightness       all values, times 1 + 0.9 s
//! sharpness        the difference of all values to a smooth image, times 1 + 0.9 s
//! shear x, y       rows move by 0.3 s of their distance from the centre; columns likewise
//! translate x, y   by 150/331 s of the width or the height
//! ```
//!
//! The operations and their ranges are torchvision's. What differs: the strength is drawn evenly up to a bound, as `FixMatch` does, and
//! is not the bound itself; images are slanted about their centre, and not about a corner; and values between pixels are interpolated,
//! where torchvision takes the nearest pixel and moves by whole ones.

use rand::Rng;

use super::affine::Affine;
use super::colour;
use crate::seed::{below, uniform_f32};

/// How far values are scaled at most.
const SCALED: f32 = 0.9;
/// The greatest angle in degrees.
const ANGLE: f32 = 30.0;
/// By how much of its distance from the centre a row moves at most.
const SLANT: f32 = 0.3;
/// By how much of its width an image moves at most.
const MOVED: f32 = 150.0 / 331.0;
/// The greatest number of bits that are taken from 8.
const BITS: f32 = 4.0;

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Identity,
    Autocontrast,
    Equalise,
    Rotate,
    Solarise,
    Colour,
    Posterise,
    Contrast,
    Brightness,
    Sharpness,
    ShearX,
    ShearY,
    TranslateX,
    TranslateY,
}

impl Operation {
    const ALL: [Self; 14] = [
        Self::Identity,
        Self::Autocontrast,
        Self::Equalise,
        Self::Rotate,
        Self::Solarise,
        Self::Colour,
        Self::Posterise,
        Self::Contrast,
        Self::Brightness,
        Self::Sharpness,
        Self::ShearX,
        Self::ShearY,
        Self::TranslateX,
        Self::TranslateY,
    ];

    /// Changes an image `[channels, height, width]` with values in `[0, 1]`.
    fn apply(self, image: &mut [f32], [channels, height, width]: [usize; 3], strength: f32) {
        let area = height * width;
        let mut move_pixels = |by: Affine| {
            let moved = by.of(image, height, width);
            image.copy_from_slice(&moved);
        };
        match self {
            Self::Identity => {}
            Self::Rotate => move_pixels(Affine::turned((ANGLE * strength).to_radians())),
            Self::ShearX => move_pixels(Affine::slanted_sideways(SLANT * strength)),
            Self::ShearY => move_pixels(Affine::slanted_upright(SLANT * strength)),
            Self::TranslateX => move_pixels(Affine::moved(0.0, MOVED * strength * width as f32)),
            Self::TranslateY => move_pixels(Affine::moved(MOVED * strength * height as f32, 0.0)),
            Self::Autocontrast => image.chunks_exact_mut(area).for_each(stretch),
            Self::Equalise => image.chunks_exact_mut(area).for_each(equalise),
            Self::Solarise => solarise(image, 1.0 - strength.abs()),
            Self::Posterise => posterise(image, 8 - (BITS * strength.abs()).round() as u32),
            // Grey images have no colours.
            Self::Colour if channels != 3 => {}
            Self::Colour => colour::saturate(image, 1.0 + SCALED * strength),
            Self::Contrast => colour::contrast(image, channels, 1.0 + SCALED * strength),
            Self::Brightness => colour::brighten(image, 1.0 + SCALED * strength),
            Self::Sharpness => sharpen(image, height, width, 1.0 + SCALED * strength),
        }
    }
}

/// Does this number of operations to an image `[channels, height, width]` with values in `[0, 1]`, each of a strength up to `bound`,
/// from 0 to 1.
pub(super) fn rand_augment<R: Rng>(
    image: &mut [f32],
    shape: [usize; 3],
    (operations, bound): (u32, f32),
    rng: &mut R,
) {
    for _ in 0..operations {
        let (operation, strength) = draw(bound, rng);
        operation.apply(image, shape, strength);
    }
}

/// An operation and its strength.
fn draw<R: Rng>(bound: f32, rng: &mut R) -> (Operation, f32) {
    let operation = Operation::ALL[below(Operation::ALL.len(), rng)];
    (operation, bound * (2.0 * uniform_f32(rng) - 1.0))
}

/// Stretches a channel to all values from 0 to 1; one value alone stays.
fn stretch(plane: &mut [f32]) {
    let (low, high) =
        plane.iter().fold((f32::MAX, f32::MIN), |(low, high), &value| (low.min(value), high.max(value)));
    if high > low {
        for value in plane {
            *value = (*value - low) / (high - low);
        }
    }
}

fn level(value: f32) -> usize {
    (value * 255.0).round().clamp(0.0, 255.0) as usize
}

/// Spreads the levels of a channel, as `Pillow` does. A level becomes the number of pixels below it, divided by `step`: a 255th of all
/// pixels but those of the greatest level.
fn equalise(plane: &mut [f32]) {
    let mut counts = [0_usize; 256];
    for &value in plane.iter() {
        counts[level(value)] += 1;
    }
    let greatest = counts.iter().rev().find(|&&count| count > 0).copied().unwrap_or(0);
    let step = (plane.len() - greatest) / 255;
    if step == 0 {
        return;
    }
    let mut below = step / 2;
    let spread = counts.map(|count| {
        let to = (below / step).min(255) as f32 / 255.0;
        below += count;
        to
    });
    for value in plane {
        *value = spread[level(*value)];
    }
}

fn solarise(image: &mut [f32], threshold: f32) {
    for value in image {
        if *value >= threshold {
            *value = 1.0 - *value;
        }
    }
}

fn posterise(image: &mut [f32], bits: u32) {
    let lost = 8 - bits;
    for value in image {
        *value = (level(*value) >> lost << lost) as f32 / 255.0;
    }
}

/// Scales the difference to the image whose pixels are means of their surroundings, in which they count five times. Pixels at the edge stay.
fn sharpen(image: &mut [f32], height: usize, width: usize, factor: f32) {
    if height < 3 || width < 3 {
        return;
    }
    for plane in image.chunks_exact_mut(height * width) {
        let old = plane.to_vec();
        for y in 1..height - 1 {
            for x in 1..width - 1 {
                let here = y * width + x;
                let around = (y - 1..=y + 1).flat_map(|y| &old[y * width + x - 1..=y * width + x + 1]);
                let smooth = (around.sum::<f32>() + 4.0 * old[here]) / 13.0;
                plane[here] = (smooth + factor * (old[here] - smooth)).clamp(0.0, 1.0);
            }
        }
    }
}

#[cfg(test)]
mod golden;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::seed::Seed;

    /// A picture of 6x5 in three colours, each value a level of 256: what `tests/peers/rand_augment.py` draws.
    fn picture() -> Vec<f32> {
        (0..90).map(|at| ((at * at * 7 + at * 31) % 256) as f32 / 255.0).collect()
    }

    /// What an operation makes of the picture, in levels.
    fn made(operation: Operation, strength: f32) -> Vec<u32> {
        let mut image = picture();
        operation.apply(&mut image, [3, 6, 5], strength);
        image.iter().map(|value| (value * 255.0).round() as u32).collect()
    }

    #[test]
    fn operations_on_values_are_pillows() {
        // Pillow calculates in whole levels.
        for (operation, strength, expected) in golden::PILLOW {
            let found = made(*operation, *strength);
            assert_eq!(found.len(), expected.len());
            let far = found.iter().zip(*expected).map(|(&found, &there)| found.abs_diff(there)).max();
            assert!(far <= Some(1), "{operation:?} of {strength}: {far:?}\n{found:?}\n{expected:?}");
        }
    }

    #[test]
    fn levels_are_spread_so_that_all_are_as_frequent() {
        let mut plane: Vec<f32> = (0..765).map(|at| (at / 255 * 100) as f32 / 255.0).collect();
        equalise(&mut plane);
        // Two pixels a level without those of the greatest, and half of that to begin with.
        let levels: Vec<usize> = [0, 255, 510].iter().map(|&at| level(plane[at])).collect();
        assert_eq!(levels, [0, 128, 255]);
        let few = vec![0.1, 0.9, 0.5];
        let mut plane = few.clone();
        equalise(&mut plane);
        assert_eq!(plane, few);
    }

    #[test]
    fn operations_on_places_move_pixels() {
        // A row of five, moved by two, and up by two of six: as far as the greatest strength moves it, less the rest.
        let image: Vec<f32> = (0..30).map(|at| at as f32 / 30.0).collect();
        let moved = |operation: Operation, strength: f32| {
            let mut moved = image.clone();
            operation.apply(&mut moved, [1, 6, 5], strength);
            moved
        };
        let left = moved(Operation::TranslateX, 2.0 / (150.0 / 331.0 * 5.0));
        assert!((left[0] - image[2]).abs() < 1e-5 && left[3] == 0.0 && left[4] == 0.0, "{left:?}");
        let up = moved(Operation::TranslateY, 2.0 / (150.0 / 331.0 * 6.0));
        assert!(
            (up[0] - image[10]).abs() < 1e-5 && up[20..].iter().all(|&value| value.abs() < 1e-5),
            "{up:?}"
        );
        for (operation, strength, map) in [
            (Operation::Rotate, 0.5, Affine::turned(15.0_f32.to_radians())),
            (Operation::ShearX, -1.0, Affine::slanted_sideways(-0.3)),
            (Operation::ShearY, 0.5, Affine::slanted_upright(0.15)),
        ] {
            assert_eq!(moved(operation, strength), map.of(&image, 6, 5), "{operation:?}");
            assert_eq!(moved(operation, 0.0), image, "{operation:?}");
        }
    }

    #[test]
    fn every_operation_keeps_to_values_from_0_to_1() {
        let mut rng = Seed::root(5).rng();
        for operation in Operation::ALL {
            for strength in [-1.0, -0.3, 0.0, 0.4, 1.0] {
                for shape in [[3, 6, 5], [1, 2, 3], [1, 1, 1]] {
                    let mut image: Vec<f32> =
                        (0..shape.iter().product()).map(|_| uniform_f32(&mut rng)).collect();
                    operation.apply(&mut image, shape, strength);
                    assert!(
                        image.iter().all(|value| (0.0..=1.0).contains(value)),
                        "{operation:?} {strength}"
                    );
                }
            }
        }
    }

    #[test]
    fn as_many_operations_are_drawn_as_are_asked_for_each_as_often() {
        let mut rng = Seed::root(5).rng();
        let mut counts = BTreeMap::new();
        let mut greatest = 0.0_f32;
        for _ in 0..2_800 {
            let (operation, strength) = draw(0.5, &mut rng);
            *counts.entry(format!("{operation:?}")).or_insert(0) += 1;
            greatest = greatest.max(strength.abs());
        }
        // Standard deviation 14.
        assert!(counts.len() == 14 && counts.values().all(|count| (130..270).contains(count)), "{counts:?}");
        assert!((0.49..=0.5).contains(&greatest), "{greatest}");
        // One after the other.
        let (mut once, mut twice) = (picture(), picture());
        let mut again = Seed::root(6).rng();
        for _ in 0..2 {
            let (operation, strength) = draw(0.5, &mut again);
            operation.apply(&mut once, [3, 6, 5], strength);
        }
        rand_augment(&mut twice, [3, 6, 5], (2, 0.5), &mut Seed::root(6).rng());
        assert_eq!(once, twice);
        let mut image = picture();
        rand_augment(&mut image, [3, 6, 5], (0, 1.0), &mut rng);
        assert_eq!(image, picture());
    }
}
