//! Results label by label where several may apply, for a terminal and as JSON.

use std::fmt::Write as _;

use models::ClassResult;
use serde_json::{Value, json};

use super::Names;
use crate::prediction::ValueRow;

/// Characters of the name of a label.
const NAME: usize = 14;

/// Of each label: samples that it applies to, samples that it was predicted for, and both.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ByLabel(Vec<ClassResult>);

impl ByLabel {
    /// Counts what a model says of a sample, if it is known what is true of it. Numbers are no labels and count nowhere.
    pub fn count(&mut self, row: &ValueRow) {
        if !row.flags {
            return;
        }
        self.0.resize(row.values.len().max(self.0.len()), ClassResult::default());
        for ((label, &probability), &truth) in self.0.iter_mut().zip(&row.values).zip(&row.truth) {
            let (said, applies) = (probability > 0.5, truth > 0.5);
            label.samples += u64::from(applies);
            label.predicted += u64::from(said);
            label.correct += u64::from(said && applies);
        }
    }

    /// A line for each label; nothing where there are none.
    #[must_use]
    pub fn text(&self, names: &Names) -> String {
        if self.0.is_empty() {
            return String::new();
        }
        let mut text = format!(
            "\n{:<NAME$} {:>8} {:>9} {:>8} {:>11} {:>9} {:>9}\n",
            "label", "samples", "predicted", "correct", "precision", "recall", "F1"
        );
        let percent =
            |share: Option<f64>| share.map_or("-".to_owned(), |share| format!("{:.2} %", 100.0 * share));
        for (label, result) in (0..).zip(&self.0) {
            let name: String = names.shown(label).chars().take(NAME).collect();
            let _ = writeln!(
                text,
                "{name:<NAME$} {:>8} {:>9} {:>8} {:>11} {:>9} {:>9}",
                result.samples,
                result.predicted,
                result.correct,
                percent(result.precision()),
                percent(result.recall()),
                percent(result.f1())
            );
        }
        text
    }

    /// The same as a list.
    #[must_use]
    pub fn json(&self, names: &Names) -> Value {
        let label = |(label, result): (u32, &ClassResult)| {
            let mut object = json!({
                "label": label, "samples": result.samples, "predicted": result.predicted, "correct": result.correct,
                "precision": result.precision(), "recall": result.recall(), "f1": result.f1(),
            });
            if let Some(name) = names.class(label) {
                object["name"] = name.into();
            }
            object
        };
        (0..).zip(&self.0).map(label).collect()
    }

    /// Whether nothing was counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_label_is_counted_by_itself() {
        let row = |values: [f32; 2], truth: [f32; 2]| ValueRow {
            sample: 0,
            values: values.to_vec(),
            flags: true,
            truth: truth.to_vec(),
        };
        let mut found = ByLabel::default();
        for row in [row([0.9, 0.1], [1.0, 1.0]), row([0.8, 0.2], [0.0, 0.0]), row([0.5, 0.7], [1.0, 1.0])] {
            found.count(&row);
        }
        let names = Names::new(vec!["cat".to_owned(), "dog".to_owned()], Vec::new());
        let text = found.text(&names);
        assert!(
            text.contains("cat                   2         2        1     50.00 %   50.00 %   50.00 %"),
            "{text}"
        );
        let json = found.json(&names);
        assert_eq!(
            (&json[1]["name"], &json[1]["samples"], &json[1]["recall"]),
            (&"dog".into(), &2.into(), &0.5.into())
        );
        let mut none = ByLabel::default();
        none.count(&ValueRow { flags: false, ..row([1.0, 2.0], [1.0, 2.0]) });
        assert!(none.is_empty() && none.text(&names).is_empty());
    }
}
