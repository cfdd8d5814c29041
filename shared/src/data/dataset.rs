//! Labelled images in memory.

use std::fmt;

use super::DataError;

/// `n` samples of one shape `[channels, height, width]` with one label each.
///
/// Pixels are bytes in row-major order, sample after sample; labels are class numbers below [`Self::classes`].
/// A data set is never empty.
#[derive(Clone, PartialEq, Eq)]
pub struct Dataset {
    shape: Vec<usize>,
    pixels: Vec<u8>,
    labels: Vec<u8>,
    classes: usize,
}

impl Dataset {
    /// Checks that everything fits together.
    ///
    /// `shape` is one sample's `[channels, height, width]`, `pixels` holds `labels.len()` samples of that shape,
    /// and every label is below `classes`, which is at most 256.
    pub fn new(
        shape: Vec<usize>,
        pixels: Vec<u8>,
        labels: Vec<u8>,
        classes: usize,
    ) -> Result<Self, DataError> {
        if shape.len() != 3 || shape.contains(&0) {
            return Err(DataError::Shape { found: shape });
        }
        if !(1..=256).contains(&classes) {
            return Err(DataError::Classes { found: classes });
        }
        if labels.is_empty() {
            return Err(DataError::Empty);
        }
        if u32::try_from(labels.len()).is_err() {
            return Err(DataError::TooManySamples { found: labels.len() });
        }
        let needed = shape.iter().try_fold(labels.len(), |product, &side| product.checked_mul(side));
        if needed != Some(pixels.len()) {
            return Err(DataError::PixelCount { labels: labels.len(), shape, pixels: pixels.len() });
        }
        if let Some(row) = labels.iter().position(|&label| usize::from(label) >= classes) {
            return Err(DataError::Label { row, label: labels[row], classes });
        }
        Ok(Self { shape, pixels, labels, classes })
    }

    /// Number of samples, at least 1.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a data set is never empty")]
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Shape of one sample: `[channels, height, width]`.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Number of pixels of one sample: the product of its shape.
    #[must_use]
    pub fn sample_len(&self) -> usize {
        self.pixels.len() / self.labels.len()
    }

    /// Number of classes, between 1 and 256. A class may have no sample.
    #[must_use]
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Class of sample `index`.
    ///
    /// # Panics
    /// If there is no such sample.
    #[must_use]
    pub fn label(&self, index: usize) -> u8 {
        self.labels[index]
    }

    /// The classes of all samples, in order.
    #[must_use]
    pub fn labels(&self) -> &[u8] {
        &self.labels
    }

    /// Pixels of sample `index`: channel by channel, row by row.
    ///
    /// # Panics
    /// If there is no such sample.
    #[must_use]
    pub fn pixels(&self, index: usize) -> &[u8] {
        let length = self.sample_len();
        &self.pixels[index * length..][..length]
    }

    /// All pixels, sample after sample.
    pub(super) fn all_pixels(&self) -> &[u8] {
        &self.pixels
    }

    /// The first `count` samples, or all of them if there are fewer. Zero samples are refused.
    pub fn limit(&self, count: usize) -> Result<Self, DataError> {
        let count = count.min(self.len());
        Self::new(
            self.shape.clone(),
            self.pixels[..count * self.sample_len()].to_vec(),
            self.labels[..count].to_vec(),
            self.classes,
        )
    }

    /// Copies the named samples, in the order named. No samples, or one that does not exist, are refused.
    pub fn subset(&self, indices: &[usize]) -> Result<Self, DataError> {
        if let Some(&index) = indices.iter().find(|&&index| index >= self.len()) {
            return Err(DataError::Index { index, samples: self.len() });
        }
        Self::new(
            self.shape.clone(),
            indices.iter().flat_map(|&index| self.pixels(index)).copied().collect(),
            indices.iter().map(|&index| self.label(index)).collect(),
            self.classes,
        )
    }

    /// Number of samples of each class.
    #[must_use]
    pub fn histogram(&self) -> Vec<usize> {
        histogram(self.labels.iter().copied(), self.classes)
    }
}

/// Counts labels, all of which are below `classes`.
pub(super) fn histogram(labels: impl Iterator<Item = u8>, classes: usize) -> Vec<usize> {
    let mut counts = vec![0; classes];
    for label in labels {
        counts[usize::from(label)] += 1;
    }
    counts
}

impl fmt::Debug for Dataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dataset")
            .field("samples", &self.len())
            .field("shape", &self.shape)
            .field("classes", &self.classes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> Dataset {
        Dataset::new(vec![1, 1, 2], vec![0, 1, 10, 11, 20, 21], vec![2, 0, 2], 3).unwrap()
    }

    #[test]
    fn samples_are_found_where_they_were_put() {
        let data = three();
        assert_eq!((data.len(), data.classes(), data.sample_len()), (3, 3, 2));
        assert_eq!(data.shape(), [1, 1, 2]);
        assert_eq!(data.pixels(1), [10, 11]);
        assert_eq!(data.label(2), 2);
        assert_eq!(data.labels(), [2, 0, 2]);
        assert_eq!(data.histogram(), [1, 0, 2]);
    }

    #[test]
    fn selections_copy_samples_in_order() {
        let data = three();
        let back = data.subset(&[2, 0, 2]).unwrap();
        assert_eq!(back.labels(), [2, 2, 2]);
        assert_eq!(back.all_pixels(), [20, 21, 0, 1, 20, 21]);
        assert_eq!(data.limit(2).unwrap(), data.subset(&[0, 1]).unwrap());
        assert_eq!(data.limit(9).unwrap(), data);
        assert!(matches!(data.limit(0), Err(DataError::Empty)));
        assert!(matches!(data.subset(&[]), Err(DataError::Empty)));
        assert!(matches!(data.subset(&[0, 3]), Err(DataError::Index { index: 3, samples: 3 })));
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
        assert!(matches!(new(&[1, 1, 1], 1, &[0], 257), DataError::Classes { found: 257 }));
        assert!(matches!(new(&[1, 2, 2], 7, &[0, 0], 1), DataError::PixelCount { pixels: 7, .. }));
        assert!(matches!(new(&[2, usize::MAX, 2], 7, &[0, 0], 1), DataError::PixelCount { .. }));
        let error = new(&[1, 1, 1], 3, &[0, 4, 9], 4);
        assert!(matches!(error, DataError::Label { row: 1, label: 4, classes: 4 }));
        assert_eq!(error.to_string(), "sample 1 has label 4, but with 4 classes labels run from 0 to 3");
    }
}
