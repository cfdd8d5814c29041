//! One test per kind of mistake: each message names the place, the key, what was given and what is accepted.

use std::path::Path;

use shared::id::RunId;

use super::{Config, ConfigError, Raw};

fn load(file: Option<&Path>, overrides: &[&str]) -> Result<Config, ConfigError> {
    let overrides: Vec<String> = overrides.iter().map(|&given| given.to_owned()).collect();
    Config::validate(Raw::layered(file, &overrides)?, RunId::from_bytes([1; 8]))
}

/// The error of a configuration file with this text.
fn in_file(text: &str) -> ConfigError {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("lab.toml");
    std::fs::write(&path, text).expect("a file in it");
    load(Some(&path), &[]).expect_err(text)
}

/// The error of these overrides.
fn set(overrides: &[&str]) -> ConfigError {
    load(None, overrides).expect_err(&overrides.join(" "))
}

#[track_caller]
fn says(error: &ConfigError, parts: &[&str]) {
    let message = error.to_string();
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in: {message}");
    }
    assert!(!message.contains("  ") && !message.contains('\n'), "one clean line: {message:?}");
}

#[test]
fn the_default_configuration_is_valid() {
    let config = load(None, &[]).expect("the default run");
    assert_eq!((config.data.clients, config.policy.start), (10, 10));
}

#[test]
fn unknown_key() {
    let error = in_file("[training]\nepoch = 5");
    assert!(matches!(&error, ConfigError::UnknownKey(mistake)
        if mistake.key == "training.epoch" && mistake.suggestion.as_deref() == Some("epochs")));
    says(
        &error,
        &["lab.toml", "`training.epoch`", "given 5", "epochs, batch, optimizer", "did you mean `epochs`?"],
    );
    says(
        &set(&["training.optimizer.sgd.nesterov=true"]),
        &[
            "--set training.optimizer.sgd.nesterov=true",
            "`training.optimizer.sgd.nesterov`",
            "true (a truth value)",
            "rate, momentum, decay",
        ],
    );
    says(&in_file("[data.partition.iid]\nalpha = 1"), &["`data.partition.iid.alpha`", "given 1", "nothing"]);
}

#[test]
fn unknown_table() {
    says(
        &in_file("[trainig]\nepochs = 5"),
        &["`trainig`", "a table", "run, data, model", "did you mean `training`?"],
    );
}

#[test]
fn key_in_the_wrong_table() {
    says(&in_file("epochs = 5"), &["`epochs`", "did you mean `training.epochs`?"]);
}

#[test]
fn dots_within_a_quoted_key_do_not_make_it_a_path() {
    says(&in_file("\"training.optimizer\" = {}"), &["unknown key `training.optimizer`"]);
    says(&in_file("\"run.name\" = \"x\""), &["unknown key `run.name`"]);
}

#[test]
fn wrong_type() {
    let error = in_file("[training]\nepochs = \"five\"");
    assert!(matches!(&error, ConfigError::WrongType(mistake) if mistake.key == "training.epochs"));
    says(&error, &["lab.toml", "`training.epochs`", "\"five\" (a text)", "a whole number, at least 0"]);
    says(&set(&["training.epochs=1.5"]), &["1.5 (a fractional number)", "a whole number"]);
    says(
        &set(&["training=5"]),
        &["`training`", "5 (a whole number)", "a table with epochs, batch, optimizer"],
    );
    says(
        &set(&["data.partition=iid"]),
        &["`data.partition`", "\"iid\" (a text)", "one of iid, shards, dirichlet"],
    );
    says(&set(&["run.name=[1, 2]"]), &["`run.name`", "an array", "a text of 1 to 60 characters"]);
    says(&set(&["algorithm=fedavg"]), &["`algorithm`", "\"fedavg\" (a text)", "[algorithm.NAME]", "fedsgd"]);
    says(&set(&["algorithm.fedavg=1"]), &["`algorithm.fedavg`", "1 (a whole number)", "hyper-parameters"]);
}

#[test]
fn out_of_range() {
    let error = set(&["run.rounds=0"]);
    assert!(matches!(&error, ConfigError::OutOfRange(mistake) if mistake.key == "run.rounds"));
    says(&error, &["--set run.rounds=0", "`run.rounds` = 0", "at least 1"]);
    for (given, accepted) in [
        ("round.fraction=1.5", "at least 0 and at most 1"),
        ("round.fraction=-0.1", "at least 0 and at most 1"),
        ("round.fraction=nan", "at least 0 and at most 1"),
        ("run.seed=-1", "a whole number, at least 0"),
        ("run.rounds=4294967296", "a whole number, at least 1 and at most 4294967295"),
        ("training.optimizer.sgd.rate=0", "greater than 0"),
        ("training.optimizer.sgd.rate=inf", "greater than 0"),
        ("training.optimizer.sgd.momentum=1", "less than 1"),
        ("round.time.max=1e300", "at most 31536000"),
        ("data.partition.dirichlet.alpha=0.0", "greater than 0"),
        ("data.partition.shards.per-client=0", "at least 1"),
        ("update.max-abs=-3", "greater than 0"),
        ("run.name=\"\"", "1 to 60 characters"),
        ("run.name=../secret", "not beginning with a dot"),
        ("run.name=a/b", "without control characters, / or \\"),
        ("run.name=\"a\\nb\"", "control characters"),
    ] {
        let (key, value) = given.split_once('=').expect("an override");
        says(&set(&[given]), &[key, value, accepted]);
    }
}

#[test]
fn unknown_names() {
    says(
        &set(&["data.set=minst"]),
        &["`data.set`", "\"minst\"", "glyphs, mnist, fashion-mnist", "did you mean `mnist`?"],
    );
    says(&set(&["model.name=lenet5"]), &["`model.name`", "\"lenet5\"", "mlp-2nn", "did you mean `lenet-5`?"]);
    says(
        &set(&["algorithm.fedvag={}"]),
        &["`algorithm`", "\"fedvag\"", "fedavg, fedsgd", "did you mean `fedavg`?"],
    );
    says(&set(&["aggregation.weights=sample"]), &["`aggregation.weights`", "\"sample\"", "samples, uniform"]);
    says(&set(&["update.precision=f64"]), &["`update.precision`", "\"f64\"", "f32, f16, bf16"]);
}

#[test]
fn two_alternatives() {
    let error = in_file("[algorithm.fedavg]\n[algorithm.fedsgd]");
    assert!(matches!(&error, ConfigError::Alternatives(mistake) if mistake.key == "algorithm"));
    says(&error, &["lab.toml", "`algorithm`", "fedavg and fedsgd", "exactly one"]);
    says(
        &in_file("data.partition = { iid = {}, shards = {} }"),
        &["`data.partition`", "iid and shards", "dirichlet"],
    );
}

#[test]
fn no_algorithm() {
    let raw = Raw { algorithm: std::collections::BTreeMap::new(), ..Raw::default() };
    let error = Config::validate(raw, RunId::from_bytes([1; 8])).expect_err("none");
    says(&error, &["`algorithm`", "given none", "fedavg, fedsgd"]);
}

#[test]
fn hyper_parameters_of_the_algorithm() {
    says(&set(&["algorithm.fedavg.mu=0.1"]), &["[algorithm.fedavg]", "mu"]);
}

#[test]
fn absent_and_unreadable_files() {
    let error = load(Some(Path::new("no-such-folder/lab.toml")), &[]).expect_err("absent");
    says(&error, &["no-such-folder/lab.toml", "cannot read", "No such file"]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("picture.toml");
    std::fs::write(&path, [0xff, 0xfe, 0x00]).expect("a file in it");
    says(&load(Some(&path), &[]).expect_err("not text"), &["picture.toml", "UTF-8"]);
    std::fs::write(&path, "#".repeat((1 << 20) + 1)).expect("a file in it");
    says(&load(Some(&path), &[]).expect_err("too large"), &["picture.toml", "1048576 bytes"]);
}

#[test]
fn syntax_errors_have_a_line_and_a_column() {
    let error = in_file("[run]\nname = \"ü\" x\n");
    assert!(matches!(error, ConfigError::Syntax { line: 2, column: 12, .. }), "{error:?}");
    says(&error, &["lab.toml", "line 2, column 12"]);
    assert!(matches!(in_file("[run"), ConfigError::Syntax { line: 1, .. }));
    assert!(matches!(in_file("[run]\nseed = 1\nseed = 2"), ConfigError::Syntax { line: 3, .. }));
}

#[test]
fn combinations_that_make_no_sense() {
    for (overrides, parts) in [
        (
            &["round.count.min=5", "round.count.max=4"][..],
            &["round.count.min = 5", "round.count.max = 4"][..],
        ),
        (&["round.count.max=11"], &["round.count.max = 11", "data.clients = 10"]),
        (
            &["round.count.min=3", "round.fraction=0.2"],
            &["round.count.min = 3", "round.fraction = 0.2", "2 clients"],
        ),
        (&["round.start=11"], &["round.start = 11", "data.clients = 10"]),
        (&["round.time.min=20", "round.time.max=10"], &["round.time.min = 20", "round.time.max = 10"]),
        (&["connection.heartbeat=15"], &["connection.heartbeat = 15", "connection.lost-after = 15"]),
        (
            &["algorithm.fedsgd={}", "training.epochs=2"],
            &["[algorithm.fedsgd]", "training.epochs must be 1, not 2"],
        ),
        (&["algorithm.fedsgd={}"], &["training.batch must be 0"]),
        (
            &["data.path=somewhere"],
            &["data.set = \"glyphs\"", "data.path = \"somewhere\"", "--set data.path="],
        ),
        (&["data.limit=9"], &["data.clients = 10", "9 training samples"]),
        (&["data.clients=6001"], &["data.clients = 6001", "6000 training samples"]),
        (
            &["data.partition.shards.per-client=601"],
            &["per-client = 601", "data.clients = 10", "6000 training samples"],
        ),
    ] {
        let error = set(overrides);
        assert!(matches!(error, ConfigError::Combination { .. }), "{error:?}");
        says(&error, &["do not go together"]);
        says(&error, parts);
    }
}
