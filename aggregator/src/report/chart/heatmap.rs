//! The labels of every client: a column per client, a row per class, the darker the more samples, and the clients'
//! sizes above.

use maud::{Markup, html};

use super::frame::px;
use super::scale::Scale;
use crate::report::units::counted;

/// The greatest number of clients drawn; the page says so when there are more.
pub(in crate::report) const DRAWN: usize = 200;

const LEFT: f64 = 52.0;
/// Room for half of the last client's number.
const RIGHT: f64 = 16.0;
const TOP: f64 = 10.0;
/// Height of the bars of sizes, and the gap below them.
const SIZES: f64 = 60.0;
const GAP: f64 = 10.0;
const ROW: f64 = 22.0;
/// Cells from this width on show their numbers.
const NUMBERED: f64 = 30.0;
/// Shades, from few to many samples. One path is drawn for each, which keeps a page of many clients small.
pub(super) const SHADES: usize = 10;

/// Every client's name and its number of samples of each class, by the name of the class if it has one.
pub(in crate::report) fn heatmap(
    clients: &[(String, Vec<usize>)],
    names: &[String],
    description: &str,
) -> Markup {
    let clients = &clients[..clients.len().min(DRAWN)];
    let classes = clients.iter().map(|(_, counts)| counts.len()).max().unwrap_or(0);
    let greatest = clients.iter().flat_map(|(_, counts)| counts).copied().max().unwrap_or(0);
    let total = |counts: &[usize]| counts.iter().sum::<usize>();
    let largest = clients.iter().map(|(_, counts)| total(counts)).max().unwrap_or(0);

    let cell = (1000.0 / clients.len().max(1) as f64).clamp(5.0, 64.0);
    let rows = TOP + SIZES + GAP;
    let (width, height) = (LEFT + cell * clients.len() as f64 + RIGHT, rows + ROW * classes as f64 + 38.0);
    let sizes = Scale::containing(0.0, largest as f64, 3);
    let x = |client: usize| LEFT + cell * client as f64;
    let size_y = |size: f64| sizes.place(size, TOP + SIZES, TOP);
    let class_y = |class: usize| rows + ROW * class as f64;
    let gap = (cell * 0.06).clamp(0.4, 1.0);

    html! {
        div.scroll {
            svg.chart.heatmap viewBox=(format!("0 0 {} {}", px(width), px(height))) role="img"
                style=(format!("width:{}px", px(width))) aria-label=(format!("Labels of every client. {description}")) {
                title { "Labels of every client" }
                desc { (description) }
                g.grid {
                    @for &tick in &sizes.ticks {
                        line x1=(px(LEFT)) x2=(px(width - RIGHT)) y1=(px(size_y(tick))) y2=(px(size_y(tick))) {}
                    }
                }
                g.ticks {
                    @for &tick in &sizes.ticks {
                        text x=(px(LEFT - 8.0)) y=(px(size_y(tick) + 4.0)) text-anchor="end" { (sizes.label(tick)) }
                    }
                    @for class in 0..classes {
                        text x=(px(LEFT - 8.0)) y=(px(class_y(class) + ROW / 2.0 + 4.0)) text-anchor="end" { (axis_name(names, class)) }
                    }
                    @for client in (0..clients.len()).filter(|&client| labelled(client, cell)) {
                        text x=(px(x(client) + cell / 2.0)) y=(px(class_y(classes) + 16.0)) text-anchor="middle" { (client) }
                    }
                    text x=(px(f64::midpoint(LEFT, width - RIGHT))) y=(px(height - 5.0)) text-anchor="middle" { "client" }
                    text x=(px(LEFT - 8.0)) y=(px(class_y(classes) + 16.0)) text-anchor="end" { "class" }
                }
                g.bars {
                    path.series-1 d=(clients.iter().enumerate().map(|(client, (_, counts))| {
                        let top = size_y(total(counts) as f64);
                        block(x(client) + gap, top, cell - 2.0 * gap, TOP + SIZES - top)
                    }).collect::<String>()) {}
                }
                g.cells {
                    @for level in 0..=SHADES {
                        @let path = cells(clients, level, greatest).map(|(client, class)| {
                            block(x(client) + gap, class_y(class) + gap, cell - 2.0 * gap, ROW - 2.0 * gap)
                        }).collect::<String>();
                        @if !path.is_empty() { path class=(format!("shade-{level}")) d=(path) {} }
                    }
                }
                @if cell >= NUMBERED {
                    g.numbers {
                        @for (client, (_, counts)) in clients.iter().enumerate() {
                            @for (class, &count) in counts.iter().enumerate() {
                                text x=(px(x(client) + cell / 2.0)) y=(px(class_y(class) + ROW / 2.0 + 4.0))
                                    text-anchor="middle" class=(format!("shade-{}", shade(count, greatest))) { (count) }
                            }
                        }
                    }
                }
                g.columns {
                    @for (client, (name, counts)) in clients.iter().enumerate() {
                        rect x=(px(x(client))) width=(px(cell)) y=(px(TOP)) height=(px(class_y(classes) - TOP)) {
                            title { (name) ": " (counted(total(counts), "sample")) " (" (list(counts)) ")" }
                        }
                    }
                }
            }
        }
    }
}

/// The name of a class as far as there is room beside the axis, or its number.
fn axis_name(names: &[String], class: usize) -> String {
    const ROOM: usize = 7;
    let Some(name) = names.get(class) else { return class.to_string() };
    if name.chars().count() <= ROOM {
        return name.clone();
    }
    name.chars().take(ROOM - 1).chain(['…']).collect()
}

/// Whether client number `client`, counted from 0 like the classes, has its number below it.
fn labelled(client: usize, cell: f64) -> bool {
    cell >= 20.0 || client.is_multiple_of(10)
}

/// 0 for no sample, [`SHADES`] for the greatest count there is.
pub(super) fn shade(count: usize, greatest: usize) -> usize {
    (count as u128 * SHADES as u128).div_ceil(greatest.max(1) as u128) as usize
}

/// The clients and classes with this shade.
fn cells(
    clients: &[(String, Vec<usize>)],
    level: usize,
    greatest: usize,
) -> impl Iterator<Item = (usize, usize)> {
    clients.iter().enumerate().flat_map(move |(client, (_, counts))| {
        let of_level = move |&(_, &count): &(usize, &usize)| shade(count, greatest) == level;
        counts.iter().enumerate().filter(of_level).map(move |(class, _)| (client, class))
    })
}

/// A rectangle as a part of a path.
pub(super) fn block(x: f64, y: f64, width: f64, height: f64) -> String {
    format!("M{} {}h{}v{}h-{}z", px(x), px(y), px(width), px(height), px(width))
}

fn list(counts: &[usize]) -> String {
    counts.iter().enumerate().map(|(class, count)| format!("{class}: {count}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_with_names_have_them_beside_the_axis() {
        let names = ["cat", "arctic fox"].map(str::to_owned);
        let svg = heatmap(&[("a".to_owned(), vec![3, 4])], &names, "").into_string();
        assert!(svg.contains(">cat<") && svg.contains(">arctic…<"), "{svg}");
    }

    #[test]
    fn every_cell_is_drawn_in_exactly_one_shade() {
        let clients: Vec<_> =
            (0..30_usize).map(|k| (format!("client {k}"), (0..10).map(|c| k * c % 37).collect())).collect();
        let greatest = 36;
        let drawn: usize = (0..=SHADES).map(|level| cells(&clients, level, greatest).count()).sum();
        assert_eq!(drawn, 300);
        assert_eq!([0, 1, 18, 36].map(|count| shade(count, greatest)), [0, 1, 5, SHADES]);
        assert_eq!(shade(0, 0), 0);
    }

    #[test]
    fn columns_name_client_total_and_classes() {
        let svg = heatmap(&[("a<b".to_owned(), vec![3, 0, 4])], &[], "One client.").into_string();
        assert!(svg.contains("a&lt;b: 7 samples (0: 3, 1: 0, 2: 4)"), "{svg}");
        assert!(!svg.contains("a<b") && !svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn no_clients_and_clients_without_samples_are_drawn() {
        for clients in [vec![], vec![("a".to_owned(), vec![])], vec![("a".to_owned(), vec![0, 0])]] {
            assert!(!heatmap(&clients, &[], "").into_string().contains("NaN"));
        }
    }

    #[test]
    fn a_thousand_clients_make_a_small_picture() {
        let clients: Vec<_> = (0..1000_usize).map(|k| (k.to_string(), vec![k; 10])).collect();
        let svg = heatmap(&clients, &[], "").into_string();
        assert_eq!(svg.matches("<rect").count(), DRAWN);
        assert!(svg.len() < 100_000, "{}", svg.len());
    }
}
