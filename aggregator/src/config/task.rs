//! `model.task`: what is learned, and what does not go with numbers or several labels.

use models::Task;
use shared::spec::LabelsAt;
use shared::spec::data::label_column;

use super::combinations::{Combinations, Shown, divides_by_class};
use super::{ModelTable, Raw, TaskName};
use crate::attack::Attack;
use crate::round::Criterion;

impl ModelTable {
    /// The task.
    #[must_use]
    pub fn learned(&self) -> Task {
        match self.task {
            TaskName::Classification => Task::Classification,
            TaskName::MultiLabel => Task::MultiLabel,
            TaskName::Regression => Task::Regression { huber: self.huber_delta },
        }
    }
}

impl Combinations<'_> {
    /// Refuses what goes with one class alone, and has models compared by their loss: numbers are not right or wrong, and of many labels
    /// hardly ever all are right.
    pub(super) fn task(&mut self, raw: &mut Raw) {
        let task = raw.model.learned();
        let shown: Shown = ("model.task", format!("model.task = {:?}", task.name()));
        if let Some(delta) = raw.model.huber_delta.filter(|_| raw.model.task != TaskName::Regression) {
            let delta = ("model.huber-delta", format!("model.huber-delta = {delta}"));
            self.refuse(&[shown.clone(), delta], "it is of the loss of regression; leave it out");
        }
        if task.is_classification() {
            if raw.data.targets.is_some() {
                let targets = ("data.targets", "data.targets".to_owned());
                let reason = "one class is learned, and data.label names its column; set model.task = \"regression\" or \
                              \"multi-label\", or leave data.targets out";
                self.refuse(&[shown, targets], reason);
            }
            return;
        }
        if raw.data.targets.is_some() && raw.data.label != label_column() {
            let keys = [
                ("data.targets", "data.targets".to_owned()),
                ("data.label", format!("data.label = {:?}", raw.data.label)),
            ];
            self.refuse(&keys, "both say which columns are learned; leave one of them out");
        }
        for (key, reason) in of_classes(raw) {
            self.refuse(&[shown.clone(), (key, key.to_owned())], reason);
        }
        let metric = raw.early_stopping.metric;
        let other = match metric {
            Criterion::Accuracy => Criterion::Loss,
            Criterion::OwnAccuracy => Criterion::OwnLoss,
            Criterion::ValidationAccuracy => Criterion::ValidationLoss,
            Criterion::Loss | Criterion::OwnLoss | Criterion::ValidationLoss => return,
        };
        let is_given = self.is_given("early-stopping.metric");
        if task == Task::MultiLabel && is_given {
            return;
        }
        if is_given {
            let metric = ("early-stopping.metric", format!("early-stopping.metric = {:?}", metric.name()));
            let reason =
                format!("numbers are not right or wrong; set it to {:?}, or leave it out", other.name());
            self.refuse(&[shown, metric], &reason);
        }
        raw.early_stopping.metric = other;
    }
}

/// The keys that were set and that go with one class for each sample, and why.
fn of_classes(raw: &Raw) -> Vec<(&'static str, &'static str)> {
    let divided = "samples without one class each are not divided by it; use iid or quantity";
    let none = "samples have no single class; leave it out";
    let given = [
        ("data.class-names", raw.data.class_names.is_some(), "the names of what is learned are data.targets"),
        ("data.labels", raw.data.labels == LabelsAt::Server, "pseudo-labels are classes; leave it out"),
        (
            "data.labelled",
            raw.data.labelled.is_some(),
            "the server keeps equally many of each class, and there is none; leave it out",
        ),
        ("evaluate.by-class", raw.evaluate.by_class, none),
        ("simulation.attack.label-flip", matches!(raw.simulation.attack, Attack::LabelFlip { .. }), none),
        (
            "personalisation.method",
            raw.personalisation.method.is_some(),
            "the tests of personal models weigh classes, and gates mix their probabilities; leave it out",
        ),
    ];
    let given = given.into_iter().filter(|(_, given, _)| *given).map(|(key, _, reason)| (key, reason));
    given.chain(divides_by_class(&raw.data.partition).map(|key| (key, divided))).collect()
}

#[cfg(test)]
mod tests {
    use shared::id::RunId;

    use super::*;
    use crate::config::{Config, ConfigErrors};

    const TABLE: [&str; 4] = ["data.set=csv", "data.path=/tmp", "data.shape=3", "model.name=mlp-2nn"];

    fn made(more: &[&str]) -> Result<Config, ConfigErrors> {
        let overrides: Vec<String> = TABLE.iter().chain(more).map(|&given| given.to_owned()).collect();
        Config::read(None, &overrides, RunId::from_bytes([1; 8]))
    }

    #[test]
    fn numbers_have_columns_and_are_compared_by_their_loss() {
        let one = made(&["model.task=regression", "data.label=price"]).unwrap();
        assert_eq!(one.spec.architecture.task, Task::Regression { huber: None });
        assert_eq!((one.spec.architecture.classes, &one.spec.data.column[..]), (1, "price"));
        assert_eq!(one.stop.metric, Criterion::Loss);
        let again = Config::validate(&one.effective, one.spec.run).unwrap();
        assert_eq!(again, one);
        let two = ["model.task=regression", "model.huber-delta=0.5", r#"data.targets=["price","rent"]"#];
        let two = made(&two).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), two.effective.to_toml()).unwrap();
        assert_eq!(
            Config::read(Some(file.path()), &[], two.spec.run).unwrap(),
            two,
            "as a run reads its own"
        );
        assert_eq!(two.spec.architecture.task, Task::Regression { huber: Some(0.5) });
        assert_eq!(
            (two.spec.architecture.classes, &two.spec.data.class_names),
            (2, &vec!["price".to_owned(), "rent".to_owned()])
        );
        let flags = made(&["model.task=multi-label", r#"data.targets=["cat","dog","fox"]"#]).unwrap();
        assert_eq!((flags.spec.architecture.classes, flags.stop.metric), (3, Criterion::Loss));
        let asked =
            made(&["model.task=multi-label", "data.targets=['cat']", "early-stopping.metric=accuracy"]);
        assert_eq!(asked.unwrap().stop.metric, Criterion::Accuracy);
        let tensors = made(&["data.set=safetensors", "model.task=multi-label", "data.classes=4"]).unwrap();
        assert_eq!(tensors.spec.architecture.classes, 4);
    }

    #[test]
    fn what_goes_with_one_class_alone_is_refused() {
        for (given, expected) in [
            (
                &["model.task=regression", "early-stopping.metric=accuracy"][..],
                &["right or wrong", "\"loss\""][..],
            ),
            (&["model.task=regression", "algorithm.fafi={}"], &["fafi", "model.task"]),
            (&["model.task=regression", "data.partition.shards={per-client=2}"], &["iid or quantity"]),
            (&["model.task=regression", "personalisation.method=ft"], &["personalisation.method"]),
            (&["model.task=regression", r#"data.class-names=["a","b"]"#], &["data.targets"]),
            (&["model.task=multi-label"], &["data.targets = ["]),
            (
                &["model.task=multi-label", "data.classes=2", "model.huber-delta=1"],
                &["of the loss of regression"],
            ),
            (&[r#"data.targets=["a","b"]"#, "data.classes=2"], &["data.label names its column"]),
            (&["model.task=regression", "data.set=mnist", "data.shape="], &["csv or safetensors"]),
            (
                &["model.task=regression", r#"data.targets=["a","b"]"#, "data.classes=2"],
                &["data.targets alone"],
            ),
            (&["model.task=regression", "evaluate.by-class=true"], &["no single class"]),
            (
                &["model.task=regression", "data.targets=['a']", "data.label=b"],
                &["data.targets", "data.label"],
            ),
            (&["model.task=regression", "data.classes=3"], &["data.targets"]),
        ] {
            let text = made(given).unwrap_err().to_string();
            assert!(expected.iter().all(|part| text.contains(part)), "{given:?}: {text}");
        }
    }
}
