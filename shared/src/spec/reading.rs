//! How a device is to read its samples for a run: what it asks for before it has read them.
//!
//! It travels as TOML, which can grow like the specification ([`SpecText`](super::SpecText)): a device that does not know a
//! key refuses the run by the name of the key.

use models::Task;
use serde::{Deserialize, Serialize};

use super::data::label_column;
use super::{LabelsAt, RunSpec, SpecError};
use crate::data::{Labels, OnError, ReadOptions};
use crate::settings;

/// How samples are read for a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Reading {
    /// Shape of a sample before it is prepared.
    pub shape: Vec<usize>,
    /// How many classes or outputs there are.
    pub classes: usize,
    /// What is learned of them.
    #[serde(default, skip_serializing_if = "Task::is_classification")]
    pub task: Task,
    /// Their names in the order of their numbers; empty where labels are numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub class_names: Vec<String>,
    /// The column of a table that holds the labels.
    #[serde(default = "label_column")]
    pub label: String,
    /// The column of a table that holds a text, which is the sample; `None` if its columns are features.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The columns of a table that hold the features, in order; those of the header if none are named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
    /// Who has the labels.
    #[serde(default)]
    pub labels: LabelsAt,
}

impl Reading {
    /// For this run.
    #[must_use]
    pub fn of(spec: &RunSpec) -> Self {
        Self {
            shape: spec.data.shape.clone(),
            classes: spec.architecture.classes,
            task: spec.architecture.task,
            class_names: spec.data.class_names.clone(),
            label: spec.data.column.clone(),
            text: spec.data.text.clone(),
            features: spec.data.features.clone(),
            labels: spec.data.labels,
        }
    }

    /// As text.
    ///
    /// # Panics
    /// Never: TOML can express every value of it.
    #[must_use]
    pub fn to_text(&self) -> String {
        toml::to_string(self).expect("numbers, texts and lists of them are TOML")
    }

    /// From text.
    ///
    /// # Errors
    /// [`SpecError`] for what this version does not know.
    pub fn from_text(text: &str) -> Result<Self, SpecError> {
        let syntax = |error: toml::de::Error| SpecError::Syntax { reason: error.message().to_owned() };
        let table: toml::Table = text.parse().map_err(syntax)?;
        Ok(settings::read(&toml::Value::Table(table), "data")?)
    }

    /// Whether samples that were read so are those that `spec` takes.
    #[must_use]
    pub fn fits(&self, spec: &RunSpec) -> bool {
        let of_run = Self { label: self.label.clone(), ..Self::of(spec) };
        *self == of_run
    }

    /// How samples with labels are read.
    #[must_use]
    pub fn options(&self, on_error: OnError) -> ReadOptions {
        ReadOptions {
            shape: Some(self.shape.clone()),
            labels: Some(Labels::of(self.task, self.classes, &self.class_names)),
            column: self.label.clone(),
            text: self.text.clone(),
            features: self.features.clone(),
            on_error,
            ..ReadOptions::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_read_and_what_is_new_is_named() {
        let mut spec = RunSpec::example("fedavg");
        spec.data.class_names = vec!["cat".to_owned(), "dog".to_owned()];
        spec.data.column = "kind".to_owned();
        let reading = Reading::of(&spec);
        let text = reading.to_text();
        assert_eq!(Reading::from_text(&text), Ok(reading.clone()));
        assert!(reading.fits(&spec));
        let options = reading.options(OnError::Stop);
        assert_eq!((options.shape, &options.column[..]), (Some(vec![1, 2, 2]), "kind"));
        assert_eq!(options.labels, Some(Labels::Names(spec.data.class_names.clone())));
        spec.data.class_names.reverse();
        assert!(!reading.fits(&spec), "another order is another meaning");
        let newer = Reading::from_text(&format!("{text}sampling-rate = 16000\n"));
        assert_eq!(newer, Err(SpecError::Unknown { key: "data.sampling-rate".to_owned() }));
        assert!(matches!(Reading::from_text("= 3"), Err(SpecError::Syntax { .. })));
    }
}
