//! Experiments of hand-made rounds, from the records to what people read.

mod tuned;

use std::collections::BTreeMap;

use super::cells::to_target;
use super::csv::csv;
use super::interpolation::{Mixed, Mixture};
use super::page::{Found, page};
use super::plan::tests::plan;
use super::plan::{Plan, Planned, Standing};
use super::results::{Line, Rounds, lines};
use super::text::text;
use crate::round::RoundRecord;

/// Two variants with three seeds; four rounds, of which the second and the last are tested.
const RATES: &str = r#"
title = "Two rates"
seeds = 3
target = 0.5
baseline = "slow"
[base]
model.name = "linear"
run.rounds = 4
evaluate.every = 2
[variants.slow]
training.optimizer.sgd.learning-rate = 0.01
[variants.fast]
training.optimizer.sgd.learning-rate = 0.1
[forms.reduced]
data.max-samples = 600
[forms.full]
[paper]
source = "Doe, 2020"
rounds = { slow = 12 }
accuracy = { slow = 91.5 }
"#;

/// An experiment as far as it came.
struct Bench {
    plan: Plan,
    rounds: Rounds,
    lines: Vec<Line>,
}

impl Bench {
    /// A run has the records that `record` gives for its rounds, up to the first `None`; without any it has not begun.
    fn of(text: &str, form: &str, record: impl Fn(&Planned, u32) -> Option<RoundRecord>) -> Self {
        let plan = plan(text, form).expect("a plan");
        let rounds = |run: &Planned| {
            let records: Vec<RoundRecord> = (1..).map_while(|round| record(run, round)).collect();
            (!records.is_empty()).then_some(records)
        };
        let rounds: Rounds = plan.runs.iter().map(rounds).collect();
        let lines = lines(&plan, &rounds);
        Self { plan, rounds, lines }
    }

    fn table(&self) -> String {
        text(&self.plan, &self.lines, None)
    }

    fn page(&self) -> String {
        let Self { plan, rounds, lines } = self;
        page(&Found { plan, rounds, lines, mixtures: &[], complete: None })
    }

    /// Whether each of `parts` stands in the table and on the page, and none of `not` in either.
    #[track_caller]
    fn says(&self, parts: &[&str], not: &[&str]) {
        for text in [self.table(), self.page().replace('\u{b1}', "+-")] {
            for part in parts {
                assert!(text.contains(part), "{part:?} is not in: {text}");
            }
            for part in not {
                assert!(!text.contains(part), "{part:?} is in: {text}");
            }
        }
    }
}

/// A round of ten clients, in which all went well.
fn round(round: u32, accuracy: Option<f64>) -> RoundRecord {
    let (sampled, accepted) = (10, 10);
    RoundRecord {
        round,
        accuracy,
        sampled,
        accepted,
        bytes_down: 3000,
        bytes_up: 1000,
        ..RoundRecord::default()
    }
}

/// The round of a run whose tests after rounds 2 and 4 have these accuracies.
fn tested(number: u32, second: f64, last: f64) -> Option<RoundRecord> {
    let accuracy = match number {
        2 => Some(second),
        4 => Some(last),
        _ => None,
    };
    (number <= 4).then(|| round(number, accuracy))
}

#[test]
fn what_was_compared_is_said_and_what_the_papers_numbers_are_of() {
    let reduced = Bench::of(RATES, "reduced", |_, number| tested(number, 0.4, 0.6));
    reduced.says(
        &[
            "Two rates",
            "seeds 1, 2, 3",
            "paper (full setup)",
            "Paper: Doe, 2020. Its numbers are of the full",
        ],
        &[],
    );
    assert!(
        reduced.table().starts_with("Two rates\nform \"reduced\", seeds 1, 2, 3\n\n"),
        "{}",
        reduced.table()
    );
    let full = Bench::of(RATES, "full", |_, number| tested(number, 0.4, 0.6));
    full.says(&["Paper: Doe, 2020."], &["full setup"]);
}

#[test]
fn the_paper_is_named_where_it_has_numbers_and_nowhere_else() {
    let metrics = RATES.replace(
        "rounds = { slow = 12 }\naccuracy = { slow = 91.5 }",
        "metrics.fast = { ft-local-test = 90.0 }",
    );
    let measuring = |_: &Planned, number| {
        let mut round = tested(number, 0.4, 0.6)?;
        round.metrics.insert("ft-local-test".to_owned(), 0.875);
        Some(round)
    };
    let found = Bench::of(&metrics, "full", measuring);
    found.says(&["Paper: Doe, 2020.", "90.00 %"], &[]);
    assert_eq!(found.page().matches(">paper</th>").count(), 2, "of the two tests; the table above has none");

    let cells =
        format!("{}\n[grid]\n\"training.batch\" = [8, 16]\n", RATES.replace("slow = ", "'batch=8/slow' = "));
    let page = Bench::of(&cells, "full", |_, number| tested(number, 0.4, 0.6)).page();
    let (eight, sixteen) = page.split_once("<h2>batch=16</h2>").expect("two cells");
    assert!(eight.contains(">paper</th>") && eight.contains("Paper: Doe"), "{eight}");
    let (sixteen, _) = sixteen.split_once("</section>").expect("it ends");
    assert!(!sixteen.contains(">paper</th>") && !sixteen.contains("Paper: "), "{sixteen}");
}

#[test]
fn several_sources_have_a_column_each_and_say_where_their_numbers_are_from() {
    let sources = "[papers.original]\nsource = 'Doe, 2020'\naccuracy = { slow = 91.5 }\n\
                   [papers.others]\nsource = 'Roe, 2021'\nfrom = 'third-party'\nstatistic = 'best'\n\
                   differs = 'half the samples'\naccuracy = { fast = 88.0 }\n\
                   [papers.guess]\nsource = 'Doe says so'\nfrom = 'inferred'\nform = 'small'\nrounds = { slow = 7 }\n";
    let text = RATES.split_once("[paper]").map(|(before, _)| format!("{before}[forms.small]\n{sources}"));
    let text = text.expect("it has a paper");
    let record = |_: &Planned, number| tested(number, 0.4, if number == 2 { 0.7 } else { 0.6 });
    let full = Bench::of(&text, "full", record);
    full.says(
        &[
            "Original: Doe, 2020.",
            "Others: Roe, 2021, measured by others. It has another set-up than this form: half the samples. They are the best",
        ],
        &["Guess: Doe"],
    );
    let head = full.table().lines().find(|line| line.starts_with("variant")).map(str::to_owned);
    let head = head.expect("a head");
    let cells: Vec<&str> = head.split("   ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
    assert_eq!(cells[..3], ["variant", "final accuracy", "best accuracy"]);
    assert!(cells.contains(&"original") && cells.contains(&"others (other setup)"), "{cells:?}");
    let reduced = Bench::of(&text, "reduced", record);
    reduced.says(&["original (full setup)", "others (full setup)"], &["Guess: Doe", "set-up than this form"]);
    let small = Bench::of(&text, "small", record);
    small.says(
        &["Guess: Doe says so: inferred, and published nowhere.", "7 rounds"],
        &["Original: Doe", "Others: Roe", "(full setup)"],
    );
    let published = &full.lines[0].published;
    assert_eq!(published.keys().collect::<Vec<_>>(), ["original"]);
    assert_eq!(published["original"].accuracy, Some(91.5));
}

#[test]
fn what_has_no_target_yet_has_not_missed_it() {
    let text = RATES.replace("target = 0.5", "target = 'fast'");
    // Of the variant that sets the target only the first seed is complete.
    let record = |run: &Planned, number| match (run.variant, run.seed) {
        (1, 2) if number > 2 => None,
        (1, 3) => None,
        (1, _) => tested(number, 0.4, 0.9),
        _ => tested(number, 0.4, 0.6),
    };
    let found = Bench::of(&text, "full", record);
    found.says(&["none of 1"], &["none of 3"]);
    let none = Bench::of(&text, "full", |run, number| record(run, number).filter(|_| run.variant == 0));
    let row = |bench: &Bench| to_target(&bench.lines[0]);
    assert_eq!((row(&none), row(&found)), ("-".to_owned(), "none of 1".to_owned()));
}

#[test]
fn rounds_and_bytes_are_counted_to_the_peak_of_each_run() {
    let text = RATES.replace("target = 0.5", "target = 'peak'");
    let found = Bench::of(&text, "full", |_, number| tested(number, 0.8, 0.6));
    let seed = &found.lines[0].seeds[0];
    let reached = seed.reached.map(|(round, until)| (round, until.up));
    assert_eq!((seed.target, seed.crossing, reached), (Some(0.8), Some(2.0), Some((2, 2000))));
    let said =
        ["rounds to the peak", "best accuracy", "The peak is the best test of each run", "80.0 +- 0.0 %"];
    found.says(&said, &["on a straight line"]);
    assert_eq!(serde_json::to_value(&found.plan.cells[0].target).expect("JSON"), "peak");
}

#[test]
fn what_is_less_than_exact_of_a_target_is_said() {
    let (some, rounded) = ("Where not every seed reached the target", "tested every 2 rounds: bytes");
    let slow = |run: &Planned, number| tested(number, 0.4, if run.seed == 3 { 0.45 } else { 0.6 });
    let open = "Seeds that are not complete count in no mean";
    Bench::of(RATES, "full", slow).says(&[some, rounded, "3 +- 0 (2 of 3)"], &[open]);
    let unfinished =
        |run: &Planned, number: u32| tested(number, 0.4, 0.6).filter(|_| run.seed < 3 || number < 2);
    Bench::of(RATES, "full", unfinished).says(&[open, "3 +- 0 (2 of 3)"], &[some]);
    let exact = RATES.replace("evaluate.every = 2", "evaluate.every = 1");
    Bench::of(&exact, "full", |_, number| tested(number, 0.4, 0.6)).says(&[], &[some, rounded]);
    let aimless = RATES.replace("target = 0.5", "");
    Bench::of(&aimless, "full", slow).says(&[], &[some, rounded]);
}

#[test]
fn methods_that_need_no_bytes_are_told_and_whose_models_are_tested() {
    let (alone, unheard) =
        ("slow: the accuracy is the mean over the clients' own models", "fast: nothing that clients learn");
    let text = RATES
        .replace("[variants.slow]", "[variants.slow]\nalgorithm.local = {}")
        .replace("[variants.fast]", "[variants.fast]\ndata.labelled = 20\nserver.mix = [0.0, 1.0, 0.0]");
    Bench::of(&text, "full", |_, number| tested(number, 0.4, 0.6)).says(&[alone, unheard], &[]);
    Bench::of(RATES, "full", |_, number| tested(number, 0.4, 0.6)).says(&[], &["own models", "nothing that"]);
}

#[test]
fn what_is_measured_is_told_with_its_seeds_and_its_rounds() {
    let record = |run: &Planned, number| {
        let mut round = tested(number, 0.4, 0.6).filter(|_| run.seed < 3)?;
        for (name, value) in [("drift", 1.0), ("server-loss", 2.0), ("members", 3.0), ("own-accuracy", 0.25)]
        {
            round.metrics.insert(name.to_owned(), value * f64::from(number));
        }
        round.metrics.insert("local-test".to_owned(), 0.5);
        round.metrics.insert("mfe-gate".to_owned(), 0.125);
        Some(round)
    };
    let found = Bench::of(RATES, "full", record);
    let notes = "drift, server-loss: means over the rounds. members, own-accuracy: of the last test.";
    let means = ["2.500 +- 0.000 (2 of 3)", "5.000 +- 0.000 (2 of 3)", "12.000 +- 0.000 (2 of 3)"];
    found.says(&[notes, "50.00 +- 0.00 % (2 of 3)", "0.125 +- 0.000 (2 of 3)"], &[]);
    found.says(&means, &[]);
    Bench::of(RATES, "full", |_, number| tested(number, 0.4, 0.6))
        .says(&[], &["means over the rounds", "last test"]);
}

/// Three clients, the number of the seed and of the client in what they find.
fn found_by_clients(run: &Planned, number: u32, names: &[(&str, f64)]) -> Option<RoundRecord> {
    let mut round = tested(number, 0.4, 0.6)?;
    for client in 0..3_u8 {
        let found = |&(name, share): &(&str, f64)| (name.to_owned(), share - f64::from(client) / 10.0);
        let found: BTreeMap<String, f64> = names.iter().map(found).collect();
        round.metrics.extend(found.clone());
        round.clients.insert(run.config.client(client.into()), found);
    }
    Some(round)
}

#[test]
fn each_kind_of_test_by_clients_has_one_picture() {
    let names = [
        ("local-test", 0.9),
        ("ft-local-test", 0.8),
        ("global-test", 0.7),
        ("ft-global-test", 0.6),
        ("own-accuracy", 0.5),
    ];
    let page = Bench::of(RATES, "full", |run, number| found_by_clients(run, number, &names)).page();
    let titles: Vec<&str> =
        page.split("<h3>").skip(1).filter_map(|rest| rest.split("</h3>").next()).collect();
    let own = "own-accuracy, client by client";
    assert_eq!(
        titles,
        ["Local tests of all clients", "Global tests of all clients", "Best test accuracy so far", own]
    );
}

#[test]
fn mixtures_are_drawn_against_theta() {
    let bench = Bench::of(RATES, "full", |_, number| tested(number, 0.4, 0.6));
    let points =
        [-0.5, 0.0, 0.5, 1.0].map(|theta| Mixed { theta, loss: 2.0 + theta, accuracy: Some(0.5) }).to_vec();
    let mixture = Mixture { name: "slow".to_owned(), on: "training", points, parents: [2.0, 2.5, 3.0] };
    let Bench { plan, rounds, lines } = &bench;
    let page = page(&Found { plan, rounds, lines, mixtures: &[mixture], complete: None });
    let (_, chart) = page.split_once("Mixtures of two models").expect("a card");
    for part in [">theta</text>", "<title>theta -0.50: slow 1.500</title>", ">0.4</text>"] {
        assert!(chart.contains(part), "{part:?} is not in: {chart}");
    }
    assert!(!chart.contains("round 1"), "{chart}");
}

#[test]
fn a_spreadsheet_has_every_trouble() {
    let record = |run: &Planned, number| {
        let ill = (run.variant, run.seed, number) == (1, 2, 3);
        let troubled =
            RoundRecord { accepted: 6, rejected: 1, failed: 2, diverged: true, ..tested(number, 0.4, 0.6)? };
        if ill { Some(troubled) } else { tested(number, 0.4, 0.6) }
    };
    let bench = Bench::of(RATES, "full", record);
    let csv = csv(&bench.plan, &bench.lines);
    let cells =
        |line: usize| csv.lines().nth(line).map(|line| line.split(',').collect::<Vec<_>>()).expect("a line");
    assert_eq!(
        cells(0)[14..],
        ["void_rounds", "rejected", "failed", "missing", "collapsed", "diverged", "chosen", "steps", "loss"]
    );
    assert_eq!(cells(5)[14..], ["0", "1", "2", "1", "false", "1", "", "", ""], "{csv}");
    assert_eq!(cells(4)[14..], ["0", "0", "0", "0", "false", "0", "", "", ""], "{csv}");
}

/// Slow ends at 60, 70 and 80 %, fast at 61, 72 and 83; of the first two seeds of fast the first test is good enough.
fn rates(run: &Planned, number: u32) -> Option<RoundRecord> {
    let seed = (run.seed - 1) as f64;
    match run.variant {
        0 => tested(number, 0.4, 0.6 + 0.1 * seed),
        _ => tested(number, if run.seed < 3 { 0.55 } else { 0.45 }, 0.61 + 0.11 * seed),
    }
}

#[test]
fn means_spreads_and_paired_differences_are_those_of_the_records() {
    let found = Bench::of(RATES, "full", rates);
    let expected = "\
Two rates
form \"full\", seeds 1, 2, 3

variant   final accuracy   against slow   rounds to 50.0 %   bytes to target (up)         bytes (up)               paper
slow      70.0 +- 10.0 %       baseline             3 +- 0       16.0 kB (4.0 kB)   16.0 kB (4.0 kB)   91.5 %, 12 rounds
fast      72.0 +- 11.0 %    +2.0 +- 1.0             2 +- 0       10.7 kB (2.7 kB)   16.0 kB (4.0 kB)

Means over 3 seeds +- sample standard deviation; differences are paired by seed, in points of accuracy. Bytes: in both directions, and in brackets what clients have sent (up).
Rounds to a target are where the best accuracy so far crosses it, on a straight line between two tests.
Models are tested every 2 rounds: bytes to the target are rounded up to the next test.
Paper: Doe, 2020.
";
    assert_eq!(found.table(), expected);
    let csv = csv(&found.plan, &found.lines);
    let mut rows = csv.lines();
    assert_eq!(
        rows.next(),
        Some(
            "cell,variant,seed,run,complete,rounds,accuracy,best_accuracy,target,rounds_to_target,bytes_to_target,\
             bytes_up_to_target,bytes,bytes_up,void_rounds,rejected,failed,missing,collapsed,diverged,chosen,steps,loss"
        )
    );
    assert_eq!(
        rows.next(),
        Some(",slow,1,slow--1,true,4,0.6,0.6,0.5,3,16000,4000,16000,4000,0,0,0,0,false,0,,,")
    );
    assert_eq!(
        rows.nth(2),
        Some(",fast,1,fast--1,true,4,0.61,0.61,0.5,2,8000,2000,16000,4000,0,0,0,0,false,0,,,")
    );
}

#[test]
fn a_pair_of_which_one_is_missing_is_no_pair() {
    // Slow without its third seed, fast without its first.
    let found = Bench::of(RATES, "full", |run, number| {
        let there = [(0, 1), (0, 2), (1, 2), (1, 3)].contains(&(run.variant, run.seed));
        rates(run, number).filter(|_| there)
    });
    let difference = found.lines[1].difference.expect("a pair");
    assert!((difference.mean - 0.02).abs() < 1e-9 && difference.seeds == 1, "{difference:?}");
    found.says(&["+2.0 (1 of 3)", "65.0 +- 7.1 % (2 of 3)", "77.5 +- 7.8 % (2 of 3)"], &[]);
}

#[test]
fn what_is_not_complete_or_learned_nothing_counts_nowhere() {
    let found = Bench::of(RATES, "full", |run, number| match run.seed {
        1 => rates(run, number).filter(|_| number < 4),
        2 => Some(RoundRecord { accepted: 0, void: true, ..rates(run, number)? }),
        _ => rates(run, number),
    });
    found.says(
        &["80.0 % (1 of 3)", "slow, seed 2: 4 void rounds, 40 of 40 updates are missing; it learned nothing"],
        &[],
    );
    assert!(
        found.page().contains("3 so far") && found.page().contains("counts nowhere</td>"),
        "{}",
        found.page()
    );
}

#[test]
fn a_run_that_has_ended_early_by_a_rule_of_its_own_counts() {
    let mut found = Bench::of(RATES, "full", |run, number| rates(run, number).filter(|_| number < 3));
    let complete = |lines: &[Line]| -> Vec<bool> {
        lines.iter().flat_map(|line| &line.seeds).map(|seed| seed.complete).collect()
    };
    assert_eq!(complete(&found.lines), [false; 6]);
    let standing = vec![Standing::Done; found.plan.runs.len()];
    found.plan.take_in(&standing);
    assert_eq!(complete(&lines(&found.plan, &found.rounds)), [true; 6]);
}

#[test]
fn a_page_has_the_table_the_curves_and_all_runs() {
    let page = Bench::of(RATES, "full", rates).page();
    let cells = "<td>72.0 \u{b1} 11.0 %</td><td>+2.0 \u{b1} 1.0</td><td>2 \u{b1} 0</td><td>10.7 kB (2.7 kB)</td><td>16.0 kB (4.0 kB)</td><td></td>";
    for part in [
        "<h1>Two rates</h1>",
        "Form &quot;full&quot;, seeds 1, 2, 3.",
        &format!("<th scope=\"row\">fast</th>{cells}"),
        "<title>round 4: slow 70.0 % (60.0 to 80.0), fast 72.0 % (61.0 to 83.0)</title>",
        "target 50.0 %",
        "href=\"runs/fast--3/report.html\"",
        "<td>91.5 %, 12 rounds</td>",
    ] {
        assert!(page.contains(part), "{part:?} is not in: {page}");
    }
    assert!(!page.contains("<script"), "{page}");
}

#[test]
fn the_mean_ends_with_the_first_seed_and_every_seed_is_drawn() {
    let text = RATES.replace("run.rounds = 4\n", "run.rounds = 4\nstop.target = 0.9\n");
    let record = |run: &Planned, number| match run.seed {
        1 if number > 2 => None,
        1 => tested(number, 0.95, 0.0),
        _ => tested(number, 0.5, 0.7),
    };
    let page = Bench::of(&text, "full", record).page();
    for part in [
        "<title>round 2: slow 65.0 % (50.0 to 95.0), fast 65.0 % (50.0 to 95.0)</title>",
        "slow is the mean of 3 runs up to round 2, with which the first of them ends, with the band",
        "<li class=\"mean\">mean, as far as all seeds go</li>",
    ] {
        assert!(page.contains(part), "{part:?} is not in: {page}");
    }
    assert!(!page.contains("round 4: slow"), "two seeds are not the mean of three: {page}");
    assert!(page.matches("<polyline class=\"faint").count() >= 6, "{page}");
    // Runs that are not over are not among those that count.
    let page = Bench::of(RATES, "full", record).page();
    assert!(page.contains("round 4: slow 70.0 %"), "of the runs that count: {page}");
    assert!(page.contains("slow is the mean of 2 runs up to round 4, with the band"), "{page}");
}

/// With FT, whose paper is better on both tests.
const PERSONAL: &str = "metrics.fast = { local-test = 80.0, ft-local-test = 95.25, ft-global-test = 91.5 }";

#[test]
fn personal_models_stand_beside_the_papers_and_who_loses_is_told() {
    let text = RATES.replace("rounds = { slow = 12 }\naccuracy = { slow = 91.5 }", PERSONAL);
    let record = |run: &Planned, number| {
        let names =
            [("local-test", 0.8), ("ft-local-test", 0.9), ("global-test", 0.7), ("ft-global-test", 0.4)];
        let mut round = found_by_clients(run, number, &names)?;
        // One client of the second seed loses on its local test.
        if run.seed == 2 {
            let loser = round.clients.get_mut(&run.config.client(2)).expect("one of three");
            loser.insert("ft-local-test".to_owned(), 0.25);
        }
        round.metrics.insert("ft-gate".to_owned(), 0.5);
        Some(round).filter(|_| run.variant == 1)
    };
    let found = Bench::of(&text, "reduced", record);
    let table = found.table();
    let (_, personal) = table.split_once("model of the clients").expect("a table");
    let rows: Vec<Vec<&str>> =
        personal.lines().take(3).map(|row| row.split("   ").map(str::trim).collect()).collect();
    let rows: Vec<Vec<&str>> =
        rows.into_iter().map(|row| row.into_iter().filter(|cell| !cell.is_empty()).collect()).collect();
    assert_eq!(rows[0], ["local test", "paper (full setup)", "global test", "paper (full setup)", "gate"]);
    assert_eq!(rows[1], ["fast, as it is", "60.00 +- 0.00 %", "80.00 %", "50.00 +- 0.00 %", "-"]);
    let ft = ["fast, FT", "70.00 +- 0.00 %", "95.25 %", "20.00 +- 0.00 %", "91.50 %", "0.500 +- 0.000"];
    assert_eq!(rows[2], ft);
    let page = found.page();
    for part in [
        "fast, FT: worse than the model as it is for 1 of 9 clients.",
        "fast, FT: worse than the model as it is for 9 of 9 clients.",
        "<td>95.25 %</td>",
    ] {
        assert_eq!(page.matches(part).count(), 1, "{part:?}: {page}");
    }
}

#[test]
fn more_variants_than_colours_are_told_apart() {
    let variants: String =
        (0..17).map(|n| format!("[variants.v{n}]\ntraining.epochs = {}\n", n + 1)).collect();
    let bench = Bench::of(&format!("[base]\nmodel.name = \"linear\"\n{variants}"), "full", |_, number| {
        tested(number, 0.4, 0.6)
    });
    let page = bench.page();
    for class in ["\"series-1\"", "\"series-8\"", "\"series-1 dashed\"", "\"series-1 dotted\""] {
        assert_eq!(page.matches(&format!("<li class={class}>")).count() % 2, 1, "{class}: once in a legend");
    }
}
