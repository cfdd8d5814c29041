//! The cards on results by class: which classes the last and the best model confuse, and whether their probabilities can be believed.

use maud::{Markup, html};
use models::{ClassResult, PerClass};
use shared::data::text::{VOCABULARY, token_name};

use super::Report;
use super::document::folded_table;
use crate::config::Config;
use crate::report::by_class::ModelByClass;
use crate::report::chart::{self, Axis, Floor, Line, Lines};
use crate::report::units::{counted, grouped, percent};
use crate::round::RoundRecord;

/// Confusions that are named.
const NAMED: usize = 3;
/// Up to this many classes the table stands open.
const OPEN: usize = 20;

/// A card for each model, and one for the last test by devices that counted classes; nothing without results.
pub(super) fn cards(report: &Report<'_>) -> Markup {
    let names = class_names(report.config);
    let on_devices = report.rounds.iter().rev().find(|record| !record.by_class.is_empty());
    html! {
        @for model in report.by_class { (card(model, &names)) }
        @if let Some(record) = on_devices { (card_of_devices(record, &names)) }
    }
}

/// What the devices of a round found of the model that they were sent.
fn card_of_devices(record: &RoundRecord, names: &[String]) -> Markup {
    let results = record.by_class.classes();
    let sum = |count: fn(&ClassResult) -> u64| results.iter().map(count).sum::<u64>();
    let (samples, correct) = (sum(|class| class.samples), sum(|class| class.correct));
    html! {
        section.card {
            h2 { "Results by class of clients' own tests" }
            p.note {
                "The model after round " (record.round.saturating_sub(1)) ", tested by clients on " (counted(samples as usize, "sample"))
                " of their own" @if samples > 0 { ": accuracy " (percent(correct as f64 / samples as f64)) } "."
            }
            details open[results.len() <= OPEN] {
                summary { "Precision, recall and F1 of each class" }
                (classes(results, |class| name_of(class, names)))
            }
        }
    }
}

fn name_of(class: usize, names: &[String]) -> String {
    names.get(class).cloned().unwrap_or_else(|| class.to_string())
}

/// The names of the classes: those of a text are its characters; empty where classes have numbers alone.
fn class_names(config: &Config) -> Vec<String> {
    let spec = &config.spec;
    let named = &spec.data.class_names;
    let follows = spec.architecture.predictions() != Ok(1);
    if named.is_empty() && follows && spec.architecture.vocabulary() == Some(VOCABULARY) {
        return (0..VOCABULARY as u16).map(token_name).collect();
    }
    named.clone()
}

fn card(model: &ModelByClass, names: &[String]) -> Markup {
    let ModelByClass { best, round, evaluation, found } = model;
    let which = if *best { "the best model" } else { "the last model" };
    let confused = confused(found, names);
    let accuracy = percent(evaluation.accuracy.unwrap_or_default());
    let name = |class: usize| name_of(class, names);
    let results: Vec<ClassResult> = (0..found.classes()).map(|class| found.class(class)).collect();
    html! {
        section.card {
            h2 { "Results by class of " (which) }
            p.note {
                "Of round " (round) ", on " (counted(evaluation.samples, "test sample")) ": accuracy " (accuracy)
                ", mean recall of the classes " (percent(found.balanced_accuracy()))
                ", expected calibration error " (percent(found.calibration_error())) "."
                @if !confused.is_empty() { " Most often confused: " (confused) "." }
            }
            div.pair {
                div {
                    @if found.classes() <= chart::CONFUSION_DRAWN {
                        h3 { "Answers for the samples of each class" }
                        (chart::confusion(found, names, &format!("Accuracy {accuracy}. Most often confused: {confused}.")))
                    } @else {
                        p.note { "There are " (found.classes()) " classes, too many for a picture: the table has all." }
                    }
                }
                div {
                    (calibration(found))
                    details open[found.classes() <= OPEN] {
                        summary { "Precision, recall and F1 of each class" }
                        (classes(&results, name))
                    }
                }
            }
            @if found.classes() <= chart::CONFUSION_DRAWN {
                @let all: Vec<String> = (0..found.classes()).map(name).collect();
                @let headings: Vec<&str> = ["class"].into_iter().chain(all.iter().map(String::as_str)).collect();
                @let cells = |label: usize| html! { @for count in found.confusion_of(label) { td { (grouped(*count as usize)) } } };
                (folded_table("Answers for the samples of each class, in numbers", &headings, (0..found.classes()).map(|label| (name(label), cells(label)))))
            }
        }
    }
}

/// The classes that are taken for another one most often: `4 as 9 (31 times), ...`.
fn confused(found: &PerClass, names: &[String]) -> String {
    let name = |class: usize| name_of(class, names);
    let of = |label: usize| {
        found.confusion_of(label).iter().enumerate().map(move |(class, count)| (*count, label, class))
    };
    let mut pairs: Vec<(u64, usize, usize)> = (0..found.classes())
        .flat_map(of)
        .filter(|&(count, label, class)| count > 0 && label != class)
        .collect();
    pairs.sort_by_key(|&(count, label, class)| (std::cmp::Reverse(count), label, class));
    let say = |&(count, label, class): &(u64, usize, usize)| {
        let times = if count == 1 { "once".to_owned() } else { format!("{} times", grouped(count as usize)) };
        format!("{} taken for {} ({times})", name(label), name(class))
    };
    pairs.iter().take(NAMED).map(say).collect::<Vec<_>>().join(", ")
}

fn classes(results: &[ClassResult], name: impl Fn(usize) -> String) -> Markup {
    let share = |share: Option<f64>| share.map_or_else(|| "-".to_owned(), percent);
    html! {
        div.scroll {
            table {
                thead { tr { @for heading in ["class", "samples", "correct", "precision", "recall", "F1"] { th scope="col" { (heading) } } } }
                tbody {
                    @for (class, result) in results.iter().enumerate() {
                        tr {
                            th scope="row" { (name(class)) }
                            td { (grouped(result.samples as usize)) }
                            td { (grouped(result.correct as usize)) }
                            td { (share(result.precision())) }
                            td { (share(result.recall())) }
                            td { (share(result.f1())) }
                        }
                    }
                }
            }
        }
        p.note { "Precision: how much of what was taken for the class is of it. Recall: how much of the class was taken for it. F1: their harmonic mean." }
    }
}

/// How often answers of a confidence are right.
fn calibration(found: &PerClass) -> Markup {
    let bins = found.bins();
    let filled = || (1..).zip(bins).filter(|(_, bin)| bin.samples > 0);
    let points = |value: fn(&models::Bin) -> f64| -> Vec<(u32, f64)> {
        filled().map(|(place, bin)| (place, 100.0 * value(bin) / bin.samples as f64)).collect()
    };
    let half = 0.5 / bins.len() as f64;
    let chart = Lines {
        title: "Confidence and accuracy",
        description: &format!("Expected calibration error {}.", percent(found.calibration_error())),
        unit: "%",
        floor: Floor::Zero,
        ceiling: Some(100.0),
        target: None,
        mark: None,
        closer: false,
        axis: Axis::Values { name: "confidence", count: bins.len() as u32, from: half, to: 1.0 - half },
        series: vec![
            Line {
                name: "right answers",
                class: "series-1",
                points: points(|bin| bin.correct as f64),
                runs: Vec::new(),
            },
            Line {
                name: "confidence, where calibrated answers lie",
                class: "series-2 dashed",
                points: points(|bin| bin.confidence),
                runs: Vec::new(),
            },
        ],
    };
    html! {
        h3 { "Right answers by confidence" }
        @if let Some(chart) = chart.draw() { (chart) }
    }
}

#[cfg(test)]
mod tests {
    use models::Evaluation;
    use shared::by_class::ByClass;

    use super::super::tests::{config, report, run};
    use super::*;
    use crate::report::html::render;

    /// Of each class 8 samples right and 2 taken for the next one, all at a confidence of 0.9.
    fn model(best: bool, round: u32, classes: usize) -> ModelByClass {
        let mut found = PerClass::new(classes);
        for label in 0..classes {
            let next = (label + 1) % classes;
            (0..8).for_each(|_| found.count(label as u32, label as u32, 0.9));
            (0..2).for_each(|_| found.count(label as u32, next as u32, 0.9));
        }
        let evaluation = Evaluation {
            accuracy: Some(0.8),
            loss: 0.5,
            samples: 10 * classes,
            correct: 8 * classes,
            ..Evaluation::default()
        };
        ModelByClass { best, round, evaluation, found }
    }

    #[test]
    fn the_last_and_the_best_model_have_a_card_each() {
        let mut config = config(&[]);
        config.spec.data.class_names = ["cat", "d<og", "fox"].map(str::to_owned).to_vec();
        let (rounds, models) = (run(3, 4), [model(false, 3, 3), model(true, 2, 3)]);
        let page = render(&Report { by_class: &models, ..report(&config, &rounds) });
        for part in [
            "Results by class of the last model</h2><p class=\"note\">Of round 3, on 30 test samples: accuracy 80.0 %, mean recall of the \
             classes 80.0 %, expected calibration error 10.0 %. Most often confused: cat taken for d&lt;og (2 times), ",
            "Results by class of the best model</h2><p class=\"note\">Of round 2, ",
            "<th scope=\"row\">fox</th><td>10</td><td>8</td><td>80.0 %</td><td>80.0 %</td><td>80.0 %</td>",
            "<th scope=\"row\">fox</th><td>2</td><td>0</td><td>8</td>",
            "Confidence and accuracy. Expected calibration error 10.0 %.",
        ] {
            assert!(page.contains(part), "{part:?} is not in: {page}");
        }
        assert_eq!(page.matches("Confusion matrix. ").count(), 2);
        assert!(!page.contains("NaN") && !page.contains("d<og"), "{page}");
        assert!(!render(&report(&config, &rounds)).contains("Results by class"));
    }

    #[test]
    fn the_last_test_by_devices_has_a_card() {
        let (config, mut rounds) = (config(&[]), run(3, 4));
        let found = model(false, 3, 2).found;
        for record in &mut rounds[..2] {
            record.by_class = ByClass::from(&found);
        }
        let page = render(&report(&config, &rounds));
        for part in [
            "Results by class of clients' own tests</h2><p class=\"note\">The model after round 1, tested by clients on 20 samples of their own: \
             accuracy 80.0 %.",
            "<th scope=\"row\">1</th><td>10</td><td>8</td><td>80.0 %</td>",
        ] {
            assert!(page.contains(part), "{part:?} is not in: {page}");
        }
    }

    #[test]
    fn many_classes_have_a_table_alone() {
        let (config, rounds, models) = (config(&[]), run(3, 4), [model(false, 3, 100)]);
        let page = render(&Report { by_class: &models, ..report(&config, &rounds) });
        assert!(
            page.contains("There are 100 classes, too many for a picture")
                && !page.contains("Confusion matrix. "),
            "{page}"
        );
        assert!(page.contains("<th scope=\"row\">99</th><td>10</td>"), "{page}");
    }

    #[test]
    fn the_most_frequent_confusions_are_named() {
        let mut found = PerClass::new(3);
        for (label, class, times) in [(0, 0, 9), (0, 1, 2), (1, 0, 1), (2, 0, 2), (2, 1, 1)] {
            (0..times).for_each(|_| found.count(label, class, 0.5));
        }
        let names = ["cat", "dog", "fox"].map(str::to_owned);
        assert_eq!(
            confused(&found, &names),
            "cat taken for dog (2 times), fox taken for cat (2 times), dog taken for cat (once)"
        );
        assert_eq!(confused(&PerClass::new(3), &names), "");
    }
}
