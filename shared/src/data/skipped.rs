//! Skipped samples: their number and the first few reasons.

use super::{DataError, OnError};

/// Samples that a reader skipped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// How many samples.
    pub count: usize,
    /// How many entries of a folder that are not samples: files of other kinds, and empty folders.
    pub others: usize,
    /// The errors of the first few, each with its file and row.
    pub reasons: Vec<String>,
}

impl Skipped {
    /// The most reasons that are kept.
    pub const REASONS: usize = 5;

    /// The numbers and the reasons as text; `None` if nothing was skipped. `sample` is what messages call a sample.
    #[must_use]
    pub fn in_words(&self, sample: &str) -> Option<String> {
        let counted = |count: usize, one: &str, many: &str| match count {
            0 => None,
            1 => Some(format!("1 {one}")),
            count => Some(format!("{count} {many}")),
        };
        let samples = counted(self.count, sample, &format!("{sample}s"));
        let others = counted(self.others, "entry that is no sample", "entries that are no samples");
        let what = samples.into_iter().chain(others).collect::<Vec<_>>().join(" and ");
        let more = if self.count + self.others > self.reasons.len() { "; ..." } else { "" };
        (!what.is_empty()).then(|| format!("{what} ({}{more})", self.reasons.join("; ")))
    }

    /// These and others.
    pub(super) fn joined(&self, others: &Self) -> Self {
        let mut reasons = [&self.reasons[..], &others.reasons].concat();
        reasons.truncate(Self::REASONS);
        Self { count: self.count + others.count, others: self.others + others.others, reasons }
    }

    /// Replaces [`DataError::Empty`] by the first reason, if samples were skipped.
    pub(super) fn explain(&self, error: DataError) -> DataError {
        match (error, self.reasons.first()) {
            (DataError::Empty, Some(first)) => {
                DataError::AllLeftOut { count: self.count + self.others, first: first.clone() }
            }
            (error, _) => error,
        }
    }

    /// Skips a sample, or fails with its error.
    pub(super) fn take(&mut self, on_error: OnError, error: DataError) -> Result<(), DataError> {
        self.note(on_error, error)?;
        self.count += 1;
        Ok(())
    }

    /// Skips an entry that is not a sample, or fails with its error.
    pub(super) fn pass_over(&mut self, on_error: OnError, error: DataError) -> Result<(), DataError> {
        self.note(on_error, error)?;
        self.others += 1;
        Ok(())
    }

    /// Keeps one of the first reasons, or fails with it.
    fn note(&mut self, on_error: OnError, error: DataError) -> Result<(), DataError> {
        if on_error == OnError::Stop {
            return Err(error);
        }
        if self.reasons.len() < Self::REASONS {
            self.reasons.push(error.to_string());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_skipped_is_counted_and_the_first_reasons_kept() {
        let mut skipped = Skipped::default();
        assert!(matches!(skipped.take(OnError::Stop, DataError::Empty), Err(DataError::Empty)));
        for _ in 0..7 {
            skipped.take(OnError::Skip, DataError::Empty).unwrap();
        }
        assert_eq!((skipped.count, skipped.reasons.len()), (7, Skipped::REASONS));
        let (none, all) = (Skipped::default().explain(DataError::Empty), skipped.explain(DataError::Empty));
        assert!(matches!(none, DataError::Empty) && matches!(all, DataError::AllLeftOut { count: 7, .. }));
        let other = DataError::Classes { found: 0 };
        assert!(matches!(skipped.explain(other), DataError::Classes { found: 0 }));
    }

    #[test]
    fn samples_are_told_from_what_is_none() {
        let said = |count, others| {
            let reasons = vec!["a".to_owned(), "b".to_owned()];
            Skipped { count, others, reasons }.in_words("test sample")
        };
        assert_eq!(said(1, 1).as_deref(), Some("1 test sample and 1 entry that is no sample (a; b)"));
        assert_eq!(said(0, 3).as_deref(), Some("3 entries that are no samples (a; b; ...)"));
        assert_eq!(said(2, 0).as_deref(), Some("2 test samples (a; b)"));
        assert_eq!(said(0, 0), None);
    }
}
