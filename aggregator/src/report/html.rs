//! The report for people: one HTML page that needs nothing but itself.
//!
//! No script and no external resource (the page's own policy forbids both), the fonts of the reader's system, light
//! and dark mode, and numbers in tables for everything that is drawn.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use shared::data::Partition;

use super::units::{bytes, counted, grouped, percent, seconds};
use super::{RoundRecord, Summary, chart, plots};
use crate::config::{Config, Source};

/// What a report shows. Everything else on the page is derived from it.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// The run's name for people: that of its directory, which tells it from others of the same `run.name`.
    pub name: &'a str,
    /// What was run.
    pub config: &'a Config,
    /// The rounds that closed so far, in order.
    pub rounds: &'a [RoundRecord],
    /// Each client's name and its number of samples of every class. `None` if the clients are real devices, which
    /// keep that to themselves.
    pub histograms: Option<&'a [(String, Vec<usize>)]>,
    /// An accuracy aimed for, in `[0, 1]`, to draw and to count rounds to.
    pub target: Option<f64>,
}

/// The page, as UTF-8 text.
#[must_use]
pub fn render(report: &Report<'_>) -> String {
    let summary = Summary::of(report.rounds, report.target);
    let name = report.name;
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'";
                title { (name) " - federated run" }
                style { (PreEscaped(include_str!("style.css"))) }
            }
            body {
                header {
                    h1 { (name) }
                    p.lead { (lead(report.config)) }
                }
                main {
                    (figures(report, &summary))
                    (charts(report, &summary))
                    (clients(report))
                    (rounds(report.rounds))
                    details {
                        summary { "Effective configuration" }
                        pre { code { (report.config.effective.to_toml()) } }
                    }
                }
                footer {
                    "Run " code { (report.config.spec.run) } ", written by aggregator " (env!("CARGO_PKG_VERSION")) "."
                }
            }
        }
    }
    .into_string()
}

fn lead(config: &Config) -> String {
    format!(
        "{} trains {} on {} with {}.",
        config.spec.algorithm.name,
        config.spec.architecture.name,
        config.data.set,
        counted(config.data.clients, "client")
    )
}

fn figures(report: &Report<'_>, summary: &Summary) -> Markup {
    // The parts of a note stand on lines of their own rather than break within.
    let figure = |name: &str, value: String, notes: &[String]| {
        html! { div { dt { (name) } dd { (value) } dd.note { @for note in notes { span { (note) } " " } } } }
    };
    let in_round = |round: u32| format!("round {round}");
    let arrivals = &summary.arrivals;
    let mut arrived = vec![format!("of {} asked for", grouped(arrivals.sampled))];
    arrived.extend(arrivals.troubles().into_iter().map(|(count, what)| format!("{} {what}", grouped(count))));
    html! {
        section aria-label="Summary" {
            dl.figures {
                @if let Some((last, round)) = summary.last {
                    (figure("Final accuracy", percent(last), &[in_round(round)]))
                }
                @if let Some((best, round)) = summary.best {
                    (figure("Best accuracy", percent(best), &[in_round(round)]))
                }
                @if let Some(target) = summary.target {
                    @let reached = target.round.map_or_else(|| "not reached".to_owned(), in_round);
                    (figure("Target accuracy", percent(target.accuracy), &[reached]))
                }
                (figure("Rounds", grouped(summary.rounds), &[format!("of {} planned", report.config.spec.rounds)]))
                @if let Some(median) = summary.median_seconds {
                    @let (down, up) = (summary.bytes_down, summary.bytes_up);
                    (figure("Total time", seconds(summary.seconds), &["median round".to_owned(), seconds(median)]))
                    (figure(
                        "Total traffic",
                        bytes(down.saturating_add(up)),
                        &[format!("{} down", bytes(down)), format!("{} up", bytes(up))],
                    ))
                    (figure("Updates accepted", grouped(arrivals.accepted), &arrived))
                }
            }
        }
    }
}

fn charts(report: &Report<'_>, summary: &Summary) -> Markup {
    if report.rounds.is_empty() {
        return html! { p.empty { "No round has closed yet." } (settings(report.config)) };
    }
    let never = if report.config.evaluate.every == 0 {
        "The global model is never tested in this run (evaluate.every = 0)."
    } else {
        "The global model has not been tested yet."
    };
    let all = [
        ("Test accuracy", plots::accuracy(report.rounds, summary).ok_or(never)),
        ("Loss", plots::loss(report.rounds).ok_or("No loss is known.")),
        ("Time per round", plots::times(report.rounds, summary).ok_or("")),
        ("Clients and their updates", plots::arrivals(report.rounds, summary).ok_or("")),
        ("Traffic per round", plots::traffic(report.rounds, summary).ok_or("")),
    ];
    html! {
        div.charts {
            @for (name, chart) in all {
                section.card {
                    h2 { (name) }
                    @match chart { Ok(chart) => (chart), Err(reason) => p.empty { (reason) } }
                }
            }
            (settings(report.config))
        }
    }
}

fn clients(report: &Report<'_>) -> Markup {
    let Some(histograms) = report.histograms else {
        return html! {
            section.card {
                h2 { "Labels of every client" }
                p { "The clients are devices that keep their data, and what is in it, to themselves." }
            }
        };
    };
    let samples: usize = histograms.iter().flat_map(|(_, counts)| counts).sum();
    let classes = histograms.iter().map(|(_, counts)| counts.len()).max().unwrap_or(0);
    let description = format!(
        "{} of {classes} classes, {}.",
        counted(samples, "sample"),
        partition(&report.config.data.partition)
    );
    html! {
        section.card {
            h2 { "Labels of every client" }
            p.note { (counted(histograms.len(), "client")) ", " (description) " Bars: samples of each client. Cells: the stronger the colour, the more samples of a class." }
            (chart::heatmap(histograms, &description))
            @if histograms.len() > chart::DRAWN {
                p.note { "The first " (chart::DRAWN) " of " (grouped(histograms.len())) " clients are drawn; the table has all." }
            }
            details {
                summary { "Samples of every client and class" }
                div.scroll {
                    table {
                        thead { tr { th scope="col" { "client" } @for class in 0..classes { th scope="col" { (class) } } th scope="col" { "all" } } }
                        tbody {
                            @for (name, counts) in histograms {
                                tr {
                                    th scope="row" { (name) }
                                    @for class in 0..classes { td { (counts.get(class).copied().unwrap_or(0)) } }
                                    td { (counts.iter().sum::<usize>()) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn settings(config: &Config) -> Markup {
    let spec = &config.spec;
    let (training, sgd) = (&spec.training, &spec.training.sgd);
    let parameters = spec.architecture.parameters().map_or_else(|error| error.to_string(), grouped);
    let cohort = config.policy.cohort(config.data.clients);
    let samples = match &config.data.source {
        Source::Drawn { train, test } => {
            format!("{} samples to train on, {} to test on", grouped(*train), grouped(*test))
        }
        Source::Files { limit: Some(limit), .. } => format!("at most {} training samples", grouped(*limit)),
        Source::Files { limit: None, .. } => "all training samples".to_owned(),
    };
    let batch = if training.batch == 0 {
        "all data at once".to_owned()
    } else {
        format!("batches of {}", training.batch)
    };
    let momentum = if sgd.momentum == 0.0 { String::new() } else { format!(", momentum {}", sgd.momentum) };
    let decay = if sgd.decay == 0.0 { String::new() } else { format!(", weight decay {}", sgd.decay) };
    let weights = match spec.weights {
        shared::aggregation::Weights::Samples => "by samples",
        shared::aggregation::Weights::Uniform => "all alike",
    };
    let rows = [
        ("Algorithm", spec.algorithm.name.clone()),
        ("Model", format!("{}, {parameters} parameters", spec.architecture.name)),
        ("Data", format!("{}, {samples}", config.data.set)),
        ("Partition", partition(&config.data.partition)),
        ("Cohort", format!("{cohort} of {}", counted(config.data.clients, "client"))),
        ("Local training", format!("{}, {batch}", counted(training.epochs as usize, "epoch"))),
        ("Optimizer", format!("SGD, rate {}{momentum}{decay}", sgd.rate)),
        ("Updates count", weights.to_owned()),
        ("On the wire", format!("{} down, {} up", spec.precision.broadcast, spec.precision.update)),
        ("Seed", spec.seed.to_string()),
    ];
    html! {
        section.card {
            h2 { "Setting" }
            dl.settings { @for (name, value) in rows { dt { (name) } dd { (value) } } }
        }
    }
}

fn partition(partition: &Partition) -> String {
    match partition {
        Partition::Iid {} => "divided at random (IID)".to_owned(),
        Partition::Shards { per_client } => {
            format!("sorted by label, {} per client", counted(*per_client, "shard"))
        }
        Partition::Dirichlet { alpha } => format!("label skew, Dirichlet with alpha = {alpha}"),
    }
}

fn rounds(rounds: &[RoundRecord]) -> Markup {
    const COLUMNS: [&str; 14] = [
        "round",
        "accuracy",
        "test loss",
        "training loss",
        "asked",
        "accepted",
        "rejected",
        "discarded",
        "failed",
        "lost",
        "down",
        "up",
        "time",
        "waited for",
    ];
    let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.4}"));
    html! {
        details {
            summary { "All rounds" }
            div.scroll {
                table {
                    thead { tr { @for column in COLUMNS { th scope="col" { (column) } } } }
                    tbody {
                        @for round in rounds {
                            tr {
                                th scope="row" { (round.round) }
                                td { (round.accuracy.map_or_else(|| "-".to_owned(), |share| format!("{:.2} %", share * 100.0))) }
                                td { (number(round.loss)) }
                                td { (number(round.train_loss)) }
                                @for count in [round.sampled, round.accepted, round.rejected, round.discarded, round.failed, round.lost] {
                                    td { (count) }
                                }
                                td { (bytes(round.bytes_down)) }
                                td { (bytes(round.bytes_up)) }
                                td { (seconds(round.seconds)) }
                                td.text { (round.waited_for) }
                            }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use shared::id::RunId;

    use super::*;
    use crate::config::Raw;
    use crate::report::WaitedFor;

    fn config(overrides: &[&str]) -> Config {
        let overrides: Vec<String> = overrides.iter().map(|&given| given.to_owned()).collect();
        let raw = Raw::layered(None, &overrides).expect("overrides that can be read");
        Config::validate(&raw, RunId::from_bytes([0xab; 8])).expect("a valid configuration")
    }

    /// A plausible run: the loss falls, now and then a client is lost or late.
    fn run(rounds: u32, cohort: usize) -> Vec<RoundRecord> {
        let round = |round: u32| {
            let progress = 1.0 - (-f64::from(round) * 3.0 / f64::from(rounds)).exp();
            let wobble = f64::from(round * 7919 % 13) / 13.0 - 0.5;
            let (lost, late) = (usize::from(round % 6 == 4), usize::from(round % 9 == 5));
            let rejected = usize::from(round % 11 == 7);
            let accepted = cohort.saturating_sub(lost + late + rejected);
            RoundRecord {
                round,
                accuracy: Some(0.12 + 0.86 * progress + 0.012 * wobble),
                loss: Some(2.3 - 2.2 * progress + 0.03 * wobble),
                train_loss: Some(2.2 - 2.15 * progress - 0.03 * wobble),
                sampled: cohort,
                accepted,
                rejected,
                discarded: late,
                failed: 0,
                lost,
                bytes_down: 642_000 * cohort as u64 / 10,
                bytes_up: 64_200 * (accepted + rejected + late) as u64,
                seconds: 1.2 + 0.4 * wobble + if late > 0 { 2.0 } else { 0.0 },
                waited_for: if late > 0 { WaitedFor::MaxTime } else { WaitedFor::Cohort },
            }
        };
        (1..=rounds).map(round).collect()
    }

    fn histograms(clients: usize) -> Vec<(String, Vec<usize>)> {
        let count =
            |k: usize, c: usize| (k * 37 + c * 101 + k * c * 13) % 97 * usize::from((k + 3 * c) % 5 < 3);
        (0..clients).map(|k| (format!("client {k}"), (0..10).map(|c| count(k, c)).collect())).collect()
    }

    fn page(config: &Config, rounds: &[RoundRecord], histograms: Option<&[(String, Vec<usize>)]>) -> String {
        render(&Report { name: &config.spec.name, config, rounds, histograms, target: Some(0.9) })
    }

    #[test]
    fn a_whole_run_shows_its_figures() {
        let (rounds, clients) = (run(15, 10), histograms(10));
        let page = page(&config(&[]), &rounds, Some(&clients));
        for part in [
            "glyphs-fedavg",
            "fedavg",
            "cnn-small",
            "Best accuracy",
            "<span>round 12</span>",
            "of 15 planned",
        ] {
            assert!(page.contains(part), "{part} is missing");
        }
        assert_eq!(page.matches("<svg").count(), 6);
        assert!(!page.contains("NaN") && !page.contains("inf\""), "a coordinate is no number");
    }

    #[test]
    fn nothing_is_loaded_or_run() {
        let (rounds, clients) = (run(3, 10), histograms(3));
        let page = page(&config(&[]), &rounds, Some(&clients)).to_lowercase();
        for part in ["http://", "https://", "<script", "<link", "<img", "url(", "@import", "src=", "href="] {
            assert!(!page.contains(part), "{part} in the page");
        }
    }

    #[test]
    fn every_drawing_is_described() {
        let (rounds, clients) = (run(3, 10), histograms(3));
        let page = page(&config(&[]), &rounds, Some(&clients));
        for svg in page.split("<svg").skip(1) {
            assert!(
                svg.contains("role=\"img\"") && svg.contains("aria-label=\"") && svg.contains("<desc>"),
                "{svg}"
            );
        }
    }

    #[test]
    fn hostile_names_are_escaped() {
        let hostile = "<script>alert('x')</script>\"&";
        let mut config = config(&[]);
        hostile.clone_into(&mut config.spec.name);
        config.effective.run.name = Some(hostile.to_owned());
        let page = page(&config, &run(1, 10), Some(&[(hostile.to_owned(), vec![1, 2])]));
        assert!(!page.contains("<script") && page.contains("&lt;script&gt;"));
        assert_eq!(
            page.matches("&lt;script&gt;alert").count(),
            5,
            "title, heading, cell, row, configuration"
        );
    }

    #[test]
    fn runs_of_no_round_and_of_one_are_shown() {
        let config = config(&[]);
        let none = page(&config, &[], None);
        assert!(none.contains("No round has closed yet.") && none.contains("not reached"), "{none}");
        assert!(none.contains("devices that keep their data") && none.contains("of 15 planned"));
        let one = page(&config, &run(1, 10), None);
        assert!(one.contains("<circle") && !one.contains("<polyline") && !one.contains("NaN"));
    }

    #[test]
    fn a_run_that_is_never_tested_says_so() {
        let mut rounds = run(3, 10);
        for round in &mut rounds {
            (round.accuracy, round.loss) = (None, None);
        }
        assert!(page(&config(&["evaluate.every=0"]), &rounds, None).contains("evaluate.every = 0"));
        assert!(page(&config(&["evaluate.every=5"]), &rounds, None).contains("has not been tested yet"));
    }

    #[test]
    fn extreme_numbers_do_no_harm() {
        let extreme = RoundRecord {
            accuracy: Some(f64::NAN),
            loss: Some(f64::INFINITY),
            train_loss: Some(1e300),
            sampled: usize::MAX,
            accepted: usize::MAX,
            rejected: usize::MAX,
            bytes_down: u64::MAX,
            bytes_up: u64::MAX,
            seconds: f64::NAN,
            ..run(1, 10).remove(0)
        };
        let page = page(&config(&[]), &[extreme.clone(), RoundRecord { round: u32::MAX, ..extreme }], None);
        assert!(!page.contains("=\"NaN") && !page.contains("MNaN") && !page.contains(",NaN"));
    }

    #[test]
    fn histograms_add_up() {
        let clients = histograms(12);
        let total: usize = clients.iter().flat_map(|(_, counts)| counts).sum();
        let page = page(&config(&[]), &[], Some(&clients));
        assert!(page.contains(&format!("12 clients, {} of 10 classes", counted(total, "sample"))), "{total}");
        for (name, counts) in &clients {
            let (_, row) = page.split_once(&format!("<th scope=\"row\">{name}</th>")).expect(name);
            let (row, _) = row.split_once("</tr>").expect("a row ends");
            let cells: Vec<usize> = row
                .split("<td>")
                .skip(1)
                .map(|cell| cell.trim_end_matches("</td>").parse().expect("a number"))
                .collect();
            let (sum, classes) = cells.split_last().expect("the last cell is the sum");
            assert_eq!((classes, *sum), (counts.as_slice(), counts.iter().sum()), "{name}");
        }
    }

    #[test]
    fn pages_stay_small() {
        let (rounds, clients) = (run(120, 10), histograms(100));
        let page = page(&config(&[]), &rounds, Some(&clients));
        assert!(page.len() < 250_000, "{}", page.len());
    }
}
