//! What the samples of a run are.

use models::Task;
use serde::{Deserialize, Serialize};

use crate::data::{Labels, Preparation, ReadOptions};

/// The key of a model file's metadata that holds the run's [`DataSpec`] as JSON.
pub const SAMPLES_KEY: &str = "samples";

/// The key of the metadata of an ensemble's file, which holds many models, that describes the ensemble. No model has it.
pub const ENSEMBLE_KEY: &str = "ensemble";

/// What the samples of all clients have in common.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DataSpec {
    /// Shape of one sample before it is prepared.
    pub shape: Vec<usize>,
    /// The classes' names in the order of their numbers, where labels are names; empty where they are numbers. For other tasks
    /// than classification the names of the outputs, which in a table are columns.
    pub class_names: Vec<String>,
    /// How samples are augmented and normalised.
    pub preparation: Preparation,
    /// Who has the labels.
    #[serde(default)]
    pub labels: LabelsAt,
    /// The column of a table that holds the labels.
    #[serde(default = "label_column", skip_serializing_if = "is_label_column")]
    pub column: String,
    /// The column of a table that holds a text, which is the sample ([`byte_tokens`](crate::data::byte_tokens)); `None` if its
    /// columns are features.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The columns of a table that hold the features, in the order in which samples have them; those of the header, in its order, if none
    /// are named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
}

/// The column of labels where nothing else is said.
#[must_use]
pub fn label_column() -> String {
    ReadOptions::default().column
}

fn is_label_column(column: &str) -> bool {
    column == label_column()
}

/// Who has the labels of the samples that are learned from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LabelsAt {
    /// Every device those of its own.
    #[default]
    Device,
    /// The server alone, of samples of its own: devices need no labels, and those that have some do not use them.
    Server,
}

impl DataSpec {
    /// What the classes are called, or the numbers to learn, in order: a single number like its column. Empty if they have no names.
    #[must_use]
    pub fn output_names(&self, task: Task) -> Vec<String> {
        let is_one = self.class_names.is_empty() && matches!(task, Task::Regression { .. });
        if is_one && !is_label_column(&self.column) {
            vec![self.column.clone()]
        } else {
            self.class_names.clone()
        }
    }

    /// The columns of a table that hold what is learned, for this task.
    #[must_use]
    pub fn columns(&self, task: Task) -> Vec<String> {
        match task {
            Task::MultiLabel | Task::Regression { .. } if !self.class_names.is_empty() => {
                self.class_names.clone()
            }
            _ => vec![self.column.clone()],
        }
    }

    /// How samples for a model of this task and number of classes are read; the model's file may say what they are.
    #[must_use]
    pub fn reading(spec: Option<&Self>, task: Task, classes: usize) -> ReadOptions {
        let names = spec.map_or(&[][..], |spec| &spec.class_names);
        ReadOptions {
            shape: spec.map(|spec| spec.shape.clone()),
            labels: Some(Labels::of(task, classes, names)),
            column: spec.map_or_else(label_column, |spec| spec.column.clone()),
            text: spec.and_then(|spec| spec.text.clone()),
            features: spec.map_or_else(Vec::new, |spec| spec.features.clone()),
            ..ReadOptions::default()
        }
    }
}

crate::named!(LabelsAt);
