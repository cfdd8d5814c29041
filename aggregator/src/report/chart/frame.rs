//! What all charts over rounds share: size, axes, grid, and what a pointer shows of a round.

use maud::{Markup, html};

use super::scale::Scale;

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 230.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = WIDTH - 16.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = HEIGHT - 34.0;

/// The axes of a chart over rounds.
pub(super) struct Frame {
    x: Scale,
    y: Scale,
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

impl Frame {
    pub(super) fn new(rounds: u32, y: Scale) -> Self {
        Self { x: Scale::rounds(rounds), y }
    }

    /// The horizontal place of a round; fractions of rounds lie between.
    pub(super) fn x(&self, round: f64) -> f64 {
        self.x.place(round, LEFT, RIGHT)
    }

    /// The vertical place of a value.
    pub(super) fn y(&self, value: f64) -> f64 {
        self.y.place(value, BOTTOM, TOP)
    }

    /// Whether a value lies in the upper half.
    pub(super) fn is_high(&self, value: f64) -> bool {
        self.y(value) < f64::midpoint(TOP, BOTTOM)
    }

    pub(super) fn left() -> f64 {
        LEFT
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
                        line x1=(px(LEFT)) x2=(px(RIGHT)) y1=(px(self.y(tick))) y2=(px(self.y(tick))) {}
                    }
                }
                g.ticks {
                    @for &tick in &self.y.ticks {
                        text x=(px(LEFT - 8.0)) y=(px(self.y(tick) + 4.0)) text-anchor="end" { (self.y.label(tick)) @if !content.unit.is_empty() { " " (content.unit) } }
                    }
                    @for &tick in &self.x.ticks {
                        text x=(px(self.x(tick))) y=(px(BOTTOM + 17.0)) text-anchor="middle" { (self.x.label(tick)) }
                    }
                    text x=(px(f64::midpoint(LEFT, RIGHT))) y=(px(HEIGHT - 3.0)) text-anchor="middle" { "round" }
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

/// A coordinate: a tenth of a unit is finer than any screen.
pub(super) fn px(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}
