//! Pages of plausible, empty, hostile and extreme runs.

use shared::id::{ClientId, RunId};

use crate::config::{Config, Raw};
use crate::report::standing::{Origin, Process, Standing};
use crate::report::units::counted;
use crate::report::{Report, render};
use crate::round::stopping::EarlyEnd;
use crate::round::{Dominance, RoundRecord, WaitedFor};

pub(super) fn config(overrides: &[&str]) -> Config {
    let overrides: Vec<String> = overrides.iter().map(|&given| given.to_owned()).collect();
    let raw = Raw::layered(None, &overrides).expect("overrides that can be read");
    Config::validate(&raw, RunId::from_bytes([0xab; 8])).expect("a valid configuration")
}

/// A plausible run: the loss falls, now and then a client is lost or late.
pub(super) fn run(rounds: u32, cohort: usize) -> Vec<RoundRecord> {
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
            metrics: std::collections::BTreeMap::new(),
            closing: false,
            clients: std::collections::BTreeMap::new(),
            sampled: cohort,
            accepted,
            rejected,
            discarded: late,
            failed: 0,
            late: 0,
            not_now: 0,
            lost,
            bytes_down: 642_000 * cohort as u64 / 10,
            bytes_up: 64_200 * (accepted + rejected + late) as u64,
            seconds: 1.2 + 0.4 * wobble + if late > 0 { 2.0 } else { 0.0 },
            waited_for: if late > 0 { WaitedFor::MaxTime } else { WaitedFor::Cohort },
            collapsed: false,
            diverged: false,
            dominance: None,
            void: false,
            ..RoundRecord::default()
        }
    };
    (1..=rounds).map(round).collect()
}

fn histograms(clients: usize) -> Vec<(String, Vec<usize>)> {
    let count = |k: usize, c: usize| (k * 37 + c * 101 + k * c * 13) % 97 * usize::from((k + 3 * c) % 5 < 3);
    (0..clients).map(|k| (format!("client {k}"), (0..10).map(|c| count(k, c)).collect())).collect()
}

/// A complete run of devices, of which nothing more is known.
pub(super) fn report<'a>(config: &'a Config, rounds: &'a [RoundRecord]) -> Report<'a> {
    Report {
        name: &config.spec.name,
        config,
        rounds,
        histograms: None,
        left_out: &[],
        target: None,
        standing: &Standing::Complete { early: None },
        ended: None,
        origin: None,
        devices: None,
        by_class: &[],
    }
}

fn page(config: &Config, rounds: &[RoundRecord], histograms: Option<&[(String, Vec<usize>)]>) -> String {
    let left_out = &["3 <b>test</b> samples".to_owned()];
    render(&Report { histograms, left_out, target: Some(0.9), ..report(config, rounds) })
}

/// The page of a run of three rounds that stands so.
fn standing(standing: &Standing) -> String {
    let (config, rounds) = (config(&["run.rounds=3"]), run(3, 10));
    let process = |host: &str| Process { host: Some(host.to_owned()), version: "1.2.3".to_owned() };
    let origin = Origin {
        begun: "2025-11-21T15:35:07Z".to_owned(),
        processes: vec![process("lab-1"), process("lab-2")],
        data: vec![("training".to_owned(), "0123abcd".to_owned())],
    };
    let (name, ended) = ("a run", Some("2025-11-21T16:00:00Z"));
    render(&Report { name, standing, ended, origin: Some(&origin), ..report(&config, &rounds) })
}

#[test]
fn a_page_says_how_the_run_stands_and_where_it_comes_from() {
    let reload = "http-equiv=\"refresh\"";
    let reason = "training diverged: lower the <rate>".to_owned();
    let cases = [
        (Standing::Running, "<strong>Running</strong>, after round 3 of 3"),
        (
            Standing::Complete { early: None },
            "<strong>Complete</strong> (2025-11-21T16:00:00Z), all 3 rounds.",
        ),
        (
            Standing::Complete { early: Some(EarlyEnd::Participations) },
            "<strong>Complete</strong> after round 3 of 3 (2025-11-21T16:00:00Z): every device has taken part in as many",
        ),
        (Standing::Stopped, "<h2>Stopped after round 3 of 3</h2>"),
        (Standing::Failed { reason }, "<p>training diverged: lower the &lt;rate&gt;</p>"),
        (Standing::Interrupted, "<h2>Interrupted after round 3 of 3</h2>"),
    ];
    for (stands, part) in cases {
        let page = standing(&stands);
        assert!(page.contains(part), "{part:?} is not in: {page}");
        assert_eq!(page.contains(reload), stands == Standing::Running, "{stands:?}");
    }
    let page = standing(&Standing::Complete { early: None });
    for part in [
        "<dd>2025-11-21T15:35:07Z</dd>",
        "lab-1, aggregator 1.2.3; then lab-2, aggregator 1.2.3",
        "training: SHA-256 0123abcd",
    ] {
        assert!(page.contains(part), "{part:?} is not in: {page}");
    }
}

#[test]
fn a_whole_run_shows_its_figures() {
    let (rounds, clients) = (run(15, 10), histograms(10));
    let page = page(&config(&[]), &rounds, Some(&clients));
    for part in [
        "glyphs-fedavg",
        "fedavg",
        "cnn-small",
        "3 &lt;b&gt;test&lt;/b&gt; samples",
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
fn below_the_heading_stands_what_was_changed_against_the_defaults() {
    let lead = |overrides: &[&str]| {
        let page = page(&config(overrides), &run(1, 10), Some(&histograms(10)));
        let (_, rest) = page.split_once("<p class=\"lead\">").expect("a lead");
        rest.split_once("</p>").expect("its end").0.to_owned()
    };
    assert_eq!(lead(&[]), "fedavg trains cnn-small on glyphs with 10 clients.");
    let two = lead(&["training.epochs=7", "run.seed=3"]);
    assert!(two.ends_with(" Changed against the defaults: run.seed = 3, training.epochs = 7."), "{two}");
    let many = [
        "run.seed=3",
        "run.rounds=4",
        "data.clients=5",
        "training.epochs=7",
        "training.batch=8",
        "evaluate.every=2",
        "round.fraction=0.5",
        "update.precision=f16",
    ];
    assert!(lead(&many).ends_with(" and 2 more."), "{}", lead(&many));
}

#[test]
fn a_device_that_had_most_of_the_weight_is_an_alarm() {
    let heading = "One device had most of the weight";
    let mut rounds = run(4, 10);
    assert!(!page(&config(&[]), &rounds, None).contains(heading));
    let dominance = |n: u8, samples| Dominance {
        client: ClientId::from_bytes([n; 16]),
        samples,
        share_of_samples: 0.99995,
        share_of_weight: 0.5,
        bounded: 1,
    };
    rounds[0].dominance = Some(dominance(1, 9000));
    rounds[1].dominance = Some(dominance(2, 700));
    rounds[2].dominance = Some(dominance(1, 8000));
    let page = page(&config(&[]), &rounds, None);
    let first = "2 rounds, the last of them round 3: client 01010101 declares 99.99 % of the samples (8000), and its weight was \
                 bounded to 50.00 %.";
    let second = "1 round, the last of them round 2: client 02020202";
    let [heading, first, second] = [heading, first, second].map(|part| page.find(part).expect(part));
    assert!(heading < first && first < second, "those of most rounds come first");
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
    assert_eq!(page.matches("&lt;script&gt;alert").count(), 5, "title, heading, cell, row, configuration");
}

#[test]
fn runs_of_no_round_and_of_one_are_shown() {
    let config = config(&[]);
    let none = page(&config, &[], None);
    assert!(
        !none.contains("IID</dd>") && none.contains("the devices' own"),
        "the devices' data were not divided"
    );
    assert!(none.contains("No round has closed yet.") && none.contains("not reached"), "{none}");
    assert!(none.contains("devices that keep their data") && none.contains("of 15 planned"));
    let one = page(&config, &run(1, 10), None);
    let whole = page(&self::config(&["run.rounds=1"]), &run(1, 10), None);
    assert!(whole.contains("<strong>Complete</strong>, its one round."), "{whole}");
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
        metrics: std::collections::BTreeMap::new(),
        closing: false,
        clients: std::collections::BTreeMap::new(),
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
fn a_collapse_is_shown_with_its_rounds() {
    let mut rounds = run(6, 10);
    let without = page(&config(&[]), &rounds, None);
    assert!(!without.contains("<h2>Predictions</h2>"));
    for record in &mut rounds {
        record.metrics.insert("global-class-coverage".to_owned(), 0.75);
        record.metrics.insert("coverage".to_owned(), 0.25);
        record.collapsed = record.round == 4 || record.round == 5;
    }
    let found = page(&config(&["data.labelled=50"]), &rounds, None);
    for part in [
        "<h2>Predictions</h2>",
        "Collapse",
        "rounds 4, 5.",
        "samples past the gate: 25.0 %",
        "50 samples of the server",
    ] {
        assert!(found.contains(part), "{part}");
    }
    assert!(!found.contains("its entropy"), "what was not measured is not drawn");
}

#[test]
fn what_clients_found_is_shown_client_by_client() {
    let config = config(&[]);
    let mut rounds = run(4, 4);
    assert!(!page(&config, &rounds, None).contains("own tests"));
    for (index, share) in [(0, 0.5), (1, 0.7), (2, 0.8), (3, 1.0)] {
        let found = [("own-accuracy".to_owned(), share), ("own-loss".to_owned(), 1.0 - share)];
        rounds[2].clients.insert(config.client(index), found.into());
        // An older test says nothing any more.
        rounds[1].clients.insert(config.client(index), [("own-accuracy".to_owned(), 0.125)].into());
    }
    let found = page(&config, &rounds, None);
    for part in [
        "The model after round 2, tested by 4 clients",
        "own-accuracy: median 75.0 %",
        "all from 50.0 to 100.0 %.",
        "<th scope=\"col\">own-loss</th>",
        "<td>0.7000</td><td>0.3000</td>",
    ] {
        assert!(found.contains(part), "{part:?} is not in: {found}");
    }
    assert!(!found.contains("own-loss: median") && !found.contains("0.1250"), "{found}");
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

#[test]
fn the_title_is_the_directorys_name() {
    let config = config(&[]);
    let page = render(&Report { name: "glyphs-fedavg-2", ..report(&config, &[]) });
    assert!(
        page.contains("<title>glyphs-fedavg-2 - ") && page.contains("<h1>glyphs-fedavg-2</h1>"),
        "{page}"
    );
}
