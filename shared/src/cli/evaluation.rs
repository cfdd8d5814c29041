//! How a model does, for people and for programs.

use std::fmt::Write as _;

use models::{Evaluation, Measure};
use serde_json::{Value, json};

/// A measure as people read it: a share in percent, anything else as a number.
#[must_use]
pub fn measure_text(measure: Measure, value: f64) -> String {
    format!("{} {}", measure.title(), measure_value(measure, value))
}

/// The value of a measure as people read it.
#[must_use]
pub fn measure_value(measure: Measure, value: f64) -> String {
    match measure {
        _ if measure.is_share() => format!("{:.2} %", 100.0 * value),
        Measure::R2 => format!("{value:.4}"),
        _ => format!("{value:.6}"),
    }
}

/// `accuracy 91.20 % (912 of 1000), loss 0.2871`, and what else is measured; without an accuracy how many samples it was.
#[must_use]
pub fn evaluation_text(evaluation: &Evaluation) -> String {
    let Evaluation { loss, accuracy, samples, correct, deviation } = evaluation;
    let mut text = match accuracy {
        Some(share) => format!("accuracy {:.2} % ({correct} of {samples}), loss {loss:.4}", 100.0 * share),
        None => format!("loss {loss:.4}"),
    };
    for (measure, value) in deviation.measures() {
        let _ = write!(text, ", {}", measure_text(measure, value));
    }
    if accuracy.is_none() {
        let _ = write!(text, " ({samples} {})", if *samples == 1 { "sample" } else { "samples" });
    }
    text
}

/// The same as an object: `loss`, `samples`, `accuracy` and `correct` where samples are right or wrong, and the measures by name.
#[must_use]
pub fn evaluation_json(evaluation: &Evaluation) -> Value {
    let Evaluation { loss, accuracy, samples, correct, deviation } = evaluation;
    let mut object = json!({ "loss": loss, "samples": samples });
    if let Some(accuracy) = accuracy {
        object["accuracy"] = json!(accuracy);
        object["correct"] = json!(correct);
    }
    for (measure, value) in deviation.measures() {
        object[measure.name()] = json!(value);
    }
    object
}

#[cfg(test)]
mod tests {
    use models::{Task, evaluate_one};

    use super::*;

    #[test]
    fn what_is_measured_is_told() {
        let flags = evaluate_one(Task::MultiLabel, &[1.0, -1.0], &[1.0, 1.0]);
        let text = evaluation_text(&flags);
        assert!(text.starts_with("accuracy 0.00 % (0 of 1), loss 0.8133, F1 66.67 %"), "{text}");
        assert!(text.ends_with("precision 100.00 %, recall 50.00 %"), "{text}");
        let object = evaluation_json(&flags);
        assert_eq!((&object["correct"], &object["recall"]), (&0.into(), &0.5.into()));
        let number = evaluate_one(Task::Regression { huber: None }, &[1.0], &[3.0]);
        assert_eq!(evaluation_text(&number), "loss 4.0000, MAE 2.000000, RMSE 2.000000 (1 sample)");
        let object = evaluation_json(&number);
        assert!(object.get("accuracy").is_none() && object["mae"] == 2.0, "{object}");
    }
}
