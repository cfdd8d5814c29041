//! Read options: what a reader of samples must know that the files do not say.

use std::fmt;
use std::path::Path;

use models::Task;
use serde::{Deserialize, Serialize};

use super::DataError;

/// How samples are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadOptions {
    /// Shape of a sample; `None` takes the shape of the files.
    pub shape: Option<Vec<usize>>,
    /// How labels are written; `None` reads the samples without labels.
    pub labels: Option<Labels>,
    /// The column of a table that holds the labels, where they are in one.
    pub column: String,
    /// The column of a table that holds a text, which is the sample; `None` if its columns are features.
    pub text: Option<String>,
    /// The columns of a table that hold the features, in the order in which samples have them, which may be another one than the columns';
    /// empty takes those of the header in its order.
    pub features: Vec<String>,
    /// Columns of a table that are no features, if labels are not read and these are there nevertheless.
    pub left_out: Vec<String>,
    /// What to do about samples that cannot be used.
    pub on_error: OnError,
}

impl Default for ReadOptions {
    /// The shape of the files, labels from 0 to 9 or in the column `label`, and an error for the first unusable sample.
    fn default() -> Self {
        let (labels, column) = (Some(Labels::default()), "label".to_owned());
        Self {
            shape: None,
            labels,
            column,
            text: None,
            features: Vec::new(),
            left_out: Vec::new(),
            on_error: OnError::default(),
        }
    }
}

impl ReadOptions {
    /// The same without labels.
    #[must_use]
    pub fn unlabelled() -> Self {
        Self { labels: None, ..Self::default() }
    }

    /// The same without labels. What is learned is no feature all the same.
    #[must_use]
    pub fn without_labels(&self) -> Self {
        let left_out = match &self.labels {
            Some(Labels::Values { names, .. }) => names.clone(),
            _ => self.left_out.clone(),
        };
        Self { labels: None, left_out, ..self.clone() }
    }

    /// The same with another column of labels, if one is named.
    ///
    /// # Errors
    /// [`DataError::NotOneColumn`] if the columns that are learned have names of their own.
    pub fn with_column(self, column: Option<&str>) -> Result<Self, DataError> {
        match (column, &self.labels) {
            (None, _) => Ok(self),
            (Some(column), Some(Labels::Values { names, .. })) if !names.is_empty() => {
                Err(DataError::NotOneColumn { column: column.to_owned(), names: names.join(", ") })
            }
            (Some(column), _) => Ok(Self { column: column.to_owned(), ..self }),
        }
    }

    /// Refuses numbers to learn and columns of texts, in formats that have neither.
    ///
    /// # Errors
    /// [`DataError::NoNumbers`] and [`DataError::NoTexts`] in `directory`, which holds this format.
    pub(super) fn check_plain(&self, directory: &Path, format: &'static str) -> Result<(), DataError> {
        if let Some(Labels::Values { .. }) = self.labels {
            return Err(DataError::NoNumbers { format }.in_file(directory));
        }
        match &self.text {
            Some(column) => Err(DataError::NoTexts { format, column: column.clone() }.in_file(directory)),
            None => Ok(()),
        }
    }

    /// Refuses samples of another shape than [`Self::shape`], in formats that cannot change it.
    ///
    /// # Errors
    /// [`DataError::OtherShape`] in `directory`, from which samples of shape `found` were read.
    pub fn check_shape(&self, directory: &Path, found: &[usize]) -> Result<(), DataError> {
        match &self.shape {
            Some(expected) if found != &expected[..] => {
                let (expected, found) = (expected.clone(), found.to_vec());
                Err(DataError::OtherShape { expected, found }.in_file(directory))
            }
            _ => Ok(()),
        }
    }
}

/// What to do about a sample that cannot be used: a damaged image, a row without a label.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum OnError {
    /// End with an error.
    #[default]
    Stop,
    /// Leave it out, and report how many were.
    Skip,
}

crate::named!(OnError);

/// How labels are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Labels {
    /// As names: the class is the position of the name here.
    Names(Vec<String>),
    /// As class numbers below this one.
    Numbers(usize),
    /// As numbers to learn, one for each output.
    Values {
        /// How many each sample has.
        outputs: usize,
        /// What they are called, which in a table are the columns that hold them; empty if they have no names.
        names: Vec<String>,
        /// Whether each is 1 or 0: whether a class applies.
        flags: bool,
    },
}

impl Default for Labels {
    fn default() -> Self {
        Self::Numbers(10)
    }
}

impl Labels {
    /// Of samples for this task, with as many classes or outputs, which may have names.
    #[must_use]
    pub fn of(task: Task, classes: usize, names: &[String]) -> Self {
        match task {
            Task::Classification if names.is_empty() => Self::Numbers(classes),
            Task::Classification => Self::Names(names.to_vec()),
            Task::MultiLabel | Task::Regression { .. } => {
                Self::Values { outputs: classes, names: names.to_vec(), flags: task == Task::MultiLabel }
            }
        }
    }

    /// What is learned, in words.
    #[must_use]
    pub fn in_words(&self) -> String {
        let named = |names: &[String]| {
            if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) }
        };
        match self {
            Self::Names(names) => format!("classes {}", names.join(", ")),
            Self::Numbers(classes) => format!("{classes} classes"),
            Self::Values { outputs, names, flags: true } => {
                format!("{outputs} classes of which any may apply{}", named(names))
            }
            Self::Values { outputs: 1, names, .. } => format!("a number to learn{}", named(names)),
            Self::Values { outputs, names, .. } => format!("{outputs} numbers to learn{}", named(names)),
        }
    }

    /// How many classes or outputs there are.
    #[must_use]
    pub fn classes(&self) -> usize {
        match self {
            Self::Names(names) => names.len(),
            Self::Numbers(classes) => *classes,
            Self::Values { outputs, .. } => *outputs,
        }
    }

    /// The names of the classes or outputs, if they have any.
    #[must_use]
    pub fn names(&self) -> &[String] {
        match self {
            Self::Names(names) | Self::Values { names, .. } => names,
            Self::Numbers(_) => &[],
        }
    }

    /// The class of a written label.
    pub(super) fn class(&self, written: &str) -> Result<u32, DataError> {
        let class = match self {
            Self::Names(names) => names.iter().position(|name| name == written),
            Self::Numbers(classes) => written.parse().ok().filter(|class| class < classes),
            Self::Values { .. } => None,
        };
        let label = || written.chars().take(60).collect();
        class.map(|class| class as u32).ok_or_else(|| match self {
            Self::Names(names) => DataError::UnknownLabel { label: label(), known: shortened(names) },
            Self::Numbers(classes) => unknown_number(label(), *classes),
            Self::Values { outputs, .. } => unknown_number(label(), *outputs),
        })
    }

    /// Checks a number to learn, which is a flag or any finite one.
    pub(super) fn check_value(
        value: Option<f32>,
        flags: bool,
        written: &dyn fmt::Display,
    ) -> Result<f32, DataError> {
        let fits = |&value: &f32| if flags { [0.0, 1.0].contains(&value) } else { value.is_finite() };
        value.filter(fits).ok_or_else(|| DataError::NotTarget {
            found: written.to_string().chars().take(60).collect(),
            needed: if flags {
                "0 or 1, which say whether a label applies"
            } else {
                "a finite number; decimals are written with a point"
            },
        })
    }
}

/// The error for a label that is not a class number below `classes`.
pub(super) fn unknown_number(label: String, classes: usize) -> DataError {
    let known = format!("the whole numbers from 0 to {}", classes.saturating_sub(1));
    DataError::UnknownLabel { label, known }
}

/// The first few names of a list.
fn shortened(names: &[String]) -> String {
    const SHOWN: usize = 10;
    let text = names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => text,
        more => format!("{text} and {more} more"),
    }
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
}
