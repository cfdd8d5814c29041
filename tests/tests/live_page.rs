//! `aggregator page` as its visitors meet it: what they see, what they may change, and what is refused.
#![cfg(unix)]

use std::fs;
use std::net::TcpStream;

use federation_tests::process::{INTERRUPTED, run, until};
use federation_tests::programs::{programs, simulate};
use federation_tests::testbed::Testbed;
use federation_tests::visitor::Visitor;
use serde_json::{Value, json};

/// A folder of runs with two short ones that differ in their seed.
fn simulated() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, seed) in [("run.name=first", "run.seed=41"), ("run.name=second", "run.seed=42")] {
        let sets =
            [name, seed, "model.name=linear", "data.clients=2", "data.max-samples=200", "run.rounds=3"];
        simulate(&folder.path().join("runs"), &sets);
    }
    folder
}

fn page_of(folder: &tempfile::TempDir, more: &[&str]) -> Visitor {
    let runs = folder.path().join("runs").display().to_string();
    Visitor::of_page(&[&["--runs", &runs][..], more].concat())
}

#[test]
fn every_page_is_whole_without_script_and_names_no_other_place() {
    let folder = simulated();
    let visitor = page_of(&folder, &[]);
    let expected: [(&str, &[&str]); 6] = [
        ("/", &["2 runs, 0 of them running", "href=\"/runs/first\"", "accuracy from", "data.clients = 2"]),
        ("/?q=FIRST+linear", &["/runs/first\"", "value=\"FIRST linear\""]),
        (
            "/runs/first",
            &["<h1>first</h1>", "Test accuracy", "Effective configuration", "/runs/first/rounds/3"],
        ),
        ("/runs/first/rounds/2", &["<h1>Round 2</h1>", "of 2 asked for", "href=\"/runs/first/rounds/3\""]),
        (
            "/compare?run=first&run=second",
            &["seeds 41, 42", "sample standard deviation", "href=\"/runs/second\""],
        ),
        ("/devices", &["No server was started here yet"]),
    ];
    for (path, parts) in expected {
        let answer = visitor.sees(path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        for part in parts {
            assert!(answer.body.contains(part), "{path}: {part:?} is not in {}", answer.body);
        }
        let elsewhere = answer.body.replace("http://www.w3.org/2000/svg", "");
        assert!(!elsewhere.contains("http://") && !elsewhere.contains("https://"), "{path}: {elsewhere}");
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
    }
    assert!(!visitor.sees("/?q=FIRST").body.contains("/runs/second"));

    // A part alone, as the script fetches it.
    let part = visitor.sees("/runs/first?part=rounds").body;
    assert!(part.contains("Test accuracy") && !part.contains("<html"), "{part}");

    let rounds = fs::read_to_string(folder.path().join("runs/first/rounds.jsonl")).unwrap();
    let last: Value = serde_json::from_str(rounds.lines().last().unwrap()).unwrap();
    let metrics = visitor.sees("/metrics").body;
    let accuracy = format!("federation_accuracy{{run=\"first\"}} {}\n", last["accuracy"]);
    let told = "# TYPE federation_bytes_total counter\n";
    for line in [&accuracy, "federation_round{run=\"second\"} 3.0\n", told] {
        assert!(metrics.contains(line), "{line:?} is not in {metrics}");
    }
    let accepts = ("Accept", "application/openmetrics-text;version=1.0.0;q=0.8,*/*;q=0.1");
    assert!(visitor.asks("GET", "/metrics", &[accepts], "").body.contains("\n# EOF\n"));
    visitor.process.interrupt();
    assert_eq!(visitor.process.wait().code, Some(INTERRUPTED));
}

#[test]
fn a_private_run_says_what_it_has_spent_and_what_that_rests_on() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().join("runs");
    let private = ["privacy.clip=1", "privacy.noise=2", "privacy.epsilon=40", "aggregation.weights=uniform"];
    let small = ["model.name=linear", "data.clients=4", "data.max-samples=200", "run.rounds=2"];
    for more in [&["run.name=secret"][..], &["run.name=repeated", "simulation.reproducible-noise=true"]] {
        simulate(&runs, &[&private[..], &small, more].concat());
    }
    simulate(&runs, &[&small[..], &["run.name=open"]].concat());
    let visitor = page_of(&folder, &[]);
    let metrics = visitor.sees("/metrics").body;
    let rounds = fs::read_to_string(runs.join("secret/rounds.jsonl")).unwrap();
    let last: Value = serde_json::from_str(rounds.lines().last().unwrap()).unwrap();
    let spent = format!("federation_epsilon{{run=\"secret\"}} {}\n", last["metrics"]["epsilon"]);
    for line in [&spent, "federation_epsilon_budget{run=\"secret\"} 40.0\n"] {
        assert!(metrics.contains(line), "{line:?} is not in {metrics}");
    }
    for run in ["repeated", "open"] {
        assert!(!metrics.contains(&format!("federation_epsilon{{run=\"{run}\"}}")), "{metrics}");
        assert!(!metrics.contains(&format!("federation_epsilon_budget{{run=\"{run}\"}}")), "{metrics}");
    }
    let report = fs::read_to_string(runs.join("secret/report.html")).unwrap();
    for page in [visitor.sees("/runs/secret").body, report] {
        for part in ["after 2 rounds, for one device more or less", "the server is trusted"] {
            assert!(page.contains(part), "{part:?} is not in {page}");
        }
    }
}

#[test]
fn runs_of_an_experiment_have_pages_and_rounds() {
    let folder = simulated();
    let place = folder.path().join("experiments");
    fs::create_dir_all(place.join("both")).unwrap();
    fs::rename(folder.path().join("runs"), place.join("both/runs")).unwrap();
    let visitor = page_of(&folder, &["--experiments", &place.display().to_string()]);
    assert!(visitor.sees("/experiments").body.contains("href=\"/compare?experiment=both\""));
    let run = "/experiments/both/runs/first";
    for (page, part) in [
        ("/compare?experiment=both", format!("href=\"{run}\"")),
        (run, "Of <a href=\"/compare?experiment=both\">both</a>".to_owned()),
        (run, format!("href=\"{run}/rounds/3\"")),
        ("/experiments/both/runs/first/rounds/2", format!("href=\"{run}/rounds/3\"")),
    ] {
        let answer = visitor.sees(page);
        assert!(
            answer.status == 200 && answer.body.contains(&part),
            "{page}: {part} is not in {}",
            answer.body
        );
    }
    for none in
        ["/experiments/both/runs/third", "/experiments/..%2fexperiments%2fboth/runs/first", "/runs/first"]
    {
        assert_eq!(visitor.sees(none).status, 404, "{none}");
    }
}

#[test]
fn a_run_that_goes_on_and_one_that_comes_are_seen() {
    let folder = simulated();
    let visitor = page_of(&folder, &[]);
    assert!(visitor.sees("/").body.contains("2 runs"));
    let mut next = visitor.watches();
    assert_eq!(next(), "rounds", "from now on");
    simulate(&folder.path().join("runs"), &["run.name=third", "model.name=linear", "run.rounds=1"]);
    assert_eq!(next(), "rounds");
    until("the new run is on the page", || visitor.sees("/").body.contains("/runs/third"));
}

#[test]
fn what_is_not_for_the_page_is_refused() {
    let folder = simulated();
    let token = folder.path().join("token");
    let secret = "0123456789abcdef0123456789abcdef";
    fs::write(&token, format!("{secret}\n")).unwrap();
    let visitor = page_of(&folder, &[]);
    let own = format!("http://{}", visitor.address);
    let status = |method: &str, path: &str, headers: &[(&str, &str)], body: &str| {
        visitor.asks(method, path, headers, body).status
    };
    assert_eq!(status("GET", "/", &[("Host", "evil.example")], ""), 403);
    assert_eq!(status("GET", "/style.css", &[("Host", "evil.example")], ""), 403);
    assert_eq!(status("GET", "/changes", &[("Origin", "http://evil.example")], ""), 403);
    assert_eq!(status("POST", "/devices", &[("Origin", "http://evil.example")], "x=1"), 403);
    for path in
        ["/runs/..", "/runs/%2e%2e", "/runs/..%2f..%2fetc", "/runs/first%2f..%2fsecond", "/runs/none", "/x"]
    {
        assert_eq!(status("GET", path, &[], ""), 404, "{path}");
    }
    assert_eq!(status("GET", "/runs/first/rounds/99", &[], ""), 404);
    assert_eq!(status("GET", "/?part=everything", &[], ""), 400);
    let form = ("Content-Type", "application/x-www-form-urlencoded");
    let large = format!("form={}", "0".repeat(1 << 20));
    assert_eq!(status("POST", "/devices", &[("Origin", &own), form], &large), 413);
    let forged = "form=0&device=00&action=approve";
    assert_eq!(status("POST", "/devices", &[("Origin", &own), form], forged), 403);
    let long = "x".repeat(100_000);
    assert_eq!(status("GET", "/", &[("X", &long)], ""), 431);

    // More connections than there are places are closed, and the others served.
    let silent: Vec<_> = (0..1000).map(|_| TcpStream::connect(&visitor.address).unwrap()).collect();
    drop(silent);
    until("there is room again", || visitor.sees("/").status == 200);

    // A page for looking alone has no forms and takes none.
    let looking = page_of(&folder, &["--read-only"]);
    assert!(!looking.sees("/devices").body.contains("method=\"post\""));
    assert_eq!(looking.sends("/devices", forged).status, 403);

    // With a token.
    let guarded = page_of(&folder, &["--token-file", &token.display().to_string()]);
    let sent = guarded.sees("/runs/first");
    assert_eq!((sent.status, sent.header("location")), (303, Some("/login")));
    assert_eq!(guarded.sees("/metrics").status, 401);
    let bearer = format!("Bearer {secret}");
    assert_eq!(guarded.asks("GET", "/metrics", &[("Authorization", &bearer)], "").status, 200);
    assert_eq!(guarded.sends("/login", "token=wrong").status, 401);
    let opened = guarded.sends("/login", &format!("token={secret}"));
    let cookie = opened.header("set-cookie").unwrap();
    assert!(cookie.contains("HttpOnly; SameSite=Strict"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap();
    assert_eq!(guarded.asks("GET", "/runs/first", &[("Cookie", cookie)], "").status, 200);

    for (arguments, part) in [
        (&["page", "--listen", "0.0.0.0:0"][..], "--token-file"),
        (&["page", "--token-file", "/nonexistent"], "cannot read the token"),
    ] {
        let ended = run(&programs().aggregator, arguments);
        assert!(ended.code.is_some_and(|code| code > 1) && ended.text.contains(part), "{}", ended.text);
    }
}

/// A device waits, is let in, gets a name, trains, and is thrown out: all of it from the page.
#[test]
fn devices_are_let_in_named_and_thrown_out_from_the_page() {
    let testbed = Testbed::new(1, &["run.rounds=100000", "data.max-samples=20"]);
    let server = testbed.serve_with(&["--enrolment", "approve"]);
    let (runs, identity) = (testbed.name("runs"), testbed.name("identity"));
    let visitor = Visitor::of_page(&["--runs", &runs, "--identity", &identity]);
    let mut device = testbed.join(0);
    until("the device waits for approval", || visitor.sees("/devices").body.contains("waits for approval"));
    let page = visitor.sees("/devices");
    let form = page.quoted("name=\"form\" value=\"").unwrap().to_owned();
    let client = testbed.client(0).to_string();
    let send = |action: &str| visitor.sends("/devices", &format!("form={form}&device={client}&{action}"));

    assert_eq!(send("action=name&name=beef").status, 400, "it could be an id");
    assert_eq!(send("action=name&name=window+sill").status, 303);
    assert_eq!(send("action=approve").status, 303);
    device.object(&json!({ "event": "receipt", "round": 2, "verdict": "accepted" }));
    until("it is shown as it is", || {
        let page = visitor.sees("/devices").body;
        page.contains(">here<") && page.contains("window sill (") && page.contains("let window sill")
    });
    let round =
        visitor.sees(&format!("/runs/{}/rounds/1", testbed.run().file_name().unwrap().display())).body;
    assert!(round.contains("window sill (") && round.contains("data-state=\"accepted\""), "{round}");

    let made = visitor.sends("/tickets", &format!("form={form}&uses=3&hours=2"));
    assert!(made.status == 200 && made.body.contains("lets 3 devices in until"), "{}", made.body);
    assert!(
        made.body.contains("edge-client join ") && made.body.contains("<svg class=\"code\""),
        "{}",
        made.body
    );
    assert_eq!(visitor.sends("/tickets", &format!("form={form}&uses=0&hours=2")).status, 400);

    assert_eq!(send("action=revoke").status, 303);
    let ended = device.wait();
    assert!(ended.code == Some(4) && ended.text.contains("revoked"), "{}", ended.text);
    let page = visitor.sees("/devices").body;
    assert!(page.contains("page, from 127.0.0.1: revoked window sill"), "{page}");
    assert_eq!(send("action=remove").status, 303);
    assert_eq!(send("action=remove").status, 400, "it is no more");
    // The page is killed, and the server goes on.
    visitor.process.kill();
    server.interrupt();
    assert_eq!(server.wait().code, Some(INTERRUPTED));
}

#[test]
fn a_run_brings_its_page_along_and_takes_it_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().join("runs").display().to_string();
    let sets = ["--set", "model.name=linear", "--set", "run.rounds=1"];
    let page = ["--page", "127.0.0.1:0"];
    let ended = run(&programs().aggregator, &[&["simulate", "--runs", &runs][..], &sets, &page].concat());
    assert_eq!(ended.code, Some(0), "{}", ended.text);
}
