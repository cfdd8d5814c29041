//! Parts of data sets, sets that are put together, and the same samples with other labels.

use models::Targets;

use super::super::DataError;
use super::Dataset;

impl Dataset {
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
        Ok(selected.named(self.class_names.clone()).of_columns(self.columns.clone()))
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
        let joined = joined.named(self.class_names.clone()).of_columns(self.columns.clone());
        Ok(joined.leaving_out(self.skipped.joined(&others.skipped)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::three;
    use super::*;
    use crate::data::Samples;

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
}
