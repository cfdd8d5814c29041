//! Samples and their labels in memory.
//!
//! * `construction`: of samples and labels that are checked;
//! * `selection`: parts of a set, sets together, other labels.

mod construction;
mod selection;

use std::fmt;
use std::path::Path;

use models::Targets;

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
    /// The names of a table's columns that the samples are of, in order; empty if they have none.
    columns: Vec<String>,
    skipped: Skipped,
}

impl Dataset {
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

    /// Sets the names of the columns that the samples are of.
    #[must_use]
    pub fn of_columns(mut self, columns: Vec<String>) -> Self {
        self.columns = columns;
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

    /// Number of classes: at most [`MAX_CLASSES`](super::error::MAX_CLASSES), and 0 for [unlabelled](Self::unlabelled) samples. A class
    /// may have no sample. Of [`valued`](Self::valued) samples it is how many numbers each has.
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

    /// The names of a table's columns that the samples are of, in order; empty if they have none.
    #[must_use]
    pub fn columns(&self) -> &[String] {
        &self.columns
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

    pub(super) fn three() -> Dataset {
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
}
