//! The table of devices: what each has done in the run, those with troubles first.

use std::collections::BTreeMap;

use maud::{Markup, html};
use shared::calendar::utc;
use shared::id::ClientId;

use super::privacy::is_private;
use super::{Reader, Report};
use crate::names;
use crate::report::clock::elapsed;
use crate::report::devices::{DeviceRow, Trouble};
use crate::report::units::{bytes, counted, grouped, percent, seconds};

/// Devices that are listed.
const LISTED: usize = 100;
/// Devices whose newest trouble is told.
const TOLD: usize = 10;
/// Up to this many the table stands open.
const OPEN: usize = 12;

/// What clients are called on a page, where that is not their id: devices by their names, simulated clients by their numbers.
pub(super) fn names(report: &Report<'_>) -> BTreeMap<ClientId, String> {
    if report.histograms.is_some() {
        let clients = u32::try_from(report.config.data.clients).unwrap_or(u32::MAX);
        return (0..clients).map(|index| (report.config.client(index), format!("client {index}"))).collect();
    }
    let rows = report.devices.iter().flat_map(|devices| &devices.devices);
    rows.filter(|row| row.name.is_some()).map(|row| (row.device, label(row))).collect()
}

/// What a client is called.
pub(super) fn called(names: &BTreeMap<ClientId, String>, client: ClientId) -> String {
    names.get(&client).cloned().unwrap_or_else(|| names::called(client))
}

/// `attic (7b300645)`, or `7b300645` of a device without a name.
fn label(row: &DeviceRow) -> String {
    let id = row.device.short();
    row.name.as_ref().map_or_else(|| id.clone(), |name| format!("{name} ({id})"))
}

/// The card; nothing of a simulation, whose clients are listed with their labels and their tests. Of a private run the numbers alone,
/// except for its operator, who has to know which devices have troubles.
pub(super) fn card(report: &Report<'_>, reader: Reader) -> Markup {
    let Some(devices) = report.devices else { return html! {} };
    let listed = !is_private(report) || reader == Reader::Operator;
    let mut rows: Vec<&DeviceRow> = devices.devices.iter().collect();
    rows.sort_by_key(|row| {
        (row.troubles() == 0, row.rounds > 0, row.name.is_none(), row.name.as_deref(), row.device)
    });
    let troubled = rows.iter().filter(|row| row.troubles() > 0).count();
    let answered = rows.iter().filter(|row| row.rounds > 0).count();
    html! {
        section.card {
            h2 { "Devices" }
            p.note {
                (counted(answered, "device")) " answered in rounds of this run"
                @if rows.len() > answered { ", " (grouped(rows.len() - answered)) " more connected and gave no answer" }
                ". "
                @if troubled > 0 {
                    (grouped(troubled)) " with troubles"
                    @if listed { @if troubled == 1 { " stands first" } @else { " stand first" } }
                    ". "
                }
                "As of " (utc(devices.at)) "."
                @if !listed { " The live page has them for who runs the server." }
            }
            @if listed { (list(&rows, devices.at)) }
        }
    }
}

/// Troubles, and the table, of these devices at that time.
fn list(rows: &[&DeviceRow], at: i64) -> Markup {
    let told: Vec<String> =
        rows.iter().filter_map(|row| Some(format!("{}: {}", label(row), trouble(row)?))).collect();
    html! {
        @if !told.is_empty() {
            ul.troubles { @for trouble in told.iter().take(TOLD) { li { (trouble) } } }
            @if told.len() > TOLD { p.note { "And troubles of " (counted(told.len() - TOLD, "other device")) "." } }
        }
        @if !rows.is_empty() {
            details open[rows.len() <= OPEN] {
                summary { "What every device has done" }
                (table(rows, at))
            }
        }
        @if rows.len() > LISTED {
            p.note { "The first " (LISTED) " of " (counted(rows.len(), "device")) " are listed; the sums are of all." }
        }
    }
}

/// A count, with its name and what it is of.
type Column = (&'static str, &'static str, fn(&DeviceRow) -> u32);

fn table(rows: &[&DeviceRow], at: i64) -> Markup {
    let sum = |count: fn(&DeviceRow) -> u32| rows.iter().map(|row| count(row) as usize).sum::<usize>();
    let total = |value: fn(&DeviceRow) -> Option<f64>| {
        let values: Vec<f64> = rows.iter().filter_map(|row| value(row)).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>())
    };
    let samples = rows.iter().filter_map(|row| row.samples).fold(0_u64, u64::saturating_add);
    let counts: [Column; 6] = [
        ("rounds", "Rounds that it has answered in", |row| row.rounds),
        ("accepted", "Updates that count", |row| row.accepted),
        ("rejected", "Updates that failed the checks", |row| row.rejected),
        ("late", "Updates that came late, or twice", |row| row.late),
        ("failed", "Rounds in which it could not train", |row| row.failed),
        ("not now", "Rounds in which it was not in a state to train", |row| row.not_now),
    ];
    let others = [
        ("training", "Training of its accepted updates, as it says"),
        ("sent", "Bytes of its accepted updates"),
        ("own accuracy", "The newest accuracy of the model on its own samples"),
        ("samples", "Training samples, when it connected last"),
    ];
    html! {
        div.scroll {
            table {
                thead { tr {
                    th scope="col" { "device" }
                    @for (name, says) in counts.iter().map(|(name, says, _)| (*name, *says)).chain(others) {
                        th scope="col" title=(says) { (name) }
                    }
                    @for name in ["last heard", "software"] { th.text scope="col" { (name) } }
                } }
                tbody { @for row in rows.iter().take(LISTED) { tr { (cells(row, &counts.map(|(.., count)| count), at)) } } }
                tfoot { tr {
                    th scope="row" { "all " (grouped(rows.len())) }
                    // A round has many devices.
                    td {}
                    @for (.., count) in &counts[1..] { td { (grouped(sum(*count))) } }
                    td { (or_dash(total(|row| row.seconds), seconds)) }
                    td { (or_dash(total(|row| row.bytes), |sum| bytes(sum as u64))) }
                    td {}
                    td { (grouped(usize::try_from(samples).unwrap_or(usize::MAX))) }
                    td {} td {}
                } }
            }
        }
    }
}

fn cells(row: &DeviceRow, counts: &[fn(&DeviceRow) -> u32], at: i64) -> Markup {
    html! {
        th scope="row" { (label(row)) }
        @for count in counts { td { (grouped(count(row) as usize)) } }
        td { (or_dash(row.seconds, seconds)) }
        td { (or_dash(row.bytes, |sum| bytes(sum as u64))) }
        td {
            @match row.own_accuracy {
                // What a device tests in a round is the model of the round before.
                Some((share, round)) => span title=(format!("the model after round {}", round.saturating_sub(1))) { (percent(share)) },
                None => "-",
            }
        }
        td { (or_dash(row.samples, |samples| grouped(usize::try_from(samples).unwrap_or(usize::MAX)))) }
        td.text { @match row.heard { Some(heard) => span title=(utc(heard)) { (elapsed(at.saturating_sub(heard))) " before" }, None => "-" } }
        td.text { (row.software.as_deref().unwrap_or("-")) }
    }
}

fn or_dash<T>(value: Option<T>, shown: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), shown)
}

/// The newest trouble of a device, with its reason.
fn trouble(row: &DeviceRow) -> Option<String> {
    let Trouble { round, verdict, reason } = row.trouble.as_ref()?;
    let what = match verdict.as_str() {
        "discarded" => "late or sent twice",
        "not-now" => "not in a state to train",
        "failed" => "could not train",
        other => other,
    };
    let reason = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    Some(format!("{what} in round {round}{reason}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::tests::{config, report, run};
    use super::*;
    use crate::report::devices::Devices;
    use crate::report::html::render;

    fn row(byte: u8) -> DeviceRow {
        DeviceRow {
            device: ClientId::from_bytes([byte; 16]),
            name: None,
            rounds: 3,
            accepted: 3,
            rejected: 0,
            late: 0,
            failed: 0,
            not_now: 0,
            trouble: None,
            seconds: Some(1.5),
            bytes: Some(2_000_000.0),
            own_accuracy: None,
            samples: Some(100),
            software: None,
            heard: None,
        }
    }

    /// The page of a served run with these devices.
    fn page(devices: Vec<DeviceRow>) -> String {
        let (config, rounds) = (config(&[]), run(3, 4));
        let devices = Devices { at: 100_000, devices };
        render(&Report { devices: Some(&devices), ..report(&config, &rounds) })
    }

    #[test]
    fn devices_have_their_figures_and_those_with_troubles_stand_first() {
        let trouble = Trouble { round: 2, verdict: "rejected".to_owned(), reason: "not <finite>".to_owned() };
        let troubled = DeviceRow {
            name: Some("window <sill>".to_owned()),
            rejected: 1,
            trouble: Some(trouble),
            own_accuracy: Some((0.875, 3)),
            software: Some("edge-client 0.1.0".to_owned()),
            heard: Some(90_000),
            ..row(9)
        };
        let idle = DeviceRow { rounds: 0, accepted: 0, seconds: None, bytes: None, ..row(8) };
        let page = page(vec![row(1), idle, troubled]);
        for part in [
            "2 devices answered in rounds of this run, 1 more connected and gave no answer. 1 with troubles stands first. As of \
             1970-01-01T00:01:40Z.",
            "<details open><summary>What every device has done</summary>",
            "<li>window &lt;sill&gt; (09090909): rejected in round 2: not &lt;finite&gt;</li>",
            "<th scope=\"row\">window &lt;sill&gt; (09090909)</th>",
            "<span title=\"the model after round 2\">87.5 %</span>",
            "<span title=\"1970-01-01T00:01:30Z\">10 s before</span></td><td class=\"text\">edge-client 0.1.0</td>",
            // The sums: accepted, rejected, late, failed, not now, training, sent, samples.
            "<th scope=\"row\">all 3</th><td></td><td>6</td><td>1</td><td>0</td><td>0</td><td>0</td><td>3.0 s</td>\
             <td>4.0 MB</td><td></td><td>300</td>",
        ] {
            assert!(page.contains(part), "{part:?} is not in: {page}");
        }
        let places = ["09090909", "08080808", "01010101"].map(|id| page.find(id).expect(id));
        assert!(places.is_sorted(), "{places:?}");
    }

    #[test]
    fn of_many_devices_a_part_is_listed_and_all_are_counted() {
        let numbered = |number: u32| DeviceRow {
            device: ClientId::from_bytes(u128::from(number).to_be_bytes()),
            late: u32::from(number == 999),
            ..row(0)
        };
        let found = page((0..1000).map(numbered).collect());
        assert_eq!(found.matches("<td>2.0 MB</td>").count(), LISTED);
        for part in [
            "The first 100 of 1,000 devices are listed",
            "all 1,000",
            "<td>3,000</td>",
            "2.0 GB",
            "1 with troubles stands first",
        ] {
            assert!(found.contains(part), "{part:?}");
        }
        assert!(found.len() < page(vec![row(0)]).len() + 40_000, "{}", found.len());
        let nothing = page(Vec::new());
        assert!(
            nothing.contains("0 devices answered") && !nothing.contains("What every device"),
            "{nothing}"
        );
    }

    #[test]
    fn clients_are_called_by_their_names_where_their_tests_are_told() {
        let config = config(&["data.clients=2"]);
        let mut rounds = run(2, 2);
        let own = || BTreeMap::from([("own-accuracy".to_owned(), 0.5)]);
        rounds[1].clients = (0..2).map(|index| (config.client(index), own())).collect();
        let named = DeviceRow { device: config.client(0), name: Some("attic".to_owned()), ..row(0) };
        let devices = Devices { at: 0, devices: vec![named] };
        let served = render(&Report { devices: Some(&devices), ..report(&config, &rounds) });
        let [first, second] = [0, 1].map(|index| config.client(index).short());
        let heading = |name: &str| format!("<th scope=\"row\">{name}</th><td>0.5000</td>");
        assert!(
            served.contains(&heading(&format!("attic ({first})"))) && served.contains(&heading(&second)),
            "{served}"
        );
        let histograms: Vec<_> = (0..2).map(|index| (format!("client {index}"), vec![1, 2])).collect();
        let simulated = render(&Report { histograms: Some(&histograms), ..report(&config, &rounds) });
        assert!(
            simulated.contains(&heading("client 1")) && !simulated.contains("<h2>Devices</h2>"),
            "{simulated}"
        );
    }
}
