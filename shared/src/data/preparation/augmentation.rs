//! Random augmentation of images.

use serde::{Deserialize, Serialize};

use super::placement::Placement;
use super::{PreparationError, colour};
use crate::seed::{Seed, below, uniform_f32};

/// Bounds of the erased fraction of the area, and of the ratio of the sides: the published settings (Zhong et al. 2020,
/// "Random erasing data augmentation", section 4).
const ERASED: (f32, f32) = (0.02, 0.33);
const RATIO: (f32, f32) = (0.3, 3.3);

/// Random changes of an image `[channels, height, width]` with values in `[0, 1]`, done in this order:
///
/// 1. `shift`: moved by a whole number of pixels, drawn evenly from `-shift..=shift` in each direction. What comes into view
///    is as `edge` says. (Padding by this number of pixels on each side and cropping back to the old size is the same.)
/// 2. `crop`: cut to a square of this side at a place drawn evenly; 0 is the whole image.
/// 3. `flip`: mirrored left to right with this probability.
/// 4. `brightness`: all values times a factor from `1 - brightness` to `1 + brightness`.
/// 5. `contrast`: the difference to the image's mean brightness times such a factor.
/// 6. `saturation`: the difference to each pixel's own brightness times such a factor; of images in colour alone.
/// 7. `erase`: with this probability a rectangle is replaced by the image's mean colour. It has 2 to 33 % of the area and
///    sides in a ratio of 0.3 to 3.3 (Zhong et al. 2020), less where it would be longer than the image.
///
/// After each of 4 to 6 values are cut to `[0, 1]`. A part that is 0 does nothing and draws nothing. The order of drawing is
/// that of the list, so a run's samples stay the same when a later part is added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Augmentation {
    /// Pixels that an image is moved by at most, in each direction.
    pub shift: u32,
    /// What comes into view when it is.
    pub edge: Edge,
    /// Side of the square that is left of it, in pixels; 0 leaves all.
    pub crop: u32,
    /// Probability of a mirror image, 0 to 1.
    pub flip: f32,
    /// Greatest relative change of brightness, 0 to 1.
    pub brightness: f32,
    /// Greatest relative change of contrast, 0 to 1.
    pub contrast: f32,
    /// Greatest relative change of saturation, 0 to 1.
    pub saturation: f32,
    /// Probability that a part is erased, 0 to 1.
    pub erase: f32,
}

/// What lies beyond the edge of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Edge {
    /// Black.
    #[default]
    Zero,
    /// The image's mirror image, whose first row is the second of the image.
    Reflect,
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
        let (crop, shift, side) = (self.crop as usize, self.shift as usize, height.min(width));
        if crop > side {
            return Err(PreparationError::Crop { crop, height, width });
        }
        if shift >= side {
            return Err(PreparationError::Shift { shift, height, width });
        }
        if self.saturation > 0.0 && channels != 3 {
            return Err(PreparationError::Saturation { channels });
        }
        Ok(if crop == 0 { sample.to_vec() } else { vec![channels, crop, crop] })
    }

    /// Appends the augmented image to `out`. [`Augmentation::shape`] must accept the shape.
    ///
    /// # Panics
    /// If the shape is not accepted, or not that of the image.
    pub fn apply(&self, image: &[f32], shape: &[usize], seed: &Seed, out: &mut Vec<f32>) {
        let mut rng = seed.rng();
        let mut place = Placement::new(shape, self.crop as usize, self.edge);
        if self.shift > 0 {
            let shift = (self.shift as usize).cast_signed();
            let span = 2 * self.shift as usize + 1;
            place.top += below(span, &mut rng).cast_signed() - shift;
            place.left += below(span, &mut rng).cast_signed() - shift;
        }
        if self.crop > 0 {
            let (down, right) = place.room();
            place.top += below(down + 1, &mut rng).cast_signed();
            place.left += below(right + 1, &mut rng).cast_signed();
        }
        if self.flip > 0.0 {
            place.flipped = uniform_f32(&mut rng) < self.flip;
        }
        let begin = out.len();
        place.copy(image, out);
        let image = &mut out[begin..];
        let channels = shape[0];
        let mut factor = |change: f32| 1.0 + change * (2.0 * uniform_f32(&mut rng) - 1.0);
        if self.brightness > 0.0 {
            colour::brighten(image, factor(self.brightness));
        }
        if self.contrast > 0.0 {
            colour::contrast(image, channels, factor(self.contrast));
        }
        if self.saturation > 0.0 {
            colour::saturate(image, factor(self.saturation));
        }
        if self.erase > 0.0 && uniform_f32(&mut rng) < self.erase {
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
        if self.crop == 0 {
            out.extend_from_slice(image);
            return;
        }
        let mut place = Placement::new(shape, self.crop as usize, self.edge);
        let (down, right) = place.room();
        (place.top, place.left) = ((down / 2).cast_signed(), (right / 2).cast_signed());
        place.copy(image, out);
    }
}
