//! Strip plots: a strip per set of values, a dot per value, and the quartiles below the dots.

use maud::{Markup, html};

use super::frame::px;
use super::scale::Scale;

/// One set of values.
pub(crate) struct Strip<'a> {
    /// Its name, before the strip.
    pub(crate) name: &'a str,
    /// Its class in the style sheet, which gives it its colour.
    pub(crate) class: &'a str,
    /// Its values. Those that are not finite are left out.
    pub(crate) values: Vec<f64>,
}

/// A chart of strips on one axis.
pub(crate) struct Strips<'a> {
    pub(crate) title: &'a str,
    pub(crate) description: &'a str,
    pub(crate) unit: &'a str,
    /// The greatest value that can be, if there is one: the axis does not go beyond.
    pub(crate) ceiling: Option<f64>,
    pub(crate) sets: Vec<Strip<'a>>,
}

const WIDTH: f64 = 560.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = WIDTH - 24.0;
/// Height of one strip.
const STRIP: f64 = 56.0;
/// What a strip has for its dots; below them are the quartiles.
const DOTS: f64 = 34.0;
const RADIUS: f64 = 3.0;
const TOP: f64 = 8.0;
/// Longer names are cut: there is no room for them.
const NAME: usize = 22;

/// The least value, the three quartiles and the greatest value; `None` without values.
///
/// A quartile lies between two values if it falls between them.
#[must_use]
pub(crate) fn quartiles(values: &[f64]) -> Option<[f64; 5]> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    Some([0.0, 0.25, 0.5, 0.75, 1.0].map(|share| {
        let place = share * last as f64;
        let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
        below + (above - below) * place.fract()
    }))
}

impl Strips<'_> {
    /// The chart; `None` if there is no value to show.
    pub(crate) fn draw(mut self) -> Option<Markup> {
        for strip in &mut self.sets {
            strip.values.retain(|value| value.is_finite());
            strip.values.sort_by(f64::total_cmp);
        }
        self.sets.retain(|strip| !strip.values.is_empty());
        let values = || self.sets.iter().flat_map(|strip| &strip.values).copied();
        let (least, greatest) = (values().reduce(f64::min)?, values().reduce(f64::max)?);
        let mut scale = Scale::containing(least, greatest, 5);
        if let Some(ceiling) = self.ceiling {
            scale.ticks.retain(|&tick| tick <= ceiling);
            scale.high = scale.high.min(ceiling).max(greatest);
        }
        let x = |value: f64| scale.place(value, LEFT, RIGHT);
        let bottom = TOP + STRIP * self.sets.len() as f64;
        let unit = if self.unit.is_empty() { String::new() } else { format!(" {}", self.unit) };
        Some(html! {
            svg.chart viewBox=(format!("0 0 {WIDTH} {}", px(bottom + 22.0))) role="img"
                aria-label=(format!("{}. {}", self.title, self.description)) {
                title { (self.title) }
                desc { (self.description) }
                g.grid {
                    @for &tick in &scale.ticks { line x1=(px(x(tick))) x2=(px(x(tick))) y1=(px(TOP)) y2=(px(bottom)) {} }
                }
                g.ticks {
                    @for &tick in &scale.ticks {
                        text x=(px(x(tick))) y=(px(bottom + 16.0)) text-anchor="middle" { (scale.label(tick)) (unit) }
                    }
                }
                @for (row, strip) in self.sets.iter().enumerate() {
                    @let top = TOP + STRIP * row as f64;
                    g class=(format!("strip {}", strip.class)) {
                        text x=(px(LEFT - 10.0)) y=(px(top + DOTS)) text-anchor="end" { (cut(strip.name)) }
                        @for (place, height) in stacked(strip.values.iter().map(|&value| x(value))) {
                            circle cx=(px(place)) cy=(px(top + DOTS - RADIUS - height)) r=(px(RADIUS)) {}
                        }
                        @if let Some([least, first, median, third, greatest]) = quartiles(&strip.values) {
                            @let y = px(top + DOTS + 8.0);
                            line.range x1=(px(x(least))) x2=(px(x(greatest))) y1=(y) y2=(y) {}
                            line.middle x1=(px(x(first))) x2=(px(x(third))) y1=(y) y2=(y) {}
                            circle.median cx=(px(x(median))) cy=(y) r="4" {}
                            rect.over x=(px(LEFT)) width=(px(RIGHT - LEFT)) y=(px(top)) height=(px(STRIP)) {
                                title {
                                    (strip.name) ": " (strip.values.len()) " values, median "
                                    (format!("{median:.1}")) (unit) ", half of them from " (format!("{first:.1}")) " to "
                                    (format!("{third:.1}")) (unit) ", all from " (format!("{least:.1}")) " to " (format!("{greatest:.1}")) (unit)
                                }
                            }
                        }
                    }
                }
            }
        })
    }
}

fn cut(name: &str) -> String {
    if name.chars().count() <= NAME {
        return name.to_owned();
    }
    name.chars().take(NAME - 3).chain("...".chars()).collect()
}

/// Dots at these places, ascending, with their heights: those that would cover each other are piled up, the more closely the
/// more there are.
fn stacked(places: impl Iterator<Item = f64>) -> Vec<(f64, f64)> {
    let mut piles: Vec<(f64, usize)> = Vec::new();
    for place in places {
        match piles.last_mut() {
            Some((of, count)) if place - *of < 2.0 * RADIUS => *count += 1,
            _ => piles.push((place, 1)),
        }
    }
    let highest = piles.iter().map(|&(_, count)| count).max().unwrap_or(1);
    let step = (2.0 * RADIUS).min((DOTS - 2.0 * RADIUS) / (highest.max(2) - 1) as f64);
    let pile = |(place, count): (f64, usize)| (0..count).map(move |level| (place, level as f64 * step));
    piles.into_iter().flat_map(pile).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(strips: &[(&'static str, &[f64])]) -> Option<String> {
        let strips =
            strips.iter().map(|&(name, values)| Strip { name, class: "series-1", values: values.to_vec() });
        let (title, description, unit) = ("Accuracy", "It differs.", "%");
        let chart = Strips { title, description, unit, ceiling: Some(100.0), sets: strips.collect() };
        chart.draw().map(maud::PreEscaped::into_string)
    }

    #[test]
    fn quartiles_lie_between_values() {
        assert_eq!(quartiles(&[]), None);
        assert_eq!(quartiles(&[f64::NAN]), None);
        assert_eq!(quartiles(&[3.0]), Some([3.0; 5]));
        assert_eq!(quartiles(&[4.0, 1.0, 3.0, 2.0]), Some([1.0, 1.75, 2.5, 3.25, 4.0]));
        assert_eq!(quartiles(&[5.0, 1.0, 3.0, 2.0, 4.0]), Some([1.0, 2.0, 3.0, 4.0, 5.0]));
    }

    #[test]
    fn every_value_is_a_dot_and_none_leaves_the_chart() {
        assert_eq!(chart(&[("none", &[]), ("no number", &[f64::NAN])]), None);
        let svg = chart(&[("a", &[97.0, 99.5, f64::INFINITY]), ("b", &[99.0])]).expect("values");
        // And a median each.
        assert_eq!(svg.matches("<circle").count(), 3 + 2, "{svg}");
        assert!(svg.contains(">99.5 %</text>") && !svg.contains(">101") && !svg.contains("NaN"), "{svg}");
        assert!(
            svg.contains("a: 2 values, median 98.2 %") || svg.contains("a: 2 values, median 98.3 %"),
            "{svg}"
        );
    }

    #[test]
    fn piles_stay_within_their_strip() {
        let many = stacked(std::iter::repeat_n(10.0, 500).chain([30.0]));
        assert_eq!(many.len(), 501);
        assert!(many.iter().all(|&(_, height)| height <= DOTS - 2.0 * RADIUS + 1e-9));
        assert_eq!(stacked([1.0, 2.0, 9.0].into_iter()), [(1.0, 0.0), (1.0, 6.0), (9.0, 0.0)]);
    }

    #[test]
    fn long_names_are_cut() {
        assert_eq!((cut("short"), cut(&"x".repeat(30)).len()), ("short".to_owned(), NAME));
    }
}
