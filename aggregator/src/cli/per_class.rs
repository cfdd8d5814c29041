//! Results by class, for a terminal and as JSON.

use std::fmt::Write as _;

use models::PerClass;
use serde_json::{Value, json};
use shared::cli::Names;

/// The most classes that are listed.
const LISTED: usize = 20;
/// Characters of the name of a class.
const NAME: usize = 14;
/// Characters of a cell of the confusion matrix.
const CELL: usize = 7;

/// Precision, recall, confusion and calibration, as lines of at most `columns` characters. Of many classes those that are
/// recognised worst are listed.
pub(super) fn text(found: &PerClass, names: &Names, columns: usize) -> String {
    let mut classes: Vec<usize> = (0..found.classes()).collect();
    let many = classes.len() > LISTED;
    if many {
        classes.retain(|&class| found.class(class).samples > 0);
        classes.sort_by(|&a, &b| {
            let recall = |class: usize| found.class(class).recall().unwrap_or(1.0);
            recall(a).total_cmp(&recall(b))
        });
        classes.truncate(LISTED);
    }
    let mut text = format!(
        "mean recall of the classes {:.2} %; expected calibration error {:.2} % ({} bins)\n\n",
        100.0 * found.balanced_accuracy(),
        100.0 * found.calibration_error(),
        found.bins().len()
    );
    let _ = writeln!(
        text,
        "{:<NAME$} {:>8} {:>8} {:>11} {:>9} {:>9}",
        "class", "samples", "correct", "precision", "recall", "F1"
    );
    for &class in &classes {
        let result = found.class(class);
        let percent =
            |share: Option<f64>| share.map_or("-".to_owned(), |share| format!("{:.2} %", 100.0 * share));
        let _ = writeln!(
            text,
            "{:<NAME$} {:>8} {:>8} {:>11} {:>9} {:>9}",
            cut(&names.shown(class as u32), NAME),
            result.samples,
            result.correct,
            percent(result.precision()),
            percent(result.recall()),
            percent(result.f1())
        );
    }
    if many {
        let _ = writeln!(
            text,
            "the {} of {} classes with the least recall; --json has all",
            classes.len(),
            found.classes()
        );
        return text;
    }
    if NAME + (CELL + 1) * classes.len() > columns {
        return text + "\nthe confusion matrix is wider than the terminal: --json has it\n";
    }
    text.push_str("\nsamples of each class, by what they were taken for\n");
    let _ = write!(text, "{:<NAME$}", "");
    for &class in &classes {
        let _ = write!(text, " {:>CELL$}", cut(&names.shown(class as u32), CELL));
    }
    text.push('\n');
    for &class in &classes {
        let _ = write!(text, "{:<NAME$}", cut(&names.shown(class as u32), NAME));
        for count in found.confusion_of(class) {
            let _ = write!(text, " {count:>CELL$}");
        }
        text.push('\n');
    }
    text
}

/// The same, of all classes.
pub(super) fn json(found: &PerClass, names: &Names) -> Value {
    let classes: Vec<Value> = (0..found.classes())
        .map(|class| {
            let result = found.class(class);
            let mut object = json!({
                "class": class, "samples": result.samples, "predicted": result.predicted, "correct": result.correct,
                "precision": result.precision(), "recall": result.recall(), "f1": result.f1(),
            });
            if let Some(name) = names.class(class as u32) {
                object["name"] = name.into();
            }
            object
        })
        .collect();
    let confusion: Vec<&[u64]> = (0..found.classes()).map(|class| found.confusion_of(class)).collect();
    json!({
        "balanced-accuracy": found.balanced_accuracy(),
        "calibration-error": found.calibration_error(),
        "calibration-bins": found.bins(),
        "classes": classes,
        "confusion": confusion,
    })
}

/// A name in this many characters.
fn cut(name: &str, width: usize) -> String {
    if name.chars().count() <= width {
        return name.to_owned();
    }
    name.chars().take(width - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(classes: usize) -> PerClass {
        let mut found = PerClass::new(classes);
        for (label, class) in [(0, 0), (0, 1), (1, 1), (1, 1)] {
            found.count(label, class, 0.75);
        }
        found
    }

    #[test]
    fn a_few_classes_have_a_matrix_and_names() {
        let names = Names::new(vec!["cat".to_owned(), "a very long name".to_owned()], Vec::new());
        let shown = text(&found(2), &names, 80);
        let expected = "\
mean recall of the classes 75.00 %; expected calibration error 0.00 % (15 bins)

class           samples  correct   precision    recall        F1
cat                   2        1    100.00 %   50.00 %   66.67 %
a very long n…        2        2     66.67 %  100.00 %   80.00 %

samples of each class, by what they were taken for
                   cat a very…
cat                  1       1
a very long n…       0       2
";
        assert_eq!(shown, expected);
        let object = json(&found(2), &names);
        assert_eq!(object["confusion"], json!([[1, 1], [0, 2]]));
        assert_eq!(
            (&object["classes"][0]["name"], &object["classes"][0]["recall"]),
            (&json!("cat"), &json!(0.5))
        );
    }

    #[test]
    fn of_many_classes_the_worst_are_listed() {
        let shown = text(&found(100), &Names::default(), 80);
        assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
        let rows: Vec<&str> = shown.lines().skip(3).collect();
        assert!(rows[0].starts_with("0 ") && rows[1].starts_with("1 "), "{shown}");
        assert!(shown.contains("the 2 of 100 classes with the least recall"), "{shown}");
        assert!(text(&found(12), &Names::default(), 80).contains("--json has it"));
    }
}
