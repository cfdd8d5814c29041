//! Values over rounds, as lines.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::frame::{Axis, Content, Frame, px};
use super::scale::Scale;

/// One line.
pub(crate) struct Line<'a> {
    /// Its name in the legend.
    pub(crate) name: &'a str,
    /// Its class in the style sheet, which gives it its colour.
    pub(crate) class: &'a str,
    /// Rounds, or places on the axis, and values, in their order. Values that are not finite are left out.
    pub(crate) points: Vec<(u32, f64)>,
}

/// Where the value axis begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Floor {
    /// At zero.
    Zero,
    /// Near the smallest value.
    Data,
}

/// A chart of lines.
pub(crate) struct Lines<'a> {
    pub(crate) title: &'a str,
    pub(crate) description: &'a str,
    pub(crate) unit: &'a str,
    pub(crate) floor: Floor,
    /// The greatest value that can be, if there is one: the axis does not go beyond.
    pub(crate) ceiling: Option<f64>,
    /// A level to draw across, with its name.
    pub(crate) target: Option<(f64, String)>,
    /// What the values are over.
    pub(crate) axis: Axis<'a>,
    pub(crate) series: Vec<Line<'a>>,
}

/// From this many points on, each is not marked any more.
const MARKED: usize = 40;
/// From this many rounds on, columns are too narrow to point at.
const POINTED: u32 = 400;

impl Lines<'_> {
    /// The chart; `None` if there is no value to show.
    pub(crate) fn draw(mut self) -> Option<Markup> {
        for line in &mut self.series {
            line.points.retain(|(_, value)| value.is_finite());
        }
        self.series.retain(|line| !line.points.is_empty());
        let values = || {
            let points = self.series.iter().flat_map(|line| &line.points).map(|&(_, value)| value);
            points.chain(self.target.iter().map(|&(level, _)| level))
        };
        if self.series.is_empty() {
            return None;
        }
        let least = match self.floor {
            Floor::Zero => 0.0,
            Floor::Data => values().fold(f64::INFINITY, f64::min),
        };
        let mut y = Scale::containing(least, values().fold(f64::NEG_INFINITY, f64::max), 5);
        if let Some(ceiling) = self.ceiling {
            y.ticks.retain(|&tick| tick <= ceiling);
            y.high = y.high.min(ceiling).max(y.ticks.last().copied().unwrap_or(ceiling));
        }
        let frame = Frame::new(self.axis, y);
        let marks = html! {
            @if let Some((level, name)) = &self.target {
                line.target x1=(px(Frame::left())) x2=(px(Frame::right())) y1=(px(frame.y(*level))) y2=(px(frame.y(*level))) {}
                @let beside = if frame.is_high(*level) { 15.0 } else { -6.0 };
                text.target x=(px(Frame::right() - 4.0)) y=(px(frame.y(*level) + beside)) text-anchor="end" { (name) }
            }
            @for line in &self.series {
                @if line.points.len() > 1 {
                    polyline class=(line.class) points=(path(&frame, &line.points)) {}
                }
                @if line.points.len() <= MARKED {
                    @for &(round, value) in &line.points {
                        circle class=(line.class) cx=(px(frame.x(round.into()))) cy=(px(frame.y(value))) r="3" {}
                    }
                }
            }
        };
        let columns = if self.axis.count() < POINTED { self.columns() } else { Vec::new() };
        let svg = frame.draw(&Content {
            title: self.title,
            description: self.description,
            unit: self.unit,
            marks,
            columns: &columns,
        });
        Some(html! {
            @if self.series.len() > 1 {
                ul.legend { @for line in &self.series { li class=(line.class) { (line.name) } } }
            }
            (svg)
        })
    }

    /// What each round shows under a pointer.
    fn columns(&self) -> Vec<(u32, u32, String)> {
        let mut said: BTreeMap<u32, Vec<String>> = BTreeMap::new();
        for line in &self.series {
            for &(round, value) in &line.points {
                let unit = if self.unit.is_empty() { String::new() } else { format!(" {}", self.unit) };
                let digits = if self.unit.is_empty() { 3 } else { 1 };
                said.entry(round).or_default().push(format!("{} {value:.digits$}{unit}", line.name));
            }
        }
        said.into_iter()
            .map(|(round, values)| {
                (round, round, format!("{}: {}", self.axis.says(round), values.join(", ")))
            })
            .collect()
    }
}

fn path(frame: &Frame<'_>, points: &[(u32, f64)]) -> String {
    let place =
        |&(round, value): &(u32, f64)| format!("{},{}", px(frame.x(f64::from(round))), px(frame.y(value)));
    points.iter().map(place).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(points: Vec<(u32, f64)>) -> Lines<'static> {
        Lines {
            title: "Accuracy",
            description: "It grows.",
            unit: "%",
            floor: Floor::Data,
            ceiling: Some(100.0),
            target: None,
            axis: Axis::Rounds(3),
            series: vec![Line { name: "test", class: "series-1", points }],
        }
    }

    #[test]
    fn nothing_to_show_is_no_chart() {
        assert!(lines(vec![]).draw().is_none());
        assert!(lines(vec![(1, f64::NAN), (2, f64::INFINITY)]).draw().is_none());
    }

    #[test]
    fn one_point_is_a_mark_and_no_line() {
        let svg = lines(vec![(1, 50.0)]).draw().expect("one value").into_string();
        assert_eq!((svg.matches("<circle").count(), svg.matches("<polyline").count()), (1, 0));
        assert!(svg.contains("<title>round 1: test 50.0 %</title>"), "{svg}");
    }

    #[test]
    fn the_axis_stops_at_the_ceiling_and_values_stay_inside() {
        let svg = lines(vec![(1, 97.0), (2, 98.0), (3, 99.9)]).draw().expect("values").into_string();
        assert!(svg.contains(">100 %</text>") && !svg.contains(">101"), "{svg}");
        assert!(svg.contains("<polyline") && !svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn other_things_than_rounds_have_their_own_names_and_values() {
        let axis = Axis::Values { name: "theta", count: 15, from: -0.2, to: 1.2 };
        let svg = Lines { axis, ..lines(vec![(1, 50.0), (3, 20.0), (15, 60.0)]) }.draw().expect("values");
        let svg = svg.into_string();
        for part in [
            "<title>theta -0.20: test 50.0 %</title>",
            "<title>theta 0.00: ",
            "<title>theta 1.20: ",
            ">theta</text>",
        ] {
            assert!(svg.contains(part), "{part:?} is not in: {svg}");
        }
        // A tick stands where the mark of its value does.
        let (before, _) = svg.split_once(">0.0</text>").expect("a tick");
        let (_, x) = before.rsplit_once("<text x=\"").expect("its place");
        let (x, _) = x.split_once('"').expect("a number");
        assert!(svg.contains(&format!("cx=\"{x}\"")), "{x}: {svg}");
        assert!(!svg.contains("round"), "{svg}");
    }
}
