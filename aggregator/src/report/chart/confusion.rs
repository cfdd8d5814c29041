//! A confusion matrix: a row per class, a column per answer, the darker the larger the answer's share of the class. Right answers and
//! mistakes have colours of their own.

use maud::{Markup, html};
use models::PerClass;

use super::frame::px;
use super::heatmap::{SHADES, block, shade};

/// The greatest number of classes drawn.
pub(in crate::report) const DRAWN: usize = 40;

const TOP: f64 = 6.0;
const GAP: f64 = 8.0;
const ROW: f64 = 26.0;
/// Width of a cell of few classes, and of many, whose numbers are left out.
const WIDE: f64 = 46.0;
const NARROW: f64 = 22.0;
/// From this many classes on cells are narrow.
const MANY: usize = 21;
/// A letter of a label, at most.
const LETTER: f64 = 8.0;
/// Letters of a label beside a row.
const LETTERS: usize = 12;

/// The matrix, with the names of classes if they have any.
pub(in crate::report) fn confusion(found: &PerClass, names: &[String], description: &str) -> Markup {
    let classes = found.classes();
    let name = |class: usize| names.get(class).cloned().unwrap_or_else(|| class.to_string());
    let longest = (0..classes).map(|class| name(class).chars().count()).max().unwrap_or(1);
    let left = GAP + LETTER * longest.clamp("class".len(), LETTERS) as f64;
    let (cell, row) = if classes < MANY { (WIDE, ROW) } else { (NARROW, NARROW) };
    let (width, height) = (left + cell * classes as f64 + 4.0, TOP + row * classes as f64 + 40.0);
    let (x, y) = (|class: usize| left + cell * class as f64, |class: usize| TOP + row * class as f64);
    let total = |label: usize| found.confusion_of(label).iter().sum::<u64>();
    // Of the class, since a class of few samples is confused as badly as one of many.
    let level =
        |label: usize, class: usize| shade(found.confusion_of(label)[class] as usize, total(label) as usize);
    let path = |wanted: usize, right: bool| -> String {
        let all = (0..classes).flat_map(|label| (0..classes).map(move |class| (label, class)));
        let those = all.filter(|&(label, class)| (label == class) == right && level(label, class) == wanted);
        those.map(|(label, class)| block(x(class) + 0.5, y(label) + 0.5, cell - 1.0, row - 1.0)).collect()
    };
    let below = y(classes);
    html! {
        div.scroll {
            svg.chart.heatmap.confusion[classes < MANY] viewBox=(format!("0 0 {} {}", px(width), px(height))) role="img"
                style=(format!("width:{}px;min-width:{}px", px(width), px(width.min(320.0)))) aria-label=(format!("Confusion matrix. {description}")) {
                title { "Confusion matrix" }
                desc { (description) }
                g.ticks {
                    @for class in 0..classes {
                        text x=(px(left - GAP)) y=(px(y(class) + row / 2.0 + 4.0)) text-anchor="end" { (cut(&name(class), LETTERS)) }
                        text x=(px(x(class) + cell / 2.0)) y=(px(below + 16.0)) text-anchor="middle" { (cut(&name(class), (cell / LETTER) as usize)) }
                    }
                    text x=(px(left - GAP)) y=(px(below + 16.0)) text-anchor="end" { "class" }
                    text x=(px(f64::midpoint(left, width))) y=(px(height - 5.0)) text-anchor="middle" { "answer" }
                }
                g.cells {
                    @for (right, kind) in [(true, ""), (false, " wrong")] {
                        @for wanted in 0..=SHADES {
                            @let path = path(wanted, right);
                            @if !path.is_empty() { path class=(format!("shade-{wanted}{kind}")) d=(path) {} }
                        }
                    }
                }
                @if classes < MANY {
                    g.numbers {
                        @for label in 0..classes {
                            @for (class, count) in found.confusion_of(label).iter().enumerate().filter(|(_, count)| **count > 0) {
                                text x=(px(x(class) + cell / 2.0)) y=(px(y(label) + row / 2.0 + 4.0)) text-anchor="middle"
                                    class=(format!("shade-{}", level(label, class))) { (count) }
                            }
                        }
                    }
                }
                g.columns {
                    @for label in 0..classes {
                        rect x=(px(left)) width=(px(cell * classes as f64)) y=(px(y(label))) height=(px(row)) {
                            title { (says(found, label, name)) }
                        }
                    }
                }
            }
        }
    }
}

/// `cat: 90 of 100 right; 7 taken for dog, 3 for fox`, the most frequent answers first.
fn says(found: &PerClass, label: usize, name: impl Fn(usize) -> String) -> String {
    const SAID: usize = 5;
    let result = found.class(label);
    let mut wrong: Vec<(usize, u64)> = found
        .confusion_of(label)
        .iter()
        .copied()
        .enumerate()
        .filter(|&(class, count)| class != label && count > 0)
        .collect();
    wrong.sort_by_key(|&(class, count)| (std::cmp::Reverse(count), class));
    let more = if wrong.len() > SAID { ", ..." } else { "" };
    let said: Vec<String> =
        wrong.iter().take(SAID).map(|&(class, count)| format!("{count} taken for {}", name(class))).collect();
    let said = if said.is_empty() { String::new() } else { format!("; {}{more}", said.join(", ")) };
    format!("{}: {} of {} right{said}", name(label), result.correct, result.samples)
}

/// The beginning of a name, in this many letters.
fn cut(name: &str, letters: usize) -> String {
    if name.chars().count() <= letters {
        return name.to_owned();
    }
    name.chars().take(letters.max(2) - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(classes: usize) -> PerClass {
        let mut found = PerClass::new(classes);
        for (label, class, times) in [(0, 0, 3), (0, 1, 1), (1, 1, 2)] {
            (0..times).for_each(|_| found.count(label, class, 0.5));
        }
        found
    }

    #[test]
    fn mistakes_have_another_colour_and_rows_say_what_they_show() {
        let names = ["cat", "a<b"].map(str::to_owned);
        let svg = confusion(&found(2), &names, "One mistake.").into_string();
        assert!(svg.contains("cat: 3 of 4 right; 1 taken for a&lt;b"), "{svg}");
        assert!(svg.contains("a&lt;b: 2 of 2 right<"), "{svg}");
        // A quarter of the class is the third of ten shades.
        assert!(svg.contains("class=\"shade-3 wrong\"") && svg.contains("class=\"shade-8\""), "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("a<b"), "{svg}");
    }

    #[test]
    fn many_classes_stay_small() {
        let svg = confusion(&found(DRAWN), &[], "").into_string();
        assert!(svg.len() < 60_000, "{}", svg.len());
    }
}
