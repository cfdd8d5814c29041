//! What a configuration becomes that makes sense.

use std::time::Duration;

use proptest::prelude::*;
use shared::data::partition::Empty;
use shared::data::{DATA_SETS, DataSet, Normalisation, Partition, SetSamples};
use shared::spec::{ModelFormat, UpdateFormat};

use super::*;
use crate::config::{ModelOrigin, keys};

const RUN: RunId = RunId::from_bytes([1; 8]);

fn raw(overrides: &[&str]) -> Raw {
    let overrides: Vec<String> = overrides.iter().map(|&given| given.to_owned()).collect();
    Raw::layered(None, &overrides).expect("overrides that can be read")
}

fn made(raw: &Raw, data_root: Option<&Path>) -> Result<Config, ConfigErrors> {
    validate(Layers::made(raw)?, data_root, RUN)
}

fn valid(overrides: &[&str]) -> Config {
    made(&raw(overrides), None).expect("a valid configuration")
}

#[test]
fn defaults_are_derived() {
    let tested = valid(&["data.max-test-samples=30"]);
    assert_eq!(tested.data.source, Source::Drawn { train: glyphs::TRAINING_SAMPLES, test: 30 });
    let config = valid(&["data.clients=7", "update.precision=bf16", "data.max-samples=70"]);
    assert_eq!(config.policy.start, 7);
    assert_eq!(config.spec.name, "glyphs-fedavg");
    assert_eq!(config.spec.update.broadcast(), ModelFormat::BF16);
    assert_eq!(config.data.source, Source::Drawn { train: 70, test: glyphs::TEST_SAMPLES });
    let explicit = valid(&["data.clients=7", "round.min-clients-to-start=2", "update.broadcast=f16"]);
    assert_eq!((explicit.policy.start, explicit.spec.update.broadcast()), (2, ModelFormat::F16));
    assert_eq!(explicit.spec.update.precision, UpdateFormat::F32);
    let name = |overrides: &[&str]| valid(overrides).spec.name;
    let other = ["data.set=fashion-mnist", "data.path=x", "algorithm.fedsgd={}", "training.batch=0"];
    assert_eq!(name(&other), "fashion-mnist-fedsgd");
    assert_eq!(name(&[&other[..], &["run.name=mine"]].concat()), "mine");
}

#[test]
fn a_one_shot_algorithm_has_one_round_unless_more_are_asked_for() {
    let rounds = |overrides: &[&str]| {
        let config = valid(overrides);
        assert_eq!(config.effective.run.rounds, Some(config.spec.rounds));
        config.spec.rounds
    };
    assert_eq!((rounds(&[]), rounds(&["algorithm.fedprox={}"])), (15, 15));
    let fafi = ["algorithm.fafi={}", "model.name=mlp-2nn"];
    assert_eq!(rounds(&fafi), 1);
    assert_eq!(
        rounds(&[&fafi[..], &["run.rounds=15"]].concat()),
        15,
        "a second round takes in those that come late"
    );
}

#[test]
fn the_specification_is_what_the_file_says() {
    let config = valid(&[
        "training.epochs=3",
        "training.batch=0",
        "training.optimizer.sgd.momentum=0.9",
        "run.seed=9",
        "run.rounds=4",
        "model.name=linear",
        "aggregation.weights=uniform",
        "connection.heartbeat=0.5",
        "connection.timeout=1.5",
    ]);
    let spec = &config.spec;
    assert_eq!((spec.run, spec.seed, spec.rounds), (RUN, 9, 4));
    assert_eq!(
        (spec.training.epochs, spec.training.batch, spec.training.optimizer),
        (3, 0, models::Sgd { rate: 0.2, momentum: 0.9, decay: 0.0 }.into())
    );
    assert_eq!((spec.architecture.name.as_str(), spec.algorithm.name.as_str()), ("linear", "fedavg"));
    assert_eq!(spec.aggregation.weights, shared::aggregation::Weights::Uniform);
    assert_eq!(spec.heartbeat, Duration::from_millis(500));
    assert_eq!(config.policy.connection_timeout, Duration::from_millis(1500));
}

#[test]
fn a_crop_is_what_the_model_takes() {
    let overrides = [
        "data.set=cifar-10",
        "data.path=x",
        "model.name=lenet-5",
        "augment.random-crop=24",
        "augment.horizontal-flip=0.5",
    ];
    let whitened = valid(&[&overrides[..], &["data.normalise=whiten"]].concat()).spec;
    assert_eq!(
        (&whitened.data.shape[..], &whitened.architecture.input[..]),
        (&[3, 32, 32][..], &[3, 24, 24][..])
    );
    assert_eq!(whitened.data.preparation.normalisation, Normalisation::Whiten);
    let given = ["data.normalise=channels", "data.mean=[0.5, 0.25, 0]", "data.std=[1, 2, 3]"];
    let given = valid(&[&overrides[..], &given].concat()).spec.data.preparation;
    let mean = vec![0.5, 0.25, 0.0];
    assert_eq!(given.normalisation, Normalisation::Channels { mean, deviation: vec![1.0, 2.0, 3.0] });
    assert_eq!((given.augmentation.random_crop, given.augmentation.horizontal_flip), (24, 0.5));
}

#[test]
fn only_a_limit_that_was_written_cuts_simulated_clients_short() {
    for (given, limit, cut) in
        [(&[][..], 600, false), (&["round.timeout=600"], 600, true), (&["round.timeout=9"], 9, true)]
    {
        let mut config = valid(given);
        assert_eq!((config.policy.timeout.as_secs(), config.policy.cuts_short), (limit, true), "devices");
        config.ignore_time_limits();
        assert_eq!((config.policy.timeout.as_secs(), config.policy.cuts_short), (limit, cut), "{given:?}");
    }
    // Every run of an older program has the default in its file.
    assert_eq!(raw(&["round.timeout=600"]).without_local_paths(), raw(&[]));
    assert_ne!(raw(&["round.timeout=9"]).without_local_paths(), raw(&[]).without_local_paths());
}

#[test]
fn the_effective_configuration_is_a_fixed_point() {
    let first = valid(&["round.fraction=0.5", "data.partition.dirichlet.alpha=0.3"]);
    let again = made(&first.effective, None).expect("valid");
    assert_eq!(again, first);
    let files = valid(&["data.set=mnist", "data.path=x"]);
    let again = made(&files.effective, None).expect("valid");
    assert_eq!(again, files);
}

/// Every key of the effective configuration has a value, but for those whose absence is the value.
#[test]
fn the_effective_configuration_leaves_no_default_open() {
    let unset = |overrides: &[&str]| -> Vec<&str> {
        let text = valid(overrides).effective.to_toml();
        let (mut section, mut open) = (String::new(), Vec::new());
        for line in text.lines() {
            if let Some(name) = line.strip_prefix('[') {
                section = name.trim_end_matches(']').to_owned();
            } else if let Some((key, _)) = line.strip_prefix("# ").and_then(|line| line.split_once(" =")) {
                open.push(format!("{section}.{key}"));
            }
        }
        let paths = keys::KEYS.iter().map(|key| key.path.as_str());
        paths.filter(|path| open.iter().any(|open| open == path)).collect()
    };
    let form =
        ["data.shape", "data.classes", "data.class-names", "data.targets", "data.text", "data.features"];
    let normal = ["data.mean", "data.std"];
    let rest = [
        "model.seed",
        "model.layers",
        "model.norm",
        "model.initialisation",
        "model.vocabulary",
        "model.projection",
        "model.huber-delta",
        "model.from.run",
        "model.from.file",
        "model.from.names",
        "model.from.in-round",
        "model.from.digest",
        "model.fresh",
        "model.freeze",
        "model.adapters.lora.rank",
        "model.adapters.lora.on",
        "model.parameters",
        "model.buffers",
        "model.tensors",
        "training.clip-norm",
        "server.batch",
        "server.plateau.patience",
        "privacy.clip",
        "privacy.noise",
        "privacy.adaptive-clip.quantile",
        "privacy.adaptive-clip.rate",
        "privacy.adaptive-clip.noise",
        "privacy.max-participations",
        "privacy.devices",
        "privacy.epsilon",
        "round.max-updates",
        "round.timeout",
        "round.max-failed",
        "round.max-samples",
        "update.top-k",
        "evaluate.command",
        "early-stopping.target",
        "early-stopping.patience",
        "personalisation.method",
        "simulation.devices",
        "simulation.trainer",
    ];
    let labelled = ["data.seed", "data.max-test-samples", "data.validation", "data.labelled"];
    assert_eq!(unset(&[]), [&["data.path"][..], &form, &labelled, &normal, &rest].concat());
    assert_eq!(
        unset(&["data.set=mnist", "data.path=x"]),
        [
            &form[..],
            &["data.seed", "data.max-samples", "data.max-test-samples", "data.validation", "data.labelled"],
            &normal,
            &rest
        ]
        .concat()
    );
}

/// The data sets that are not read by trainers, whose runs have another network.
fn read_here() -> Vec<&'static DataSet> {
    DATA_SETS.iter().copied().filter(|set| !set.is_of_trainers()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// What a run's `config.toml` is for: from it alone, in any folder, the same run can be made.
    #[test]
    fn the_written_configuration_gives_the_same_plan(
        (clients, seed, limit) in (1..=50_u32, 0..=i64::MAX, proptest::option::of(200..=60_000_u32)),
        (set, path) in (proptest::sample::select(read_here()), "[a-z \"#]{1,12}"),
        (rate, fraction, max_abs) in (1e-9..1e9_f64, 0.0..=1.0_f64, 1e-50..1e30_f64),
        (momentum, alpha) in (0.0..1.0_f64, 1e-6..1e6_f64),
        partition in proptest::sample::select(vec!["", "data.partition.shards.per-client=4", "dirichlet"]),
        algorithm in proptest::sample::select(vec!["fedavg", "fedsgd"]),
        precision in proptest::option::of(proptest::sample::select(vec![ModelFormat::F32, ModelFormat::F16, ModelFormat::BF16, ModelFormat::Int8])),
        (start, name) in (proptest::option::of(1..=50_u32), proptest::option::of("[a-z][a-z0-9 \"]{0,9}")),
        (time, heartbeat) in (0.0..1e6_f64, 1e-3..14.0_f64),
    ) {
        let mut raw = raw(&[]);
        (raw.data.clients, raw.data.max_samples, raw.data.set) = (clients, limit, set);
        (raw.run.seed, raw.run.name) = (seed, name);
        raw.data.path = set.format.is_some().then_some(path);
        if let SetSamples::Own { by_number, .. } = set.samples {
            raw.data.shape = Some(vec![1, 28, 28]);
            let names = Some(vec!["a \"quoted\" name".to_owned(), "b".to_owned()]);
            (raw.data.classes, raw.data.class_names) =
                if by_number { (Some(7), None) } else { (None, names) };
        }
        let partition = if set.is_text() { "" } else { partition };
        if set.is_text() {
            raw.model.name = Some("char-lstm".to_owned());
        }
        raw.data.partition = match partition {
            "" => Partition::Iid {},
            "dirichlet" => Partition::Dirichlet { alpha, empty: Empty::Absent },
            _ => Partition::Shards { per_client: 4 },
        };
        let momentum = if algorithm == "fedsgd" { 0.0 } else { momentum };
        raw.training.optimizer = models::Sgd { rate, momentum, decay: rate / 2.0 }.into();
        raw.training.batch = u32::from(algorithm == "fedavg");
        raw.algorithm = [(algorithm.to_owned(), toml::Table::new())].into();
        (raw.round.fraction, raw.update.max_abs) = (fraction, max_abs);
        (raw.round.timeout, raw.connection.heartbeat) = (Some(time + 1e-6), heartbeat);
        raw.round.min_clients_to_start = start.map(|start| start.min(clients));
        raw.update.broadcast = precision;
        let config = made(&raw, None).expect("valid");

        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("config.toml");
        std::fs::write(&file, config.effective.to_toml()).expect("a file in it");
        let again = validate(Layers::read(Some(&file), &[]).expect("readable"), None, RUN);
        prop_assert_eq!(again.expect("valid"), config);
    }
}

#[test]
fn relative_paths_start_where_they_are_written() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("lab.toml");
    std::fs::write(&file, "data = { set = \"mnist\", path = \"digits\" }").expect("a file in it");
    let found = |overrides: &[&str]| {
        let overrides: Vec<String> = overrides.iter().map(|&given| given.to_owned()).collect();
        let raw = Raw::layered(Some(&file), &overrides).expect("keys that exist");
        let Source::Files { folder, .. } = made(&raw, None).expect("valid").data.source else {
            panic!("MNIST is read from files")
        };
        folder
    };
    let here = std::env::current_dir().expect("a working directory");
    assert_eq!(found(&[]), folder.path().join("digits"));
    assert_eq!(found(&["data.path=digits"]), here.join("digits"));
    assert_eq!(found(&["data.path=/elsewhere"]), Path::new("/elsewhere"));

    for (given, expected) in
        [("own/names.toml", folder.path().join("own/names.toml")), ("timm", "timm".into())]
    {
        let text = format!("model.from = {{ file = \"theirs.safetensors\", names = \"{given}\" }}");
        std::fs::write(&file, text).expect("a file in it");
        let raw = Raw::layered(Some(&file), &[]).expect("keys that exist");
        let from = raw.model.from.expect("it is given");
        assert_eq!(from.file.as_deref(), folder.path().join("theirs.safetensors").to_str());
        assert_eq!(from.names.as_deref(), expected.to_str());
        let other = ["model.from.names=other.toml".to_owned()];
        let raw = Raw::layered(Some(&file), &other).expect("keys that exist");
        assert_eq!(raw.model.from.expect("it is given").names.as_deref(), Some("other.toml"));
    }
}

#[test]
fn a_run_to_begin_with_is_named_by_one_text_that_replaces_what_is_below() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("run.toml");
    let read = |text: &str, overrides: &[&str]| {
        std::fs::write(&file, text).expect("a file in it");
        let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
        Raw::layered(Some(&file), &overrides)
    };
    let here = std::env::current_dir().expect("a working directory");
    for (text, overrides, name) in [
        ("model.from = \"run:digits-2\"", &[][..], "digits-2"),
        ("model.from = \"run:digits-2\"", &["model.from=run:other"], "other"),
        ("model.from = { file = \"a.safetensors\", names = \"timm\" }", &["model.from=run:other"], "other"),
        ("model.from = { run = \"a\", in-round = 3, digest = \"00\" }", &["model.from=run:other"], "other"),
    ] {
        let from = read(text, overrides).expect("a run by its name").model.from.expect("it is given");
        let run = here.join("runs").join(name).to_str().map(str::to_owned);
        assert_eq!(from, ModelOrigin { run, ..ModelOrigin::default() }, "{text}");
    }
    let both = read("run.rounds = 2\nmodel.from = \"run:digits-2\"", &["model.from.file=x"])
        .expect("keys that exist");
    assert!(both.model.from.is_some_and(|from| from.run.is_some() && from.file.is_some()));
    let errors = Config::read(Some(&file), &["model.from.file=x".to_owned()], RunId::from_bytes([1; 8]));
    let said = errors.expect_err("two models").to_string();
    assert!(said.contains("model.from.run (") && said.contains("run.toml:2)"), "{said}");
    for (given, meant) in [
        ("digits-2", "did you mean `run:digits-2`?"),
        ("run:", "or \"run:NAME\", the run NAME of the folder runs"),
        ("run:../digits", "or \"run:NAME\", the run NAME of the folder runs"),
    ] {
        let refused = read("", &[&format!("model.from={given}")]).expect_err(given).to_string();
        assert!(refused.contains(meant), "{refused}");
    }
}

#[test]
fn the_data_variable_is_asked_where_there_is_no_path() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let load = |root: Option<&Path>| made(&raw(&["data.set=fashion-mnist"]), root);
    let unset = load(None).expect_err("no files").to_string();
    assert!(
        unset.contains("fashion-mnist") && unset.contains(DATA_VARIABLE) && unset.contains("not set"),
        "{unset}"
    );
    let empty = load(Some(folder.path())).expect_err("no such folder").to_string();
    assert!(empty.contains("which has no fashion-mnist/"), "{empty}");
    std::fs::create_dir(folder.path().join("fashion-mnist")).expect("a folder in it");
    let config = load(Some(folder.path())).expect("found");
    assert_eq!(
        config.data.source,
        Source::Files { folder: folder.path().join("fashion-mnist"), limit: None, test_limit: None }
    );
}

#[test]
fn a_handmade_configuration_is_checked_too() {
    let mut handmade = raw(&[]);
    handmade.run.rounds = Some(0);
    let message = made(&handmade, None).expect_err("no rounds").to_string();
    assert!(message.contains("run.rounds") && message.contains("the configuration"), "{message}");
}

#[test]
fn an_ensemble_is_learned_by_the_network_that_its_algorithm_makes() {
    let spec = valid(&["algorithm.fafi={}", "model.name=lenet-5"]).spec;
    assert_eq!(spec.architecture.parameters(), Ok(61_706 - 10), "the last layer has no bias");
    let refused = |more: &[&str]| {
        let overrides = [&["algorithm.fafi={}", "model.name=lenet-5"], more].concat();
        made(&raw(&overrides), None).expect_err("it makes no sense").to_string()
    };
    for (more, says) in [
        (&["model.name=linear"][..], "hidden layers"),
        (&["data.set=shakespeare", "data.path=x", "model.name=char-lstm"], "model of images"),
        (&["aggregation.weights=loss"], "leave [aggregation] out"),
        (&["aggregation.weights=uniform", "aggregation.rule.median={}"], "side by side"),
        (&["aggregation.server-optimizer.adam={}"], "side by side"),
        (&["aggregation.buffers=local"], "own statistics"),
        (&["evaluate.on-clients-every=1"], "set evaluate.on-clients-every = 0"),
        (&["algorithm.fafi.classify=-1"], "classify"),
    ] {
        let message = refused(more);
        assert!(message.contains(says) && message.contains("fafi"), "{more:?}: {message}");
    }
}

#[test]
fn fedsgd_is_valid_with_one_full_batch_step() {
    assert_eq!(valid(&["algorithm.fedsgd={}", "training.batch=0"]).spec.algorithm.name, "fedsgd");
}

/// The examples that are handed out must be valid; `mnist-2nn` also without its files.
#[test]
fn the_examples_are_valid() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/configs");
    let load = |name: &str, overrides: &[String]| {
        let raw = Raw::layered(Some(&folder.join(name)), overrides).expect(name);
        made(&raw, None).expect(name)
    };
    let paper = load("mnist-2nn.toml", &["data.path=mnist".to_owned()]);
    assert_eq!(paper.spec.architecture.parameters(), Ok(199_210));
    assert_eq!((paper.policy.cohort(paper.data.clients), paper.spec.training.batch), (10, 10));
    assert_eq!(load("four-devices.toml", &[]).policy.start, 4);
    let private = load("private.toml", &[]);
    assert_eq!((private.spec.rounds, private.promise.map(|promise| promise.affordable(11))), (10, Some(10)));
    let both = load("secure-private.toml", &[]);
    assert_eq!(both.spec.device_noise.map(|noise| (noise.devices, noise.over)), Some((16, 20)));
    let secure = load("secure.toml", &[]);
    assert!(secure.spec.secure.enabled && secure.policy.min == 3);
    let buffered = load("twenty-devices.toml", &[]).policy;
    assert_eq!((buffered.max, buffered.late.map(|late| late.rounds)), (Some(8), Some(10)));
    assert_eq!(buffered.eligibility.min_charge, 40);
}
