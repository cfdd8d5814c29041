//! The page of a served run, with real processes: its devices by their names, and results by class.
#![cfg(unix)]

use std::fs;
use std::process::Command;

use federation_tests::process::{INTERRUPTED, Process, run, until};
use federation_tests::programs::programs;
use federation_tests::testbed::Testbed;
use serde_json::{Value, json};

/// What `aggregator report` writes of a run.
fn page(folder: &str) -> String {
    let ended = run(&programs().aggregator, &["report", folder]);
    assert_eq!(ended.code, Some(0), "{}", ended.text);
    fs::read_to_string(format!("{folder}/report.html")).expect("the page")
}

/// The row of a device, without what is between the tags.
fn row<'p>(page: &'p str, label: &str) -> &'p str {
    let begin = format!("<th scope=\"row\">{label}</th>");
    let (_, row) = page.split_once(&begin).unwrap_or_else(|| panic!("no row of {label} in {page}"));
    row.split_once("</tr>").expect("a row ends").0
}

#[test]
fn the_page_of_a_served_run_names_its_devices_and_says_what_each_has_done() {
    let own = ["evaluate.on-clients-every=1", "evaluate.hold-out=0.25", "run.rounds=3", "evaluate.every=1"];
    let testbed = Testbed::new(2, &[&own[..], &["data.max-samples=160"]].concat());
    let server = testbed.serve();
    let mut first = testbed.join(0);
    first.object(&json!({ "event": "joined" }));
    let (id, identity) = (testbed.client(0).to_string(), testbed.name("identity"));
    let named = run(&programs().aggregator, &["devices", "name", &id, "attic", "--identity", &identity]);
    assert_eq!(named.code, Some(0), "{}", named.text);
    let devices = vec![first, testbed.join(1)];
    for ended in devices.into_iter().map(federation_tests::process::Process::wait) {
        assert_eq!(ended.code, Some(0), "{}", ended.text);
    }
    assert_eq!(server.wait().code, Some(0));

    let label = format!("attic ({})", testbed.client(0).short());
    let at_the_end = fs::read_to_string(testbed.run().join("report.html")).expect("the page");
    // The folder alone is enough: the page is written again without the server's database, and elsewhere.
    fs::rename(&identity, testbed.path("gone")).expect("moved");
    let moved = testbed.name("moved");
    fs::rename(testbed.run(), &moved).expect("moved");
    for page in [at_the_end, page(&moved)] {
        assert!(page.contains("2 devices answered in rounds of this run. As of 20"), "{page}");
        for label in [&label, &testbed.client(1).short()] {
            let (_, table) = page.split_once("What every device has done").expect("the table");
            let row = row(table, label);
            // Three rounds and the tests of the last model; three updates; no trouble; of 80 samples a quarter is held out.
            assert!(row.starts_with("<td>4</td><td>4</td><td>0</td><td>0</td><td>0</td><td>0</td>"), "{row}");
            assert!(row.contains("the model after round 3") && row.contains("<td>80</td>"), "{row}");
            assert!(row.contains("edge-client ") && row.contains(" kB</td>"), "{row}");
        }
        // Their own tests have the names as well.
        let (_, tests) = page.split_once("What every client found").expect("the tests");
        row(tests, &label);
        assert!(page.contains("Results by class of the last model</h2>"), "{page}");
    }
    let text = fs::read_to_string(format!("{moved}/state/by-class.json")).expect("the results");
    let found: Value = serde_json::from_str(text.lines().next().expect("JSON")).expect("JSON");
    let last = testbed_rounds(&moved);
    assert_eq!((&found[0]["round"], &found[0]["evaluation"]["accuracy"]), (&json!(3), &last));
}

/// The accuracy of the last tested round.
fn testbed_rounds(run: &str) -> Value {
    let text = fs::read_to_string(format!("{run}/rounds.jsonl")).expect("rounds");
    let rounds = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    rounds.map(|round| round["accuracy"].clone()).rfind(|accuracy| !accuracy.is_null()).expect("a test")
}

#[test]
fn a_device_and_the_lab_find_the_same_by_class() {
    let testbed = Testbed::new(1, &[]);
    let folder = testbed.path("photos");
    fs::create_dir_all(&folder).expect("made");
    let rows = |from: usize| -> String {
        let row = |n: usize| format!("{},{}.5,1.5\n", ["oak", "elm", "ash"][n % 3], n * n % 17);
        (from..from + 30).map(row).collect()
    };
    for (split, from) in [("train", 0), ("test", 100)] {
        fs::write(folder.join(format!("{split}.csv")), format!("kind,width,height\n{}", rows(from)))
            .expect("written");
    }
    let (data, runs) = (folder.display().to_string(), testbed.name("own"));
    let config = format!(
        "data.set = \"csv\"\ndata.path = {data:?}\ndata.clients = 1\ndata.shape = \"2\"\ndata.label = \"kind\"\n\
         data.class-names = [\"oak\", \"elm\", \"ash\"]\nmodel.name = \"linear\"\nrun.rounds = 2\nrun.name = \"trees\"\n"
    );
    fs::write(testbed.path("trees.toml"), config).expect("written");
    let simulated = run(&programs().aggregator, &["simulate", &testbed.name("trees.toml"), "--runs", &runs]);
    assert_eq!(simulated.code, Some(0), "{}", simulated.text);
    let model = format!("{runs}/trees");
    let object = |program, arguments: &[&str]| -> Value {
        let ended = run(program, arguments);
        assert_eq!(ended.code, Some(0), "{}", ended.text);
        serde_json::from_str(ended.text.lines().last().expect("JSON")).expect("JSON")
    };
    let lab = object(&programs().aggregator, &["evaluate", "--model", &model, "--every-split", "--json"]);
    for split in ["test", "train"] {
        let device = ["evaluate", "--model", &model, "--data", &data, "--split", split, "--json"];
        let device = object(&programs().edge_client, &device);
        assert_eq!(device["by-class"]["classes"], lab[split]["by-class"]["classes"], "{split}");
        assert_eq!(device["by-class"]["confusion"], lab[split]["by-class"]["confusion"], "{split}");
        assert_eq!(device["by-class"]["classes"][1]["name"], "elm");
        assert_eq!(device["accuracy"], lab[split]["accuracy"]);
        assert_eq!(device["samples"], 30);
    }
    assert_ne!(lab["test"], lab["train"]);
    let both = run(&programs().aggregator, &["evaluate", "--model", &model, "--every-split"]);
    assert!(both.text.contains("the test split") && both.text.contains("the train split"), "{}", both.text);
    let refused = run(&programs().edge_client, &["evaluate", "--data", &data, "--split", "train"]);
    assert!(refused.code == Some(2) && refused.text.contains("--model"), "{}", refused.text);
}

/// The page is there before the run is over, and says that it goes on; Ctrl-C ends the run by that signal and the page says so.
#[test]
fn a_simulation_has_its_page_while_it_goes_on_and_is_interrupted_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().join("runs");
    let page = runs.join("long/report.html");
    let mut command = Command::new(&programs().aggregator);
    command.args(["simulate", "--set", "run.name=long", "--set", "model.name=linear"]);
    command.args(["--set", "run.rounds=1000000", "--set", "evaluate.every=1000"]);
    command.args(["--set", "data.max-samples=100", "--set", "data.clients=2", "--runs"]).arg(&runs);
    let mut simulation = Process::start("the simulation", &mut command);
    let said = || fs::read_to_string(&page).unwrap_or_default();
    until("the page shows a round", || said().contains("<strong>Running</strong>, after round"));
    assert!(simulation.alive());
    simulation.interrupt();
    let ended = simulation.wait();
    assert_eq!(ended.code, Some(INTERRUPTED), "{}", ended.text);
    assert!(said().contains("<h2>Stopped after round"), "{}", said());
}
