//! `[tune]`: what is planned, what is chosen, and what people read of it.

use shared::spec::Optimizer;

use super::*;
use crate::compare::choice::{Race, best, decided, tried};
use crate::compare::experiment::Experiment;

/// Of `slow` three rates are tried, of `fast` nothing.
const TUNED: &str = r#"
title = "Two rates"
seeds = [4, 5, 6]
target = 0.5
[base]
model.name = "linear"
run.rounds = 4
evaluate.every = 2
[variants.slow]
[variants.fast]
training.optimizer.sgd.learning-rate = 0.7
[tune]
"training.optimizer.sgd.learning-rate" = [0.01, 0.1, 0.3]
[tune.variants.fast]
"#;

/// The rate in thousandths.
fn rate(run: &Planned) -> u32 {
    let Optimizer::Sgd { learning_rate, .. } = run.config.spec.training.optimizer else {
        panic!("it is SGD")
    };
    (1000.0 * learning_rate).round() as u32
}

fn names(plan: &Plan) -> Vec<&str> {
    plan.runs.iter().map(|run| run.config.spec.name.as_str()).collect()
}

/// The rounds of all planned runs, by their rates.
fn rounds(plan: &Plan, record: impl Fn(u32, u32) -> Option<RoundRecord>) -> Rounds {
    let of = |run: &Planned| {
        let records: Vec<RoundRecord> = (1..).map_while(|number| record(rate(run), number)).collect();
        (!records.is_empty()).then_some(records)
    };
    plan.runs.iter().map(of).collect()
}

/// The rate 0.1 crosses the target in round 3, 0.3 only at the end, 0.01 never; 0.7 is better than all.
fn by_rate(rate: u32, number: u32) -> Option<RoundRecord> {
    let (second, last) = match rate {
        10 => (0.1, 0.2),
        100 => (0.4, 0.6),
        300 => (0.1, 0.5),
        _ => (0.6, 0.9),
    };
    tested(number, second, last)
}

#[test]
fn candidates_run_with_the_first_seed_and_the_best_with_the_others() {
    let mut plan = plan(TUNED, "full").expect("a plan");
    let candidates = ["slow--0.01--4", "slow--0.1--4", "slow--0.3--4"];
    let fast = ["fast--4", "fast--5", "fast--6"];
    assert_eq!(names(&plan), [candidates, fast].concat());
    assert_eq!(plan.runs[1].title(&plan), "slow with learning-rate=0.1, seed 4");
    assert_eq!([0, 1, 2, 3].map(|run| rate(&plan.runs[run])), [10, 100, 300, 700]);
    let begun = rounds(&plan, |rate, number| by_rate(rate, number).filter(|_| rate < 300 || number < 4));
    assert!(!plan.choose(&decided(&plan, &begun)), "the third rate may still win");
    assert_eq!((plan.undecided(), plan.chosen(0, 0).is_none()), (1, true));
    let whole = rounds(&plan, by_rate);
    assert!(
        plan.choose(&decided(&plan, &whole)) && !plan.choose(&decided(&plan, &rounds(&plan, by_rate))),
        "once"
    );
    assert_eq!(names(&plan), [&candidates[..], &["slow--0.1--5", "slow--0.1--6"], &fast].concat());
    assert_eq!(
        (plan.undecided(), plan.chosen(0, 0).map(|chosen| &*chosen.text)),
        (0, Some("learning-rate=0.1"))
    );
    let counted: Vec<&str> =
        plan.runs.iter().filter(|run| plan.counts(run)).map(|run| run.config.spec.name.as_str()).collect();
    let race = Race::after(&plan, &rounds(&plan, by_rate));
    assert!(
        !race.is_lost(&plan, &plan.runs[3], &round(30, Some(0.1))),
        "the others' seeds run to their ends"
    );
    assert_eq!(counted, [&["slow--0.1--4", "slow--0.1--5", "slow--0.1--6"], &fast[..]].concat());
}

#[test]
fn a_candidate_that_cannot_win_stops_and_is_settled() {
    let plan = plan(TUNED, "full").expect("a plan");
    let race = Race::after(&plan, &vec![None; plan.runs.len()]);
    let lost = |run: usize, number, accuracy| race.is_lost(&plan, &plan.runs[run], &round(number, accuracy));
    assert!(!lost(0, 100, Some(0.4)), "no one has reached the target");
    assert!(!lost(1, 20, Some(0.6)), "it has won");
    assert!(!lost(1, 21, Some(0.4)), "it has reached the target before");
    assert!(!lost(0, 18, Some(0.4)), "it may still cross before");
    assert!(!lost(0, 21, None), "it was not tested");
    assert!(lost(0, 20, Some(0.4)) && lost(2, 30, Some(0.49)));
    assert!(!lost(3, 100, Some(0.1)), "it is no candidate");
    // The rate 0.3 needs not close its last round, since it was tested when 0.1 had crossed.
    let text = TUNED.replace("run.rounds = 4", "run.rounds = 9");
    let longer = super::plan(&text, "full").expect("a plan");
    let of = |rate: u32, number: u32| {
        let accuracy = if rate < 300 { 0.6 } else { 0.4 };
        (number <= if rate < 300 { 9 } else { 2 }).then(|| round(number, (number == 2).then_some(accuracy)))
    };
    let found = tried(&longer, &rounds(&longer, of), 0, 0);
    let known =
        |candidate: &crate::compare::choice::Tried| (candidate.rounds, candidate.settled, candidate.outrun);
    // What came after the round that decided depends on who ran when, and is not shown.
    assert_eq!(
        found.iter().map(known).collect::<Vec<_>>(),
        [(2, true, false), (2, true, false), (2, true, true)]
    );
    assert_eq!(best(&found), Some(0));
    // A run that goes on has its rivals' rounds from before.
    let race = Race::after(&longer, &rounds(&longer, of));
    assert!(race.is_lost(&longer, &longer.runs[2], &round(3, Some(0.4))));
}

#[test]
fn the_chosen_values_and_what_was_tried_are_read_everywhere() {
    let mut plan = plan(TUNED, "full").expect("a plan");
    let open = rounds(&plan, |rate, number| by_rate(rate, number).filter(|_| rate < 300 || number < 3));
    let bench =
        Bench { lines: lines(&plan, &open), rounds: open, plan: super::plan(TUNED, "full").expect("it") };
    bench.says(&["2 of 3 tried"], &["learning-rate=0.1 "]);
    assert!(bench.lines[0].seeds.is_empty(), "no candidate counts before one is chosen");
    let whole = rounds(&plan, by_rate);
    assert!(plan.choose(&decided(&plan, &whole)));
    let whole = rounds(&plan, by_rate);
    let found = Bench { lines: lines(&plan, &whole), rounds: whole, plan };
    found.says(
        &["chosen", "learning-rate=0.1", "60.0 +- 0.0 %", "3 +- 0", "with seed 4, on the test samples"],
        &["the least or the greatest", "of 3 tried"],
    );
    let page = found.page();
    let (_, tried) = page.split_once("What was tried").expect("a table");
    for cell in [
        "learning-rate=0.01</td><td>-</td><td>20.0 %</td>",
        "learning-rate=0.3</td><td>4.0</td><td>50.0 %</td>",
    ] {
        assert!(tried.contains(cell), "{cell:?} is not in: {tried}");
    }
    let csv = csv(&found.plan, &found.lines);
    let rows: Vec<&str> = csv.lines().skip(1).collect();
    assert!(rows.len() == 6 && rows[0].starts_with(",slow,4,slow--0.1--4,"), "{csv}");
    assert!(rows[2].ends_with(",learning-rate=0.1,,") && rows[3].ends_with("false,0,,,"), "{csv}");
}

#[test]
fn every_cell_has_values_of_its_own() {
    let text = TUNED.replace("[variants.slow]", "[grid]\n\"training.batch\" = [8, 16]\n[variants.slow]");
    let mut plan = plan(&text, "full").expect("a plan");
    let of = |run: &Planned| {
        // Small batches learn best with 0.1, large ones with 0.3.
        let wins = if run.cell == 0 { 100 } else { 300 };
        let accuracy = if rate(run) == wins { 0.6 } else { 0.4 };
        Some((1..=4).filter_map(|number| tested(number, 0.1, accuracy)).collect())
    };
    let rounds: Rounds = plan.runs.iter().map(of).collect();
    assert!(plan.choose(&decided(&plan, &rounds)));
    let chosen = [0, 1].map(|cell| plan.chosen(cell, 0).map(|chosen| &*chosen.text));
    assert_eq!(chosen, [Some("learning-rate=0.1"), Some("learning-rate=0.3")]);
}

#[test]
fn values_are_chosen_on_validation_samples_where_there_are_any() {
    let text = TUNED.replace("target = 0.5\n", "").replace("[base]\n", "[base]\ndata.validation = 40\n");
    let mut plan = plan(&text, "full").expect("a plan");
    // What is best on the test samples is not what is best on those to choose by.
    let of = |rate: u32, number: u32| {
        let (test, validation) =
            if rate == 100 { (0.9, 0.4) } else { (0.5, if rate == 300 { 0.6 } else { 0.2 }) };
        let mut round = tested(number, 0.1, test)?;
        round.metrics.insert("validation-accuracy".to_owned(), validation);
        Some(round)
    };
    assert!(plan.choose(&decided(&plan, &rounds(&plan, of))));
    assert_eq!(plan.chosen(0, 0).map(|chosen| &*chosen.text), Some("learning-rate=0.3"));
    let whole = rounds(&plan, of);
    let found = Bench { lines: lines(&plan, &whole), rounds: whole, plan };
    found.says(&["with seed 4, on the validation samples;"], &["on the test samples"]);
}

#[test]
fn a_best_value_at_the_end_of_the_grid_is_said() {
    let mut plan = plan(TUNED, "full").expect("a plan");
    let great = |rate: u32, number| tested(number, 0.1, if rate == 300 { 0.7 } else { 0.6 });
    assert!(plan.choose(&decided(&plan, &rounds(&plan, great))));
    let whole = rounds(&plan, great);
    let found = Bench { lines: lines(&plan, &whole), rounds: whole, plan };
    found.says(
        &[
            "learning-rate=0.3",
            "slow (learning-rate): the least or the greatest of the values that were tried",
        ],
        &[],
    );
}

#[test]
fn two_keys_are_tried_in_all_combinations_and_forms_have_their_own() {
    let two = TUNED.replace(
        "[tune.variants.fast]",
        "\"training.epochs\" = [1, 2]\n[tune.variants.fast]\n[forms.full]\n[forms.one.tune]\n",
    );
    let names = |form: &str| {
        let plan = plan(&two, form).expect("a plan");
        let names = plan.runs.iter().filter(|run| run.variant == 0 && run.seed == 4);
        names.map(|run| run.config.spec.name.clone()).collect::<Vec<_>>()
    };
    let all = ["0.01+1", "0.01+2", "0.1+1", "0.1+2", "0.3+1", "0.3+2"];
    assert_eq!(names("full"), all.map(|name| format!("slow--{name}--4")));
    assert_eq!(names("one"), ["slow--4"]);
    let plan = plan(&two, "full").expect("a plan");
    assert_eq!(plan.runs[3].title(&plan), "slow with learning-rate=0.1, epochs=2, seed 4");
}

#[test]
fn mistakes_in_what_is_tuned_name_their_place() {
    for (tune, parts) in [
        ("tune = 1", &["letters.toml:1", "`tune`", "table"][..]),
        ("[tune]\ntraining.epochs = [1, 2]", &["letters.toml:2", "`training`", "quoted"]),
        ("[tune]\n'training.epochs' = [1]", &["letters.toml:2", "at least two"]),
        ("[tune]\n'training.epochs' = [1, 1]", &["letters.toml:1", "`1` stands there twice"]),
        ("[tune]\n'training.epoch' = [1, 2]", &["letters.toml:2", "`training.epoch`", "epochs"]),
        ("[tune]\n'run.seed' = [1, 2]", &["letters.toml:2", "`run.seed` is the experiment's"]),
        ("[tune]\na = [1, 2]\nb = [1, 2]\nc = [1, 2]", &["3 keys", "at most 2"]),
        (
            "[base]\ntraining.optimizer.adam = {}\n[tune]\n'training.optimizer.sgd.learning-rate' = [0.1, 0.2]",
            &["letters.toml:4", "learning-rate=0.1 changes `training.optimizer.adam", "[tune.variants]"],
        ),
        ("tune.variants = ['x']", &["letters.toml:1", "`variants` is a table"]),
        (
            "[tune]\n'training.epochs' = [1, 2]\n[tune.variants]\nx = [1]",
            &["letters.toml:4", "a table of keys"],
        ),
        ("[tune]\n'data.set' = ['a/b', 'c']", &["letters.toml:2", "folder's name"]),
        ("[tune.variants.y]", &["letters.toml:1", "`y` is none of the variants x"]),
    ] {
        let error = plan(&format!("{tune}\n[variants.x]"), "full").expect_err(tune).to_string();
        for part in parts {
            assert!(error.contains(part), "{part:?} is not in: {error}");
        }
    }
}

#[test]
fn what_is_tuned_is_not_set_from_the_command_line() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("rates.toml");
    std::fs::write(&path, TUNED).expect("a file in it");
    let of = |given: &str| {
        let experiment = Experiment::read(&path, "full").expect("an experiment");
        Plan::of(experiment, &[given.to_owned()]).map_err(|error| error.to_string())
    };
    let error = of("training.optimizer.sgd.learning-rate=0.5").expect_err("it is tuned");
    assert!(error.starts_with("--set training.") && error.contains("is chosen by [tune]"), "{error}");
    let error = of("training.optimizer.adam.learning-rate=0.5").expect_err("all are the same");
    assert!(error.contains("learning-rate=0.01 and learning-rate=0.1 are the same run"), "{error}");
    assert!(of("training.epochs=2").is_ok());
}
