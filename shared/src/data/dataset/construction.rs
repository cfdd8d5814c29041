//! Data sets of samples and labels that fit each other.

use models::Targets;

use super::super::error::MAX_CLASSES;
use super::super::{DataError, Samples, Skipped};
use super::Dataset;

impl Dataset {
    /// Images: `shape` is one sample's `[channels, height, width]`, `pixels` holds a byte for each, sample after sample.
    ///
    /// # Errors
    /// [`DataError`] if the number of `pixels` does not fit `labels` and `shape`, or a label is not below `classes`.
    pub fn new<L: Into<u32>>(
        shape: Vec<usize>,
        pixels: Vec<u8>,
        labels: impl IntoIterator<Item = L>,
        classes: usize,
    ) -> Result<Self, DataError> {
        let labels = labels.into_iter().map(Into::into).collect();
        Self::labelled(shape, Samples::Bytes(pixels), labels, classes)
    }

    /// Samples of any kind with their labels.
    ///
    /// * Images are as [`Self::new`] has them.
    /// * Features are finite numbers of any shape, such as `[13]` for 13 columns of a table.
    /// * Text: each sample is `[length]` tokens. Either each text has one label; or each token is labelled with the one that follows
    ///   it, the classes are the vocabulary, and tokens are below `classes` like labels.
    ///
    /// # Errors
    /// As [`Self::new`], and [`DataError::NotFinite`].
    pub fn labelled(
        shape: Vec<usize>,
        samples: Samples,
        labels: Vec<u32>,
        classes: usize,
    ) -> Result<Self, DataError> {
        let shape = checked_shape(shape, &samples)?;
        // Of texts of one token either is meant, and there is one label for each.
        let follows = matches!(samples, Samples::Tokens(_)) && samples.len() == labels.len() && shape[0] > 1;
        let labels_each = if follows { shape[0] } else { 1 };
        if !(1..=MAX_CLASSES).contains(&classes) {
            return Err(DataError::Classes { found: classes });
        }
        if labels.is_empty() {
            return Err(DataError::Empty);
        }
        let count = labels.len() / labels_each;
        if count * labels_each != labels.len() {
            return Err(DataError::ValueCount { labels: labels.len(), shape, values: samples.len() });
        }
        if let Some(at) = labels.iter().position(|&label| label as usize >= classes) {
            return Err(DataError::Label { row: at / labels_each, label: labels[at], classes });
        }
        if follows {
            samples.check_tokens(shape[0], classes)?;
        }
        Self::checked(shape, samples, Targets::Classes(labels), count, classes)
    }

    /// Images, features or text with numbers to learn, as many as `outputs` for each sample.
    ///
    /// # Errors
    /// [`DataError`] if they do not fit, or a number or feature is not finite.
    pub fn valued(
        shape: Vec<usize>,
        samples: Samples,
        values: Vec<f32>,
        outputs: usize,
    ) -> Result<Self, DataError> {
        let shape = checked_shape(shape, &samples)?;
        if !(1..=MAX_CLASSES).contains(&outputs) {
            return Err(DataError::Classes { found: outputs });
        }
        if values.is_empty() {
            return Err(DataError::Empty);
        }
        if let Some(at) = values.iter().position(|value| !value.is_finite()) {
            return Err(DataError::NotFiniteTarget { row: at / outputs, output: at % outputs });
        }
        let count = values.len() / outputs;
        if count * outputs != values.len() {
            return Err(DataError::ValueCount { labels: values.len(), shape, values: samples.len() });
        }
        Self::checked(shape, samples, Targets::Values(values), count, outputs)
    }

    /// Samples with what is to be learned of them, of either kind.
    ///
    /// # Errors
    /// As [`Self::labelled`] and [`Self::valued`].
    pub fn learned(
        shape: Vec<usize>,
        samples: Samples,
        targets: Targets,
        classes: usize,
    ) -> Result<Self, DataError> {
        match targets {
            Targets::Classes(labels) => Self::labelled(shape, samples, labels, classes),
            Targets::Values(values) => Self::valued(shape, samples, values, classes),
        }
    }

    /// Samples without labels, which have no classes.
    ///
    /// # Errors
    /// [`DataError`] if there are no samples, the shape does not fit them, or a feature is not finite.
    pub fn unlabelled(shape: Vec<usize>, samples: Samples) -> Result<Self, DataError> {
        let shape = checked_shape(shape, &samples)?;
        let length = shape.iter().try_fold(1_usize, |product, &side| product.checked_mul(side));
        match samples.len() / length.unwrap_or(usize::MAX) {
            0 => Err(DataError::Empty),
            count => Self::checked(shape, samples, Targets::default(), count, 0),
        }
    }

    /// Samples of which the number alone is known: a program of their owner's reads them. They have no shape, no values, no labels
    /// and no classes.
    ///
    /// # Errors
    /// [`DataError`] if there are none, or too many.
    pub fn counted(count: u64) -> Result<Self, DataError> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        if count == 0 {
            return Err(DataError::Empty);
        }
        if u32::try_from(count).is_err() {
            return Err(DataError::TooManySamples { found: count });
        }
        Ok(Self {
            shape: Vec::new(),
            samples: Samples::Bytes(Vec::new()),
            targets: Targets::default(),
            count,
            classes: 0,
            authors: Vec::new(),
            class_names: Vec::new(),
            columns: Vec::new(),
            skipped: Skipped::default(),
        })
    }

    /// `count` samples, whose shape and labels are checked.
    pub(super) fn checked(
        shape: Vec<usize>,
        samples: Samples,
        targets: Targets,
        count: usize,
        classes: usize,
    ) -> Result<Self, DataError> {
        if u32::try_from(count).is_err() {
            return Err(DataError::TooManySamples { found: count });
        }
        let needed = shape.iter().try_fold(count, |product, &side| product.checked_mul(side));
        if needed != Some(samples.len()) {
            return Err(DataError::ValueCount { labels: targets.len(), shape, values: samples.len() });
        }
        samples.check(samples.len() / count)?;
        let (authors, class_names, columns) = (Vec::new(), Vec::new(), Vec::new());
        let skipped = Skipped::default();
        Ok(Self { shape, samples, targets, count, classes, authors, class_names, columns, skipped })
    }
}

/// Refuses a shape that samples of this kind cannot have.
fn checked_shape(shape: Vec<usize>, samples: &Samples) -> Result<Vec<usize>, DataError> {
    match (samples, &shape[..]) {
        (Samples::Bytes(_), &[channels, height, width]) if channels.min(height).min(width) > 0 => Ok(shape),
        (Samples::Bytes(_), _) => Err(DataError::Shape { found: shape }),
        (_, axes) if axes.is_empty() || axes.contains(&0) => Err(DataError::EmptyShape { found: shape }),
        _ => Ok(shape),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_have_numbers_to_learn_or_flags() {
        let valued = |values: &[f32], outputs| {
            Dataset::valued(vec![1], Samples::Floats(vec![0.0, 1.0]), values.to_vec(), outputs)
        };
        let data = valued(&[1.0, 2.0, 3.0, 4.0], 2).unwrap();
        assert_eq!((data.len(), data.classes(), data.labels_each(), data.predictions_each()), (2, 2, 0, 1));
        assert_eq!(data.subset(&[1, 1]).unwrap().targets().values(), [3.0, 4.0, 3.0, 4.0]);
        assert_eq!(data.histogram(), [2]);
        assert!(data.without_labels().targets().is_empty());
        let refused = |values: &[f32], outputs| valued(values, outputs).unwrap_err();
        assert!(matches!(refused(&[], 1), DataError::Empty));
        assert!(matches!(refused(&[1.0; 3], 2), DataError::ValueCount { labels: 3, .. }));
        assert!(matches!(refused(&[1.0; 3], 1), DataError::ValueCount { .. }));
        assert!(matches!(refused(&[1.0; 2], 0), DataError::Classes { found: 0 }));
        let error = refused(&[1.0, f32::NAN], 1);
        assert!(matches!(error, DataError::NotFiniteTarget { row: 1, output: 0 }), "{error}");
    }

    #[test]
    fn each_malformation_has_its_error() {
        let new = |shape: &[usize], pixels: usize, labels: &[u8], classes| {
            Dataset::new(shape.to_vec(), vec![0; pixels], labels.to_vec(), classes).unwrap_err()
        };
        assert!(matches!(new(&[2, 2], 4, &[0], 1), DataError::Shape { .. }));
        assert!(matches!(new(&[1, 0, 2], 0, &[0], 1), DataError::Shape { .. }));
        assert!(matches!(new(&[1, 1, 1], 0, &[], 1), DataError::Empty));
        assert!(matches!(new(&[1, 1, 1], 1, &[0], 0), DataError::Classes { found: 0 }));
        assert!(matches!(new(&[1, 1, 1], 1, &[0], 65_537), DataError::Classes { found: 65_537 }));
        assert!(matches!(new(&[1, 2, 2], 7, &[0, 0], 1), DataError::ValueCount { values: 7, .. }));
        assert!(matches!(new(&[2, usize::MAX, 2], 7, &[0, 0], 1), DataError::ValueCount { .. }));
        let error = new(&[1, 1, 1], 3, &[0, 4, 9], 4);
        assert!(matches!(error, DataError::Label { row: 1, label: 4, classes: 4 }));
        assert_eq!(error.to_string(), "sample 1 has label 4, but with 4 classes labels run from 0 to 3");

        let features =
            |values: &[f32]| Dataset::labelled(vec![2], Samples::Floats(values.to_vec()), vec![0, 0], 1);
        let error = features(&[0.0, 1.0, 2.0, f32::NAN]).unwrap_err();
        assert!(matches!(error, DataError::NotFinite { row: 1, column: 1 }), "{error}");
        assert!(matches!(features(&[0.0; 3]).unwrap_err(), DataError::ValueCount { .. }));
        let empty = Dataset::labelled(vec![], Samples::Floats(vec![1.0]), vec![0], 1).unwrap_err();
        assert!(matches!(empty, DataError::EmptyShape { .. }), "{empty}");

        let text = |length, tokens: &[u16], labels: &[u32]| {
            Dataset::labelled(vec![length], Samples::Tokens(tokens.to_vec()), labels.to_vec(), 3).unwrap_err()
        };
        assert!(matches!(text(0, &[], &[]), DataError::EmptyShape { .. }));
        assert!(matches!(text(2, &[0, 1, 2], &[1, 2, 0]), DataError::ValueCount { .. }));
        assert!(matches!(text(2, &[0, 1, 2, 3], &[0; 4]), DataError::Label { row: 1, label: 3, .. }));
        assert!(matches!(text(2, &[0, 1], &[0, 3]), DataError::Label { row: 0, label: 3, .. }));
    }
}
