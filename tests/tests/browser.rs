//! The live page in a real browser, beside a real server and its devices: skipped where there is no browser.
//!
//! `FEDERATION_PICTURES=DIR` writes a picture of each page in each view there.
#![cfg(unix)]

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use federation_tests::browser::{Browser, View};
use federation_tests::process::{INTERRUPTED, run, until};
use federation_tests::programs::programs;
use federation_tests::testbed::Testbed;
use federation_tests::visitor::Visitor;

/// Rounds whose way to the page is timed.
const TIMED: usize = 8;

fn started() -> Option<Browser> {
    Browser::start().map_err(|why| eprintln!("skipped: {why}")).ok()
}

/// The closed rounds that the page shows.
fn shown(browser: &Browser) -> usize {
    let script = "const found = document.body.innerText.match(/([\\d,]+) rounds? of/);
                  return found ? Number(found[1].replaceAll(',', '')) : 0";
    browser.script(script).as_u64().unwrap_or(0) as usize
}

/// The form of a device that has this button or field.
fn form(client: &str, what: &str) -> String {
    format!("form:has(input[value='{client}']) {what}")
}

#[test]
fn a_person_lets_devices_in_watches_rounds_and_throws_one_out() {
    let Some(browser) = started() else { return };
    let testbed = Testbed::new(4, &["run.rounds=100000", "data.max-samples=80", "training.epochs=400"]);
    let server = testbed.serve_with(&["--enrolment", "approve"]);
    let (runs, identity) = (testbed.name("runs"), testbed.name("identity"));
    let visitor = Visitor::of_page(&["--runs", &runs, "--identity", &identity]);
    let place = |path: &str| format!("http://{}{path}", visitor.address);
    let mut devices: Vec<_> = (0..4).map(|index| testbed.join(index)).collect();
    let clients: Vec<String> = (0..4).map(|index| testbed.client(index).to_string()).collect();
    browser.open(&place("/devices"));
    for client in &clients {
        browser.press(&form(client, "button[value=approve]"));
        let approve = format!("return document.querySelector(\"{}\")", form(client, "button[value=approve]"));
        until("the page has let it in", || browser.script(&approve).is_null());
    }

    let name = testbed.run().file_name().unwrap().display().to_string();
    browser.open(&place(&format!("/runs/{name}")));
    browser.shows("4 of 4 known devices connected");
    // How long a round that is on disk takes to the page, of which no reload is part.
    let mut ways = Vec::new();
    for _ in 0..TIMED {
        let before = testbed.closed();
        until("another round", || testbed.closed() > before);
        let closed = Instant::now();
        until("the page has it", || shown(&browser) > before);
        ways.push(closed.elapsed());
    }
    ways.sort_unstable();
    println!("a closed round is on the page after {} ms (median of {TIMED})", ways[TIMED / 2].as_millis());
    assert!(ways[TIMED / 2] < Duration::from_secs(5), "it comes by a reload at best: {ways:?}");
    let places =
        "return performance.getEntriesByType('resource').every(one => one.name.startsWith(location.origin))";
    assert_eq!(browser.script(places), true, "something of another place was loaded");

    devices.remove(3).kill();
    browser.shows("3 of 4 known devices connected");
    browser.open(&place("/devices"));
    // What is typed, and where a person is, stays when another device changes.
    let (field, button) =
        (form(&clients[1], "input[name=name]"), form(&clients[1], "input[name=name] ~ button"));
    browser.fill(&field, "half a name");
    assert!(browser.script(&format!("document.querySelector(\"{button}\").focus()")).is_null());
    let secret = visitor.sees("/devices").quoted("name=\"form\" value=\"").unwrap().to_owned();
    let named = format!("form={secret}&device={}&action=name&name=shed", clients[2]);
    assert_eq!(visitor.sends("/devices", &named).status, 303);
    let swapped = "return document.querySelector('#forms').innerText.includes('shed (')";
    until("the forms are swapped", || browser.script(swapped) == true);
    let kept = format!(
        "const button = document.querySelector(\"{button}\");
         return document.querySelector(\"{field}\").value === 'half a name' && document.activeElement === button"
    );
    assert_eq!(browser.script(&kept), true);
    browser.fill(&form(&clients[0], "input[name=name]"), "window sill");
    browser.press(&form(&clients[0], "input[name=name] ~ button"));
    browser.shows("window sill (");
    browser.press(&form(&clients[0], "button[value=revoke]"));
    browser.shows("revoked window sill");
    let ended = devices.remove(0).wait();
    assert!(ended.code == Some(4) && ended.text.contains("revoked"), "{}", ended.text);
    visitor.process.kill();
    server.interrupt();
    assert_eq!(server.wait().code, Some(INTERRUPTED));
}

#[test]
fn every_page_fits_a_desktop_and_a_phone() {
    let Some(browser) = started() else { return };
    let pictures = std::env::var_os("FEDERATION_PICTURES").map(PathBuf::from);
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().join("runs").display().to_string();
    for seed in ["41", "42"] {
        let (seed, name) = (format!("run.seed={seed}"), format!("run.name=seed-{seed}"));
        let sets = [&*seed, &*name, "run.rounds=12", "data.partition.dirichlet.alpha=0.3"];
        let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
        let ended = run(&programs().aggregator, &[&["simulate", "--runs", &runs][..], &sets].concat());
        assert_eq!(ended.code, Some(0), "{}", ended.text);
    }
    let visitor = Visitor::of_page(&["--runs", &runs]);
    let pages = [
        ("runs", "/"),
        ("run", "/runs/seed-41"),
        ("round", "/runs/seed-41/rounds/3"),
        ("compare", "/compare?run=seed-41&run=seed-42"),
        ("devices", "/devices"),
        ("experiments", "/experiments"),
    ];
    if let Some(folder) = &pictures {
        fs::create_dir_all(folder).unwrap();
    }
    for view in View::ALL {
        browser.view(view);
        for (name, path) in pages {
            browser.open(&format!("http://{}{path}", visitor.address));
            let (name, said) = (format!("{name}-{}", view.name()), browser.text());
            assert!(said.len() > 40, "{name} shows {said:?}");
            let wide = browser.script("return document.documentElement.scrollWidth");
            assert!(wide.as_u64().is_some_and(|wide| wide <= view.width.into()), "{name} is {wide} wide");
            let unnamed = "return [...document.querySelectorAll('button, input:not([type=hidden]), select, svg[role=img]')]
                .filter(one => !(one.ariaLabel || one.labels?.length || one.innerText?.trim() || one.querySelector?.('title')))
                .map(one => one.outerHTML.slice(0, 120))";
            assert_eq!(
                browser.script(unnamed),
                serde_json::json!([]),
                "{name} has what a screen reader cannot name"
            );
            if let Some(folder) = &pictures {
                browser.picture(&folder.join(format!("{name}.png")));
            }
        }
    }
}
