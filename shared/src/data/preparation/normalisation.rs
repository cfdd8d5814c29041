//! Normalisation by mean and standard deviation.

use serde::{Deserialize, Serialize};

use super::PreparationError;

/// How the values of a prepared sample are scaled.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Normalisation {
    /// Not at all: images are in `[0, 1]`, and a model needs no statistics of its training data to be used.
    #[default]
    None,
    /// `(value - mean) / deviation` by channel, the first axis of a sample. Images are in `[0, 1]` before.
    Channels {
        /// One for each channel.
        mean: Vec<f32>,
        /// One for each channel, above 0.
        deviation: Vec<f32>,
    },
    /// Each sample by its own mean and standard deviation over all of its values, which is what the CNN of `McMahan` et
    /// al. 2017 takes (TensorFlow's `per_image_standardization`): the deviation counts as at least `1 / (255 sqrt n)`
    /// over `n` values, so that an image of one colour becomes zeros.
    Whiten,
}

impl Normalisation {
    /// Checks that samples of this shape can be normalised.
    pub(super) fn check(&self, shape: &[usize]) -> Result<(), PreparationError> {
        let Self::Channels { mean, deviation } = self else { return Ok(()) };
        let channels = shape.first().copied().unwrap_or(0);
        if mean.len() != channels || deviation.len() != channels {
            let (means, deviations) = (mean.len(), deviation.len());
            return Err(PreparationError::Channels { means, deviations, channels });
        }
        let fine = mean.iter().all(|mean| mean.is_finite())
            && deviation.iter().all(|deviation| deviation.is_normal() && *deviation > 0.0);
        if fine { Ok(()) } else { Err(PreparationError::Moments) }
    }

    /// Normalises one sample with this number of channels in place.
    pub(super) fn apply(&self, sample: &mut [f32], channels: usize) {
        match self {
            Self::None => {}
            Self::Channels { mean, deviation } => {
                let area = sample.len() / channels;
                for ((plane, mean), deviation) in sample.chunks_exact_mut(area).zip(mean).zip(deviation) {
                    for value in plane {
                        *value = (*value - mean) / deviation;
                    }
                }
            }
            Self::Whiten => {
                let n = sample.len() as f64;
                let mean = sample.iter().map(|&value| f64::from(value)).sum::<f64>() / n;
                let square = |value: &f32| (f64::from(*value) - mean).powi(2);
                let deviation = (sample.iter().map(square).sum::<f64>() / n).sqrt();
                let deviation = deviation.max(1.0 / (255.0 * n.sqrt()));
                let (mean, deviation) = (mean as f32, deviation as f32);
                for value in sample {
                    *value = (*value - mean) / deviation;
                }
            }
        }
    }
}
