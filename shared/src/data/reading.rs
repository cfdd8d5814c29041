//! What a reader of samples must be told, and what it leaves out.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{DataError, Dataset};

/// What to do about a sample that cannot be used: a damaged image, a row without a label.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnError {
    /// Nothing is read: the error is told.
    #[default]
    Stop,
    /// The sample is left out, counted, and the error is told.
    Skip,
}

/// What was left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// How many samples.
    pub count: usize,
    /// How much else stood where samples do: files that are none, and folders without any.
    pub others: usize,
    /// Why, of the first few, each with its file and row.
    pub reasons: Vec<String>,
}

impl Skipped {
    /// Reasons that are kept.
    pub const REASONS: usize = 5;

    /// What was left out, in words, with the reasons; `None` if nothing was. `sample` is what one of them is called.
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

    /// What to say instead of `error`: that there is no sample has a reason where some were left out.
    pub(super) fn explain(&self, error: DataError) -> DataError {
        match (error, self.reasons.first()) {
            (DataError::Empty, Some(first)) => {
                DataError::AllLeftOut { count: self.count + self.others, first: first.clone() }
            }
            (error, _) => error,
        }
    }

    /// Leaves a sample out, or fails with its error.
    pub(super) fn take(&mut self, on_error: OnError, error: DataError) -> Result<(), DataError> {
        self.note(on_error, error)?;
        self.count += 1;
        Ok(())
    }

    /// Passes over what is no sample, or fails with its error.
    pub(super) fn pass_over(&mut self, on_error: OnError, error: DataError) -> Result<(), DataError> {
        self.note(on_error, error)?;
        self.others += 1;
        Ok(())
    }

    /// Keeps a reason if there is room for it, or fails with it.
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

/// What the reader of a data set must know to read it: what its files do not say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Shape of a sample; `None` takes what the files have.
    pub shape: Option<Vec<usize>>,
    /// How labels are written.
    pub labels: Labels,
    /// The column of a table that holds the labels.
    pub column: String,
    /// What to do about samples that cannot be used.
    pub on_error: OnError,
}

impl Default for Reading {
    /// What the files have, labels from 0 to 9 or in the column `label`, and no sample left out.
    fn default() -> Self {
        let column = "label".to_owned();
        Self { shape: None, labels: Labels::default(), column, on_error: OnError::default() }
    }
}

impl Reading {
    /// Refuses samples that could not be brought to the shape that was asked for: most formats have it in their files.
    ///
    /// # Errors
    /// [`DataError::OtherShape`] in `directory`, where `dataset` was read.
    pub fn check_shape(&self, directory: &Path, dataset: &Dataset) -> Result<(), DataError> {
        match &self.shape {
            Some(expected) if dataset.shape() != &expected[..] => {
                let (expected, found) = (expected.clone(), dataset.shape().to_vec());
                Err(DataError::OtherShape { expected, found }.in_file(directory))
            }
            _ => Ok(()),
        }
    }
}

/// How labels are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Labels {
    /// As names: the class is the position of the name here.
    Names(Vec<String>),
    /// As class numbers below this one.
    Numbers(usize),
}

impl Default for Labels {
    fn default() -> Self {
        Self::Numbers(10)
    }
}

impl Labels {
    /// How many classes there are.
    #[must_use]
    pub fn classes(&self) -> usize {
        match self {
            Self::Names(names) => names.len(),
            Self::Numbers(classes) => *classes,
        }
    }

    /// The names of the classes, if they have any.
    #[must_use]
    pub fn names(&self) -> &[String] {
        match self {
            Self::Names(names) => names,
            Self::Numbers(_) => &[],
        }
    }

    /// The class of a written label.
    pub(super) fn class(&self, written: &str) -> Result<u32, DataError> {
        let class = match self {
            Self::Names(names) => names.iter().position(|name| name == written),
            Self::Numbers(classes) => written.parse().ok().filter(|class| class < classes),
        };
        let known = || match self {
            Self::Names(names) => shortened(names),
            Self::Numbers(classes) => format!("the whole numbers from 0 to {}", classes.saturating_sub(1)),
        };
        class.map(|class| class as u32).ok_or_else(|| DataError::UnknownLabel {
            label: written.chars().take(60).collect(),
            known: known(),
        })
    }
}

/// A list of names, as far as a message has room for it.
fn shortened(names: &[String]) -> String {
    const SHOWN: usize = 10;
    let text = names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => text,
        more => format!("{text} and {more} more"),
    }
}

/// An error of one sample, with its file and its place there: `line 3`, `sample 0`.
pub(super) fn at(place: String, path: &Path, error: DataError) -> DataError {
    DataError::At { place, problem: Box::new(error) }.in_file(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_names_or_numbers() {
        let names = Labels::Names(vec!["cat".to_owned(), "dog".to_owned()]);
        assert_eq!((names.class("dog").unwrap(), names.classes()), (1, 2));
        let unknown = names.class("Dog").unwrap_err().to_string();
        assert!(unknown.contains("\"Dog\"") && unknown.contains("cat, dog"), "{unknown}");
        let numbers = Labels::Numbers(3);
        assert_eq!((numbers.class("2").unwrap(), numbers.classes()), (2, 3));
        for wrong in ["3", "-1", "1.0", "", "two"] {
            let error = numbers.class(wrong).unwrap_err().to_string();
            assert!(error.contains("from 0 to 2"), "{error}");
        }
        let many = Labels::Names((0..12).map(|name| name.to_string()).collect());
        assert!(many.class("x").unwrap_err().to_string().contains("9 and 2 more"));
    }

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
        assert!(matches!(skipped.explain(DataError::NoImage), DataError::NoImage));
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
