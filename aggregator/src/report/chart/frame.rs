//! What all charts over rounds, or over values that are counted like them, share: size, axes, grid, and what a pointer shows.

use maud::{Markup, html};

use super::scale::Scale;

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 230.0;
/// The least room for the labels of the vertical axis.
const LEAST_LEFT: f64 = 44.0;
/// Between these labels and the axis.
const GAP: f64 = 8.0;
const RIGHT: f64 = WIDTH - 16.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = HEIGHT - 34.0;

/// What lies on the horizontal axis, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Axis<'a> {
    /// Rounds up to this one.
    Rounds(u32),
    /// Rounds from one to another.
    Part {
        /// The first.
        from: u32,
        /// The last.
        to: u32,
    },
    /// This number of values of another kind, evenly spaced.
    Values {
        /// What they are of.
        name: &'a str,
        /// How many.
        count: u32,
        /// The first.
        from: f64,
        /// The last.
        to: f64,
    },
}

impl Axis<'_> {
    /// How many places there are.
    pub(super) fn count(self) -> u32 {
        match self {
            Self::Rounds(count) | Self::Values { count, .. } => count,
            Self::Part { from, to } => to - from + 1,
        }
    }

    /// Whether a place lies on it.
    pub(super) fn holds(self, place: u32) -> bool {
        match self {
            Self::Part { from, to } => (from..=to).contains(&place),
            Self::Rounds(_) | Self::Values { .. } => true,
        }
    }

    fn scale(self) -> Scale {
        match self {
            Self::Part { from, to } => Scale::rounds(from, to),
            Self::Rounds(count) | Self::Values { count, .. } => Scale::rounds(1, count),
        }
    }

    /// What is at a place: `round 7`.
    pub(super) fn says(self, place: u32) -> String {
        match self {
            Self::Rounds(_) | Self::Part { .. } => format!("round {place}"),
            Self::Values { name, count, from, to } => {
                let value = from + (to - from) * f64::from(place - 1) / f64::from(count.max(2) - 1);
                // Rounding can leave "-0.00".
                let value = if value.abs() < 0.005 { 0.0 } else { value };
                format!("{name} {value:.2}")
            }
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Rounds(_) | Self::Part { .. } => "round",
            Self::Values { name, .. } => name,
        }
    }

    /// Places with their labels.
    fn ticks(self) -> Vec<(f64, String)> {
        match self {
            Self::Rounds(_) | Self::Part { .. } => {
                let scale = self.scale();
                scale.ticks.iter().map(|&tick| (tick, scale.label(tick))).collect()
            }
            Self::Values { count, from, to, .. } => {
                let scale = Scale::containing(from, to, 8);
                let place = |tick: f64| 1.0 + (tick - from) / (to - from) * (f64::from(count) - 1.0);
                let within = |tick: &&f64| (from.min(to) - 1e-9..=from.max(to) + 1e-9).contains(*tick);
                if (to - from).abs() < 1e-9 {
                    return Vec::new();
                }
                scale.ticks.iter().filter(within).map(|&tick| (place(tick), scale.label(tick))).collect()
            }
        }
    }
}

/// The axes of a chart over rounds.
pub(super) struct Frame<'a> {
    axis: Axis<'a>,
    x: Scale,
    y: Scale,
    left: f64,
}

/// What is drawn besides the axes.
pub(super) struct Content<'a> {
    /// Names the chart in one phrase.
    pub(super) title: &'a str,
    /// Says in a sentence what it shows.
    pub(super) description: &'a str,
    /// The unit of the values; empty for a bare number.
    pub(super) unit: &'a str,
    /// Lines or bars.
    pub(super) marks: Markup,
    /// First and last round of a column and its text, for a pointer.
    pub(super) columns: &'a [(u32, u32, String)],
}

impl<'a> Frame<'a> {
    /// `unit` stands behind every label of the vertical axis, whose room follows from the longest of them.
    pub(super) fn new(axis: Axis<'a>, y: Scale, unit: &str) -> Self {
        let widest = y.ticks.iter().map(|&tick| width(&labelled(&y, tick, unit))).fold(0.0, f64::max);
        Self { axis, x: axis.scale(), left: (widest + GAP).max(LEAST_LEFT), y }
    }

    /// The horizontal place of a round; fractions of rounds lie between.
    pub(super) fn x(&self, round: f64) -> f64 {
        self.x.place(round, self.left, RIGHT)
    }

    /// The vertical place of a value.
    pub(super) fn y(&self, value: f64) -> f64 {
        self.y.place(value, BOTTOM, TOP)
    }

    /// Whether a value lies on the vertical axis.
    pub(super) fn contains(&self, value: f64) -> bool {
        (self.y.low..=self.y.high).contains(&value)
    }

    pub(super) fn left(&self) -> f64 {
        self.left
    }

    pub(super) fn right() -> f64 {
        RIGHT
    }

    /// The chart with its axes.
    pub(super) fn draw(&self, content: &Content<'_>) -> Markup {
        html! {
            svg.chart viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img"
                aria-label=(format!("{}. {}", content.title, content.description)) {
                title { (content.title) }
                desc { (content.description) }
                g.grid {
                    @for &tick in &self.y.ticks {
                        line x1=(px(self.left)) x2=(px(RIGHT)) y1=(px(self.y(tick))) y2=(px(self.y(tick))) {}
                    }
                }
                g.ticks {
                    @for &tick in &self.y.ticks {
                        text x=(px(self.left - GAP)) y=(px(self.y(tick) + 4.0)) text-anchor="end" { (labelled(&self.y, tick, content.unit)) }
                    }
                    @for (tick, label) in self.axis.ticks() {
                        text x=(px(self.x(tick))) y=(px(BOTTOM + 17.0)) text-anchor="middle" { (label) }
                    }
                    text x=(px(f64::midpoint(self.left, RIGHT))) y=(px(HEIGHT - 3.0)) text-anchor="middle" { (self.axis.name()) }
                }
                (content.marks)
                g.columns {
                    @for (first, last, says) in content.columns {
                        @let (start, end) = (self.x(f64::from(*first) - 0.5), self.x(f64::from(*last) + 0.5));
                        rect x=(px(start)) width=(px(end - start)) y=(px(TOP)) height=(px(BOTTOM - TOP)) {
                            title { (says) }
                        }
                    }
                }
            }
        }
    }
}

fn labelled(scale: &Scale, tick: f64, unit: &str) -> String {
    let label = scale.label(tick);
    if unit.is_empty() { label } else { format!("{label} {unit}") }
}

/// The width of a label in the largest type that the style sheet gives it, that of narrow screens, with the widest of usual
/// fonts.
fn width(label: &str) -> f64 {
    const SIZE: f64 = 15.0;
    let em = |letter: char| match letter {
        ' ' | '.' | ',' => 0.33,
        '-' => 0.4,
        'm' | 'M' | 'w' | 'W' | '%' => 0.98,
        _ => 0.65,
    };
    label.chars().map(em).sum::<f64>() * SIZE
}

/// A coordinate: a tenth of a unit is finer than any screen.
pub(super) fn px(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_label_has_room_beside_the_axis() {
        let room = |high, unit| Frame::new(Axis::Rounds(3), Scale::containing(0.0, high, 4), unit).left();
        assert!((room(1.0, "") - LEAST_LEFT).abs() < 1e-9);
        // As DejaVu Sans has it, which is wide: "300 ms" takes 56 units.
        assert!(room(300.0, "ms") > 56.0 + GAP, "{}", room(300.0, "ms"));
        assert!(room(20_000.0, "ms") > room(300.0, "ms"));
    }
}
