//! Preparation of samples for a network: augmentation, then normalisation.
//!
//! A [`Preparation`] is part of the run's specification, so every device does the same. In training each sample is
//! [augmented](Augmentation) at random from a seed of its own, derived from the client, the round, the epoch and the
//! sample's position in the client's data. The result therefore depends neither on batches nor on threads. Evaluation is
//! not random: only the crop remains, taken from the centre.
//!
//! * [`augmentation`]: the random changes and their order;
//! * `resized`, `placement`, `affine`, `rand_augment`, `colour`: their implementation;
//! * [`normalisation`]: mean and deviation.

mod affine;
pub mod augmentation;
mod colour;
pub mod normalisation;
mod placement;
mod rand_augment;
mod resized;

use models::shape::spelled;
use models::{Batch, BatchError, Targets};
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use augmentation::Augmentation;
pub use normalisation::Normalisation;
pub use placement::Padding;

use super::{Samples, View};
use crate::seed::Seed;

/// The preparation of every sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Preparation {
    /// In training.
    pub augmentation: Augmentation,
    /// Always, after it.
    pub normalisation: Normalisation,
}

/// Why samples cannot be prepared. The operator's configuration is at fault.
///
/// In all variants: `height`, `width`, `channels` and `shape` are those of a sample, `crop` and `shift` the settings, in
/// pixels; `means` and `deviations` say how many of them are given; `found` is the first such value.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "fields are described once, above")]
pub enum PreparationError {
    /// Only images can be augmented.
    #[error(
        "augmentation is for images of shape channels x height x width, and a sample has shape {}",
        spelled(.shape)
    )]
    NotImages { shape: Vec<usize> },
    /// The crop is larger than the image.
    #[error("a crop of {crop}x{crop} does not fit into an image of {height}x{width}")]
    Crop { crop: usize, height: usize, width: usize },
    /// The shift is as large as the image.
    #[error(
        "a shift of {shift} pixels needs images that are larger than that, and these are {height}x{width}"
    )]
    Shift { shift: usize, height: usize, width: usize },
    /// It needs images in colour.
    #[error("augment.{name} is for images of three channels, and these have {channels}")]
    Colourless { name: &'static str, channels: usize },
    /// Colours are changed of values outside `[0, 1]`.
    #[error(
        "brightness, contrast, saturation, hue, grey and RandAugment are for values from 0 to 1, and there is a {found} among these: scale \
         them, or leave augment.brightness, augment.contrast, augment.saturation, augment.hue, augment.grey and augment.rand-augment out"
    )]
    Range { found: String },
    /// There is not one mean and one deviation for each channel.
    #[error(
        "{means} means and {deviations} deviations are given for samples of {channels} channels; give one of each for each channel"
    )]
    Channels { means: usize, deviations: usize, channels: usize },
    /// A deviation is not a positive number, or a mean is not finite.
    #[error("means must be finite, and deviations finite and above 0")]
    Moments,
}

impl Preparation {
    /// The shape of a prepared sample, if samples of this shape can be prepared.
    pub fn shape(&self, sample: &[usize]) -> Result<Vec<usize>, PreparationError> {
        let shape = self.augmentation.shape(sample)?;
        self.normalisation.check(&shape)?;
        Ok(shape)
    }

    /// Checks that the values of these samples can be prepared; [`Self::shape`] checks their shape.
    pub fn check(&self, data: &View) -> Result<(), PreparationError> {
        let Samples::Floats(values) = data.dataset().samples() else { return Ok(()) };
        if !self.augmentation.needs_unit_range() {
            return Ok(());
        }
        let length = data.dataset().sample_len();
        let mut seen =
            data.indices().iter().flat_map(|&sample| &values[sample as usize * length..][..length]);
        match seen.find(|value| !(0.0..=1.0).contains(*value)) {
            Some(found) => Err(PreparationError::Range { found: found.to_string() }),
            None => Ok(()),
        }
    }

    /// Whether samples are left unchanged.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Whether nothing is random: a sample is the same each time it is trained on.
    #[must_use]
    pub fn is_fixed(&self) -> bool {
        self.augmentation == Augmentation::default()
    }

    /// Replaces the contents of `x` and `y` by a batch to train on, as [`View::fill`] does. `seed` is that of the client's
    /// epoch; sample `i` is augmented from its child `("sample", i)`.
    ///
    /// # Panics
    /// If a position is not below [`View::len`], or the samples cannot be prepared, see [`Preparation::shape`].
    pub fn training(&self, data: &View, positions: &[usize], seed: &Seed, x: &mut Vec<f32>, y: &mut Targets) {
        self.fill(data, positions, x, y, |position, sample, prepared| {
            self.augmentation.apply(
                sample,
                data.shape(),
                &seed.derive_numbered("sample", position as u64),
                prepared,
            );
        });
    }

    /// Replaces the contents of `x` and `y` by a batch to evaluate or predict, as [`View::fill`] does.
    ///
    /// # Panics
    /// As [`Preparation::training`].
    pub fn evaluation(&self, data: &View, positions: &[usize], x: &mut Vec<f32>, y: &mut Targets) {
        self.fill(data, positions, x, y, |_, sample, prepared| {
            self.augmentation.centre(sample, data.shape(), prepared);
        });
    }

    /// These samples as a batch to evaluate or predict, for a network with this input; without labels if they have none.
    ///
    /// # Errors
    /// [`BatchError`] if they are not what the network takes.
    ///
    /// # Panics
    /// As [`Preparation::training`].
    pub fn batch(&self, data: &View, positions: &[usize], input: &[usize]) -> Result<Batch, BatchError> {
        let (mut x, mut y) = (Vec::new(), Targets::default());
        self.evaluation(data, positions, &mut x, &mut y);
        let shape = [&[positions.len()], input].concat();
        Batch::with_targets(x, shape, y)
    }

    /// These samples as a batch to train on, augmented as [`Preparation::training`] does.
    ///
    /// # Errors
    /// [`BatchError`] if they are not what the network takes.
    ///
    /// # Panics
    /// As [`Preparation::training`].
    pub fn training_batch(
        &self,
        data: &View,
        positions: &[usize],
        seed: &Seed,
        input: &[usize],
    ) -> Result<Batch, BatchError> {
        let (mut x, mut y) = (Vec::new(), Targets::default());
        self.training(data, positions, seed, &mut x, &mut y);
        let shape = [&[positions.len()], input].concat();
        Batch::with_targets(x, shape, y)
    }

    fn fill(
        &self,
        data: &View,
        positions: &[usize],
        x: &mut Vec<f32>,
        y: &mut Targets,
        change: impl Fn(usize, &[f32], &mut Vec<f32>),
    ) {
        let channels = data.shape().first().copied().unwrap_or(1);
        if self.is_fixed() {
            data.fill(positions, x, y);
            let length = x.len() / positions.len().max(1);
            if self.normalisation != Normalisation::None {
                x.chunks_exact_mut(length.max(1))
                    .for_each(|sample| self.normalisation.apply(sample, channels));
            }
            return;
        }
        let (mut raw, mut label) = (Vec::new(), Targets::default());
        x.clear();
        y.clear();
        for &position in positions {
            data.fill(&[position], &mut raw, &mut label);
            y.extend_from(&label, 0..label.len());
            let begin = x.len();
            change(position, &raw, x);
            self.normalisation.apply(&mut x[begin..], channels);
        }
    }
}

#[cfg(test)]
mod tests;
