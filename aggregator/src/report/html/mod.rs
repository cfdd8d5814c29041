//! The report for people: one HTML page that needs nothing but itself.
//!
//! No script and no external resource (the page's own policy forbids both), the fonts of the reader's system, light
//! and dark mode, and numbers in tables for everything that is drawn.

mod by_class;
mod clients;
mod devices;
mod document;
mod dominance;
mod own_tests;
mod privacy;
mod pseudo_labels;
mod rounds;
mod setting;
mod standing;
#[cfg(test)]
mod tests;

use maud::{Markup, html};
use models::Task;
use shared::cli::measure_value;

use super::by_class::ModelByClass;
use super::devices::Devices;
use super::standing::{Origin, Standing, planned};
use super::units::{bytes, counted, grouped, percent, seconds};
use super::{Summary, plots};
use crate::config::{Changed, Config};
use crate::round::RoundRecord;

pub(super) use clients::{ALL, histograms};
pub(crate) use document::{Head, STYLE, document, figure, metas};
pub(super) use setting::partition;

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
    /// What was left out when samples were read, in words; empty if nothing was.
    pub left_out: &'a [String],
    /// An accuracy aimed for, in `[0, 1]`, to draw and to count rounds to.
    pub target: Option<f64>,
    /// How the run stands.
    pub standing: &'a Standing,
    /// Since when, if that is known, in UTC.
    pub ended: Option<&'a str>,
    /// Where it comes from, if that is known.
    pub origin: Option<&'a Origin>,
    /// What its devices have done, if that was written down.
    pub devices: Option<&'a Devices>,
    /// Results by class of the models that it has left.
    pub by_class: &'a [ModelByClass],
}

impl Report<'_> {
    /// How many rounds of training the run has, as far as is known.
    fn planned(&self) -> u32 {
        planned(self.rounds, self.config.spec.rounds, self.standing)
    }
}

/// Seconds after which the page of a run that goes on is loaded again.
pub(crate) const REFRESH: u32 = 5;
/// What such a page says of that.
pub(crate) const RELOADS: &str = "This page is written anew every few seconds, and reloads itself.";

/// Whom a page is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// Each person who is given the file: of a private run it has nothing of single devices.
    Anyone,
    /// Who runs the server, on its live page.
    Operator,
}

/// The page, as UTF-8 text.
#[must_use]
pub fn render(report: &Report<'_>) -> String {
    let body = html! {
        (findings(report, Reader::Anyone))
        (rounds::table(report.rounds))
        (configuration(report))
    };
    let footer = html! {
        "Run " code { (report.config.spec.run) } ", written by aggregator " (env!("CARGO_PKG_VERSION")) "."
    };
    let head = Head {
        title: &format!("{} - federated run", report.name),
        heading: report.name,
        lead: &lead(report),
        refresh: (*report.standing == Standing::Running).then_some(REFRESH),
    };
    document(&head, &body, &footer)
}

/// How the run stands, its figures and its curves.
pub(crate) fn findings(report: &Report<'_>, reader: Reader) -> Markup {
    let summary = Summary::of(report.rounds, report.target);
    // A live page is kept new without being loaded again.
    let reloads = if reader == Reader::Anyone { RELOADS } else { "" };
    html! {
        (standing::banner(report, &summary, reloads))
        (figures(report, &summary))
        (privacy::card(report, reader))
        (dominance::alarm(report.rounds))
        (charts(report, &summary))
        (by_class::cards(report))
        (devices::card(report, reader))
        (clients::labels(report))
    }
}

/// All keys with their values, folded away.
pub(crate) fn configuration(report: &Report<'_>) -> Markup {
    html! {
        details {
            summary { "Effective configuration" }
            pre { code { (report.config.effective.to_toml()) } }
        }
    }
}

/// What was run, in a sentence, and what tells it from other runs of this name: the keys that have another value than by default.
pub(crate) fn lead(report: &Report<'_>) -> String {
    let config = report.config;
    let (algorithm, model) = (&config.spec.algorithm.name, &config.spec.architecture.name);
    let run = if report.histograms.is_some() {
        format!(
            "{algorithm} trains {model} on {} with {}.",
            config.data.set,
            counted(config.data.clients, "client")
        )
    } else {
        format!("{algorithm} trains {model} on devices that keep their data.")
    };
    run + &changed(&Changed::of(&config.effective))
}

/// The changed keys in a sentence, as far as it can be read at a glance: the setting has them all.
fn changed(keys: &[Changed]) -> String {
    const TOLD: usize = 6;
    if keys.is_empty() {
        return String::new();
    }
    let (told, more) = keys.split_at(keys.len().min(TOLD));
    let told: Vec<String> = told.iter().map(|key| format!("{} = {}", key.key, key.value)).collect();
    let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
    format!(" Changed against the defaults: {}{more}.", told.join(", "))
}

fn figures(report: &Report<'_>, summary: &Summary) -> Markup {
    let in_round = |round: u32| format!("round {round}");
    let arrivals = &summary.arrivals;
    let mut arrived = vec![format!("of {} asked for", grouped(arrivals.sampled))];
    arrived.extend(arrivals.troubles().into_iter().map(|(count, what)| format!("{} {what}", grouped(count))));
    html! {
        section aria-label="Summary" {
            dl.figures {
                @if let Some((last, round)) = summary.last {
                    (figure("Final accuracy", &percent(last), &[in_round(round)]))
                }
                @if let Some((best, round)) = summary.best {
                    (figure("Best accuracy", &percent(best), &[in_round(round)]))
                }
                @if summary.best.is_none() {
                    @if let Some((best, round)) = summary.best_loss {
                        (figure("Best test loss", &format!("{best:.4}"), &[in_round(round)]))
                    }
                }
                @for &(measure, value) in &summary.measures {
                    (figure(measure.title(), &measure_value(measure, value), &["at last".to_owned()]))
                }
                @if let Some(target) = summary.target {
                    @let reached = target.round.map_or_else(|| "not reached".to_owned(), in_round);
                    (figure("Target accuracy", &percent(target.accuracy), &[reached]))
                }
                @let lost = (summary.missing > 0).then(|| format!("{} without a record", summary.missing));
                @let planned = format!("of {} planned", grouped(report.planned() as usize));
                @let void = report.rounds.iter().filter(|round| round.void).count();
                @let void = (void > 0).then(|| format!("{} without enough updates", grouped(void)));
                (figure("Rounds", &grouped(summary.rounds), &[Some(planned), void, lost].into_iter().flatten().collect::<Vec<_>>()))
                @if let Some(median) = summary.median_seconds {
                    @let (down, up) = (summary.bytes_down, summary.bytes_up);
                    @let times = &summary.times;
                    @let parts = times.parts().into_iter().map(|(name, time)| format!("{} {name}", seconds(time)));
                    @let median = format!("median round {}", seconds(median));
                    (figure("Time", &seconds(times.wall), &parts.chain([median]).chain(times.unknown()).collect::<Vec<_>>()))
                    (figure(
                        "Total traffic",
                        &bytes(down.saturating_add(up)),
                        &[format!("{} down", bytes(down)), format!("{} up", bytes(up))],
                    ))
                    (figure("Updates accepted", &grouped(arrivals.accepted), &arrived))
                }
            }
        }
    }
}

fn charts(report: &Report<'_>, summary: &Summary) -> Markup {
    if report.rounds.is_empty() {
        return html! { p.empty { "No round has closed yet." } (setting::card(report)) };
    }
    let never = if report.config.spec.evaluate.every == 0 {
        "The global model is never tested in this run (evaluate.every = 0)."
    } else {
        "The global model has not been tested yet."
    };
    let has_accuracy = !matches!(report.config.spec.architecture.task, Task::Regression { .. });
    let accuracy =
        has_accuracy.then(|| ("Test accuracy", plots::accuracy(report.rounds, summary).ok_or(never)));
    let measures = plots::measures(report.rounds).into_iter().map(|(title, chart)| (title, Ok(chart)));
    let others = [
        ("Loss", plots::loss(report.rounds).ok_or("No loss is known.")),
        ("Time per round", plots::times(report.rounds, summary).ok_or("")),
        ("Clients and their updates", plots::arrivals(report.rounds, summary).ok_or("")),
        ("Traffic per round", plots::traffic(report.rounds, summary).ok_or("")),
    ];
    html! {
        div.charts {
            @for (name, chart) in accuracy.into_iter().chain(measures).chain(others) {
                section.card {
                    h2 { (name) }
                    @match chart { Ok(chart) => (chart), Err(reason) => p.empty { (reason) } }
                }
            }
            @if let Some(card) = own_tests::card(report) { (card) }
            @if let Some(card) = pseudo_labels::card(report.rounds) { (card) }
            (setting::card(report))
        }
    }
}
