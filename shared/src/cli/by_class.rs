//! Results by class, for a terminal and as JSON.

use std::fmt::Write as _;

use models::PerClass;
use serde_json::{Value, json};

use super::Names;

/// The most classes that are listed.
const LISTED: usize = 20;
/// Characters of the name of a class.
const NAME: usize = 14;
/// Characters of a cell of the confusion matrix, the fewest and the most: numbers are never cut, and names as far as needed.
const CELL: std::ops::RangeInclusive<usize> = 3..=7;

/// Precision, recall, confusion and calibration, as lines of at most `columns` characters. Of many classes those that are
/// recognised worst are listed.
#[must_use]
pub fn by_class_text(found: &PerClass, names: &Names, columns: usize) -> String {
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
    text + &matrix(found, names, columns)
}

/// The confusion matrix, if it fits.
fn matrix(found: &PerClass, names: &Names, columns: usize) -> String {
    let shown: Vec<String> = (0..found.classes()).map(|class| names.shown(class as u32)).collect();
    let longest = shown.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let counts = (0..found.classes()).flat_map(|label| found.confusion_of(label));
    let digits = counts.max().map_or(1, |greatest| greatest.to_string().len());
    let name = longest.clamp("class".len(), NAME);
    let room = (columns.saturating_sub(name) / shown.len().max(1)).saturating_sub(1);
    let least = digits.max(*CELL.start());
    if room < least {
        return "\nthe confusion matrix is wider than the terminal: --json has it\n".to_owned();
    }
    let cell = longest.min(*CELL.end()).max(least).min(room);
    let mut text = format!("\nsamples of each class, by what they were taken for\n{:<name$}", "");
    for class in &shown {
        let _ = write!(text, " {:>cell$}", cut(class, cell));
    }
    text.push('\n');
    for (class, shown) in shown.iter().enumerate() {
        let _ = write!(text, "{:<name$}", cut(shown, name));
        for count in found.confusion_of(class) {
            let _ = write!(text, " {count:>cell$}");
        }
        text.push('\n');
    }
    text
}

/// The same as JSON, of all classes.
#[must_use]
pub fn by_class_json(found: &PerClass, names: &Names) -> Value {
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
        let shown = by_class_text(&found(2), &names, 80);
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
        let object = by_class_json(&found(2), &names);
        assert_eq!(object["confusion"], json!([[1, 1], [0, 2]]));
        assert_eq!(
            (&object["classes"][0]["name"], &object["classes"][0]["recall"]),
            (&json!("cat"), &json!(0.5))
        );
    }

    #[test]
    fn of_many_classes_the_worst_are_listed() {
        let shown = by_class_text(&found(100), &Names::default(), 80);
        assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
        let rows: Vec<&str> = shown.lines().skip(3).collect();
        assert!(rows[0].starts_with("0 ") && rows[1].starts_with("1 "), "{shown}");
        assert!(shown.contains("the 2 of 100 classes with the least recall"), "{shown}");
        // Ten classes with thousands of samples fit, and no number is cut.
        let mut ten = found(10);
        (0..4321).for_each(|_| ten.count(9, 9, 0.5));
        let shown = by_class_text(&ten, &Names::default(), 80);
        assert!(shown.ends_with("\n9        0    0    0    0    0    0    0    0    0 4321\n"), "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
        assert!(by_class_text(&found(20), &Names::default(), 80).contains("--json has it"));
    }
}
