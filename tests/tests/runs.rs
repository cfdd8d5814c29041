//! `aggregator runs`, with real programs, and its steps on a disk that dies anywhere.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use aggregator::events::Notice;
use aggregator::run::directory::RunDirectory;
use aggregator::run::reader;
use aggregator::runs::deletion::{delete, is_leftover};
use aggregator::runs::find::find;
use aggregator::runs::listing::Listing;
use aggregator::runs::surplus::Surplus;
use aggregator::simulate::{Transport, simulate};
use aggregator::start::start_on;
use aggregator::storage::Disk;
use federation_tests::copy_folder::copy_folder;
use federation_tests::faulty_disk::{FaultyDisk, Loss};
use federation_tests::process::{Ended, Process, run, until};
use federation_tests::programs::programs;
use federation_tests::scenario::Scenario;
use federation_tests::testbed::Testbed;
use serde_json::Value;

const LOSSES: [Loss; 3] = [Loss::Nothing, Loss::Everything, Loss::Some(1)];

/// A directory of runs.
struct Runs(tempfile::TempDir);

impl Runs {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn aggregator(&self, arguments: &[&str]) -> Ended {
        let here = self.0.path().display().to_string();
        run(&programs().aggregator, &[arguments, &["--runs", &here]].concat())
    }

    /// The same, which has to succeed.
    fn done(&self, arguments: &[&str]) -> String {
        let Ended { code, text } = self.aggregator(arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {text}");
        text
    }

    /// The same, with the object that it prints.
    fn json(&self, arguments: &[&str]) -> Value {
        let text = self.done(&[arguments, &["--json"]].concat());
        let line = text.lines().find(|line| line.starts_with('{'));
        serde_json::from_str(line.unwrap_or_else(|| panic!("{text}"))).unwrap()
    }

    /// The same, which has to fail so.
    fn refused(&self, code: i32, arguments: &[&str]) -> String {
        let Ended { code: found, text } = self.aggregator(arguments);
        assert_eq!(found, Some(code), "{arguments:?}: {text}");
        text
    }

    fn command(name: &str, more: &[&str]) -> Vec<String> {
        let named = format!("run.name={name}");
        let small = ["run.rounds=2", "model.name=linear", "data.clients=2", "data.max-samples=200", &named];
        let settings = small.iter().chain(more).flat_map(|setting| ["--set", setting]);
        ["simulate", "--device", "cpu", "--json"].into_iter().chain(settings).map(str::to_owned).collect()
    }

    /// Simulates a small run.
    fn simulate(&self, name: &str, more: &[&str]) -> Ended {
        let command = Self::command(name, more);
        self.aggregator(&command.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Begins a run that lasts, and waits until it has closed a round.
    fn begin(&self, name: &str) -> Process {
        let mut command = Command::new(&programs().aggregator);
        command.args(Self::command(name, &["run.rounds=100000"])).arg("--runs").arg(self.0.path());
        let process = Process::start(name, &mut command);
        until("a round is closed", || self.path(name).join("rounds.jsonl").is_file());
        process
    }

    /// State and name of each run, in the order of the list.
    fn states(&self) -> Vec<(String, String)> {
        let listing = self.json(&["runs"]);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        listing["runs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|run| (text(&run["run"]), text(&run["state"])))
            .collect()
    }
}

#[test]
fn a_list_has_every_run_and_a_line_for_what_cannot_be_read() {
    let runs = Runs::new();
    assert!(runs.done(&["runs"]).contains("no run lies in"));
    assert_eq!(runs.simulate("whole", &["run.seed=5"]).code, Some(0));
    assert_eq!(runs.simulate("broken", &["training.optimizer.sgd.learning-rate=1e9"]).code, Some(4));
    fs::create_dir(runs.path("notes")).unwrap();
    copy_folder(&runs.path("whole"), &runs.path("damaged"));
    fs::write(runs.path("damaged/state/run.json"), "{}").unwrap();
    copy_folder(&runs.path("whole"), &runs.path("sweep/runs/a--1"));

    let listing = runs.json(&["runs", "list"]);
    assert_eq!(listing["runs"].as_array().unwrap().len(), 2);
    let named =
        |name: &str| listing["runs"].as_array().unwrap().iter().find(|run| run["run"] == name).unwrap();
    let whole = named("whole");
    assert_eq!(
        (&whole["run"], &whole["state"], &whole["rounds"]),
        (&"whole".into(), &"complete".into(), &2.into())
    );
    assert_eq!(whole["changed"]["run.seed"], 5);
    assert!(
        whole["best_accuracy"].as_f64() > Some(0.05) && whole["bytes"].as_u64() > Some(10_000),
        "{whole}"
    );
    let broken = named("broken");
    assert_eq!(broken["state"], "failed");
    assert!(broken["reason"].as_str().unwrap().contains("training diverged"), "{broken}");
    let kinds: Vec<_> = listing["folders"].as_array().unwrap().iter().map(|folder| &folder["kind"]).collect();
    assert_eq!(kinds, ["damaged", "other", "runs"]);

    let text = runs.done(&["runs"]);
    assert!(text.contains("damaged  cannot be read: ") && text.contains("notes    holds no run"), "{text}");
    assert_eq!(runs.json(&["runs", "show", "sweep/runs/a--1"])["run"], "a--1");
    let shown = runs.done(&["runs", "show", "broken"]);
    assert!(shown.contains("training diverged") && shown.contains("rounds.jsonl"), "{shown}");
    assert!(runs.refused(3, &["runs", "show", "damaged"]).contains("run.json is damaged"));
    assert!(runs.refused(3, &["runs", "show", "whol"]).contains("did you mean whole?"));
}

#[test]
fn a_run_is_known_by_its_name_wherever_one_is_named() {
    let runs = Runs::new();
    for (name, seed) in [("a", "run.seed=1"), ("b", "run.seed=2")] {
        assert_eq!(runs.simulate(name, &[seed]).code, Some(0));
    }
    assert!(runs.done(&["report", "a"]).contains("complete after round 2 of 2"));
    assert!(runs.done(&["evaluate", "--model", "a"]).contains("accuracy "));
    assert!(runs.done(&["predict", "--model", "a", "--limit", "3"]).contains("class"));
    let compared = runs.done(&["compare", "a", "b", "--plan"]);
    assert!(compared.contains("seeds 1, 2"), "{compared}");
    assert!(runs.refused(3, &["evaluate", "--model", "c"]).contains("holds no run"));
    assert!(runs.refused(3, &["compare", "a", "c"]).contains("holds no run"));

    let found = runs.json(&["runs", "diff", "a", "b"]);
    let keys: Vec<_> = found["keys"].as_array().unwrap().iter().map(|key| &key["key"]).collect();
    assert_eq!(keys, ["run.name", "run.seed"]);
    // The built-in samples are drawn from the run's seed.
    assert_eq!((&found["keys"][1]["a"], &found["same_data"]), (&"1".into(), &false.into()));
    let text = runs.done(&["runs", "diff", "a", "b"]);
    assert!(text.contains("run.seed") && text.contains("last accuracy"), "{text}");
}

#[test]
fn nothing_is_deleted_without_a_word_or_under_a_process_that_works_on_it() {
    let runs = Runs::new();
    assert_eq!(runs.simulate("whole", &[]).code, Some(0));
    let process = runs.begin("works");
    assert_eq!(runs.states().last().unwrap().1, "running");
    let asked = runs.refused(2, &["runs", "delete", "whole"]);
    assert!(asked.contains("--yes deletes without a question"), "{asked}");
    let in_use = runs.refused(3, &["runs", "delete", "whole", "works", "--yes"]);
    assert!(in_use.contains("a process works on the run"), "{in_use}");
    assert!(runs.path("whole/state/run.json").is_file(), "none goes if one cannot");
    let to = runs.path("works.tar.gz").display().to_string();
    assert!(runs.refused(3, &["runs", "archive", "works", "--to", &to]).contains("in use"));
    assert!(!Path::new(&to).exists());
    assert_eq!(
        runs.json(&["runs", "prune", "--keep", "0", "--dry-run"])["deleted"].as_array().unwrap().len(),
        1
    );

    process.kill();
    assert_eq!(runs.states().last().unwrap(), &("works".to_owned(), "interrupted".to_owned()));
    let deleted = runs.json(&["runs", "delete", "works", "whole", "works", "--yes"]);
    let names: Vec<_> = deleted["deleted"].as_array().unwrap().iter().map(|run| &run["run"]).collect();
    assert_eq!(names, ["works", "whole"], "each once");
    assert_eq!(fs::read_dir(runs.0.path()).unwrap().count(), 0);
}

#[test]
fn pruning_keeps_results_and_a_rule_deletes_what_it_names() {
    let runs = Runs::new();
    assert_eq!(runs.simulate("broken", &["training.optimizer.sgd.learning-rate=1e9"]).code, Some(4));
    assert_eq!(runs.simulate("whole", &["algorithm.scaffold={}"]).code, Some(0));
    fs::create_dir_all(runs.path("gone.deleting/state")).unwrap();
    fs::write(runs.path("gone.deleting/deleting"), "").unwrap();
    let model = fs::read(runs.path("whole/model.safetensors")).unwrap();
    let before = runs.json(&["runs", "show", "whole"]);
    let dry = runs.json(&["runs", "prune", "--dry-run"]);
    assert_eq!(dry["done"], false);
    assert_eq!(
        (dry["pruned"].as_array().unwrap().len(), &dry["deleted"][0]["run"]),
        (2, &"gone.deleting".into())
    );
    runs.refused(2, &["runs", "prune"]);
    let said = runs.done(&["runs", "prune", "--yes"]);
    assert!(said.contains("can then not go on with more rounds") && said.contains("freed "), "{said}");
    assert!(!runs.path("gone.deleting").exists());
    let after = runs.json(&["runs", "show", "whole"]);
    assert_eq!(after["pruned"], true);
    assert_eq!(
        before["prunable_bytes"].as_u64(),
        Some(before["bytes"].as_u64().unwrap() - after["bytes"].as_u64().unwrap())
    );
    assert_eq!((&before["accuracy"], &before["origin"]), (&after["accuracy"], &after["origin"]));
    assert_eq!(fs::read(runs.path("whole/model.safetensors")).unwrap(), model);
    assert!(runs.done(&["report", "whole"]).contains("complete after round 2 of 2"));
    assert!(runs.done(&["evaluate", "--model", "whole"]).contains("accuracy "));
    assert!(runs.done(&["runs", "prune"]).contains("there is nothing to free"));
    // More rounds make another run, and say why.
    let more = runs.simulate("whole", &["algorithm.scaffold={}", "run.rounds=3"]);
    assert!(more.text.contains("is over and cannot go on: what continues it was pruned"), "{}", more.text);
    assert!(runs.path("whole-2").is_dir());

    let pruned = runs.json(&["runs", "prune", "--failed", "--yes"]);
    assert_eq!(
        (pruned["deleted"].as_array().unwrap().len(), &pruned["deleted"][0]["run"]),
        (1, &"broken".into())
    );
    assert!(
        pruned["pruned"].as_array().unwrap().is_empty(),
        "whole runs are named, and no others are touched"
    );
    assert_eq!(runs.states().len(), 2);
}

#[test]
fn an_archive_holds_a_run_that_goes_on_elsewhere() {
    let (runs, other) = (Runs::new(), Runs::new());
    let process = runs.begin("mine");
    process.kill();
    let to = runs.path("mine.tar.gz").display().to_string();
    let archived = runs.json(&["runs", "archive", "mine", "--to", &to]);
    let bytes = fs::read(&to).unwrap();
    assert_eq!(archived["bytes"].as_u64(), Some(bytes.len() as u64));
    let again = runs.refused(3, &["runs", "archive", "mine", "--to", &to]);
    assert!(again.contains("is not replaced"), "{again}");
    assert_eq!(fs::read(&to).unwrap(), bytes);

    let unpacked = Command::new("tar").args(["xzf", &to, "-C"]).arg(other.0.path()).status().unwrap();
    assert!(unpacked.success());
    for left_out in ["state/lock", "state/spool"] {
        assert!(!other.path("mine").join(left_out).exists(), "{left_out}");
    }
    // The same run, the same bytes; by another path, and with other dates.
    let second = other.path("second.tar.gz").display().to_string();
    other.done(&["runs", "archive", "mine", "--to", &second]);
    assert!(fs::read(&second).unwrap() == bytes, "an archive of the unpacked run is another one");
    let closed = other.json(&["runs", "show", "mine"])["rounds"].as_u64().unwrap() as usize;
    assert!(other.done(&["evaluate", "--model", "mine"]).contains("accuracy "));

    let more = format!("run.rounds={}", closed + 2);
    let went_on = other.simulate("mine", &[&more]);
    assert!(went_on.code == Some(0) && went_on.text.contains("continuing "), "{}", went_on.text);
    let whole = Runs::new();
    assert_eq!(whole.simulate("mine", &[&more]).code, Some(0));
    let model = |runs: &Runs| fs::read(runs.path("mine/model.safetensors")).unwrap();
    assert!(model(&other) == model(&whole), "it went on to another model");
    assert_eq!(fs::read_dir(runs.0.path()).unwrap().count(), 2, "no drafts are left");
}

#[test]
fn who_deletes_a_served_run_is_told_what_its_devices_keep() {
    let testbed = Testbed::new(1, &["run.rounds=2", "algorithm.scaffold={}"]);
    let server = testbed.serve();
    let runs = testbed.name("runs");
    let name = testbed.run().file_name().unwrap().to_string_lossy().into_owned();
    let delete = || run(&programs().aggregator, &["runs", "delete", &name, "--runs", &runs, "--yes"]);
    let served = delete();
    assert!(served.code == Some(3) && served.text.contains("in use"), "{}", served.text);
    let device = testbed.join(0);
    assert_eq!(device.wait().code, Some(0));
    assert_eq!(server.wait().code, Some(0));
    let over = delete();
    assert!(
        over.code == Some(0) && over.text.contains("keep client state of it (scaffold)"),
        "{}",
        over.text
    );
    assert!(!testbed.run().exists());
}

/// A complete run of this scenario in `folder`.
async fn complete(folder: &Path, scenario: &Scenario) {
    let (started, ()) = start_on(Arc::new(Disk), scenario.config.clone(), folder, false, |_| Ok(())).unwrap();
    let (run, resume, _lock) = started.into_parts();
    let (_stop, stopped) = tokio::sync::watch::channel(false);
    let transport = Transport::Memory;
    let shares = scenario.shares.clone();
    let mut silent = |_: &Notice<'_>| {};
    let simulated = simulate(run, resume, shares, transport, 1, stopped, &mut silent);
    let (mut run, _) = simulated.await.unwrap();
    run.write_model().unwrap();
    run.write_report("", true).unwrap();
}

/// Every file below a folder with its content, but locks.
fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(contents(&path));
        } else if !path.ends_with("lock") {
            all.push((path.clone(), fs::read(&path).unwrap()));
        }
    }
    all.sort();
    all
}

#[tokio::test]
async fn a_deletion_that_dies_anywhere_leaves_a_whole_run_or_none() {
    let scenario = Scenario::small(&["run.rounds=2", "algorithm.scaffold={}"]);
    let original = tempfile::tempdir().unwrap();
    complete(original.path(), &scenario).await;
    let name = Path::new(&scenario.config.spec.name);
    let mut cut = 0;
    for loss in LOSSES {
        for fatal in 0.. {
            let folder = tempfile::tempdir().unwrap();
            copy_folder(original.path(), folder.path());
            let before = contents(folder.path());
            let disk = FaultyDisk::dying_at(fatal, loss);
            let deleted = delete(&disk, &RunDirectory::new(folder.path().join(name)));
            disk.cut_power(loss);
            let left: Vec<_> =
                fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
            let listing = Listing::of(folder.path()).unwrap();
            if find(folder.path(), name).is_ok() {
                assert_eq!((listing.runs.len(), left.len()), (1, 1), "{loss:?} {fatal}");
                // The mark of a deletion that has not begun takes nothing from it.
                let mark = |path: &PathBuf| path.to_string_lossy().contains("deleting");
                let kept: Vec<_> =
                    contents(folder.path()).into_iter().filter(|(path, _)| !mark(path)).collect();
                assert!(kept == before, "{loss:?} {fatal}: half a run is taken for one");
            } else {
                assert!(
                    listing.runs.is_empty() && left.iter().all(|path| is_leftover(path)),
                    "{loss:?} {fatal}"
                );
                for rest in left {
                    cut += 1;
                    assert!(
                        find(folder.path(), &rest).is_err(),
                        "{loss:?} {fatal}: the rest is taken for a run"
                    );
                    delete(&Disk, &RunDirectory::new(rest)).unwrap();
                }
                assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
            }
            if deleted.is_ok() {
                assert!(find(folder.path(), name).is_err(), "{loss:?}: what was said to be deleted is back");
                assert!(fatal > 10, "only {fatal} operations");
                break;
            }
        }
    }
    assert!(cut > 10, "a deletion was cut off {cut} times");
}

#[tokio::test]
async fn pruning_that_dies_anywhere_leaves_a_run_that_goes_on_or_one_that_says_it_does_not() {
    let scenario = Scenario::small(&["run.rounds=2", "algorithm.scaffold={}"]);
    let more = Scenario::small(&["run.rounds=3", "algorithm.scaffold={}"]);
    let original = tempfile::tempdir().unwrap();
    complete(original.path(), &scenario).await;
    for loss in LOSSES {
        for fatal in 0.. {
            let folder = tempfile::tempdir().unwrap();
            copy_folder(original.path(), folder.path());
            let directory = RunDirectory::new(folder.path().join(&scenario.config.spec.name));
            let before = contents(folder.path());
            let disk = FaultyDisk::dying_at(fatal, loss);
            let config = reader::configuration(&Disk, &directory).unwrap().unwrap();
            let surplus = || Surplus::of(&Disk, &directory, &config).unwrap().unwrap();
            let pruned = surplus().remove(&disk, &directory);
            disk.cut_power(loss);
            let whole = contents(folder.path())
                .iter()
                .filter(|(path, _)| path.extension() != Some("partial".as_ref()))
                .eq(&before);
            let (started, ()) =
                start_on(Arc::new(Disk), more.config.clone(), folder.path(), false, |_| Ok(())).unwrap();
            assert_eq!(started.continued, whole, "{loss:?} {fatal}: {:?}", started.passed);
            assert!(
                whole || started.passed[0].contains("was pruned"),
                "{loss:?} {fatal}: {:?}",
                started.passed
            );
            if pruned.is_ok() {
                assert!(!whole && surplus().is_empty(), "{loss:?} {fatal}");
                assert!(fatal > 8, "only {fatal} operations");
                break;
            }
        }
    }
}
