//! Random augmentation of images.

use std::ops::Bound;

use rand::Rng;

use super::affine::Affine;
use super::placement::{Padding, Placement};
use super::rand_augment::rand_augment;
use super::resized::Part;
use super::{PreparationError, colour};
use crate::seed::{Seed, below, uniform_f32};
use crate::settings::Kind;

/// Bounds of the erased fraction of the area, and of the ratio of the sides: the published settings (Zhong et al. 2020,
/// "Random erasing data augmentation", section 4).
const ERASED: (f32, f32) = (0.02, 0.33);
const RATIO: (f32, f32) = (0.3, 3.3);

crate::section! {
    /// Random changes of an image `[channels, height, width]` with values in `[0, 1]`, done in the order of the keys.
    ///
    /// After each change of colour values are cut to `[0, 1]`. A part that is 0 does nothing and draws nothing; nor does a `colour-probability` of 1 draw. The order of drawing is
    /// that of the keys, so a run's samples stay the same when a later part is added.
    #[derive(Copy)]
    pub struct Augmentation {
        /// Least share of the area of a random part that is scaled to the whole; 0 is none
        ///
        /// The part has sides in a ratio of 3/4 to 4/3, and straight lines between pixels fill the image (Szegedy et al. 2015).
        pub random_resized_crop: f64 = 0.0, in Kind::PROBABILITY;
        /// Images are moved by up to this number of pixels; 0 is never
        ///
        /// By a whole number of pixels, drawn evenly from `-shift..=shift` in each direction. (To pad by that many pixels on each
        /// side and crop back to the old size is the same.)
        pub random_shift: u32 = 0, in SIDE, was "shift";
        /// What a shift brings into view: zero or reflect
        pub padding: Padding = Padding::Zero, was "edge";
        /// Side of a random crop in pixels, the centre in tests; 0 is none
        ///
        /// A square, at a place drawn evenly.
        pub random_crop: u32 = 0, in SIDE, was "crop";
        /// Probability of a mirror image, left to right
        pub horizontal_flip: f64 = 0.0, in Kind::PROBABILITY, was "flip";
        /// Probability of an image upside down, top to bottom
        pub vertical_flip: f64 = 0.0, in Kind::PROBABILITY;
        /// Greatest angle in degrees by which images are turned, either way; 0 is never
        ///
        /// About their centre, drawn evenly, with straight lines between pixels. What comes into view is 0.
        pub random_rotation: f64 = 0.0, in DEGREES;
        /// Operations of RandAugment on an image, each drawn out of fourteen; 0 is none
        ///
        /// Turns, slants, moves, and changes of values and colours (Cubuk et al. 2020).
        pub rand_augment: u32 = 0, in OPERATIONS;
        /// Greatest strength of these operations, from 0 to 1
        ///
        /// Each has one of its own, drawn evenly. At 1 the ranges are torchvision's: a turn by 30 degrees, a move by 0.45 of the width,
        /// 1.9 times the contrast. torchvision's magnitude 9 is 0.3.
        pub rand_augment_strength: f64 = 0.3, in Kind::PROBABILITY;
        /// Greatest relative change of brightness
        ///
        /// All values times a factor from `1 - brightness` to `1 + brightness`.
        pub brightness: f64 = 0.0, in Kind::PROBABILITY;
        /// Greatest relative change of contrast
        ///
        /// The difference to the image's mean brightness times such a factor.
        pub contrast: f64 = 0.0, in Kind::PROBABILITY;
        /// Greatest relative change of saturation, of images in colour
        ///
        /// The difference to each pixel's own brightness times such a factor.
        pub saturation: f64 = 0.0, in Kind::PROBABILITY;
        /// Greatest change of hue, as a share of the colour circle
        ///
        /// All hues turn by an angle from `-hue` to `hue`, in HSV.
        pub hue: f64 = 0.0, in Kind::PROBABILITY;
        /// Probability that brightness, contrast, saturation and hue change at all
        pub colour_probability: f64 = 1.0, in Kind::PROBABILITY;
        /// Probability that an image in colour becomes grey
        pub grey: f64 = 0.0, in Kind::PROBABILITY;
        /// Probability that a rectangle is erased
        ///
        /// It is replaced by the image's mean colour. It has 2 to 33 % of the area and sides in a ratio of 0.3 to 3.3 (Zhong et al.
        /// 2020), less where it would be longer than the image.
        pub random_erasing: f64 = 0.0, in Kind::PROBABILITY, was "erase";
    }
}

/// A number of pixels, up to the largest side of an image.
const SIDE: Kind = Kind::Whole(0, 4096);

/// A number of operations.
const OPERATIONS: Kind = Kind::Whole(0, 100);

/// An angle.
const DEGREES: Kind = Kind::Number(Bound::Included(0.0), Bound::Included(180.0));

/// Whether something of this probability happens.
fn happens<R: Rng>(probability: f64, rng: &mut R) -> bool {
    uniform_f32(rng) < probability as f32
}

impl Augmentation {
    /// The shape of an augmented sample, if samples of this shape can be augmented.
    pub fn shape(&self, sample: &[usize]) -> Result<Vec<usize>, PreparationError> {
        if *self == Self::default() {
            return Ok(sample.to_vec());
        }
        let &[channels, height, width] = sample else {
            return Err(PreparationError::NotImages { shape: sample.to_vec() });
        };
        let (crop, shift, side) = (self.random_crop as usize, self.random_shift as usize, height.min(width));
        if crop > side {
            return Err(PreparationError::Crop { crop, height, width });
        }
        if shift >= side {
            return Err(PreparationError::Shift { shift, height, width });
        }
        let of_colour = [("saturation", self.saturation), ("hue", self.hue), ("grey", self.grey)];
        if let Some((name, _)) = of_colour.into_iter().find(|(_, change)| *change > 0.0 && channels != 3) {
            return Err(PreparationError::Colourless { name, channels });
        }
        Ok(if crop == 0 { sample.to_vec() } else { vec![channels, crop, crop] })
    }

    /// Whether values are changed in a way that takes them to be from 0 to 1.
    pub(super) fn needs_unit_range(&self) -> bool {
        self.changes_colours() || self.grey > 0.0 || self.rand_augment > 0
    }

    /// Whether a part changes that [`Self::colour_probability`] is about.
    fn changes_colours(&self) -> bool {
        [self.brightness, self.contrast, self.saturation, self.hue].iter().any(|&change| change > 0.0)
    }

    /// Appends the augmented image to `out`. [`Augmentation::shape`] must accept the shape.
    ///
    /// # Panics
    /// If the shape is not accepted, or not that of the image.
    pub fn apply(&self, image: &[f32], shape: &[usize], seed: &Seed, out: &mut Vec<f32>) {
        let mut rng = seed.rng();
        let scaled;
        let mut image = image;
        if self.random_resized_crop > 0.0 {
            let &[_, height, width] = shape else { panic!("an image has shape [channels, height, width]") };
            scaled = Part::draw(self.random_resized_crop as f32, height, width, &mut rng)
                .scaled(image, height, width);
            image = &scaled;
        }
        let mut place = Placement::new(shape, self.random_crop as usize, self.padding);
        if self.random_shift > 0 {
            let shift = (self.random_shift as usize).cast_signed();
            let span = 2 * self.random_shift as usize + 1;
            place.top += below(span, &mut rng).cast_signed() - shift;
            place.left += below(span, &mut rng).cast_signed() - shift;
        }
        if self.random_crop > 0 {
            let (down, right) = place.room();
            place.top += below(down + 1, &mut rng).cast_signed();
            place.left += below(right + 1, &mut rng).cast_signed();
        }
        if self.horizontal_flip > 0.0 {
            place.mirrored = happens(self.horizontal_flip, &mut rng);
        }
        if self.vertical_flip > 0.0 {
            place.upside_down = happens(self.vertical_flip, &mut rng);
        }
        let begin = out.len();
        place.copy(image, out);
        if self.random_rotation > 0.0 {
            let angle = (self.random_rotation as f32).to_radians() * (2.0 * uniform_f32(&mut rng) - 1.0);
            let (height, width) = place.size();
            let turned = Affine::turned(angle).of(&out[begin..], height, width);
            out[begin..].copy_from_slice(&turned);
        }
        let image = &mut out[begin..];
        let channels = shape[0];
        if self.rand_augment > 0 {
            let (height, width) = place.size();
            let settings = (self.rand_augment, self.rand_augment_strength as f32);
            rand_augment(image, [channels, height, width], settings, &mut rng);
        }
        // What is certain draws nothing here, as before there was another probability.
        let certain = self.colour_probability >= 1.0;
        if self.changes_colours() && (certain || happens(self.colour_probability, &mut rng)) {
            let mut within = |change: f64| change as f32 * (2.0 * uniform_f32(&mut rng) - 1.0);
            if self.brightness > 0.0 {
                colour::brighten(image, 1.0 + within(self.brightness));
            }
            if self.contrast > 0.0 {
                colour::contrast(image, channels, 1.0 + within(self.contrast));
            }
            if self.saturation > 0.0 {
                colour::saturate(image, 1.0 + within(self.saturation));
            }
            if self.hue > 0.0 {
                colour::turn(image, within(self.hue));
            }
        }
        if self.grey > 0.0 && happens(self.grey, &mut rng) {
            colour::saturate(image, 0.0);
        }
        if self.random_erasing > 0.0 && happens(self.random_erasing, &mut rng) {
            let mut between = |(low, high): (f32, f32)| low + (high - low) * uniform_f32(&mut rng);
            let (height, width) = place.size();
            let area = between(ERASED) * (height * width) as f32;
            let ratio = between(RATIO);
            let side = |length: f32, limit: usize| (length.sqrt().round() as usize).clamp(1, limit);
            let (tall, wide) = (side(area * ratio, height), side(area / ratio, width));
            let top = below(height - tall + 1, &mut rng);
            let left = below(width - wide + 1, &mut rng);
            colour::erase(image, channels, width, top..top + tall, left..left + wide);
        }
    }

    /// Appends the image without random changes to `out`: its centre crop.
    ///
    /// # Panics
    /// As [`Augmentation::apply`].
    pub fn centre(&self, image: &[f32], shape: &[usize], out: &mut Vec<f32>) {
        if self.random_crop == 0 {
            out.extend_from_slice(image);
            return;
        }
        let mut place = Placement::new(shape, self.random_crop as usize, self.padding);
        let (down, right) = place.room();
        (place.top, place.left) = ((down / 2).cast_signed(), (right / 2).cast_signed());
        place.copy(image, out);
    }
}
