//! Experiments in shards: what several processes write together is what one process writes.

use std::fs;
use std::path::Path;

use aggregator::page::about::About;
use aggregator::round::jsonl;
use aggregator::run::directory::RunDirectory;
use aggregator::storage::Disk;
use federation_tests::process::Ended;

use super::experiments::Testbed;

/// Two cells with a variant that is tuned and a baseline that is not; all seeds in pairs, for mixtures of their models.
const EXPERIMENT: &str = r#"
seeds = 2
baseline = "slow"
target = 0.3
[base]
data = { clients = 4, max-samples = 400 }
model.name = "linear"
run.rounds = 12
round.fraction = 0.5
[grid]
"training.epochs" = [1, 2]
[variants.slow]
training.optimizer.sgd.learning-rate = 0.02
[variants.tuned]
[tune.variants.tuned]
"training.optimizer.sgd.learning-rate" = [0.1, 0.0001, 0.05]
[interpolate]
steps = 3
train = false
"#;

/// Four runs.
const SMALL: &str = r#"
seeds = 2
[base]
data = { clients = 4, max-samples = 400 }
model.name = "linear"
run.rounds = 4
[variants.slow]
training.optimizer.sgd.learning-rate = 0.02
[variants.fast]
training.optimizer.sgd.learning-rate = 0.1
"#;

/// What people read of an experiment.
const READ: [&str; 4] = ["report.html", "results.csv", "results.json", "mixtures.csv"];

impl Testbed {
    fn shard(&self, shard: &str, out: &str) -> Ended {
        self.compare(out, &["--shard", shard])
    }

    fn collect(&self, from: &[&str], out: &str) -> Ended {
        let from: Vec<String> = from.iter().map(|from| self.path(from).display().to_string()).collect();
        let from: Vec<&str> = from.iter().map(String::as_str).collect();
        self.compare(out, &[&["--collect"], &from[..]].concat())
    }

    #[track_caller]
    fn same(&self, one: &str, other: &str) {
        for file in READ {
            let read = |out: &str| fs::read_to_string(self.path(out).join(file)).expect("it was written");
            assert!(read(one) == read(other), "{file} of {one} and {other}");
        }
    }
}

#[track_caller]
fn well(ended: &Ended) {
    assert_eq!(ended.code, Some(0), "{}", ended.text);
}

#[track_caller]
fn refused(ended: &Ended, code: i32, parts: &[&str]) {
    assert_eq!(ended.code, Some(code), "{}", ended.text);
    for part in parts {
        assert!(ended.text.contains(part), "{part:?} is not in: {}", ended.text);
    }
}

#[test]
fn shards_together_write_the_bytes_of_one_process() {
    let testbed = Testbed::of(EXPERIMENT);
    well(&testbed.compare("whole", &[]));
    // In a folder each.
    for shard in ["1/2", "2/2"] {
        well(&testbed.shard(shard, &format!("half-{}", &shard[..1])));
    }
    well(&testbed.collect(&["half-2", "half-1"], "halves"));
    testbed.same("whole", "halves");
    // Two at once in one folder, and one elsewhere.
    let [one, two] = ["1/3", "2/3"].map(|shard| testbed.start("shared", &["--shard", shard]));
    well(&testbed.shard("3/3", "away"));
    well(&one.wait());
    well(&two.wait());
    assert!(!testbed.path("shared/report.html").exists(), "a shard makes no tables");
    well(&testbed.collect(&["shared", "away"], "thirds"));
    testbed.same("whole", "thirds");
    // In the folder itself, where the run elsewhere is added.
    well(&testbed.collect(&["shared", "away", "shared"], "shared"));
    testbed.same("whole", "shared");
    let models = |out: &str| -> Vec<_> {
        let tuned = |name: &str| name.contains("--0.0001--") || name.contains("--0.05--");
        let mut outcome = testbed.outcome(out);
        // How far candidates went that had lost depends on when they were told.
        outcome.retain(|name, _| !tuned(name));
        outcome.into_iter().collect()
    };
    assert!(models("whole") == models("halves") && models("whole") == models("thirds"));
    // It is an ordinary experiment afterwards.
    let again = testbed.compare("thirds", &[]);
    assert!(again.code == Some(0) && !again.text.contains("to do"), "{}", again.text);
    testbed.same("whole", "thirds");
}

#[test]
fn what_is_missing_is_named_with_its_shard_until_it_is_there() {
    let testbed = Testbed::of(SMALL);
    well(&testbed.shard("1/2", "one"));
    let some = testbed.collect(&["one"], "out");
    let parts = [
        "2 runs are missing",
        "shard 2/2, which is in none of the folders: ",
        "seed 2",
        "collect them once more",
    ];
    refused(&some, 4, &parts);
    let table = fs::read_to_string(testbed.path("out/results.csv")).expect("the tables of the others");
    assert_eq!(table.lines().count(), 1 + 2, "{table}");

    // A shard that is killed goes on where it was.
    let mut cut = testbed.start("two", &["--shard", "2/2", "--jobs", "1"]);
    cut.line("a complete run", |line| line.contains("1/2 "));
    cut.kill();
    let done: Vec<_> = complete(&testbed.path("two"));
    let some = testbed.collect(&["one", "two"], "out");
    if done.len() == 1 {
        refused(&some, 4, &["1 run is missing", "shard 2/2: "]);
    }
    let rest = testbed.shard("2/2", "two");
    well(&rest);
    assert!(!rest.text.contains("2 of 2 runs to do"), "{}", rest.text);
    well(&testbed.collect(&["one", "two"], "out"));
    assert_eq!(complete(&testbed.path("out")).len(), 4);
    let again = testbed.shard("2/2", "two");
    assert!(again.code == Some(0) && !again.text.contains("to do"), "{}", again.text);
}

/// The names of the complete runs of an experiment.
fn complete(out: &Path) -> Vec<String> {
    let runs = fs::read_dir(out.join("runs")).expect("runs");
    let runs = runs.map(|entry| entry.expect("an entry").path());
    let complete = runs.filter(|run| RunDirectory::new(run).finished().exists());
    complete.map(|run| RunDirectory::new(run).name().into_owned()).collect()
}

#[test]
fn a_plan_says_what_a_shard_runs_and_writes_nothing() {
    let testbed = Testbed::of(SMALL);
    let plan = testbed.compare("out", &["--shard", "2/2", "--plan"]);
    well(&plan);
    for part in
        ["shard 2/2: 2 of 4 runs", "slow, seed 2: 4 rounds", "fast, seed 2: 4 rounds", "2 runs, about "]
    {
        assert!(plan.text.contains(part), "{part:?} is not in: {}", plan.text);
    }
    assert!(!plan.text.contains("seed 1"), "{}", plan.text);
    let whole = testbed.compare("out", &["--plan"]);
    let split =
        "over N machines with --shard I/N, the busiest one has this part of the work: 2: 50 %, 4: 25 %";
    assert!(whole.text.contains(split) && !whole.text.contains("25 %, 8"), "{}", whole.text);
    assert!(!testbed.path("out").exists(), "nothing was written");
    // More shards than runs.
    let idle = testbed.shard("5/5", "idle");
    assert!(idle.code == Some(0) && idle.text.contains("nothing falls to this shard"), "{}", idle.text);
}

#[test]
fn options_that_make_no_sense_are_refused_with_those_that_would() {
    let testbed = Testbed::of(SMALL);
    for (shard, says) in [
        ("0/5", "shards are counted from 1: the first of 5 is 1/5, and the last one is 5/5"),
        ("6/5", "shards are counted from 1: the first of 5 is 1/5, and the last one is 5/5"),
        ("2/0", "the number of shards is from 1 to 10000"),
        ("a/b", "give the shard and the number of shards as I/N, such as 2/5"),
    ] {
        refused(&testbed.shard(shard, "out"), 2, &[says]);
    }
    let folder = |name: &str| {
        fs::create_dir_all(testbed.path(name)).expect("a folder");
        testbed.path(name).display().to_string()
    };
    let (empty, file) = (folder("empty"), testbed.path("rates.toml").display().to_string());
    for (more, says) in [
        (
            &["--collect", &file][..],
            "rates.toml is a file: --collect takes the folders that shards had as --out",
        ),
        (&["--collect", &empty], "empty holds no runs of a shard: --collect takes the folders"),
        (&["--collect", "nowhere"], "there is no folder nowhere: --collect takes the folders"),
        (
            &["--shard", "1/2", "--collect", &empty],
            "--shard runs a part of an experiment, and --collect gathers",
        ),
        (&["--collect", &empty, "--plan"], "--collect runs nothing: leave --plan, --replace"),
        (&["--collect", &empty, "--jobs", "2"], "--collect runs nothing: leave --plan, --replace"),
        (&["--shard", "1/2", "--json"], "a shard makes no tables: give --json with --collect"),
    ] {
        refused(&testbed.compare("out", more), 2, &[says]);
    }
    assert!(!testbed.path("out").exists(), "nothing was written");
    well(&testbed.shard("1/2", "one"));
    refused(
        &testbed.collect(&["one/runs"], "out"),
        2,
        &["one/runs holds runs themselves: give --collect the folder"],
    );
}

#[test]
fn runs_of_another_experiment_are_not_collected() {
    let testbed = Testbed::of(SMALL);
    for shard in ["1/2", "2/2"] {
        well(&testbed.shard(shard, "there"));
    }
    testbed.write(&SMALL.replace("seeds = 2", "seeds = 3"));
    let why = "there holds shard 1/2 of another experiment: its seeds are 1, 2 there and 1, 2, 3 here";
    refused(&testbed.collect(&["there"], "out"), 2, &[why]);
    testbed.write(&SMALL.replace("variants.fast", "variants.quick"));
    let why = "there holds shard 1/2 of another experiment: its run fast--1 is none of that shard here";
    refused(&testbed.collect(&["there"], "out"), 2, &[why]);
    testbed.write(&SMALL.replace("learning-rate = 0.1", "learning-rate = 0.2"));
    let why = "fast--1: training.optimizer.sgd.learning-rate is 0.1 there and 0.2 here";
    refused(&testbed.collect(&["there"], "out"), 2, &["2 runs are of another state of the experiment", why]);
    // Without the records of shards, the runs say it themselves.
    testbed.write(&SMALL.replace("seeds = 2", "seeds = [1]"));
    fs::remove_dir_all(testbed.path("there/shards")).expect("records");
    let why = "2 runs are not of this experiment with the form reduced and the seeds 1";
    refused(&testbed.collect(&["there"], "out"), 2, &[why, "there/runs/fast--2"]);
    assert!(!testbed.path("out/report.html").exists() && complete_or_none(&testbed.path("out")).is_empty());
    testbed.write(SMALL);
    well(&testbed.collect(&["there"], "out"));
}

fn complete_or_none(out: &Path) -> Vec<String> {
    if out.join("runs").is_dir() { complete(out) } else { Vec::new() }
}

#[test]
fn other_results_of_one_run_and_other_versions_are_not_collected() {
    let testbed = Testbed::of(SMALL);
    for out in ["one", "two"] {
        well(&testbed.shard("1/2", out));
    }
    well(&testbed.shard("2/2", "one"));
    well(&testbed.collect(&["one", "two"], "out"));
    let run = |out: &str| testbed.path(out).join("runs/fast--1");
    let path = run("two").join("rounds.jsonl");
    let mut rounds = jsonl::read(&fs::read_to_string(&path).expect("rounds")).expect("whole lines").records;
    rounds[1].accuracy = Some(0.125);
    fs::write(&path, jsonl::write(&rounds)).expect("written");
    let why = "are the same run with other results: `accuracy` of round 2 is not the same. Remove the one";
    refused(
        &testbed.collect(&["one", "two"], "other"),
        2,
        &["one/runs/fast--1 and ", "two/runs/fast--1 ", why],
    );

    let directory = RunDirectory::new(run("one"));
    let mut about = About::read(&Disk, &directory).expect("it is known");
    about.origin.processes[0].version = "0.0.9".to_owned();
    about.write(&Disk, &directory).expect("written");
    let why = "1 run is of another version of the program than this one";
    refused(&testbed.collect(&["one"], "other"), 2, &[why, "one/runs/fast--1: 0.0.9"]);
    assert!(complete_or_none(&testbed.path("other")).is_empty(), "nothing was copied");
}

#[test]
fn shards_that_learned_from_other_data_are_not_collected() {
    let testbed = Testbed::of(&SMALL.replace(
        "data = { clients = 4, max-samples = 400 }",
        "data = { set = 'csv', path = 'numbers', shape = [2], classes = 2, clients = 4 }",
    ));
    fs::create_dir(testbed.path("numbers")).expect("a folder");
    let numbers = |first: i32| {
        let row = |row: i32| format!("{},{},{}\n", if row == 0 { first } else { row }, -row, row % 2);
        let text: String = std::iter::once("a,b,label\n".to_owned()).chain((0..40).map(row)).collect();
        for name in ["train.csv", "test.csv"] {
            fs::write(testbed.path("numbers").join(name), &text).expect("written");
        }
    };
    numbers(0);
    well(&testbed.shard("1/2", "one"));
    well(&testbed.shard("2/2", "two"));
    numbers(7);
    well(&testbed.shard("2/2", "other"));
    let why = "two/runs/fast--2: the content of the training files is ";
    refused(&testbed.collect(&["one", "two"], "out"), 2, &["4 runs are of another state", why]);
    // Where the files are not at hand, the shards are compared with each other, and agree or not.
    fs::rename(testbed.path("numbers"), testbed.path("elsewhere")).expect("moved");
    let why = "other/runs/fast--2: the content of the training files is ";
    refused(&testbed.collect(&["one", "other"], "out"), 2, &["2 runs are of another state", why]);
    well(&testbed.collect(&["one", "two"], "out"));
}

#[test]
fn two_processes_never_work_on_the_same_part_of_a_folder() {
    let testbed = Testbed::of(SMALL);
    well(&testbed.shard("1/2", "out"));
    let open = |name: &str| fs::File::open(testbed.path(name)).expect("a lock");
    let whole = open("out/lock");
    whole.lock().expect("no other process has it");
    refused(&testbed.shard("1/2", "out"), 3, &["in use by an aggregator that runs or collects the whole"]);
    refused(&testbed.collect(&["out"], "elsewhere"), 3, &["a shard still works in "]);
    whole.unlock().expect("it was ours");
    // As another shard at work has it.
    whole.lock_shared().expect("no other process has it");
    refused(&testbed.compare("out", &[]), 3, &["is in use by another aggregator"]);
    refused(&testbed.collect(&["out"], "out"), 3, &["is in use by another aggregator"]);
    well(&testbed.shard("2/2", "out"));
    let own = open("out/shards/2-of-2.lock");
    own.lock().expect("no other process has it");
    refused(&testbed.shard("2/2", "out"), 3, &["another aggregator works on shard 2/2"]);
    well(&testbed.shard("1/2", "out"));
}
