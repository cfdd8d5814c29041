//! Devices without labels as real processes: they join with images alone, the server trains on what it has, and wherever the
//! run completes, its model is the simulation's, byte for byte.
#![cfg(unix)]

use std::fs;

use federation_tests::process::{Process, run};
use federation_tests::programs::programs;
use federation_tests::testbed::Testbed;
use serde_json::json;
use shared::data::idx::{self, Idx};
use shared::data::{ReadOptions, SampleFormat as _, Samples, Split};

/// Labels at the server, and none beside the samples of the devices.
fn unlabelled(more: &[&str]) -> Testbed {
    let labels =
        ["data.labels=server", "data.labelled=40", "algorithm.fedmix={gate=0.2}", "aggregation.weights=loss"];
    let testbed = Testbed::new(4, &[&labels[..], more].concat());
    for index in 0..4 {
        fs::remove_file(testbed.data(index).join("train-labels-idx1-ubyte")).expect("the split has labels");
    }
    testbed
}

fn join(testbed: &Testbed) -> Vec<Process> {
    (0..4).map(|index| testbed.join_with(index, &["--unlabelled"])).collect()
}

#[test]
fn devices_without_labels_train_the_model_of_the_simulation() {
    let testbed = unlabelled(&[]);
    let server = testbed.serve();
    let devices = join(&testbed);
    testbed.assert_completed(server, devices);
    for record in testbed.rounds() {
        for name in ["coverage", "class-coverage", "entropy", "global-class-coverage", "server-loss"] {
            assert!(record.metrics.contains_key(name), "{name} is not in {record:?}");
        }
    }
}

/// Devices with a state directory each, which keep what their last model sees in noise and pick helpers by it.
#[test]
fn devices_that_help_each_other_train_the_model_of_the_simulation() {
    let fedmatch =
        "algorithm.fedmatch={gate=0.2, lambda-a=1.0, lambda-i=1.0, lambda-l2=0.5, refresh=2, bank=3}";
    let testbed = unlabelled(&[fedmatch, "aggregation.weights=uniform"]);
    let mut server = testbed.serve();
    let devices = join(&testbed);
    server.object(&json!({ "round": 2, "accepted": 4 }));
    server.kill();
    let server = testbed.serve();
    testbed.assert_completed(server, devices);
}

#[test]
fn a_server_that_is_killed_trains_its_own_model_again() {
    let testbed = unlabelled(&["server.epochs=3"]);
    let mut server = testbed.serve();
    let devices = join(&testbed);
    server.object(&json!({ "round": 1, "accepted": 4 }));
    server.kill();
    let server = testbed.serve();
    testbed.assert_completed(server, devices);
}

/// Images in one folder, in the order of the device's samples.
#[test]
fn images_need_no_folders_of_classes() {
    let testbed = unlabelled(&[]);
    testbed.give_images(3);
    let server = testbed.serve();
    let devices = (0..4).map(|index| testbed.join_with(index, &["--unlabelled"])).collect();
    testbed.assert_completed(server, devices);
}

#[test]
fn labels_that_are_there_are_not_used_and_labels_that_are_needed_are_missed() {
    // A device that has labels, all wrong, beside three that have none.
    let testbed = unlabelled(&[]);
    let set = Idx.load(&testbed.data(0), Split::Train, &ReadOptions::unlabelled()).expect("images alone");
    let Samples::Bytes(pixels) = set.samples() else { panic!("images are bytes") };
    let labels = vec![0_u8; set.len()];
    let wrong = shared::data::Dataset::new(vec![1, 28, 28], pixels.clone(), labels, 10).expect("ten classes");
    idx::write_split(&testbed.data(0), Split::Train, &wrong).expect("written");
    let server = testbed.serve();
    let mut devices = vec![testbed.join(0)];
    devices.extend((1..4).map(|index| testbed.join_with(index, &["--unlabelled"])));
    testbed.assert_completed(server, devices);

    let testbed = Testbed::new(1, &[]);
    let server = testbed.serve();
    let device = testbed.join_with(0, &["--unlabelled"]).wait();
    assert_eq!(device.code, Some(4), "{}", device.text);
    assert!(device.text.contains("the device's samples are unlabelled"), "{}", device.text);
    // Without the word, a file of labels is missed once the run has said that it needs it.
    fs::remove_file(testbed.data(0).join("train-labels-idx1-ubyte")).expect("the split has labels");
    let device = testbed.join(0).wait();
    assert_eq!(device.code, Some(3), "{}", device.text);
    for part in ["train-labels-idx1-ubyte", "the run says: shape 1x28x28, 10 classes"] {
        assert!(device.text.contains(part), "{}", device.text);
    }
    server.kill();
}

/// Devices that believe everything they guess, at a rate that makes them sure of it: all become one class.
#[test]
fn a_model_that_collapses_is_said_to_have_by_the_record_and_to_the_operator() {
    let testbed = Testbed::new(
        4,
        &[
            "data.labels=server",
            "data.labelled=40",
            "algorithm.fedmix={gate=0.0, lambda-2=5.0}",
            "server.mixing={clients=1, server=0, previous=0}",
            "training.optimizer.sgd.learning-rate=1",
            "run.rounds=6",
        ],
    );
    let (config, runs) = (testbed.name("run.toml"), testbed.name("runs"));
    let ended = run(&programs().aggregator, &["simulate", &config, "--runs", &runs, "--threads", "1"]);
    assert_eq!(ended.code, Some(0), "{}", ended.text);
    let collapsed: Vec<u32> =
        testbed.rounds().iter().filter(|record| record.collapsed).map(|record| record.round).collect();
    assert!(!collapsed.is_empty(), "{:?}", testbed.rounds());
    for round in collapsed {
        let alarm = format!("the global model names few classes after round {round} for all inputs");
        assert!(ended.text.contains(&alarm), "{}", ended.text);
    }
    assert!(ended.text.contains("the model names few classes"), "{}", ended.text);
}
