//! A prediction as a JSON object.

use serde_json::{Value, json};

use super::Names;
use crate::prediction::Row;

/// A prediction with the names of its sample and classes, where they have any.
///
/// ```json
/// {"sample":0,"file":"a.png","class":1,"name":"dog","probability":0.9,"label":1,
///  "top":[{"class":1,"name":"dog","probability":0.9},{"class":0,"name":"cat","probability":0.1}]}
/// ```
#[must_use]
pub fn line(row: &Row, names: &Names, top_k: usize) -> Value {
    let mut line = answer(row.class, row.probability(), names);
    line["sample"] = row.sample.into();
    if let Some(file) = names.sample(row.sample) {
        line["file"] = file.into();
    }
    if let Some(label) = row.label {
        line["label"] = label.into();
        if let Some(name) = names.class(label) {
            line["label-name"] = name.into();
        }
    }
    if let Some(gate) = row.gate {
        line["gate"] = gate.into();
    }
    if top_k > 1 {
        let top = row.top(top_k).into_iter();
        line["top"] = top.map(|(class, probability)| answer(class, probability, names)).collect();
    }
    line
}

fn answer(class: u32, probability: f64, names: &Names) -> Value {
    let mut answer = json!({ "class": class, "probability": probability });
    if let Some(name) = names.class(class) {
        answer["name"] = name.into();
    }
    answer
}
