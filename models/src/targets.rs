//! What is to be learned of samples.

/// Class numbers or values, sample by sample. None of either stands for samples that nothing is known of.
#[derive(Clone, Debug, PartialEq)]
pub enum Targets {
    /// For classification: a class for each prediction.
    Classes(Vec<u32>),
    /// For the other tasks: a number for each output of each prediction.
    Values(Vec<f32>),
}

impl Default for Targets {
    /// None.
    fn default() -> Self {
        Self::Classes(Vec::new())
    }
}

impl Targets {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Classes(classes) => classes.len(),
            Self::Values(values) => values.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The classes; none if these are values.
    #[must_use]
    pub fn classes(&self) -> &[u32] {
        match self {
            Self::Classes(classes) => classes,
            Self::Values(_) => &[],
        }
    }

    /// The values; none if these are classes.
    #[must_use]
    pub fn values(&self) -> &[f32] {
        match self {
            Self::Classes(_) => &[],
            Self::Values(values) => values,
        }
    }

    /// Removes all, and keeps the memory.
    pub fn clear(&mut self) {
        match self {
            Self::Classes(classes) => classes.clear(),
            Self::Values(values) => values.clear(),
        }
    }

    /// Adds some of the others, which are of the same kind unless there are none here.
    ///
    /// # Panics
    /// If they are of another kind, or `range` is not within the others.
    pub fn extend_from(&mut self, others: &Self, range: std::ops::Range<usize>) {
        match (&mut *self, others) {
            (Self::Classes(own), Self::Classes(others)) => own.extend_from_slice(&others[range]),
            (Self::Values(own), Self::Values(others)) => own.extend_from_slice(&others[range]),
            (own, Self::Classes(others)) if own.is_empty() => *own = Self::Classes(others[range].to_vec()),
            (own, Self::Values(others)) if own.is_empty() => *own = Self::Values(others[range].to_vec()),
            _ => panic!("classes and values are not mixed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_become_of_the_kind_that_comes_first() {
        let (classes, values) = (Targets::Classes(vec![3, 1, 2]), Targets::Values(vec![0.5, 1.5]));
        let mut all = Targets::default();
        all.extend_from(&classes, 1..3);
        assert_eq!((all.classes(), all.values(), all.len()), (&[1, 2][..], &[][..], 2));
        all.clear();
        all.extend_from(&values, 0..1);
        all.extend_from(&values, 1..2);
        assert_eq!((all.classes(), all.values()), (&[][..], &[0.5, 1.5][..]));
    }
}
