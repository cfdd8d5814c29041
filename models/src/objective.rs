//! What a task is learned by: its loss, and the targets that it takes.

use crate::error::ModelError;
use crate::loss;
use crate::targets::Targets;
use crate::task::Task;

impl Task {
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
}
