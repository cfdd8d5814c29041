//! The two programs, as a user would start them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::process::run;

/// Where the programs are.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The lab's program.
    pub aggregator: PathBuf,
    /// The device's program.
    pub edge_client: PathBuf,
}

/// Builds both programs, once per process, in the profile and the target directory of the running test.
///
/// `cargo test` builds the programs of a package for that package's own tests alone, so a suite of another package has
/// to see to it itself: on a fresh clone they are not there, and after a change they would be old.
///
/// # Panics
/// If they cannot be built; the message holds what cargo said.
#[must_use]
pub fn programs() -> &'static Programs {
    static PROGRAMS: OnceLock<Programs> = OnceLock::new();
    PROGRAMS.get_or_init(build)
}

/// Simulates a run into this directory of runs, with these settings.
///
/// # Panics
/// If it does not end well.
pub fn simulate(runs: &Path, settings: &[&str]) {
    let runs = runs.display().to_string();
    let settings: Vec<&str> = settings.iter().flat_map(|setting| ["--set", setting]).collect();
    let ended = run(&programs().aggregator, &[&["simulate", "--runs", &runs][..], &settings].concat());
    assert_eq!(ended.code, Some(0), "{}", ended.text);
}

fn build() -> Programs {
    let test = std::env::current_exe().expect("the system knows the running program");
    // TARGET/PROFILE/deps/TEST, or TARGET/PROFILE/TOOL
    let folder = test.parent().expect("a program lies in a folder");
    let folder =
        if folder.ends_with("deps") { folder.parent().expect("cargo's `deps` has a parent") } else { folder };
    let target = folder.parent().expect("a profile's folder lies in the target directory");
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") => "dev",
        Some(profile) => profile,
        None => panic!("{} is not the folder of a profile", folder.display()),
    };
    let mut cargo = Command::new(env!("CARGO"));
    // Set for this test by the cargo that runs it. Build scripts (ring's) ask to be run again when they change, and
    // with them nearly everything would be built anew each time.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(&name);
        }
    }
    let selection: &[&str] = if profile == "dev" {
        // With any test of the workspace, cargo chooses the features that it has built everything with for `cargo test`, and builds no
        // library again. The client's place for faults of its disk is among them, which only a test within the process fills.
        &["--workspace", "--bin", "aggregator", "--bin", "edge-client", "--test", "rule_memory"]
    } else {
        &["--package", "aggregator", "--package", "edge-client", "--features", "aggregator/cluster", "--bins"]
    };
    let output = cargo
        .args(["build", "--quiet"])
        .args(selection)
        .args(["--profile", profile, "--target-dir"])
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo, which built this test, can be started");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the programs under test cannot be built:\n{errors}");
    let program = |name: &str| {
        let path = folder.join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
        assert!(path.is_file(), "cargo built the programs and {} is not there", path.display());
        path
    };
    Programs { aggregator: program("aggregator"), edge_client: program("edge-client") }
}
