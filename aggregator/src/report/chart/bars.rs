//! Amounts per round, as stacked bars. Many rounds are drawn as means over groups of them, so that a page stays small.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::frame::{Axis, Content, Frame, px};
use super::scale::Scale;

/// One part of every bar.
pub(in crate::report) struct Stack<'a> {
    /// Its name in the legend.
    pub(in crate::report) name: &'a str,
    /// Its class in the style sheet, which gives it its colour.
    pub(in crate::report) class: &'a str,
    /// One finite amount per round, not negative.
    pub(in crate::report) amounts: Vec<f64>,
}

/// A chart of stacked bars.
pub(in crate::report) struct Bars<'a> {
    pub(in crate::report) title: &'a str,
    pub(in crate::report) description: &'a str,
    pub(in crate::report) unit: &'a str,
    /// Decimals of an amount under a pointer.
    pub(in crate::report) decimals: usize,
    /// The round of every bar, increasing; as many as there are amounts.
    pub(in crate::report) rounds: &'a [u32],
    /// From the bottom up.
    pub(in crate::report) stacks: Vec<Stack<'a>>,
}

/// The greatest number of bars.
const BARS: usize = 180;

impl Bars<'_> {
    /// The chart; `None` if there are no rounds.
    pub(in crate::report) fn draw(&self) -> Option<Markup> {
        let last = *self.rounds.last()?;
        let size = self.rounds.len().div_ceil(BARS);
        let groups: Vec<_> =
            (0..self.rounds.len()).step_by(size).map(|start| self.group(start, size)).collect();
        let highest = groups.iter().map(|group| group.means.iter().sum()).fold(0.0, f64::max);
        let frame = Frame::new(Axis::Rounds(last), Scale::containing(0.0, highest, 4), self.unit);
        let marks = html! {
            g.bars {
                @for (index, stack) in self.stacks.iter().enumerate() {
                    path class=(stack.class) d=(outline(&frame, &groups, index)) {}
                }
            }
        };
        let columns: Vec<_> =
            groups.iter().map(|group| (group.first, group.last, self.says(group, size))).collect();
        let svg = frame.draw(&Content {
            title: self.title,
            description: self.description,
            unit: self.unit,
            marks,
            columns: &columns,
        });
        Some(html! {
            ul.legend { @for stack in &self.stacks { li.block.(stack.class) { (stack.name) } } }
            (svg)
            @if size > 1 { p.note { "Each bar is the mean of " (size) " rounds." } }
        })
    }

    /// The mean amounts of the `size` rounds from position `start` on, or of those that are left.
    fn group(&self, start: usize, size: usize) -> Group {
        let end = (start + size).min(self.rounds.len());
        let mean = |stack: &Stack<'_>| {
            stack
                .amounts
                .get(start..end)
                .map_or(0.0, |amounts| amounts.iter().sum::<f64>() / amounts.len() as f64)
        };
        Group {
            first: self.rounds[start],
            last: self.rounds[end - 1],
            means: self.stacks.iter().map(mean).collect(),
        }
    }

    fn says(&self, group: &Group, size: usize) -> String {
        let decimals = if size > 1 { self.decimals.max(1) } else { self.decimals };
        let unit = if self.unit.is_empty() { String::new() } else { format!(" {}", self.unit) };
        let parts = self
            .stacks
            .iter()
            .zip(&group.means)
            .map(|(stack, mean)| format!("{} {mean:.decimals$}{unit}", stack.name));
        let rounds = if group.first == group.last {
            format!("round {}", group.first)
        } else {
            format!("rounds {} to {}, mean", group.first, group.last)
        };
        format!("{rounds}: {}", parts.collect::<Vec<_>>().join(", "))
    }
}

/// One bar.
struct Group {
    first: u32,
    last: u32,
    means: Vec<f64>,
}

/// All bars' parts number `index` as one path.
fn outline(frame: &Frame<'_>, groups: &[Group], index: usize) -> String {
    let mut path = String::new();
    for group in groups.iter().filter(|group| group.means[index] > 0.0) {
        let below: f64 = group.means[..index].iter().sum();
        let (start, end) = (frame.x(f64::from(group.first) - 0.5), frame.x(f64::from(group.last) + 0.5));
        // Gaps between hairlines would only shimmer.
        let gap = if end - start < 3.5 { 0.0 } else { ((end - start) * 0.12).min(3.0) };
        // A lone bar is not blown up to the whole width.
        let margin = gap.max((end - start - 64.0) / 2.0);
        let (low, high) = (frame.y(below), frame.y(below + group.means[index]));
        let (left, width, height) = (px(start + margin), px(end - start - 2.0 * margin), px(low - high));
        let _ = write!(path, "M{left} {}h{width}v{height}h-{width}z", px(high));
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bars(rounds: &[u32]) -> Bars<'_> {
        let amounts = |factor: f64| rounds.iter().map(|&round| factor * f64::from(round)).collect();
        Bars {
            title: "Bytes",
            description: "Down and up.",
            unit: "MB",
            decimals: 1,
            rounds,
            stacks: vec![
                Stack { name: "down", class: "series-1", amounts: amounts(1.0) },
                Stack { name: "up", class: "series-2", amounts: amounts(0.5) },
            ],
        }
    }

    #[test]
    fn no_rounds_are_no_chart() {
        assert!(bars(&[]).draw().is_none());
    }

    #[test]
    fn few_rounds_have_a_bar_each() {
        let svg = bars(&[1, 2, 3]).draw().expect("rounds").into_string();
        assert_eq!(svg.matches("<title>round ").count(), 3);
        assert!(svg.contains("<title>round 2: down 2.0 MB, up 1.0 MB</title>"), "{svg}");
        assert_eq!(svg.matches('z').count(), 6, "two parts of three bars");
    }

    #[test]
    fn many_rounds_are_grouped_and_nothing_is_left_out() {
        let rounds: Vec<u32> = (1..=1000).collect();
        let bars = bars(&rounds);
        let svg = bars.draw().expect("rounds").into_string();
        assert!(
            svg.matches("<title>rounds ").count() <= BARS && svg.contains("the mean of 6 rounds"),
            "{svg}"
        );
        let total: f64 = (0..1000)
            .step_by(6)
            .map(|start| bars.group(start, 6))
            .map(|group| group.means[0] * f64::from(group.last - group.first + 1))
            .sum();
        assert!((total - 500_500.0).abs() < 1e-6, "{total}");
        assert!(svg.contains("rounds 997 to 1000, mean: down 998.5 MB"), "{svg}");
    }
}
