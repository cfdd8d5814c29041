//! A client's share of a data set, without a copy.

use std::fmt;
use std::sync::Arc;

use models::Targets;

use super::dataset::{Dataset, histogram};
use super::error::DataError;

/// Some samples of a data set, in a chosen order. Cloning a view copies neither samples nor indices.
///
/// A thousand virtual clients in one process share one [`Dataset`] this way. Positions below count within the
/// view. A view may be empty.
#[derive(Clone)]
pub struct View {
    dataset: Arc<Dataset>,
    indices: Arc<[u32]>,
    /// Whether the labels are visible.
    labelled: bool,
}

impl View {
    /// All samples, in the data set's order.
    #[must_use]
    pub fn whole(dataset: Arc<Dataset>) -> Self {
        // A data set has at most `u32::MAX` samples.
        let indices = (0..dataset.len() as u32).collect();
        Self { dataset, indices, labelled: true }
    }

    /// The samples named by `indices`, in that order, such as one client's entry of
    /// [`Partition::split`](super::Partition::split). An index outside the data set is refused.
    pub fn select(dataset: Arc<Dataset>, indices: impl Into<Arc<[u32]>>) -> Result<Self, DataError> {
        let indices = indices.into();
        let samples = dataset.len();
        match indices.iter().find(|&&index| index as usize >= samples) {
            Some(&index) => Err(DataError::Index { index: index as usize, samples }),
            None => Ok(Self { dataset, indices, labelled: true }),
        }
    }

    /// The same samples with their labels hidden.
    #[must_use]
    pub fn without_labels(self) -> Self {
        Self { labelled: false, ..self }
    }

    /// Number of samples.
    #[must_use]
    pub fn len(&self) -> usize {
        self.indices.len()
    }

    /// Whether there is no sample.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.indices.is_empty()
    }

    /// Labels of the sample at `position`: one, or for text one for each token; none for samples without labels.
    ///
    /// # Panics
    /// If `position` is not below [`Self::len`].
    #[must_use]
    pub fn labels_of(&self, position: usize) -> &[u32] {
        let labels = self.dataset.labels_of(self.indices[position] as usize);
        if self.labelled { labels } else { &[] }
    }

    /// Number of classes of the data set, whether or not this view holds a sample of each.
    #[must_use]
    pub fn classes(&self) -> usize {
        self.dataset.classes()
    }

    /// Shape of one sample, as [`Dataset::shape`] has it.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        self.dataset.shape()
    }

    /// The underlying data set.
    #[must_use]
    pub fn dataset(&self) -> &Arc<Dataset> {
        &self.dataset
    }

    /// The data set's indices of the samples, by position.
    #[must_use]
    pub fn indices(&self) -> &[u32] {
        &self.indices
    }

    /// The samples at these positions, in that order.
    ///
    /// # Panics
    /// If a position is not below [`Self::len`].
    #[must_use]
    pub fn part(&self, positions: &[u32]) -> Self {
        let indices = positions.iter().map(|&position| self.indices[position as usize]).collect();
        Self { dataset: self.dataset.clone(), indices, labelled: self.labelled }
    }

    /// Copies the view's samples to a data set.
    ///
    /// # Errors
    /// [`DataError`] if the view is empty: there is no empty data set.
    pub fn to_dataset(&self) -> Result<Dataset, DataError> {
        let positions: Vec<usize> = self.indices.iter().map(|&index| index as usize).collect();
        self.dataset.subset(&positions)
    }

    /// Number of labels of each class; of samples with numbers to learn how many samples there are, as if they had one class.
    #[must_use]
    pub fn histogram(&self) -> Vec<usize> {
        if self.dataset.has_values() {
            return vec![self.len()];
        }
        let labels = (0..self.len()).flat_map(|position| self.labels_of(position));
        histogram(labels.copied(), self.classes())
    }

    /// Replaces the contents of `x` and `y` by the samples at `positions`: a batch.
    ///
    /// `x` becomes `[positions, ...shape]` in row-major order, as [`Samples`](super::Samples) says for each kind; images
    /// are in `[0, 1]`. `y` becomes what is to be learned of them. Both keep their allocation from one batch to the next.
    ///
    /// # Panics
    /// If a position is not below [`Self::len`].
    pub fn fill(&self, positions: &[usize], x: &mut Vec<f32>, y: &mut Targets) {
        x.clear();
        y.clear();
        x.reserve(positions.len() * self.dataset.sample_len());
        for &position in positions {
            let index = self.indices[position] as usize;
            self.dataset.samples().append(index, self.dataset.sample_len(), x);
            if self.labelled {
                self.dataset.append_targets(index, y);
            }
        }
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View")
            .field("samples", &self.len())
            .field("of", &self.dataset)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Samples;

    fn three() -> Arc<Dataset> {
        Arc::new(Dataset::new(vec![1, 1, 2], vec![0, 51, 102, 153, 204, 255], [2_u8, 0, 2], 3).unwrap())
    }

    #[test]
    fn a_batch_is_normalised_and_in_the_order_asked_for() {
        let view = View::select(three(), vec![2, 0]).unwrap();
        let (mut x, mut y) = (vec![9.0], Targets::Classes(vec![9]));
        view.fill(&[1, 0, 0], &mut x, &mut y);
        assert_eq!(x, [0.0, 0.2, 0.8, 1.0, 0.8, 1.0]);
        assert_eq!(y.classes(), [2, 2, 2]);
        view.fill(&[], &mut x, &mut y);
        assert!(x.is_empty() && y.is_empty());
    }

    #[test]
    fn features_and_text_are_taken_as_they_are() {
        let (mut x, mut y) = (Vec::new(), Targets::default());
        let features =
            Dataset::labelled(vec![2], Samples::Floats(vec![0.5, -1.0, 2.0, 300.0]), vec![1, 0], 2).unwrap();
        View::whole(Arc::new(features)).fill(&[1], &mut x, &mut y);
        assert_eq!((&x[..], y.classes()), (&[2.0, 300.0][..], &[0][..]));
        let text =
            Dataset::labelled(vec![2], Samples::Tokens(vec![0, 1, 300, 2]), vec![1, 300, 2, 0], 301).unwrap();
        let text = View::whole(Arc::new(text));
        text.fill(&[1, 0], &mut x, &mut y);
        assert_eq!((&x[..], y.classes()), (&[300.0, 2.0, 0.0, 1.0][..], &[2, 0, 1, 300][..]));
        assert_eq!(text.histogram().iter().sum::<usize>(), 4);
    }

    #[test]
    fn labels_that_are_hidden_or_not_there_are_not_seen() {
        let pixels = vec![0, 51, 102, 153, 204, 255];
        let unlabelled = Dataset::unlabelled(vec![1, 1, 2], Samples::Bytes(pixels)).unwrap();
        let view = View::select(three(), vec![2, 0]).unwrap();
        let (mut expected, mut y) = (Vec::new(), Targets::default());
        view.fill(&[0, 1], &mut expected, &mut y);
        let blind = View::select(Arc::new(unlabelled), vec![2, 0]).unwrap();
        for view in [view.clone().without_labels(), view.without_labels().part(&[0, 1]), blind] {
            let mut x = Vec::new();
            view.fill(&[0, 1], &mut x, &mut y);
            assert_eq!((x, y.classes(), view.labels_of(0)), (expected.clone(), &[][..], &[][..]));
            assert!(view.histogram().iter().all(|&count| count == 0));
        }
        let refused = |shape: Vec<usize>, samples| Dataset::unlabelled(shape, samples).unwrap_err();
        assert!(matches!(refused(vec![1, 1, 2], Samples::Bytes(Vec::new())), DataError::Empty));
        assert!(matches!(refused(vec![2], Samples::Bytes(vec![0; 4])), DataError::Shape { .. }));
        assert!(matches!(refused(vec![0], Samples::Floats(vec![0.0; 4])), DataError::EmptyShape { .. }));
        assert!(matches!(refused(vec![3], Samples::Floats(vec![0.0; 4])), DataError::ValueCount { .. }));
        let hole = Samples::Floats(vec![0.0, f32::NAN]);
        assert!(matches!(refused(vec![1], hole), DataError::NotFinite { row: 1, column: 0 }));
    }

    #[test]
    fn a_view_describes_only_its_samples() {
        let view = View::select(three(), vec![1, 0]).unwrap();
        assert_eq!((view.len(), view.classes(), view.labels_of(0)), (2, 3, &[0][..]));
        assert_eq!(view.histogram(), [1, 0, 1]);
        assert_eq!(view.shape(), [1, 1, 2]);
        assert_eq!(View::whole(three()).indices(), [0, 1, 2]);
        assert!(View::select(three(), Vec::new()).unwrap().is_empty());
        assert_eq!((view.part(&[1]).indices(), view.part(&[1, 0]).indices()), (&[0][..], &[0, 1][..]));
    }

    #[test]
    fn a_view_of_an_absent_sample_is_refused() {
        assert!(matches!(View::select(three(), vec![0, 3]), Err(DataError::Index { index: 3, samples: 3 })));
    }
}
