//! `config.json`: what programs need to use the model's tensors.

use std::collections::BTreeMap;

use models::Task;
use serde_json::{Value, json};

use super::Model;

/// The file.
pub(super) fn description(model: &Model<'_>, parameters: usize) -> String {
    let architecture = model.architecture;
    let mut described = json!({
        "architectures": [architecture.name],
        "architecture": architecture,
        "parameters": parameters,
        "dtype": "float32",
        "input": architecture.input,
        "num_labels": architecture.classes,
        "problem_type": match architecture.task {
            Task::Classification => "single_label_classification",
            Task::MultiLabel => "multi_label_classification",
            Task::Regression { .. } => "regression",
        },
    });
    if let Some(samples) = model.samples {
        described["sample"] = json!(samples.shape);
        described["preparation"] = json!(samples.preparation);
    }
    let names = model.class_names();
    if !names.is_empty() {
        let label = names.iter().enumerate().map(|(class, name)| (class.to_string(), json!(name)));
        // Two classes may have one name; then the first has it.
        let mut class = BTreeMap::new();
        for (number, name) in names.iter().enumerate() {
            class.entry(name.clone()).or_insert(number);
        }
        described["id2label"] = Value::Object(label.collect());
        described["label2id"] = json!(class);
    }
    let text = serde_json::to_string_pretty(&described).expect("names and numbers are JSON");
    text + "\n"
}
