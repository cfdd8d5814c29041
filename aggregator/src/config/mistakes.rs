//! One test per kind of mistake: each message names the place, the key, what was given and what is accepted.

mod together;

use std::path::Path;

use shared::id::RunId;

use super::{Config, ConfigError, ConfigErrors, Raw};

fn load(file: Option<&Path>, overrides: &[&str]) -> Result<Config, ConfigErrors> {
    let overrides: Vec<String> = overrides.iter().map(|&given| given.to_owned()).collect();
    Config::read(file, &overrides, RunId::from_bytes([1; 8]))
}

/// The errors of a configuration file with this text, under these overrides.
fn all(text: &str, overrides: &[&str]) -> ConfigErrors {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("lab.toml");
    std::fs::write(&path, text).expect("a file in it");
    load(Some(&path), overrides).expect_err(text)
}

fn only(errors: ConfigErrors) -> ConfigError {
    let ConfigErrors(mut errors) = errors;
    assert_eq!(errors.len(), 1, "one mistake is one error: {errors:?}");
    errors.remove(0)
}

/// The only error of a configuration file with this text.
fn in_file(text: &str) -> ConfigError {
    only(all(text, &[]))
}

/// The only error of these overrides.
fn set(overrides: &[&str]) -> ConfigError {
    only(load(None, overrides).expect_err(&overrides.join(" ")))
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
        &[
            "lab.toml",
            "`training.epoch`",
            "given 5",
            "epochs, batch, drop-last, optimizer",
            "did you mean `epochs`?",
        ],
    );
    says(
        &set(&["training.optimizer.sgd.nesterov=true"]),
        &[
            "--set training.optimizer.sgd.nesterov=true",
            "`training.optimizer.sgd.nesterov`",
            "true (a truth value)",
            "learning-rate, momentum, weight-decay",
        ],
    );
    says(&in_file("[data.partition.iid]\nalpha = 1"), &["`data.partition.iid.alpha`", "given 1", "nothing"]);
}

#[test]
fn unknown_table() {
    says(
        &in_file("[trainig]\nepochs = 5"),
        &["`trainig`", "a table", "run, data, augment, model", "did you mean `training`?"],
    );
}

#[test]
fn key_in_the_wrong_table() {
    says(&in_file("epochs = 5"), &["`epochs`", "did you mean `training.epochs`?"]);
}

#[test]
fn dots_within_a_quoted_key_do_not_make_it_a_path() {
    says(&in_file("\"training.optimizer\" = {}"), &["unknown key `\"training.optimizer\"`"]);
    says(&in_file("\"run.name\" = \"x\""), &["unknown key `\"run.name\"`"]);
}

#[test]
fn wrong_type() {
    let error = in_file("[training]\nepochs = \"five\"");
    assert!(matches!(&error, ConfigError::WrongType(mistake) if mistake.key == "training.epochs"));
    says(&error, &["lab.toml", "`training.epochs`", "\"five\" (a text)", "a whole number, at least 0"]);
    says(&set(&["training.epochs=1.5"]), &["1.5 (a fractional number)", "a whole number"]);
    says(
        &set(&["training=5"]),
        &["`training`", "5 (a whole number)", "a table with epochs, batch, drop-last, optimizer"],
    );
    says(
        &set(&["data.partition=iid"]),
        &[
            "`data.partition`",
            "\"iid\" (a text)",
            "one of iid, shards, classes, dirichlet",
            "`data.partition.iid = {}`?",
        ],
    );
    says(&set(&["training.drop-last=1"]), &["`training.drop-last`", "1 (a whole number)", "true or false"]);
    says(&set(&["run.name=[1, 2]"]), &["`run.name`", "an array", "a text of 1 to 60 characters"]);
    says(
        &set(&["algorithm=fedavg"]),
        &["`algorithm`", "\"fedavg\" (a text)", "[algorithm.NAME]", "fedsgd", "`algorithm.fedavg = {}`?"],
    );
    says(&set(&["algorithm.fedavg=1"]), &["`algorithm.fedavg`", "1 (a whole number)", "hyper-parameters"]);
}

#[test]
fn out_of_range() {
    let error = set(&["run.rounds=0"]);
    assert!(matches!(&error, ConfigError::OutOfRange(mistake) if mistake.key == "run.rounds"));
    says(&error, &["--set run.rounds=0", "`run.rounds` cannot be 0", "at least 1"]);
    for (given, accepted) in [
        ("round.fraction=1.5", "at least 0 and at most 1"),
        ("round.fraction=-0.1", "at least 0 and at most 1"),
        ("round.fraction=nan", "at least 0 and at most 1"),
        ("run.seed=-1", "a whole number, at least 0"),
        ("run.rounds=4294967296", "a whole number, at least 1 and at most 4294967295"),
        ("training.optimizer.sgd.learning-rate=0", "greater than 0"),
        ("training.optimizer.sgd.learning-rate=inf", "greater than 0"),
        ("training.optimizer.sgd.momentum=1", "less than 1"),
        ("round.timeout=1e300", "at most 31536000"),
        ("data.partition.dirichlet.alpha=0.0", "greater than 0"),
        ("training.clip-norm=0", "greater than 0"),
        ("training.chunks=0", "at least 1"),
        ("training.schedule.exponential.factor=1.5", "at most 1"),
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
fn text_is_not_divided_by_class() {
    let text = "data = { set = \"shakespeare\", path = \"x\", partition.dirichlet.alpha = 0.5 }\nmodel.name = \"char-lstm\"";
    says(&in_file(text), &["shakespeare", "data.partition.dirichlet", "text has no classes"]);
    let images =
        all("data = { set = \"cifar-10\", path = \"x\" }\nmodel.name = \"char-lstm\"", &[]).to_string();
    assert!(images.contains("shape [3, 32, 32]"), "{images}");
}

#[test]
fn a_model_that_sees_the_labels_of_a_text_is_refused() {
    let text = |causal: bool| {
        format!(
            "data = {{ set = \"shakespeare\", path = \"x\" }}\n[model]\nlayers = [{{ embedding = {{ vocabulary = \"classes\", dim = 4 }} \
             }}, {{ linear = 12 }}, {{ attention = {{ heads = 2, causal = {causal} }} }}, {{ linear = \"classes\" }}]"
        )
    };
    says(&in_file(&text(false)), &["later positions", "causal = true"]);
    let raw = Raw::of_text(&text(true), std::path::Path::new("run.toml")).expect("a table of known keys");
    assert!(Config::validate(&raw, RunId::from_bytes([1; 8])).is_ok());
}

#[test]
fn a_model_that_predicts_more_or_less_than_the_labels_is_refused() {
    let text = "data = { set = \"shakespeare\", path = \"x\" }\nmodel.name = \"mlp-2nn\"";
    let parts =
        ["model.name = \"mlp-2nn\"", "data.set = \"shakespeare\"", "each of its 80 positions", "[80, 97]"];
    says(&in_file(text), &parts);
    let window = |layers: &str| {
        let data = "data = { set = \"csv\", path = \"x\", shape = [10, 3], classes = 4 }";
        format!("{data}\nmodel.layers = [{layers}]")
    };
    let open = in_file(&window("{ lstm = 8 }, { linear = \"classes\" }"));
    says(
        &open,
        &[
            "model.layers",
            "data.set = \"csv\"",
            "shape [10, 4]",
            "10 predictions",
            "needs [4]",
            "\"flatten\"",
        ],
    );
    let file = window("{ lstm = 8 }, \"flatten\", { linear = \"classes\" }");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("lab.toml");
    std::fs::write(&path, file).expect("a file in it");
    assert!(load(Some(&path), &[]).is_ok());
}

#[test]
fn sets_that_leave_their_samples_open() {
    let file = |rest: &str| in_file(&format!("data = {{ path = \"x\", {rest} }}\nmodel.name = \"linear\""));
    says(&file("set = \"images\", shape = [3, 8, 8], classes = 2"), &["\"images\"", "data.class-names"]);
    says(&file("set = \"csv\", shape = [13]"), &["\"csv\"", "either data.classes = 10 or data.class-names"]);
    says(&file("set = \"csv\", classes = 3"), &["no data.shape", "data.shape = \"13\""]);
    // All at once, and what finds it out.
    let all = ["data.classes = 10", "data.shape = \"13\"", "aggregator init FOLDER"];
    says(&file("set = \"csv\""), &all);
    let names = "class-names = [\"cat\", \"dog\"]";
    says(&file(&format!("set = \"safetensors\", shape = [13], {names}")), &["data.classes = 10"]);
    says(&file(&format!("set = \"mnist\", {names}")), &["data.class-names", "its own shape and classes"]);
    says(&set(&["data.class-names=[\"a\", \"a\"]"]), &["`data.class-names`", "different texts"]);
    says(&set(&["data.shape=[3, 0]"]), &["`data.shape`", "whole numbers from 1"]);
    says(&set(&["data.on-error=ignore"]), &["\"ignore\"", "stop, skip"]);
    let overrides =
        ["data.set=images", "data.path=x", "data.shape=[3, 8, 8]", "data.class-names=[\"cat\", \"dog\"]"];
    let config =
        load(None, &[&overrides[..], &["model.name=linear"]].concat()).expect("a valid configuration");
    assert_eq!((config.spec.architecture.classes, &config.spec.data.class_names[1][..]), (2, "dog"));
}

#[test]
fn preparations_that_do_not_fit() {
    says(
        &set(&["augment.random-crop=29"]),
        &["augment.random-crop = 29", "data.set = \"glyphs\"", "of 28x28"],
    );
    says(&set(&["augment.random-shift=28"]), &["augment.random-shift = 28", "larger than that"]);
    says(&set(&["augment.saturation=0.5"]), &["augment.saturation = 0.5", "these have 1"]);
    says(&set(&["data.normalise=cifar-10"]), &["data.normalise = \"cifar-10\"", "3 means", "1 channels"]);
    says(&set(&["data.normalise=channels", "data.mean=[0.5]"]), &["\"channels\"", "no data.std"]);
    says(&set(&["data.mean=[0.5]"]), &["data.mean", "data.normalise = \"none\"", "leave them out"]);
    let zero = ["data.normalise=channels", "data.mean=[0.5]", "data.std=[0]"];
    says(&set(&zero), &["data.normalise = \"channels\"", "above 0"]);
    says(&set(&["data.mean=[\"a\"]"]), &["`data.mean`", "cannot be", "a list of 1 to 1024 finite numbers"]);
    says(&set(&["augment.horizontal-flip=1.5"]), &["`augment.horizontal-flip`", "at most 1"]);
    let text =
        "data = { set = \"shakespeare\", path = \"x\" }\nmodel.name = \"char-lstm\"\naugment.flip = 0.5";
    says(&in_file(text), &["shakespeare", "neither augmented nor normalised"]);
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
    says(
        &set(&["aggregation.weights=sample"]),
        &["`aggregation.weights`", "\"sample\"", "samples, uniform, loss"],
    );
    says(&set(&["update.precision=f64"]), &["`update.precision`", "\"f64\"", "f32, f16, bf16"]);
}

#[test]
fn methods_that_are_choices_on_another_axis() {
    for (name, meant) in [
        ("fedavgm", "fedavg with aggregation.server-optimizer.sgd.momentum"),
        ("fedadagrad", "fedavg with [aggregation.server-optimizer.adagrad]"),
        ("fedadam", "fedavg with [aggregation.server-optimizer.adam]"),
        ("fedyogi", "fedavg with [aggregation.server-optimizer.yogi]"),
        ("fedloss", "fedavg with aggregation.weights = \"loss\""),
    ] {
        let error = set(&[&format!("algorithm.{name}={{}}")]);
        says(&error, &[&format!("there is no \"{name}\""), &format!("did you mean `{meant}`?")]);
    }
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
    let error = Config::validate(&raw, RunId::from_bytes([1; 8])).expect_err("none");
    says(&only(error), &["`algorithm`", "given none", "fedavg, fedsgd"]);
}

#[test]
fn hyper_parameters_of_the_algorithm() {
    says(&set(&["algorithm.fedavg.mu=0.1"]), &["[algorithm.fedavg]", "mu"]);
    says(&set(&["algorithm.fedprox.mu=-1"]), &["[algorithm.fedprox]", "mu", "at least 0, not -1"]);
    says(&set(&["algorithm.moon.tau=0"]), &["[algorithm.moon]", "tau", "greater than 0, not 0"]);
}

#[test]
fn absent_and_unreadable_files() {
    let error = only(load(Some(Path::new("no-such-folder/lab.toml")), &[]).expect_err("absent"));
    says(&error, &["no-such-folder/lab.toml", "cannot read", "No such file"]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("picture.toml");
    std::fs::write(&path, [0xff, 0xfe, 0x00]).expect("a file in it");
    says(&only(load(Some(&path), &[]).expect_err("not text")), &["picture.toml", "UTF-8"]);
    std::fs::write(&path, "#".repeat((1 << 20) + 1)).expect("a file in it");
    says(&only(load(Some(&path), &[]).expect_err("too large")), &["picture.toml", "1048576 bytes"]);
}

#[test]
fn syntax_errors_have_a_line_and_a_column() {
    let error = in_file("[run]\nname = \"ü\" x\n");
    assert!(matches!(error, ConfigError::Syntax { column: 12, .. }), "{error:?}");
    says(&error, &["lab.toml:2:12: not valid TOML"]);
    says(&in_file("[run"), &["lab.toml:1:"]);
    says(&in_file("[run]\nseed = 1\nseed = 2"), &["lab.toml:3:"]);
}

#[test]
fn combinations_that_make_no_sense() {
    for (overrides, parts) in [
        (
            &["round.min-updates=5", "round.max-updates=4"][..],
            &["round.min-updates = 5", "round.max-updates = 4"][..],
        ),
        (&["round.max-updates=11"], &["round.max-updates = 11", "data.clients = 10"]),
        (
            &["round.min-updates=3", "round.fraction=0.2"],
            &["round.min-updates = 3", "round.fraction = 0.2", "2 clients"],
        ),
        (&["round.min-clients-to-start=11"], &["round.min-clients-to-start = 11", "data.clients = 10"]),
        (&["round.min-wait=20", "round.timeout=10"], &["round.min-wait = 20", "round.timeout = 10"]),
        (&["connection.heartbeat=15"], &["connection.heartbeat = 15", "connection.timeout = 15"]),
        (
            &["algorithm.fedsgd={}", "training.epochs=2"],
            &["[algorithm.fedsgd]", "training.epochs = 2 (--set)", "training.epochs must be 1"],
        ),
        (&["algorithm.fedsgd={}"], &["training.batch = 16 (the default)", "training.batch must be 0"]),
        (
            &["algorithm.fedsgd={}", "training.batch=0", "aggregation.weights=loss"],
            &[
                "[algorithm.fedsgd]",
                "aggregation.weights = \"loss\" (--set)",
                "say nothing about who has learned",
            ],
        ),
        (
            &["aggregation.rule.median={}"],
            &["[aggregation.rule.median]", "aggregation.weights = \"samples\" (the default)", "\"uniform\""],
        ),
        (
            &["aggregation.rule.fedma={}", "model.name=resnet-18"],
            &["[aggregation.rule.fedma] (--set)", "the model resnet-18", "a normalisation"],
        ),
        (
            &["aggregation.rule.fedma={}", "aggregation.weights=loss"],
            &["[aggregation.rule.fedma]", "aggregation.weights = \"loss\"", "by samples or uniformly"],
        ),
        (
            &["aggregation.rule.krum.byzantine=2", "aggregation.weights=uniform", "round.min-updates=6"],
            &["rule.krum.byzantine = 2 (--set)", "round.min-updates = 6 (--set)", "m >= 2 f + 3, here 7"],
        ),
        (
            &["aggregation.rule.bulyan={}", "aggregation.weights=uniform", "round.min-updates=6"],
            &["rule.bulyan.byzantine = 1", "m >= 4 f + 3, here 7", "round.min-updates to at least 7"],
        ),
        (
            &["aggregation.rule.multi-krum.chosen=8", "aggregation.weights=uniform", "round.min-updates=7"],
            &["byzantine = 1, chosen = 8", "m >= chosen + f, here 9"],
        ),
        (
            &["aggregation.rule.trimmed-mean.beta=0.1", "aggregation.weights=uniform", "round.min-updates=9"],
            &["rule.trimmed-mean.beta = 0.1", "round.min-updates = 9", "or none is left out, here 10"],
        ),
        (
            &["algorithm.fedsgd={}", "training.epochs=2", "training.optimizer.sgd.momentum=0.5"],
            &[
                "training.epochs = 2 (--set) and training.batch = 16 (the default) and ",
                "training.optimizer.sgd.momentum = 0.5 (--set)",
                "epochs must be 1; ",
                "batch must be 0 (full batch); ",
                "so it must be 0",
            ],
        ),
        (
            &["data.path=somewhere"],
            &["data.set = \"glyphs\"", "data.path = \"somewhere\"", "--set data.path="],
        ),
        (&["data.max-samples=9"], &["data.clients = 10", "9 training samples"]),
        (&["data.max-samples=40", "data.validation=31"], &["data.clients = 10", "9 training samples"]),
        (&["data.validation=100", "evaluate.every=0"], &["data.validation = 100", "evaluate.every = 0"]),
        (&["data.validation=100", "algorithm.local={}"], &["data.validation = 100", "no one model"]),
        (&["early-stopping.metric=validation-loss"], &["no data.validation"]),
        (&["data.pooled=true", "data.max-test-samples=100"], &["data.pooled = true", "glyphs"]),
        (&["data.set=mnist", "data.path=x", "data.pooled=true"], &["no data.max-test-samples"]),
        (
            &["simulation.attack.sign-flip={}", "simulation.attackers=0.09"],
            &["(sign flip)", "simulation.attackers = 0.09 (--set)", "data.clients = 10", "no client attacks"],
        ),
        (&["data.clients=6001"], &["data.clients = 6001", "6000 training samples"]),
        (
            &["personalisation.method=mfe", "model.name=linear"],
            &["personalisation.method = \"mfe\" (--set)", "the model linear", "learns nothing", "use ft"],
        ),
        (
            &["personalisation.method=[\"ft\", \"fb\"]", "algorithm.local={}"],
            &["[algorithm.local]", "\"ft\", \"fb\"", "set personalisation.method = \"none\""],
        ),
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

#[test]
fn weight_decay_that_takes_from_nothing_is_refused() {
    let hidden = ["model.name=linear", "training.decay-on=hidden-linear"];
    let decay = "training.optimizer.sgd.weight-decay=0.01";
    let error = set(&[&hidden[..], &[decay]].concat());
    says(
        &error,
        &["training.decay-on = \"hidden-linear\" (--set)", "the model linear", "nothing of it would decay"],
    );
}

#[test]
fn matching_that_would_take_hours_is_refused_with_the_estimate() {
    let error = set(&["aggregation.rule.fedma={}", "model.name=mlp-25m", "data.clients=6000"]);
    says(
        &error,
        &["[aggregation.rule.fedma] (--set)", "the model mlp-25m", "6000 clients", "h in every round on"],
    );
}

#[test]
fn devices_of_a_simulation_that_are_none_or_too_few() {
    let one = ["data.clients=2", "simulation.devices=[\"00112233445566778899aabbccddeeff\"]"];
    says(
        &set(&one),
        &["simulation.devices (1 ids) (--set)", "data.clients = 2 (--set)", "as there are clients"],
    );
    let name = ["data.clients=1", "simulation.devices=[\"window sill\"]"];
    says(
        &set(&name),
        &["[.. \"window sill\" ..] (--set)", "32 hexadecimal digits", "aggregator devices list"],
    );
}
