//! Devices without labels as real processes: they join with images alone, the server trains on what it has, and wherever the
//! run completes, its model is the simulation's, byte for byte.
#![cfg(unix)]

use std::fs;

use federation_tests::lab::Lab;
use federation_tests::process::{Process, run};
use federation_tests::programs::programs;
use serde_json::json;
use shared::data::{Samples, Split, idx};

/// Labels at the server, and none beside the samples of the devices.
fn unlabelled(more: &[&str]) -> Lab {
    let labels =
        ["data.labels=server", "data.labelled=40", "algorithm.fedmix={gate=0.2}", "aggregation.weights=loss"];
    let lab = Lab::new(4, &[&labels[..], more].concat());
    for index in 0..4 {
        fs::remove_file(lab.data(index).join("train-labels-idx1-ubyte")).expect("the split has labels");
    }
    lab
}

fn join(lab: &Lab) -> Vec<Process> {
    (0..4).map(|index| lab.join_with(index, &["--unlabelled"])).collect()
}

#[test]
fn devices_without_labels_train_the_model_of_the_simulation() {
    let lab = unlabelled(&[]);
    let server = lab.serve();
    let devices = join(&lab);
    lab.assert_completed(server, devices);
    for record in lab.rounds() {
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
    let lab = unlabelled(&[fedmatch, "aggregation.weights=uniform"]);
    let mut server = lab.serve();
    let devices = join(&lab);
    server.object(&json!({ "round": 2, "accepted": 4 }));
    server.kill();
    let server = lab.serve();
    lab.assert_completed(server, devices);
}

#[test]
fn a_server_that_is_killed_trains_its_own_model_again() {
    let lab = unlabelled(&["server.epochs=3"]);
    let mut server = lab.serve();
    let devices = join(&lab);
    server.object(&json!({ "round": 1, "accepted": 4 }));
    server.kill();
    let server = lab.serve();
    lab.assert_completed(server, devices);
}

/// Images in one folder, in the order of the device's samples.
#[test]
fn images_need_no_folders_of_classes() {
    let lab = unlabelled(&[]);
    lab.give_images(3);
    let server = lab.serve();
    let devices = (0..4).map(|index| lab.join_with(index, &["--unlabelled"])).collect();
    lab.assert_completed(server, devices);
}

#[test]
fn labels_that_are_there_are_not_used_and_labels_that_are_needed_are_missed() {
    // A device that has labels, all wrong, beside three that have none.
    let lab = unlabelled(&[]);
    let set = idx::load_unlabelled(&lab.data(0), Split::Train).expect("images alone");
    let Samples::Bytes(pixels) = set.samples() else { panic!("images are bytes") };
    let labels = vec![0_u8; set.len()];
    let wrong = shared::data::Dataset::new(vec![1, 28, 28], pixels.clone(), labels, 10).expect("ten classes");
    idx::write_split(&lab.data(0), Split::Train, &wrong).expect("written");
    let server = lab.serve();
    let mut devices = vec![lab.join(0)];
    devices.extend((1..4).map(|index| lab.join_with(index, &["--unlabelled"])));
    lab.assert_completed(server, devices);

    let lab = Lab::new(1, &[]);
    let server = lab.serve();
    let device = lab.join_with(0, &["--unlabelled"]).wait();
    assert_eq!(device.code, Some(4), "{}", device.text);
    assert!(device.text.contains("the device's samples are unlabelled"), "{}", device.text);
    server.kill();
    // Without the word, a file of labels is missed.
    fs::remove_file(lab.data(0).join("train-labels-idx1-ubyte")).expect("the split has labels");
    let device = lab.join(0).wait();
    assert_eq!(device.code, Some(3), "{}", device.text);
    for part in ["train-labels-idx1-ubyte", "join with --unlabelled"] {
        assert!(device.text.contains(part), "{}", device.text);
    }
}

/// Devices that believe everything they guess, at a rate that makes them sure of it: all become one class.
#[test]
fn a_model_that_collapses_is_said_to_have_by_the_record_and_to_the_operator() {
    let lab = Lab::new(
        4,
        &[
            "data.labels=server",
            "data.labelled=40",
            "algorithm.fedmix={gate=0.0, lambda-2=5.0}",
            "server.mix=[1, 0, 0]",
            "training.optimizer.sgd.rate=1",
            "run.rounds=6",
        ],
    );
    let (config, runs) = (lab.name("run.toml"), lab.name("runs"));
    let ended = run(&programs().aggregator, &["simulate", &config, "--runs", &runs, "--threads", "1"]);
    assert_eq!(ended.code, Some(0), "{}", ended.text);
    let collapsed: Vec<u32> =
        lab.rounds().iter().filter(|record| record.collapsed).map(|record| record.round).collect();
    assert!(!collapsed.is_empty(), "{:?}", lab.rounds());
    for round in collapsed {
        let alarm = format!("the global model names few classes after round {round}, whatever it is shown");
        assert!(ended.text.contains(&alarm), "{}", ended.text);
    }
    assert!(ended.text.contains("the model names few classes"), "{}", ended.text);
}
