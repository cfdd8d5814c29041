//! A run begins with the model of another one, and needs the other one's folder no more from then on.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use aggregator::run::directory::RunDirectory;
use aggregator::run::{InitialModelError, Run, RunError};
use aggregator::start::StartError;
use aggregator::storage::Disk;
use federation_tests::copy_folder::copy_folder;
use federation_tests::process::run;
use federation_tests::programs::programs;
use federation_tests::scenario::Scenario;
use federation_tests::testbed::Testbed;
use federation_tests::whole_run::{finish, start, whole};

/// A network that both FAFI and the others learn: it has statistics, and its last layer has no bias.
const NETWORK: &str = "model.layers=['flatten', {linear = {out = 8, bias = false}}, 'relu', {linear = {out = 'classes', bias = false}}]";

fn scenario(settings: &[&str]) -> Scenario {
    Scenario::small(&[&["run.rounds=2"], settings].concat())
}

/// `settings` with the model of `run`.
fn begun_from(run: &Path, settings: &[&str]) -> Scenario {
    let from = format!("model.from.run={}", run.display());
    scenario(&[settings, &["run.name=second", from.as_str()]].concat())
}

/// A run that is over, and its folder.
async fn source(settings: &[&str]) -> (tempfile::TempDir, Run) {
    let folder = tempfile::tempdir().unwrap();
    let run = whole(folder.path(), &scenario(settings)).await;
    (folder, run)
}

/// Why a run of this scenario does not begin. It leaves nothing behind.
fn refusal(scenario: &Scenario) -> InitialModelError {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().join("runs");
    match start(Arc::new(Disk), &runs, scenario) {
        Err(StartError::Run(RunError::Initial(error))) => {
            assert!(!runs.exists(), "{error}: and a folder is left");
            error
        }
        Err(error) => panic!("{error}"),
        Ok(started) => panic!("begun in {}", started.run.directory().root().display()),
    }
}

fn model(directory: &RunDirectory) -> Vec<u8> {
    fs::read(directory.model()).unwrap()
}

#[tokio::test]
async fn it_begins_with_the_same_values_under_every_algorithm_and_is_repeated_to_the_byte() {
    let (_folder, first) = source(&[NETWORK]).await;
    let learned = first.current_model().unwrap();
    for algorithm in shared::algorithm::registry::names() {
        let (parameters, settings): (&str, &[&str]) = match algorithm {
            "fedmatch" => ("lambda-l2=0.5", &["data.labels=server", "data.labelled=40"]),
            "fedmix" => ("", &["data.labels=server", "data.labelled=40"]),
            "fedsgd" => ("", &["training.batch=0"]),
            // Its classifier has a factor that no other model has.
            "fedetf" => ("", &["model.fresh=['head.etf.weight']"]),
            _ => ("", &[]),
        };
        let name = format!("algorithm.{algorithm}={{{parameters}}}");
        let settings = [&[NETWORK, name.as_str()], settings].concat();
        let scenario = begun_from(first.directory().root(), &settings);
        let [one, two] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let started = start(Arc::new(Disk), one.path(), &scenario).unwrap();
        let begun = started.run.current_model().unwrap();
        // FedMatch's server trains before the first round.
        let mut of_the_source = begun.clone();
        if algorithm == "fedetf" {
            of_the_source.remove("head.etf.weight");
        }
        let same = algorithm == "fedmatch" || of_the_source == learned;
        assert!(same, "{algorithm} begins with other values");
        let one = finish(started, &scenario).await;
        let two = whole(two.path(), &scenario).await;
        let origin = one.config().effective.model.from.as_ref().unwrap();
        assert_eq!((origin.in_round, origin.digest.as_ref().map(String::len)), (Some(2), Some(32)));
        assert!(one.current_model().unwrap() == two.current_model().unwrap(), "{algorithm}");
    }
}

#[tokio::test]
async fn statistics_of_normalisation_layers_come_with_it() {
    let network = "model.layers=[{conv = {out = 2, kernel = 3}}, 'batch-norm', 'relu', 'flatten', {linear = 'classes'}]";
    let (_folder, first) = source(&[network]).await;
    let scenario = begun_from(first.directory().root(), &[network]);
    let folder = tempfile::tempdir().unwrap();
    let begun = start(Arc::new(Disk), folder.path(), &scenario).unwrap().run.current_model().unwrap();
    let means = |name: &&str| name.contains("running-mean");
    let name = begun.names().find(means).unwrap();
    assert!(
        begun.get(name).unwrap().values().iter().any(|mean| *mean != 0.0),
        "{name} is that of a new layer"
    );
    assert!(begun == first.current_model().unwrap());
}

#[tokio::test]
async fn it_goes_on_when_the_other_run_was_removed_or_has_learned_more() {
    let (folder, first) = source(&[]).await;
    let place = first.directory().root().to_owned();
    let (runs, whole_at) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let scenario = begun_from(&place, &[]);
    let expected = model(whole(whole_at.path(), &scenario).await.directory());
    let begun = start(Arc::new(Disk), runs.path(), &scenario).unwrap();
    assert!(!begun.continued);
    drop((begun, first));
    // The other run goes on: the same command still continues what it has begun.
    drop(whole(folder.path(), &Scenario::small(&["run.rounds=5"])).await);
    let again = start(Arc::new(Disk), runs.path(), &scenario).unwrap();
    assert!(again.continued && again.passed.is_empty(), "{:?}", again.passed);
    drop(again);
    fs::remove_dir_all(folder.path()).unwrap();
    let again = start(Arc::new(Disk), runs.path(), &scenario).unwrap();
    assert!(again.continued, "{:?}", again.passed);
    let run = finish(again, &scenario).await;
    assert!(model(run.directory()) == expected, "another model");
    // What it has begun with is part of what it is.
    let text = fs::read_to_string(run.directory().config()).unwrap();
    assert!(text.contains("from.digest = \"") && text.contains("from.in-round = 2"), "{text}");
    let config = aggregator::config::Raw::layered(Some(&run.directory().config()), &[]).unwrap();
    let config = aggregator::config::Config::validate(&config, scenario.config.spec.run).unwrap();
    let same = aggregator::start::completed(&Disk, &config, runs.path()).unwrap();
    assert_eq!(same.as_deref(), Some(run.directory().root()));
    // More rounds in its own folder.
    let more = start(Arc::new(Disk), runs.path(), &begun_from(&place, &["run.rounds=4"])).unwrap();
    assert!(more.continued && more.run.closed() == 2);
}

#[tokio::test]
async fn another_beginning_is_another_run() {
    let (_first, first) = source(&[]).await;
    let (_other, other) = source(&["run.seed=7"]).await;
    let runs = tempfile::tempdir().unwrap();
    drop(start(Arc::new(Disk), runs.path(), &begun_from(first.directory().root(), &[])).unwrap());
    let second = start(Arc::new(Disk), runs.path(), &begun_from(other.directory().root(), &[])).unwrap();
    assert!(!second.continued && second.passed[0].contains("is unfinished"), "{:?}", second.passed);
    // The same model at another place is the same beginning.
    let moved = tempfile::tempdir().unwrap();
    copy_folder(first.directory().root(), &moved.path().join("moved"));
    let begun = second.run.config().effective.model.from.clone().unwrap();
    let digest = format!("model.from.digest={}", begun.digest.unwrap());
    let scenario = begun_from(&moved.path().join("moved"), &[digest.as_str()]);
    drop(second);
    let error = refusal(&scenario);
    assert!(matches!(error, InitialModelError::OtherParameters { .. }), "{error}");
    let scenario = begun_from(&moved.path().join("elsewhere"), &[digest.as_str()]);
    let again = start(Arc::new(Disk), runs.path(), &scenario).unwrap();
    assert!(again.continued, "{:?}", again.passed);
}

#[tokio::test]
async fn a_run_that_goes_on_gives_its_newest_model_and_its_best_where_that_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    // The first round learns, and all others unlearn.
    let settings = [
        "run.rounds=4",
        "evaluate.every=1",
        "training.schedule.exponential.gamma=1",
        "training.optimizer.sgd.learning-rate=0.1",
    ];
    let run = whole(folder.path(), &scenario(&settings)).await;
    let (best, place) = (run.best().unwrap().round, run.directory().root().to_owned());
    fs::remove_file(run.directory().finished()).unwrap();
    fs::remove_file(run.directory().model()).unwrap();
    drop(run);
    let runs = tempfile::tempdir().unwrap();
    let started = start(Arc::new(Disk), runs.path(), &begun_from(&place, &[])).unwrap();
    let origin = started.run.config().effective.model.from.clone().unwrap();
    assert_eq!(origin.in_round, Some(4));
    assert!(started.initial_accuracy.is_some(), "its accuracy is told");
    let error = refusal(&begun_from(&place, &["model.from.in-round=9"]));
    let text = error.to_string();
    assert!(text.contains("no model of round 9") && text.contains("that of round 4"), "{text}");
    let asked = format!("model.from.in-round={best}");
    let started = start(Arc::new(Disk), runs.path(), &begun_from(&place, &["run.seed=5", &asked])).unwrap();
    assert_eq!(started.run.config().effective.model.from.as_ref().unwrap().in_round, Some(best));
}

#[tokio::test]
async fn what_does_not_fit_is_refused_by_its_tensor() {
    let (_folder, linear) = source(&[]).await;
    let place = linear.directory().root();
    let config = |settings: &[&str]| begun_from(place, settings);
    let text = refusal(&config(&["model.name=mlp-2nn"])).to_string();
    for part in ["it lacks `extractor.", "nearest are `head.", "and 5 more"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let shape = "model.layers=['flatten', {linear = {out = 'classes', bias = false}}]";
    let text = refusal(&config(&[shape])).to_string();
    assert!(text.contains("which the network lacks"), "{text}");
    let (_folder, wide) = source(&["model.layers=['flatten', {linear = 12}, {linear = 'classes'}]"]).await;
    let narrow = "model.layers=['flatten', {linear = 10}, {linear = 'classes'}]";
    let text = refusal(&begun_from(wide.directory().root(), &[narrow])).to_string();
    assert!(text.contains(" in it and ") && text.contains("12") && text.contains("784"), "{text}");
    let error = refusal(&begun_from(Path::new("nowhere"), &[]));
    assert!(matches!(error, InitialModelError::Absent { .. }), "{error}");
}

#[tokio::test]
async fn runs_that_leave_no_single_model_begin_nothing() {
    let fafi = ["algorithm.fafi={}", "model.name=mlp-2nn"];
    let ensemble = ["algorithm.ensemble={}", "model.name=mlp-2nn"];
    for (settings, why) in
        [(&fafi[..], "side by side"), (&ensemble, "side by side"), (&["algorithm.local={}"], "stays with it")]
    {
        let (_folder, first) = source(settings).await;
        let text = refusal(&begun_from(first.directory().root(), settings)).to_string();
        assert!(text.contains(why), "{text}");
    }
    let (_folder, first) = source(&fafi).await;
    let from = format!("model.from.file={}", first.directory().ensemble().display());
    let error = refusal(&scenario(&[&fafi[..], &[from.as_str()]].concat()));
    assert!(matches!(error, InitialModelError::NotOne { .. }), "{error}");
}

#[cfg(unix)]
#[tokio::test]
async fn devices_train_the_model_of_the_simulation_from_the_same_beginning() {
    let (folder, first) = source(&[]).await;
    let from = format!("model.from.run={}", first.directory().root().display());
    let testbed = Testbed::new(2, &[from.as_str(), "data.max-samples=80"]);
    let simulated = testbed.simulated();
    let mut server = testbed.serve();
    let devices: Vec<_> = (0..2).map(|index| testbed.join(index)).collect();
    server.line("a round", |line| line.contains("\"round\":1"));
    server.kill();
    fs::remove_dir_all(folder.path()).unwrap();
    let server = testbed.serve();
    for device in devices {
        let ended = device.wait();
        assert_eq!(ended.code, Some(0), "{}", ended.text);
    }
    let ended = server.wait();
    assert_eq!(ended.code, Some(0), "{}", ended.text);
    assert!(testbed.model() == simulated, "the model is not the simulation's");
    let page = fs::read_to_string(testbed.run().join("report.html")).unwrap();
    assert!(page.contains("Begins with") && page.contains(", round 2; digest "), "the page does not say it");
}

#[tokio::test]
async fn the_option_takes_a_run_or_a_file_and_the_terminal_says_which() {
    let (folder, first) = source(&["evaluate.every=1"]).await;
    let (config, runs) = (folder.path().join("run.toml"), folder.path().join("others"));
    fs::write(&config, scenario(&["run.name=second", "evaluate.every=1"]).config.effective.to_toml())
        .unwrap();
    let simulate = |from: &Path, more: &[&str]| {
        let given = [config.as_path(), runs.as_path(), from].map(|path| path.to_str().unwrap());
        let arguments = ["simulate", given[0], "--runs", given[1], "--from", given[2], "--threads", "1"];
        run(&programs().aggregator, &[&arguments, more].concat())
    };
    let place = first.directory().root();
    let ended = simulate(place, &[]);
    let says = format!("new run in {} from {}, round 2 (", runs.join("second").display(), place.display());
    assert_eq!(ended.code, Some(0), "{}", ended.text);
    assert!(ended.text.contains(&says), "{says} is not in {}", ended.text);
    let by_run = fs::read(runs.join("second/model.safetensors")).unwrap();
    let ended = simulate(&first.directory().model(), &["--fresh"]);
    assert!(ended.text.contains("model.safetensors, round 2"), "{}", ended.text);
    assert!(fs::read(runs.join("second-2/model.safetensors")).unwrap() == by_run);
    // A run's own configuration says what it began with: --from takes the place of that.
    let second = runs.join("second");
    let own = second.join("config.toml");
    let given = [own.as_path(), &second].map(|path| path.to_str().unwrap());
    let shown = run(&programs().aggregator, &["config", given[0], "--from", given[1]]);
    assert!(shown.text.contains(&format!("from.run = \"{}\"", given[1])), "{}", shown.text);
    assert!(!shown.text.contains("\nfrom.digest = "), "{}", shown.text);
    for (from, more, code, part) in [
        (place, &["--set", "model.from.in-round=1"][..], 2, "leave one of them out"),
        (place, &["--set", "model.name=mlp-2nn"], 2, "does not fit the network mlp-2nn"),
        (Path::new("nowhere"), &["--fresh"], 3, "no directory of a run"),
        (config.as_path(), &["--fresh"], 3, "cannot be read"),
    ] {
        let ended = simulate(from, more);
        assert_eq!(ended.code, Some(code), "{}", ended.text);
        assert!(ended.text.contains(part), "{part} is not in {}", ended.text);
    }
}
