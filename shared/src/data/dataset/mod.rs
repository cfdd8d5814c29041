//! Samples and their labels in memory.

use std::fmt;
use std::path::Path;

use models::Targets;

use super::error::MAX_CLASSES;
use super::{DataError, Samples, Skipped};

/// `n` samples of one shape with their labels: one for each sample, or for text one for each position of it.
///
/// Labels are class numbers below [`Self::classes`], or for other tasks than classification as many numbers. A data set is never
/// empty.
#[derive(Clone, PartialEq)]
pub struct Dataset {
    shape: Vec<usize>,
    samples: Samples,
    targets: Targets,
    count: usize,
    classes: usize,
    /// The author of each sample: ascending numbers from 0 without gaps; empty if unknown.
    authors: Vec<u32>,
    /// The names of the classes; empty if they have only numbers.
    class_names: Vec<String>,
    skipped: Skipped,
}

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
            skipped: Skipped::default(),
        })
    }

    /// `count` samples, whose shape and labels are checked.
    fn checked(
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
        let (authors, class_names, skipped) = (Vec::new(), Vec::new(), Skipped::default());
        Ok(Self { shape, samples, targets, count, classes, authors, class_names, skipped })
    }

    /// Sets the author of each sample: ascending numbers from 0 without gaps.
    ///
    /// # Panics
    /// If there is not one for each sample, or the numbers are not ascending without gaps.
    #[must_use]
    pub fn by_authors(mut self, authors: Vec<u32>) -> Self {
        assert_eq!(authors.len(), self.count, "an author for each sample");
        let in_turn = authors.first() == Some(&0) && authors.windows(2).all(|pair| pair[1] - pair[0] <= 1);
        assert!(in_turn, "authors are numbered from 0 without gaps, in order");
        self.authors = authors;
        self
    }

    /// Sets the names of the classes, in the order of their numbers.
    #[must_use]
    pub fn named(mut self, class_names: Vec<String>) -> Self {
        self.class_names = class_names;
        self
    }

    /// Sets the samples that were skipped when these were read.
    #[must_use]
    pub fn leaving_out(mut self, skipped: Skipped) -> Self {
        self.skipped = skipped;
        self
    }

    /// Number of samples, at least 1.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a data set is never empty")]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Shape of one sample: `[channels, height, width]` of images, `[length]` of text, any of features.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Number of values of one sample: the product of its shape.
    #[must_use]
    pub fn sample_len(&self) -> usize {
        self.samples.len() / self.count
    }

    /// Number of classes: at most [`MAX_CLASSES`], and 0 for [unlabelled](Self::unlabelled) samples. A class may have no sample.
    /// Of [`valued`](Self::valued) samples it is how many numbers each has.
    #[must_use]
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Labels of each sample: 1, or for text the number of its tokens; 0 for samples without labels.
    #[must_use]
    pub fn labels_each(&self) -> usize {
        self.labels().len() / self.count
    }

    /// Predictions that a model makes for each sample: one for each label, or one for all the numbers to learn; 0 for unlabelled samples.
    #[must_use]
    pub fn predictions_each(&self) -> usize {
        if self.has_values() { 1 } else { self.labels_each() }
    }

    /// What is to be learned of all samples, in order.
    #[must_use]
    pub fn targets(&self) -> &Targets {
        &self.targets
    }

    /// Adds what is to be learned of sample `index` to others of this set.
    ///
    /// # Panics
    /// If there is no such sample.
    pub fn append_targets(&self, index: usize, to: &mut Targets) {
        let each = self.targets.len() / self.count;
        to.extend_from(&self.targets, index * each..(index + 1) * each);
    }

    /// Labels of sample `index`: one, or for text one for each token; none of samples with numbers.
    ///
    /// # Panics
    /// If there is no such sample.
    #[must_use]
    pub fn labels_of(&self, index: usize) -> &[u32] {
        let each = self.labels_each();
        &self.labels()[index * each..][..each]
    }

    /// The labels of all samples, in order: [`Self::labels_each`] for each.
    #[must_use]
    pub fn labels(&self) -> &[u32] {
        self.targets.classes()
    }

    /// The same samples with the label `C - 1 - y` instead of `y`, of `C` classes: the label-flip attack.
    ///
    /// # Panics
    /// If they are not labelled with classes.
    #[must_use]
    pub fn with_flipped_labels(self) -> Self {
        assert!(!self.labels().is_empty(), "only classes can be flipped");
        // There are at most `MAX_CLASSES`, and every label is below them.
        let last = self.classes as u32 - 1;
        let targets = Targets::Classes(self.labels().iter().map(|label| last - label).collect());
        Self { targets, ..self }
    }

    /// The same samples, unlabelled.
    #[must_use]
    pub fn without_labels(self) -> Self {
        Self { targets: Targets::default(), classes: 0, class_names: Vec::new(), ..self }
    }

    /// The author of each sample: ascending numbers from 0 without gaps; empty if unknown. The author of text is its role.
    #[must_use]
    pub fn authors(&self) -> &[u32] {
        &self.authors
    }

    /// The names of the classes, in the order of their numbers; empty if they have only numbers.
    #[must_use]
    pub fn class_names(&self) -> &[String] {
        &self.class_names
    }

    /// The samples that were skipped when these were read.
    #[must_use]
    pub fn skipped(&self) -> &Skipped {
        &self.skipped
    }

    /// The inputs of all samples.
    #[must_use]
    pub fn samples(&self) -> &Samples {
        &self.samples
    }

    /// The first `count` samples, or all of them if there are fewer. Zero samples are refused.
    pub fn limit(&self, count: usize) -> Result<Self, DataError> {
        let mut limited = self.subset(&(0..count.min(self.len())).collect::<Vec<_>>())?;
        limited.authors = self.authors.iter().copied().take(count).collect();
        limited.skipped = self.skipped.clone();
        Ok(limited)
    }

    /// `count` samples spread evenly over the set, in their order, or all of them if there are fewer. Samples of a sorted set
    /// stay representative. Zero samples are refused.
    pub fn thin(&self, count: usize) -> Result<Self, DataError> {
        let mut thinned = self.subset(&self.spread(count))?;
        thinned.skipped = self.skipped.clone();
        Ok(thinned)
    }

    /// The indices of `count` samples spread evenly over the set, ascending, or of all of them if there are fewer.
    #[must_use]
    pub fn spread(&self, count: usize) -> Vec<usize> {
        let (all, count) = (self.len() as u64, count.min(self.len()) as u64);
        (0..count).map(|place| (place * all / count) as usize).collect()
    }

    /// Copies the samples at `indices`, in that order, without their authors and skipped samples. Refuses an empty list, and
    /// indices that do not exist.
    pub fn subset(&self, indices: &[usize]) -> Result<Self, DataError> {
        if let Some(&index) = indices.iter().find(|&&index| index >= self.len()) {
            return Err(DataError::Index { index, samples: self.len() });
        }
        if indices.is_empty() {
            return Err(DataError::Empty);
        }
        let mut targets = Targets::default();
        for &index in indices {
            self.append_targets(index, &mut targets);
        }
        let samples = self.samples.select(indices, self.sample_len());
        let selected = Self::checked(self.shape.clone(), samples, targets, indices.len(), self.classes)?;
        Ok(selected.named(self.class_names.clone()))
    }

    /// These samples and others after them, without their authors.
    ///
    /// # Errors
    /// [`DataError::OtherShape`], [`DataError::OtherClasses`] or [`DataError::OtherNames`] if the others are not of the same kind.
    pub fn joined(&self, others: &Self) -> Result<Self, DataError> {
        let samples = self.samples.joined(&others.samples).filter(|_| self.shape == others.shape);
        let samples = samples.ok_or_else(|| DataError::OtherShape {
            expected: self.shape.clone(),
            found: others.shape.clone(),
        })?;
        if self.classes != others.classes || self.has_values() != others.has_values() {
            return Err(DataError::OtherClasses { expected: self.classes, found: others.classes });
        }
        if self.class_names != others.class_names {
            let (expected, found) = (self.class_names.join(", "), others.class_names.join(", "));
            return Err(DataError::OtherNames { expected, found });
        }
        let mut targets = self.targets.clone();
        targets.extend_from(&others.targets, 0..others.targets.len());
        let joined =
            Self::checked(self.shape.clone(), samples, targets, self.count + others.count, self.classes)?;
        Ok(joined.named(self.class_names.clone()).leaving_out(self.skipped.joined(&others.skipped)))
    }

    /// Refuses texts with tokens that a network of this vocabulary does not know.
    ///
    /// # Errors
    /// [`DataError::Token`]
    pub fn check_vocabulary(&self, vocabulary: usize) -> Result<(), DataError> {
        match self.samples.beyond(vocabulary) {
            Some((at, token)) => Err(DataError::Token { row: at / self.sample_len(), token, vocabulary }),
            None => Ok(()),
        }
    }

    /// Whether each sample has numbers to learn and no class.
    #[must_use]
    pub fn has_values(&self) -> bool {
        !self.targets.values().is_empty()
    }

    /// Number of labels of each class; of samples with numbers to learn how many samples there are, as if they had one class.
    #[must_use]
    pub fn histogram(&self) -> Vec<usize> {
        if self.has_values() {
            return vec![self.count];
        }
        histogram(self.labels().iter().copied(), self.classes)
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

/// Counts labels, all of which are below `classes`.
pub(super) fn histogram(labels: impl Iterator<Item = u32>, classes: usize) -> Vec<usize> {
    let mut counts = vec![0; classes];
    for label in labels {
        counts[label as usize] += 1;
    }
    counts
}

impl fmt::Debug for Dataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dataset")
            .field("of", &self.samples.kind())
            .field("samples", &self.len())
            .field("shape", &self.shape)
            .field("classes", &self.classes)
            .finish_non_exhaustive()
    }
}

impl Skipped {
    /// Adds the skipped samples to the data set that was read from `path`, or to the error that there is no sample.
    pub(super) fn finish(self, read: Result<Dataset, DataError>, path: &Path) -> Result<Dataset, DataError> {
        match read {
            Ok(dataset) => Ok(dataset.leaving_out(self)),
            Err(error) => Err(self.explain(error).in_file(path)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> Dataset {
        Dataset::new(vec![1, 1, 2], vec![0, 1, 10, 11, 20, 21], [2_u8, 0, 2], 3).unwrap()
    }

    #[test]
    fn samples_are_found_where_they_were_put() {
        let data = three();
        assert_eq!((data.len(), data.classes(), data.sample_len(), data.labels_each()), (3, 3, 2, 1));
        assert_eq!(data.shape(), [1, 1, 2]);
        assert_eq!(data.labels_of(2), [2]);
        assert_eq!(data.labels(), [2, 0, 2]);
        assert_eq!(data.histogram(), [1, 0, 2]);
    }

    #[test]
    fn text_has_a_label_for_each_position() {
        let data =
            Dataset::labelled(vec![2], Samples::Tokens(vec![0, 1, 300, 2]), vec![1, 300, 2, 0], 301).unwrap();
        assert_eq!((data.len(), data.shape(), data.labels_each()), (2, &[2][..], 2));
        assert_eq!(data.labels_of(1), [2, 0]);
        let second = data.subset(&[1]).unwrap();
        assert_eq!((second.samples(), second.labels()), (&Samples::Tokens(vec![300, 2]), &[2, 0][..]));
        assert_eq!(data.histogram().iter().sum::<usize>(), 4);
    }

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
    fn selections_copy_samples_in_order() {
        let data = three();
        let back = data.subset(&[2, 0, 2]).unwrap();
        assert_eq!(back.labels(), [2, 2, 2]);
        assert_eq!(back.samples(), &Samples::Bytes(vec![20, 21, 0, 1, 20, 21]));
        assert_eq!(data.limit(2).unwrap(), data.subset(&[0, 1]).unwrap());
        assert_eq!(data.limit(9).unwrap(), data);
        let authored = data.clone().by_authors(vec![0, 0, 1]);
        assert_eq!(authored.limit(2).unwrap().authors(), [0, 0]);
        assert!(authored.subset(&[2, 1]).unwrap().authors().is_empty());
        assert!(matches!(data.limit(0), Err(DataError::Empty)));
        assert_eq!(data.thin(2).unwrap(), data.subset(&[0, data.len() / 2]).unwrap());
        assert_eq!(data.thin(9).unwrap(), data);
        assert!(matches!(data.thin(0), Err(DataError::Empty)));
        assert!(matches!(data.subset(&[]), Err(DataError::Empty)));
        assert!(matches!(data.subset(&[0, 3]), Err(DataError::Index { index: 3, samples: 3 })));
        let features =
            Dataset::labelled(vec![2], Samples::Floats(vec![0.5, -1.0, 2.0, 3.0]), vec![1, 0], 2).unwrap();
        assert_eq!(features.subset(&[1]).unwrap().samples(), &Samples::Floats(vec![2.0, 3.0]));
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
