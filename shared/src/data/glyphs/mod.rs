//! The built-in data set: ten hand-designed symbols, drawn with random distortion from a seed.
//!
//! It needs no download: any number of `28 x 28` grey images like MNIST's. Sample `i` is of class `i mod 10` and depends
//! only on the seed and `i`, so a larger set begins with the smaller one. Pixels are computed only with `+ - * /`, square
//! roots and comparisons, whose results IEEE 754 defines exactly: the same seed gives the same bytes on every processor.
//!
//! The difficulty is set so that a linear model is clearly worse (about 88 % of test samples, after 8,000 training
//! samples) than a small convolutional network (above 98 %; see `tests/glyphs_difficulty.rs`), so that effects of a
//! federated method are visible. Symbols come in pairs that differ in one detail, are rotated, sheared, bent and
//! shifted, and are drawn over distracting strokes, with bars that hide parts of them, at varying contrast and with noise.

mod canvas;
mod distortion;
mod symbols;

use super::format::MAX_CONTENT;
use super::{DataError, Dataset, Split};
use crate::seed::{Seed, uniform_f32};
use canvas::{Canvas, Point};
use distortion::Distortion;
pub use symbols::NAMES;
use symbols::SYMBOLS;

/// Height and width of an image, in pixels.
pub const SIDE: usize = 28;

/// Training samples of a run that does not set their number.
pub const TRAINING_SAMPLES: usize = 6_000;

/// Test samples of every run.
pub const TEST_SAMPLES: usize = 2_000;

/// Number of classes.
pub const CLASSES: usize = SYMBOLS.len();

/// The most distracting strokes in one image.
const MAX_DISTRACTORS: usize = 4;

/// Generates `count` samples, with the classes in turn. Refuses zero samples, and more than [`MAX_CONTENT`] bytes.
///
/// Training and test samples of one seed are drawn from different seeds, derived with the labels `glyphs-train`
/// and `glyphs-test`.
pub fn generate(seed: &Seed, split: Split, count: usize) -> Result<Dataset, DataError> {
    let seed = seed.derive(match split {
        Split::Train => "glyphs-train",
        Split::Test => "glyphs-test",
    });
    if count as u64 > MAX_CONTENT / (SIDE * SIDE) as u64 {
        return Err(DataError::TooLarge { dimensions: vec![count, SIDE, SIDE], limit: MAX_CONTENT });
    }
    let mut pixels = Vec::with_capacity(count * SIDE * SIDE);
    let mut labels = Vec::with_capacity(count);
    for index in 0..count {
        let class = index % CLASSES;
        draw(class, &seed.derive_numbered("sample", index as u64), &mut pixels);
        labels.push(class as u8);
    }
    Dataset::new(vec![1, SIDE, SIDE], pixels, labels, CLASSES)
}

/// Appends one image of a symbol of this class.
fn draw(class: usize, seed: &Seed, pixels: &mut Vec<u8>) {
    let mut rng = seed.rng();
    let mut between = |low: f32, high: f32| low + (high - low) * uniform_f32(&mut rng);

    let distortion = Distortion::draw(&mut between);
    let half_width = between(0.7, 1.5);
    let ink = between(0.55, 1.0);
    let mut canvas = Canvas::new();
    for stroke in SYMBOLS[class] {
        for ends in stroke.windows(2) {
            canvas.draw(distortion.apply(ends[0]), distortion.apply(ends[1]), half_width, ink);
        }
    }
    // A bar hides a part of the symbol. It is too thin to hide the detail that distinguishes two symbols.
    let (from, to) = bar(&mut between, 8.0, 16.0);
    canvas.erase(from, to, between(0.0, 1.0));
    let distractors = between(0.0, (MAX_DISTRACTORS + 1) as f32) as usize;
    for _ in 0..distractors {
        let (from, to) = bar(&mut between, 2.0, 5.0);
        canvas.draw(from, to, between(0.4, 1.2), ink * between(0.4, 1.0));
    }
    let paper = between(0.0, 0.2);
    let noise = between(0.05, 0.15);
    canvas.develop(paper, noise, &mut rng, pixels);
}

/// A straight stroke anywhere in the image, of a length between these bounds, in pixels.
fn bar(between: &mut impl FnMut(f32, f32) -> f32, shortest: f32, longest: f32) -> (Point, Point) {
    let side = SIDE as f32;
    let (x, y) = (between(0.0, side), between(0.0, side));
    let (cos, sin) = distortion::direction(between(-1.0, 1.0));
    let half = 0.5 * between(shortest, longest);
    ((x - half * cos, y - half * sin), (x + half * cos, y + half * sin))
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;
    use crate::data::Samples;
    use sha2::{Digest, Sha256};

    fn pixels(set: &Dataset, samples: Range<usize>) -> &[u8] {
        let Samples::Bytes(pixels) = set.samples() else { panic!("images are bytes") };
        &pixels[samples.start * SIDE * SIDE..samples.end * SIDE * SIDE]
    }

    #[test]
    fn golden_pixels() {
        let mut hash = Sha256::new();
        for split in [Split::Train, Split::Test] {
            hash.update(pixels(&generate(&Seed::root(42), split, 50).unwrap(), 0..50));
        }
        assert_eq!(hash.finalize()[..8], [153, 76, 226, 46, 222, 176, 22, 83]);
    }

    #[test]
    fn a_sample_depends_on_its_number_alone() {
        let generate = |number, split, count| generate(&Seed::root(number), split, count).unwrap();
        let set = generate(1, Split::Train, 60);
        assert_eq!(set.limit(25).unwrap(), generate(1, Split::Train, 25));
        for other in [generate(2, Split::Train, 60), generate(1, Split::Test, 60)] {
            assert_eq!(other.labels(), set.labels());
            assert!((0..60).all(|i| pixels(&set, i..i + 1) != pixels(&other, i..i + 1)));
        }
        // Nor do two samples of one class look the same.
        assert_ne!(pixels(&set, 0..1), pixels(&set, 10..11));
    }

    #[test]
    fn classes_are_balanced_and_images_have_the_shape_of_mnist() {
        let set = generate(&Seed::root(3), Split::Test, 107).unwrap();
        assert_eq!(set.shape(), [1, 28, 28]);
        assert_eq!(set.histogram(), [11, 11, 11, 11, 11, 11, 11, 10, 10, 10]);
    }

    #[test]
    fn every_image_shows_something() {
        let set = generate(&Seed::root(4), Split::Train, 500).unwrap();
        for sample in 0..set.len() {
            // Half of full ink before noise, over at least a few strokes of pixels.
            let bright = pixels(&set, sample..sample + 1).iter().filter(|&&pixel| pixel > 110).count();
            assert!((15..400).contains(&bright), "sample {sample} has {bright} bright pixels");
        }
    }

    #[test]
    fn impossible_counts_are_refused() {
        let generate = |count| generate(&Seed::root(5), Split::Train, count);
        assert!(matches!(generate(0), Err(DataError::Empty)));
        assert!(matches!(generate(usize::MAX), Err(DataError::TooLarge { .. })));
    }
}
