//! Samples that a device cannot use, with real processes: the operator sees their number, and the model is that of data
//! without them.
#![cfg(unix)]

use std::fs;

use federation_tests::process::run;
use federation_tests::programs::programs;
use federation_tests::testbed::Testbed;
use serde_json::{Value, json};

/// A testbed whose last device has its samples as one image each, in their order, and this number of damaged ones among them.
fn testbed(damaged: usize) -> Testbed {
    let labels =
        ["data.labels=server", "data.labelled=40", "algorithm.fedmix={gate=0.2}", "aggregation.weights=loss"];
    let testbed = Testbed::new(2, &labels);
    testbed.give_images(1);
    for number in 0..damaged {
        fs::write(testbed.data(1).join(format!("{number:05}-damaged.png")), b"\x89PNG").expect("written");
    }
    fs::remove_file(testbed.data(1).join("train-labels-idx1-ubyte")).expect("the split has labels");
    testbed
}

#[test]
fn what_a_device_leaves_out_is_counted_in_the_report_and_in_the_status() {
    let testbed = testbed(2);
    let server = testbed.serve();
    let skipping = ["--unlabelled", "--on-error", "skip"];
    let devices = vec![testbed.join_with(0, &["--unlabelled"]), testbed.join_with(1, &skipping)];
    testbed.assert_completed(server, devices);
    let (runs, identity) = (testbed.name("runs"), testbed.name("identity"));
    let status = |more: &[&str]| {
        let asked = [&["status", "--runs", &runs, "--identity", &identity][..], more].concat();
        let ended = run(&programs().aggregator, &asked);
        assert_eq!(ended.code, Some(0), "{}", ended.text);
        ended.text
    };
    let shown: Value = serde_json::from_str(status(&["--json"]).trim()).expect("JSON");
    let device = testbed.client(1);
    assert_eq!(shown["left_out"], json!([{ "device": device, "name": null, "samples": 2 }]));
    let said = format!("2 training samples on device {}", device.short());
    let page = fs::read_to_string(testbed.run().join("report.html")).expect("the report");
    for (name, text) in [("status", status(&[])), ("report", page)] {
        assert!(text.contains(&said), "no {said:?} in the {name}: {text}");
    }
}

#[test]
fn a_device_that_leaves_nothing_out_says_nothing() {
    let testbed = testbed(0);
    let server = testbed.serve();
    let devices =
        (0..2).map(|index| testbed.join_with(index, &["--unlabelled", "--on-error", "skip"])).collect();
    testbed.assert_completed(server, devices);
    let page = fs::read_to_string(testbed.run().join("report.html")).expect("the report");
    assert!(!page.contains("Left out"), "{page}");
}
