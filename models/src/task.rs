//! Tasks: what the outputs of a network mean, and the loss that it learns by.

use serde::{Deserialize, Serialize};

use crate::error::ModelError;
use crate::loss;
use crate::targets::Targets;

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
    pub fn is_classification(self) -> bool {
        self == Self::Classification
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

    /// The mean loss over all predictions, and its gradient with respect to the outputs, which is overwritten.
    ///
    /// # Panics
    /// If there are no targets, or not as many as [`Self::check`] asks for.
    #[must_use]
    pub fn loss(self, outputs: &[f32], targets: &Targets, gradient: &mut Vec<f32>) -> f32 {
        match self {
            Self::Classification => loss::cross_entropy(outputs, targets.classes(), gradient),
            Self::MultiLabel => loss::binary_cross_entropy(outputs, targets.values(), gradient),
            Self::Regression { huber: None } => loss::squared_error(outputs, targets.values(), gradient),
            Self::Regression { huber: Some(delta) } => {
                loss::huber(outputs, targets.values(), delta, gradient)
            }
        }
    }

    /// Checks that targets are what this task takes, as many as `predictions` of `outputs` each need.
    ///
    /// # Errors
    /// [`ModelError::Labels`], [`ModelError::Label`], [`ModelError::OtherTask`] or [`ModelError::Target`].
    pub fn check(self, targets: &Targets, predictions: usize, outputs: usize) -> Result<(), ModelError> {
        let fits = |value: f32| match self {
            Self::MultiLabel => [0.0, 1.0].contains(&value),
            _ => value.is_finite(),
        };
        let needed = predictions * self.targets_each(outputs);
        match targets {
            _ if targets.is_empty() => Err(ModelError::Labels { predictions: needed, labels: 0 }),
            Targets::Classes(_) if !self.is_classification() => {
                Err(ModelError::OtherTask { task: self.name(), needs: "a number for each output" })
            }
            Targets::Values(_) if self.is_classification() => {
                Err(ModelError::OtherTask { task: self.name(), needs: "a class for each prediction" })
            }
            _ if targets.len() != needed => {
                Err(ModelError::Labels { predictions: needed, labels: targets.len() })
            }
            Targets::Classes(labels) => match labels.iter().find(|&&label| label as usize >= outputs) {
                Some(&label) => Err(ModelError::Label { label, classes: outputs }),
                None => Ok(()),
            },
            Targets::Values(values) => match values.iter().find(|&&value| !fits(value)) {
                Some(&value) => Err(ModelError::Target { value, task: self.name() }),
                None => Ok(()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGRESSION: Task = Task::Regression { huber: None };

    #[test]
    fn targets_must_be_those_of_the_task() {
        let (classes, flags) = (Targets::Classes(vec![0, 2]), Targets::Values(vec![0.0, 1.0, 1.0]));
        assert!(Task::Classification.check(&classes, 2, 3).is_ok());
        assert!(Task::MultiLabel.check(&flags, 1, 3).is_ok());
        assert!(REGRESSION.check(&flags, 3, 1).is_ok());
        let wrong = |task: Task, targets: &Targets, predictions, outputs| {
            task.check(targets, predictions, outputs).unwrap_err()
        };
        assert!(matches!(wrong(REGRESSION, &classes, 2, 1), ModelError::OtherTask { .. }));
        assert!(matches!(wrong(Task::Classification, &flags, 3, 2), ModelError::OtherTask { .. }));
        assert!(matches!(
            wrong(Task::Classification, &classes, 2, 2),
            ModelError::Label { label: 2, classes: 2 }
        ));
        assert!(matches!(
            wrong(Task::MultiLabel, &flags, 2, 3),
            ModelError::Labels { predictions: 6, labels: 3 }
        ));
        assert!(matches!(wrong(REGRESSION, &Targets::default(), 2, 1), ModelError::Labels { labels: 0, .. }));
        let half = Targets::Values(vec![0.5]);
        assert!(REGRESSION.check(&half, 1, 1).is_ok());
        assert!(matches!(wrong(Task::MultiLabel, &half, 1, 1), ModelError::Target { .. }));
        assert!(matches!(
            wrong(REGRESSION, &Targets::Values(vec![f32::NAN]), 1, 1),
            ModelError::Target { .. }
        ));
    }

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
