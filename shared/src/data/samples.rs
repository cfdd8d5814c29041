//! Sample values by kind, and their conversion to the `f32` that a network reads.

use models::vectorised;

use super::DataError;

/// The inputs of a data set, sample after sample in row-major order, in the narrowest type that holds them. They are converted to
/// `f32` batch by batch.
#[derive(Clone, Debug, PartialEq)]
pub enum Samples {
    /// Images, with one byte per pixel and channel in the order `[channels, height, width]`, converted to `pixel / 255`.
    Bytes(Vec<u8>),
    /// Features, all finite.
    Floats(Vec<f32>),
    /// Text: token numbers, converted without scaling.
    Tokens(Vec<u16>),
}

impl Samples {
    /// Number of values.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(values) => values.len(),
            Self::Floats(values) => values.len(),
            Self::Tokens(values) => values.len(),
        }
    }

    /// Whether there are no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Their kind as a word for messages.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Bytes(_) => "images",
            Self::Floats(_) => "features",
            Self::Tokens(_) => "text",
        }
    }

    /// Appends the values of sample `index`, each of `length` values, to `x`.
    ///
    /// # Panics
    /// If there is no such sample.
    pub(super) fn append(&self, index: usize, length: usize, x: &mut Vec<f32>) {
        let range = index * length..(index + 1) * length;
        match self {
            Self::Bytes(values) => {
                let (pixels, begin) = (&values[range], x.len());
                x.resize(begin + length, 0.0);
                let x = &mut x[begin..];
                vectorised(
                    #[inline(always)]
                    || x.iter_mut().zip(pixels).for_each(|(x, &pixel)| *x = f32::from(pixel) / 255.0),
                );
            }
            Self::Floats(values) => x.extend_from_slice(&values[range]),
            Self::Tokens(values) => x.extend(values[range].iter().map(|&token| f32::from(token))),
        }
    }

    /// The samples at `indices`, in that order. All must exist.
    pub(super) fn select(&self, indices: &[usize], length: usize) -> Self {
        fn select<T: Copy>(values: &[T], indices: &[usize], length: usize) -> Vec<T> {
            let mut selected = Vec::with_capacity(indices.len() * length);
            for &index in indices {
                selected.extend_from_slice(&values[index * length..][..length]);
            }
            selected
        }
        match self {
            Self::Bytes(values) => Self::Bytes(select(values, indices, length)),
            Self::Floats(values) => Self::Floats(select(values, indices, length)),
            Self::Tokens(values) => Self::Tokens(select(values, indices, length)),
        }
    }

    /// These values and others after them; `None` if they are of another kind.
    pub(super) fn joined(&self, others: &Self) -> Option<Self> {
        Some(match (self, others) {
            (Self::Bytes(own), Self::Bytes(others)) => Self::Bytes([&own[..], others].concat()),
            (Self::Floats(own), Self::Floats(others)) => Self::Floats([&own[..], others].concat()),
            (Self::Tokens(own), Self::Tokens(others)) => Self::Tokens([&own[..], others].concat()),
            _ => return None,
        })
    }

    /// Checks that features are finite. A sample has `length` values.
    pub(super) fn check(&self, length: usize) -> Result<(), DataError> {
        let Self::Floats(values) = self else { return Ok(()) };
        match values.iter().position(|value| !value.is_finite()) {
            Some(at) => Err(DataError::NotFinite { row: at / length, column: at % length }),
            None => Ok(()),
        }
    }

    /// Checks that tokens are below the number of classes, which are the vocabulary. A sample has `length` of them.
    pub(super) fn check_tokens(&self, length: usize, classes: usize) -> Result<(), DataError> {
        match self.beyond(classes) {
            Some((at, label)) => Err(DataError::Label { row: at / length, label, classes }),
            None => Ok(()),
        }
    }

    /// The first token that is not below `vocabulary`, and where it is among all values.
    pub(super) fn beyond(&self, vocabulary: usize) -> Option<(usize, u32)> {
        let Self::Tokens(values) = self else { return None };
        let at = values.iter().position(|&token| usize::from(token) >= vocabulary)?;
        Some((at, u32::from(values[at])))
    }
}
