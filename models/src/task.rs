//! Tasks: what the outputs of a network mean.

use serde::{Deserialize, Serialize};

/// What a network learns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Task {
    /// Which of the classes it is. The outputs are logits, and the loss is the cross-entropy of their softmax.
    #[default]
    Classification,
    /// Which of the classes apply: any number of them. The outputs are logits, and the loss is the mean over the classes of
    /// the binary cross-entropy of their sigmoid.
    MultiLabel,
    /// Numbers. The outputs are the numbers, and the loss is the mean over them of the squared error, or of Huber's.
    Regression {
        /// Where Huber's loss goes over from a square, `e^2 / 2`, to a line, `delta (|e| - delta / 2)`; `None` for the squared
        /// error, `e^2`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        huber: Option<f64>,
    },
}

impl Task {
    /// Whether this is classification, which most methods are made for.
    #[must_use]
    pub fn is_classification(&self) -> bool {
        *self == Self::Classification
    }

    /// Its name, as configurations have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Classification => "classification",
            Self::MultiLabel => "multi-label",
            Self::Regression { .. } => "regression",
        }
    }

    /// Targets of each prediction of a network with this many outputs.
    #[must_use]
    pub fn targets_each(self, outputs: usize) -> usize {
        if self.is_classification() { 1 } else { outputs }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGRESSION: Task = Task::Regression { huber: None };

    #[test]
    fn what_was_written_before_there_were_tasks_is_classification() {
        let text = |task: Task| serde_json::to_string(&task).unwrap();
        assert_eq!(text(Task::MultiLabel), r#""multi-label""#);
        assert_eq!(text(REGRESSION), r#"{"regression":{}}"#);
        assert_eq!(text(Task::Regression { huber: Some(1.5) }), r#"{"regression":{"huber":1.5}}"#);
        for task in
            [Task::Classification, Task::MultiLabel, REGRESSION, Task::Regression { huber: Some(0.25) }]
        {
            assert_eq!(serde_json::from_str::<Task>(&text(task)).unwrap(), task);
        }
    }
}
