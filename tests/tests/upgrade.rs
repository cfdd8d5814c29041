//! A server and devices of the version before go on with the programs of today, as the operator's manual (`upgrade.md`) has it.
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use federation_tests::copy_folder::copy_folder;
use federation_tests::testbed::Testbed;

/// What the version before has left: see the README in it.
const BEFORE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/protocol-5");

/// The settings of that run, by their names of today.
const SETTINGS: [&str; 4] = [
    "run.rounds=12",
    "data.max-samples=80",
    "algorithm.scaffold={}",
    "model.layers=[{max-pool = 4}, 'flatten', {linear = 'classes'}]",
];

/// A repository keeps neither empty folders nor permissions.
fn as_it_was(testbed: &Testbed) {
    for empty in ["spool", "accepted-000009"] {
        fs::create_dir_all(testbed.run().join("state").join(empty)).unwrap();
    }
    for secret in
        ["identity/server.key", "identity/aggregator.sqlite3", "state-0/identity", "state-1/identity"]
    {
        fs::set_permissions(testbed.path(secret), fs::Permissions::from_mode(0o600)).unwrap();
    }
}

#[test]
fn a_run_and_its_devices_go_on_to_the_model_of_a_run_of_today() {
    let testbed = Testbed::new(2, &SETTINGS);
    for name in ["runs", "identity", "state-0", "state-1"] {
        let _ = fs::remove_dir_all(testbed.path(name));
        copy_folder(&Path::new(BEFORE).join(name), &testbed.path(name));
    }
    as_it_was(&testbed);
    assert_eq!(testbed.closed(), 8);
    let server = testbed.serve_with(&["--enrolment", "ticket"]);
    // Neither needs a ticket: the server knows them, and they know it.
    let devices = vec![testbed.join(0), testbed.join(1)];
    testbed.assert_completed(server, devices);
    assert_eq!(fs::read_dir(testbed.path("runs")).unwrap().count(), 1, "it is no other run");
}
