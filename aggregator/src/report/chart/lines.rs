//! Values over rounds, as lines.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::closer;
use super::frame::{Axis, Content, Frame, px};
use super::scale::Scale;
use super::thinned::thinned;

/// One line.
#[derive(Default)]
pub(crate) struct Line<'a> {
    /// Its name in the legend.
    pub(crate) name: &'a str,
    /// Its class in the style sheet, which gives it its colour.
    pub(crate) class: &'a str,
    /// Rounds, or places on the axis, and values, in their order. Values that are not finite are left out.
    pub(crate) points: Vec<(u32, f64)>,
    /// The runs that it is the mean of: they are drawn faintly, with a band from the least to the greatest as far as the mean
    /// goes. One run alone is the line itself.
    pub(crate) runs: Vec<Vec<(u32, f64)>>,
}

impl Line<'_> {
    fn retain_finite(&mut self) {
        self.points.retain(|(_, value)| value.is_finite());
        if self.runs.len() < 2 {
            self.runs.clear();
        }
        for run in &mut self.runs {
            run.retain(|(_, value)| value.is_finite());
        }
    }

    /// All that is drawn of it.
    fn all_points(&self) -> impl Iterator<Item = (u32, f64)> {
        self.points.iter().chain(self.runs.iter().flatten()).copied()
    }

    /// The least and the greatest value of the runs at the places of the mean, in their order.
    fn band(&self) -> Vec<(u32, f64, f64)> {
        let mut at: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
        for &(place, value) in self.runs.iter().flatten() {
            let (low, high) = at.entry(place).or_insert((value, value));
            (*low, *high) = (low.min(value), high.max(value));
        }
        let of = |&(place, _): &(u32, f64)| at.get(&place).map(|&(low, high)| (place, low, high));
        self.points.iter().filter_map(of).collect()
    }
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
    /// A level to draw across, with its name in the legend.
    pub(crate) target: Option<(f64, String)>,
    /// A point to mark, with its name in the legend.
    pub(crate) mark: Option<(u32, f64, String)>,
    /// Whether the part where all lines have almost come to rest is drawn once more, on an axis of its own.
    pub(crate) closer: bool,
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
        self.series.iter_mut().for_each(Line::retain_finite);
        self.series.retain(|line| line.all_points().next().is_some());
        if self.series.is_empty() {
            return None;
        }
        let svg = self.svg(self.axis, self.description);
        let points: Vec<(u32, f64)> = self.series.iter().flat_map(Line::all_points).collect();
        let closer = match self.axis {
            Axis::Rounds(last) if self.closer => {
                closer::begins(&points).map(|from| (from, Axis::Part { from, to: last.max(from) }))
            }
            _ => None,
        };
        Some(html! {
            (self.legend())
            (svg)
            @if let Some((from, axis)) = closer {
                @let said = format!("The same from round {from} on, on a closer axis.");
                p.note { (said) }
                (self.svg(axis, &said))
            }
        })
    }

    fn legend(&self) -> Markup {
        let several = self.series.iter().any(|line| !line.runs.is_empty());
        if self.series.len() < 2 && !several && self.target.is_none() && self.mark.is_none() {
            return html! {};
        }
        html! {
            ul.legend {
                @for line in &self.series { li class=(line.class) { (line.name) } }
                @if several {
                    li.mean { "mean, as far as all seeds go" }
                    li.block.band { "from the least to the greatest seed" }
                    li.faint { "one seed" }
                }
                @if let Some((_, name)) = &self.target { li.target.dashed { (name) } }
                @if let Some((_, _, name)) = &self.mark { li.best { (name) } }
            }
        }
    }

    /// The chart over `axis`.
    fn svg(&self, axis: Axis<'_>, description: &str) -> Markup {
        let part = matches!(axis, Axis::Part { .. });
        let shown = |place: u32| axis.holds(place);
        let level = self.target.iter().filter(|_| !part).map(|&(level, _)| level);
        let values = || {
            let points = self.series.iter().flat_map(Line::all_points).filter(|&(place, _)| shown(place));
            points.map(|(_, value)| value).chain(level.clone())
        };
        let least = match self.floor {
            Floor::Zero if !part => 0.0,
            _ => values().fold(f64::INFINITY, f64::min),
        };
        let mut y = Scale::containing(least, values().fold(f64::NEG_INFINITY, f64::max), 5);
        if let Some(ceiling) = self.ceiling {
            y.ticks.retain(|&tick| tick <= ceiling);
            y.high = y.high.min(ceiling).max(y.ticks.last().copied().unwrap_or(ceiling));
        }
        let frame = Frame::new(axis, y, self.unit);
        let within = |points: &[(u32, f64)]| -> Vec<(u32, f64)> {
            points.iter().copied().filter(|&(place, _)| shown(place)).collect()
        };
        let target = self.target.as_ref().filter(|(level, _)| frame.contains(*level));
        let marks = html! {
            @for line in &self.series {
                @if let Some(outline) = band(&frame, &line.band(), shown) {
                    polygon.band.(line.class) points=(outline) {}
                }
            }
            @if let Some((level, _)) = target {
                line.target x1=(px(frame.left())) x2=(px(Frame::right())) y1=(px(frame.y(*level))) y2=(px(frame.y(*level))) {}
            }
            @for line in &self.series {
                @for run in &line.runs {
                    polyline.faint.(line.class) points=(path(&frame, &within(run))) {}
                }
            }
            @for line in &self.series {
                @let points = within(&line.points);
                @if points.len() > 1 {
                    polyline class=(line.class) points=(path(&frame, &points)) {}
                }
                @if points.len() <= MARKED {
                    @for &(round, value) in &points {
                        circle class=(line.class) cx=(px(frame.x(round.into()))) cy=(px(frame.y(value))) r="3" {}
                    }
                }
            }
            @if let Some((round, value, name)) = self.mark.as_ref().filter(|(round, ..)| shown(*round)) {
                circle.best cx=(px(frame.x(f64::from(*round)))) cy=(px(frame.y(*value))) r="6" { title { (name) } }
            }
        };
        let columns = if axis.count() < POINTED { self.columns(axis) } else { Vec::new() };
        let title = if part { format!("{}, closer", self.title) } else { self.title.to_owned() };
        frame.draw(&Content { title: &title, description, unit: self.unit, marks, columns: &columns })
    }

    /// What each round shows under a pointer.
    fn columns(&self, axis: Axis<'_>) -> Vec<(u32, u32, String)> {
        let mut said: BTreeMap<u32, Vec<String>> = BTreeMap::new();
        let unit = if self.unit.is_empty() { String::new() } else { format!(" {}", self.unit) };
        let digits = if self.unit.is_empty() { 3 } else { 1 };
        for line in &self.series {
            let band: BTreeMap<u32, (f64, f64)> =
                line.band().into_iter().map(|(place, low, high)| (place, (low, high))).collect();
            for &(round, value) in line.points.iter().filter(|(round, _)| axis.holds(*round)) {
                let range = band
                    .get(&round)
                    .map_or_else(String::new, |(low, high)| format!(" ({low:.digits$} to {high:.digits$})"));
                said.entry(round).or_default().push(format!("{} {value:.digits$}{unit}{range}", line.name));
            }
        }
        said.into_iter()
            .map(|(round, values)| (round, round, format!("{}: {}", axis.says(round), values.join(", "))))
            .collect()
    }
}

/// The outline of a band, there and back; `None` if it has no extent.
fn band(frame: &Frame<'_>, band: &[(u32, f64, f64)], shown: impl Fn(u32) -> bool) -> Option<String> {
    let band: Vec<_> = band.iter().filter(|(place, ..)| shown(*place)).collect();
    if band.len() < 2 {
        return None;
    }
    let there: Vec<_> = band.iter().map(|&&(place, low, _)| (place, low)).collect();
    let back: Vec<_> = band.iter().rev().map(|&&(place, _, high)| (place, high)).collect();
    Some([path(frame, &there), path(frame, &back)].join(" "))
}

fn path(frame: &Frame<'_>, points: &[(u32, f64)]) -> String {
    let place =
        |&(round, value): &(u32, f64)| format!("{},{}", px(frame.x(f64::from(round))), px(frame.y(value)));
    thinned(points).iter().map(place).collect::<Vec<_>>().join(" ")
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
            mark: None,
            closer: false,
            axis: Axis::Rounds(3),
            series: vec![Line { name: "test", class: "series-1", points, runs: Vec::new() }],
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
    fn the_runs_behind_a_mean_are_drawn_with_their_band_as_far_as_it_goes() {
        let mut chart = lines(vec![(1, 50.0), (2, 60.0)]);
        chart.series[0].runs = vec![vec![(1, 40.0), (2, 55.0)], vec![(1, 60.0), (2, 65.0), (3, 90.0)]];
        let svg = chart.draw().expect("values").into_string();
        assert_eq!(svg.matches("<polyline class=\"faint series-1\"").count(), 2, "{svg}");
        assert_eq!(svg.matches("<polygon class=\"band series-1\"").count(), 1, "{svg}");
        for part in [
            "round 1: test 50.0 % (40.0 to 60.0)",
            "mean, as far as all seeds go",
            "from the least to the greatest seed",
        ] {
            assert!(svg.contains(part), "{part:?} is not in: {svg}");
        }
        assert!(!svg.contains("round 3: test"), "one seed is no mean: {svg}");
        let mut alone = lines(vec![(1, 50.0), (2, 60.0)]);
        alone.series[0].runs = vec![vec![(1, 50.0), (2, 60.0)]];
        let svg = alone.draw().expect("values").into_string();
        assert!(!svg.contains("faint") && !svg.contains("legend"), "{svg}");
    }

    #[test]
    fn a_target_and_the_best_round_stand_in_the_legend_and_cover_no_curve() {
        let mut chart = lines(vec![(1, 50.0), (2, 60.0)]);
        chart.target = Some((95.0, "target 95.0 %".to_owned()));
        chart.mark = Some((2, 60.0, "best, round 2: 60.0 %".to_owned()));
        let svg = chart.draw().expect("values").into_string();
        assert!(svg.contains("<li class=\"target dashed\">target 95.0 %</li>"), "{svg}");
        assert!(svg.contains("<line class=\"target\"") && !svg.contains("<text class=\"target\""), "{svg}");
        assert!(
            svg.contains("<circle class=\"best\"") && svg.contains("best, round 2: 60.0 %</li>"),
            "{svg}"
        );
    }

    #[test]
    fn where_a_line_came_to_rest_it_is_drawn_again_closer() {
        let mut chart = lines(
            (1..=50)
                .map(|round| (round, if round < 5 { 10.0 } else { 97.0 + f64::from(round % 3) / 10.0 }))
                .collect(),
        );
        (chart.axis, chart.closer) = (Axis::Rounds(50), true);
        let svg = chart.draw().expect("values").into_string();
        assert_eq!(svg.matches("<svg").count(), 2);
        assert!(svg.contains("The same from round 5 on") && svg.contains(">97.20 %</text>"), "{svg}");
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
