//! What classes and samples are called.

use crate::data::text::{self, VOCABULARY};
use crate::data::{Inputs, Samples};

/// Names of classes and samples, each list empty where there are only numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    classes: Vec<String>,
    samples: Vec<String>,
}

impl Names {
    /// Of these classes and inputs. The classes of a text are its characters.
    #[must_use]
    pub fn of(classes: &[String], inputs: &Inputs) -> Self {
        let dataset = &inputs.dataset;
        let is_text = dataset.labels_each() > 1
            && matches!(dataset.samples(), Samples::Tokens(_))
            && dataset.classes() == VOCABULARY;
        let classes = if is_text && classes.is_empty() { text::token_names() } else { classes.to_vec() };
        Self { classes, samples: inputs.files.clone() }
    }

    /// These names.
    #[must_use]
    pub fn new(classes: Vec<String>, samples: Vec<String>) -> Self {
        Self { classes, samples }
    }

    /// The name of a class, if it has one.
    #[must_use]
    pub fn class(&self, class: u32) -> Option<&str> {
        self.classes.get(class as usize).map(String::as_str)
    }

    /// The file of a sample, if it has one.
    #[must_use]
    pub fn sample(&self, sample: usize) -> Option<&str> {
        self.samples.get(sample).map(String::as_str)
    }

    /// A class as people read it: its name, or its number.
    #[must_use]
    pub fn shown(&self, class: u32) -> String {
        self.class(class).map_or_else(|| class.to_string(), printable)
    }

    /// A sample as people read it: its file, or its number.
    pub(super) fn shown_sample(&self, sample: usize) -> String {
        self.sample(sample).map_or_else(|| sample.to_string(), printable)
    }

    /// Characters of the longest name of a sample and of a class.
    pub(super) fn widths(&self) -> (usize, usize) {
        let longest = |names: &[String]| names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
        (longest(&self.samples), longest(&self.classes))
    }
}

/// A name without characters that steer a terminal.
fn printable(name: &str) -> String {
    name.chars().map(|character| if character.is_control() { '\u{fffd}' } else { character }).collect()
}
