//! Experiments as a user runs them: interrupted, changed, continued.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use aggregator::round::{WaitedFor, jsonl};
use federation_tests::process::{Ended, INTERRUPTED, Process, until};
use federation_tests::programs::programs;

/// Four runs of twelve rounds on a little built-in data.
const EXPERIMENT: &str = r#"
seeds = 2
baseline = "slow"
target = 0.3
[base]
data = { clients = 4, max-samples = 400 }
model.name = "linear"
run.rounds = 12
round.fraction = 0.5
[variants.slow]
training.optimizer.sgd.learning-rate = 0.02
[variants.fast]
training.optimizer.sgd.learning-rate = 0.1
"#;

/// A folder with the experiment `rates.toml`.
pub(super) struct Testbed(tempfile::TempDir);

impl Testbed {
    fn new() -> Self {
        Self::of(EXPERIMENT)
    }

    pub(super) fn of(experiment: &str) -> Self {
        let testbed = Self(tempfile::tempdir().expect("a temporary folder"));
        testbed.write(experiment);
        testbed
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(super) fn write(&self, text: &str) {
        fs::write(self.path("rates.toml"), text).expect("written");
    }

    pub(super) fn command(&self, out: &str, more: &[&str]) -> Command {
        let mut command = Command::new(&programs().aggregator);
        command.arg("compare").arg(self.path("rates.toml")).arg("--out").arg(self.path(out)).args(more);
        command
    }

    pub(super) fn start(&self, out: &str, more: &[&str]) -> Process {
        Process::start("compare", &mut self.command(out, more))
    }

    pub(super) fn compare(&self, out: &str, more: &[&str]) -> Ended {
        self.start(out, more).wait()
    }

    /// Of every run: the accuracies of its rounds and the bytes of its model.
    pub(super) fn outcome(&self, out: &str) -> BTreeMap<String, (Vec<Option<f64>>, Vec<u8>)> {
        let outcome = |run: &Path| {
            let rounds = fs::read_to_string(run.join("rounds.jsonl")).expect("rounds");
            let records = jsonl::read(&rounds).expect("whole lines").records;
            let model = fs::read(run.join("model.safetensors")).expect("a model");
            (records.iter().map(|record| record.accuracy).collect(), model)
        };
        let runs = fs::read_dir(self.path(out).join("runs")).expect("runs");
        let runs = runs.map(|entry| entry.expect("an entry"));
        runs.map(|run| (run.file_name().to_string_lossy().into_owned(), outcome(&run.path()))).collect()
    }
}

#[test]
fn killed_at_any_moment_it_continues_where_it_was() {
    let testbed = Testbed::new();
    let whole = testbed.compare("whole", &[]);
    assert_eq!(whole.code, Some(0), "{}", whole.text);
    let expected = testbed.outcome("whole");
    assert_eq!(expected.keys().collect::<Vec<_>>(), ["fast--1", "fast--2", "slow--1", "slow--2"]);
    assert!(expected.values().all(|(rounds, _)| rounds.len() == 12));

    // In the first runs, and after one of them.
    testbed.start("cut", &["--jobs", "1"]).kill();
    let mut cut = testbed.start("cut", &["--jobs", "1"]);
    cut.line("a complete run", |line| line.contains("1/4 "));
    cut.kill();
    let done = testbed.path("cut/runs/slow--1/state/finished");
    let before = fs::metadata(&done).expect("complete").modified().expect("a time");
    let rest = testbed.compare("cut", &["--jobs", "3"]);
    assert_eq!(rest.code, Some(0), "{}", rest.text);
    assert!(rest.text.contains("of 4 runs to do") && !rest.text.contains("4 of 4 runs"), "{}", rest.text);
    assert_eq!(fs::metadata(&done).expect("there").modified().expect("a time"), before, "it was run again");
    assert!(testbed.outcome("cut") == expected, "other rounds or models than without interruption");
    let again = testbed.compare("cut", &[]);
    assert!(again.code == Some(0) && !again.text.contains("to do"), "{}", again.text);
}

#[test]
fn paired_seeds_share_what_variants_do_not_change() {
    let testbed = Testbed::new();
    testbed.write(&EXPERIMENT.replace("sgd.learning-rate = 0.1", "sgd.learning-rate = 0.02"));
    let ended = testbed.compare("same", &["--json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.text);
    let outcome = testbed.outcome("same");
    assert!(outcome["slow--1"].0 == outcome["fast--1"].0 && outcome["slow--2"].0 == outcome["fast--2"].0);
    assert_ne!(outcome["slow--1"].0, outcome["slow--2"].0, "seeds differ");
    let json = ended.text.lines().find(|line| line.starts_with('{')).expect("an object");
    let json: serde_json::Value = serde_json::from_str(json).expect("JSON");
    let fast = &json["results"][1];
    assert_eq!((fast["name"].as_str(), fast["difference"]["mean"].as_f64()), (Some("fast"), Some(0.0)));
}

#[test]
fn what_clients_measure_stands_beside_their_accuracy() {
    let testbed = Testbed::new();
    let plain = testbed.compare("plain", &["--set", "run.rounds=2"]);
    assert!(plain.code == Some(0) && !plain.text.contains("drift"), "{}", plain.text);
    let rows = |out: &str| -> Vec<Vec<String>> {
        let text = fs::read_to_string(testbed.path(out).join("results.csv")).expect("a table");
        text.lines().map(|line| line.split(',').map(str::to_owned).collect()).collect()
    };
    let columns = rows("plain")[0].len();
    let mut measure = ["--set", "run.rounds=2", "--set", "training.measure.drift=true"];
    let measured = testbed.compare("measured", &measure);
    assert_eq!(measured.code, Some(0), "{}", measured.text);
    let head = measured.text.lines().find(|line| line.starts_with("variant")).expect("a table");
    assert!(head.ends_with("drift"), "{head}");
    let rows = rows("measured");
    assert!(rows[0].len() == columns + 1 && rows[0][columns] == "drift", "{:?}", rows[0]);
    // The mean over the rounds of the run.
    let run = testbed.path("measured/runs").join(&rows[1][3]).join("rounds.jsonl");
    let records = jsonl::read(&fs::read_to_string(run).expect("rounds")).expect("whole lines").records;
    let drifts: Vec<f64> = records.iter().map(|record| record.metrics["drift"]).collect();
    let found: f64 = rows[1][columns].parse().expect("a number");
    assert!((found - drifts.iter().sum::<f64>() / 2.0).abs() < 1e-9 && found > 0.0, "{found} {drifts:?}");
    // Nothing is learned below the head of this model.
    measure[3] = "training.measure.alignment=true";
    let refused = testbed.compare("refused", &measure);
    assert!(refused.code == Some(2) && refused.text.contains("the model linear"), "{}", refused.text);
}

#[test]
fn a_changed_experiment_is_noticed_and_only_what_it_concerns_is_run_again() {
    let testbed = Testbed::new();
    assert_eq!(testbed.compare("out", &[]).code, Some(0));
    let before = testbed.outcome("out");
    testbed.write(&EXPERIMENT.replace("sgd.learning-rate = 0.1", "sgd.learning-rate = 0.2"));
    let refused = testbed.compare("out", &[]);
    assert_eq!(refused.code, Some(2), "{}", refused.text);
    for part in [
        "2 of 4 runs",
        "fast--1",
        "training.optimizer.sgd.learning-rate is 0.1 there and 0.2 now",
        "--replace",
    ] {
        assert!(refused.text.contains(part), "{part:?} is not in: {}", refused.text);
    }
    assert!(testbed.outcome("out") == before, "nothing was touched");
    let replaced = testbed.compare("out", &["--replace"]);
    assert!(replaced.code == Some(0) && replaced.text.contains("2 of 4 runs to do"), "{}", replaced.text);
    let after = testbed.outcome("out");
    assert!(after["slow--1"] == before["slow--1"] && after["fast--1"] != before["fast--1"]);
    assert!(testbed.path("out/replaced/fast--2-1/model.safetensors").is_file(), "the old run is kept");
}

#[test]
fn a_plan_can_be_asked_for_at_any_time_and_writes_nothing() {
    let testbed = Testbed::new();
    assert_eq!(testbed.compare("out", &[]).code, Some(0));
    fs::remove_file(testbed.path("out/report.html")).expect("it was there");
    // As another process would have it.
    let lock = fs::File::open(testbed.path("out/lock")).expect("a lock");
    lock.lock().expect("no other process has it");
    let refused = testbed.compare("out", &[]);
    assert!(
        refused.code != Some(0) && refused.text.contains("is in use by another aggregator"),
        "{}",
        refused.text
    );
    let meanwhile = testbed.compare("out", &["--plan"]);
    assert_eq!(meanwhile.code, Some(0), "{}", meanwhile.text);
    for part in ["slow, seed 1: complete", "final accuracy"] {
        assert!(meanwhile.text.contains(part), "{part:?} is not in: {}", meanwhile.text);
    }

    testbed.write(&EXPERIMENT.replace("sgd.learning-rate = 0.02", "sgd.learning-rate = 0.2"));
    let changed = testbed.compare("out", &["--plan"]);
    assert_eq!(changed.code, Some(0), "{}", changed.text);
    let part = "slow, seed 1: 12 rounds, with --replace: training.optimizer.sgd.learning-rate is 0.02 there and 0.2 now";
    assert!(changed.text.contains(part), "{}", changed.text);
    assert!(!testbed.path("out/report.html").exists(), "nothing was written");
}

#[test]
fn a_variant_that_learns_nothing_counts_nowhere_and_is_told_every_time() {
    let testbed = Testbed::new();
    testbed.write(&EXPERIMENT.replace("sgd.learning-rate = 0.1", "sgd.learning-rate = 1e30"));
    for time in ["first", "again"] {
        let ended = testbed.compare("out", &[]);
        assert_eq!(ended.code, Some(4), "{time}: {}", ended.text);
        let alarmed = ended.text.contains("WARNING: fast, seed 1: 3 rounds in a row");
        assert_eq!(alarmed, time == "first", "{}", ended.text);
        for part in ["fast, seed 2: 10 void rounds", "it learned nothing and counts nowhere", "fast, seed 1"]
        {
            assert!(ended.text.contains(part), "{time}: {part:?} is not in: {}", ended.text);
        }
        let row = ended.text.lines().find(|line| line.starts_with("fast ")).expect("a row");
        assert!(row.split_whitespace().skip(1).take(2).all(|cell| cell == "-"), "{row}");
    }
}

#[test]
fn data_that_is_not_what_runs_learned_from_is_noticed() {
    let testbed = Testbed::new();
    testbed.write(&EXPERIMENT.replace(
        "data = { clients = 4, max-samples = 400 }",
        "data = { set = 'csv', path = 'numbers', shape = [2], classes = 2, clients = 4 }",
    ));
    let numbers = |name: &str, first: i32| {
        let row = |row: i32| format!("{},{},{}\n", if row == 0 { first } else { row }, -row, row % 2);
        let text: String = std::iter::once("a,b,label\n".to_owned()).chain((0..40).map(row)).collect();
        fs::create_dir_all(testbed.path("numbers")).expect("a folder");
        fs::write(testbed.path("numbers").join(name), text).expect("written");
    };
    numbers("train.csv", 0);
    numbers("test.csv", 0);
    let first = testbed.compare("out", &[]);
    assert_eq!(first.code, Some(0), "{}", first.text);
    assert_eq!(testbed.compare("out", &[]).code, Some(0), "nothing has changed");

    numbers("train.csv", 7);
    let refused = testbed.compare("out", &[]);
    assert_eq!(refused.code, Some(2), "{}", refused.text);
    for part in ["4 of 4 runs", "fast--1: the content of the training files is ", "--replace"] {
        assert!(refused.text.contains(part), "{part:?} is not in: {}", refused.text);
    }
    assert!(!refused.text.contains("test files"), "{}", refused.text);
    let plan = testbed.compare("out", &["--plan"]);
    assert!(plan.code == Some(0) && plan.text.contains("with --replace: the content of"), "{}", plan.text);
    assert!(plan.text.lines().any(|line| line.starts_with("slow ") && !line.contains('%')), "{}", plan.text);
    // A run of an older program says nothing of its data.
    fs::remove_file(testbed.path("out/runs/slow--1/state/content.json")).expect("it was there");
    let replaced = testbed.compare("out", &["--replace"]);
    assert!(replaced.code == Some(0) && replaced.text.contains("3 of 4 runs to do"), "{}", replaced.text);

    fs::rename(testbed.path("numbers"), testbed.path("elsewhere")).expect("moved");
    assert_eq!(testbed.compare("out", &[]).code, Some(0), "what is complete needs no data");
}

#[test]
fn a_run_that_a_power_failure_has_damaged_begins_anew() {
    let testbed = Testbed::new();
    assert_eq!(testbed.compare("out", &[]).code, Some(0));
    let before = testbed.outcome("out");
    let state = testbed.path("out/runs/fast--1/state");
    fs::remove_file(state.join("finished")).expect("it was complete");
    for entry in fs::read_dir(&state).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.to_string_lossy().contains("checkpoint-") {
            fs::write(&path, "").expect("cut off");
        }
    }
    let mended = testbed.compare("out", &[]);
    assert_eq!(mended.code, Some(0), "{}", mended.text);
    for part in ["WARNING: fast, seed 1: ", "is damaged", "begins anew", "fast--1-1"] {
        assert!(mended.text.contains(part), "{part:?} is not in: {}", mended.text);
    }
    assert!(testbed.outcome("out") == before && testbed.path("out/replaced/fast--1-1/state").is_dir());
}

#[test]
fn rounds_are_counted_to_what_another_variant_reached_with_the_same_seed() {
    let testbed = Testbed::new();
    testbed.write(&EXPERIMENT.replace("target = 0.3", "target = 'slow'"));
    let ended = testbed.compare("out", &[]);
    assert_eq!(ended.code, Some(0), "{}", ended.text);
    assert!(ended.text.contains("rounds to slow's accuracy"), "{}", ended.text);
    let text = fs::read_to_string(testbed.path("out/results.csv")).expect("a table");
    let mut rows = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let head = rows.next().expect("a head");
    let rows: Vec<_> = rows.map(|row| head.iter().copied().zip(row).collect::<BTreeMap<_, _>>()).collect();
    for fast in rows.iter().filter(|row| row["variant"] == "fast") {
        let slow = rows.iter().find(|row| row["variant"] == "slow" && row["seed"] == fast["seed"]);
        assert_eq!(fast["target"], slow.expect("its pair")["accuracy"]);
        let number = |name| fast[name].parse::<u64>().expect("a number");
        assert!(fast["rounds_to_target"].parse::<f64>().expect("a number") < 12.0, "{fast:?}");
        let ups = [number("bytes_up_to_target"), number("bytes_up")];
        assert!(0 < ups[0] && ups[0] < ups[1] && ups[1] < number("bytes"), "{fast:?}");
    }
}

#[test]
fn updates_that_were_not_waited_for_are_told() {
    let testbed = Testbed::new();
    let more = ["--set", "run.rounds=2"];
    let whole = testbed.compare("out", &more);
    assert!(whole.code == Some(0) && !whole.text.contains("missing"), "{}", whole.text);
    // As a busy machine has left runs to which the limit for devices applied.
    let path = testbed.path("out/runs/slow--1/rounds.jsonl");
    let text = fs::read_to_string(&path).expect("rounds");
    let mut rounds = jsonl::read(&text).expect("rounds").records;
    (rounds[0].accepted, rounds[0].waited_for) = (1, WaitedFor::MaxTime);
    fs::write(&path, jsonl::write(&rounds)).expect("written");
    let told = "slow, seed 1: 1 of 4 updates are missing.";
    let again = testbed.compare("out", &more);
    assert!(again.code == Some(0) && again.text.contains(told), "{}", again.text);
    let page = fs::read_to_string(testbed.path("out/report.html")).expect("a page");
    assert!(page.contains(told), "{page}");
}

#[test]
fn variants_of_one_seed_have_the_same_partition_and_cohorts() {
    let testbed = Testbed::new();
    let set = ["data.partition.dirichlet.alpha=0.5", "evaluate.on-clients-every=1", "run.rounds=4"];
    let more: Vec<&str> = set.iter().flat_map(|set| ["--set", set]).collect();
    let ended = testbed.compare("out", &more);
    assert_eq!(ended.code, Some(0), "{}", ended.text);
    let drawn = |run: &str| {
        let folder = testbed.path("out/runs").join(run);
        let text = fs::read_to_string(folder.join("rounds.jsonl")).expect("rounds");
        let records = jsonl::read(&text).expect("whole lines").records;
        let cohorts = records.iter().map(|record| record.clients.keys().copied().collect::<Vec<_>>());
        let page = fs::read_to_string(folder.join("report.html")).expect("a page");
        let (_, labels) = page.split_once("Samples of every client and class").expect("the table of labels");
        assert!(labels.contains("<th scope=\"row\">client 0</th>"), "a row for each client");
        let (labels, _) = labels.split_once("</table>").expect("it ends");
        (labels.to_owned(), cohorts.collect::<Vec<_>>())
    };
    for seed in [1, 2] {
        let [slow, fast] = ["slow", "fast"].map(|variant| drawn(&format!("{variant}--{seed}")));
        assert_eq!(slow, fast);
        assert!(slow.1.iter().any(|cohort| cohort.len() == 2), "half of four: {:?}", slow.1);
    }
    assert_ne!(drawn("slow--1").0, drawn("slow--2").0, "another seed, another partition");
    let outcome = testbed.outcome("out");
    assert_ne!(outcome["slow--1"], outcome["fast--1"], "the variants differ");
}

/// A shell's loop stops with it.
#[test]
fn an_experiment_that_is_interrupted_says_so_by_its_end() {
    let testbed = Testbed::new();
    let mut compare = testbed.start("out", &["--set", "run.rounds=100000", "--set", "evaluate.every=1000"]);
    let begun = || fs::read_dir(testbed.path("out/runs")).is_ok_and(|mut runs| runs.next().is_some());
    until("a run has begun", begun);
    assert!(compare.alive());
    compare.interrupt();
    let ended = compare.wait();
    assert_eq!(ended.code, Some(INTERRUPTED), "{}", ended.text);
}

/// Three rates of one variant, of which the others run with the first seed alone.
const TUNED: &str = r#"
seeds = 2
target = 0.3
[base]
data = { clients = 4, max-samples = 400 }
model.name = "linear"
run.rounds = 40
round.fraction = 0.5
early-stopping.target = 0.3
[variants.tuned]
[variants.fixed]
training.optimizer.sgd.learning-rate = 0.02
[tune]
"training.optimizer.sgd.learning-rate" = [0.1, 0.0001, 0.02]
[tune.variants.fixed]
"#;

#[test]
fn of_what_is_tuned_the_best_alone_runs_with_all_seeds_whenever_it_was_killed() {
    let testbed = Testbed::new();
    testbed.write(TUNED);
    let plan = testbed.compare("whole", &["--plan"]);
    assert!(plan.text.contains("tuned with learning-rate=0.1, seed 1: 40 rounds"), "{}", plan.text);
    let then = "then 1 more run, with the values that turn out best";
    assert!(plan.text.contains(then), "{}", plan.text);
    let whole = testbed.compare("whole", &["--jobs", "1"]);
    assert_eq!(whole.code, Some(0), "{}", whole.text);
    let lost = "learning-rate=0.0001, seed 1 stops: it needs more rounds than another value";
    assert!(whole.text.contains(lost), "{}", whole.text);
    let expected = testbed.outcome("whole");
    let names =
        ["fixed--1", "fixed--2", "tuned--0.0001--1", "tuned--0.02--1", "tuned--0.1--1", "tuned--0.1--2"];
    assert_eq!(expected.keys().collect::<Vec<_>>(), names);
    let rounds = |name: &str| expected[name].0.len();
    // A round may close while a run is told to stop.
    let until = rounds("tuned--0.1--1")..=rounds("tuned--0.1--1") + 1;
    assert!(until.contains(&rounds("tuned--0.0001--1")), "it stops when it has lost");
    assert!(until.contains(&rounds("tuned--0.02--1")));
    let reached = expected["tuned--0.1--2"].0.last().copied().flatten();
    assert!(reached >= Some(0.3), "the chosen one runs to its end with the other seed: {reached:?}");

    let mut cut = testbed.start("cut", &["--jobs", "1"]);
    cut.line("a candidate that has lost", |line| line.contains("needs more rounds"));
    cut.kill();
    let rest = testbed.compare("cut", &["--jobs", "3"]);
    assert_eq!(rest.code, Some(0), "{}", rest.text);
    let of_variants = |mut outcome: BTreeMap<String, _>| {
        outcome.retain(|name, _| !["tuned--0.0001--1", "tuned--0.02--1"].contains(&name.as_str()));
        outcome
    };
    assert!(
        of_variants(testbed.outcome("cut")) == of_variants(expected),
        "other rounds or models than without interruption"
    );
    // Bytes are others: a run that goes on is sent its task again.
    let chosen = |out: &str| -> Vec<[serde_json::Value; 3]> {
        let json = fs::read(testbed.path(out).join("results.json")).expect("results");
        let json: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
        let lines = json["results"].as_array().expect("lines");
        lines.iter().map(|line| ["chosen", "tried", "accuracy"].map(|key| line[key].clone())).collect()
    };
    assert_eq!(chosen("whole")[0][0], "learning-rate=0.1");
    assert_eq!(chosen("whole"), chosen("cut"), "other values than without interruption");
    let again = testbed.compare("cut", &[]);
    assert!(again.code == Some(0) && !again.text.contains("to do"), "{}", again.text);
}
