//! Samples that a device cannot use, with real processes: they are counted where the operator looks, and the model is as if they were
//! not there.
#![cfg(unix)]

use std::fs;

use federation_tests::lab::Lab;
use federation_tests::process::run;
use federation_tests::programs::programs;
use serde_json::{Value, json};

/// A lab whose last device has its samples as one image each, in their order, and so many damaged ones among them.
fn lab(damaged: usize) -> Lab {
    let labels =
        ["data.labels=server", "data.labelled=40", "algorithm.fedmix={gate=0.2}", "aggregation.weights=loss"];
    let lab = Lab::new(2, &labels);
    lab.give_images(1);
    for number in 0..damaged {
        fs::write(lab.data(1).join(format!("{number:05}-damaged.png")), b"\x89PNG").expect("written");
    }
    fs::remove_file(lab.data(1).join("train-labels-idx1-ubyte")).expect("the split has labels");
    lab
}

#[test]
fn what_a_device_leaves_out_is_counted_in_the_report_and_in_the_status() {
    let lab = lab(2);
    let server = lab.serve();
    let skipping = ["--unlabelled", "--on-error", "skip"];
    let devices = vec![lab.join_with(0, &["--unlabelled"]), lab.join_with(1, &skipping)];
    lab.assert_completed(server, devices);
    let (runs, identity) = (lab.name("runs"), lab.name("identity"));
    let status = |more: &[&str]| {
        let asked = [&["status", "--runs", &runs, "--identity", &identity][..], more].concat();
        let ended = run(&programs().aggregator, &asked);
        assert_eq!(ended.code, Some(0), "{}", ended.text);
        ended.text
    };
    let shown: Value = serde_json::from_str(status(&["--json"]).trim()).expect("JSON");
    let device = lab.client(1);
    assert_eq!(shown["left_out"], json!([{ "device": device, "name": null, "samples": 2 }]));
    let said = format!("2 training samples on device {}", device.short());
    let page = fs::read_to_string(lab.run().join("report.html")).expect("the report");
    for (name, text) in [("status", status(&[])), ("report", page)] {
        assert!(text.contains(&said), "no {said:?} in the {name}: {text}");
    }
}

#[test]
fn a_device_that_leaves_nothing_out_says_nothing() {
    let lab = lab(0);
    let server = lab.serve();
    let devices = (0..2).map(|index| lab.join_with(index, &["--unlabelled", "--on-error", "skip"])).collect();
    lab.assert_completed(server, devices);
    let page = fs::read_to_string(lab.run().join("report.html")).expect("the report");
    assert!(!page.contains("Left out"), "{page}");
}
