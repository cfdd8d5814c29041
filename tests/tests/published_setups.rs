//! The full forms of experiments are the published set-ups, key by key.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// What a variant of a full form sets: experiment, variant, and keys with their values as TOML has them.
type Setup = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

const SETUPS: [Setup; 10] = [
    (
        "pfl-fashion",
        "fedavg",
        &[
            ("run.rounds", "1000"),
            ("data.clients", "100"),
            ("round.fraction", "0.1"),
            ("training.epochs", "5"),
            ("training.batch", "10"),
            ("training.optimizer.sgd.learning-rate", "0.01"),
            ("training.optimizer.sgd.momentum", "0.5"),
            ("training.optimizer.sgd.weight-decay", "0.0"),
            ("aggregation.weights", "\"uniform\""),
            ("augment.random-shift", "4"),
            ("augment.horizontal-flip", "0.5"),
            ("personalisation.augment", "true"),
            ("personalisation.head.epochs", "200"),
            ("personalisation.gate.epochs", "200"),
            ("personalisation.gate.weight-decay", "0.0005"),
        ],
    ),
    (
        "pfl-fashion",
        "local",
        &[
            ("training.epochs", "100"),
            ("training.batch", "64"),
            ("training.optimizer.adam.learning-rate", "0.001"),
        ],
    ),
    (
        "pfl-cifar10",
        "fedavg",
        &[
            ("run.rounds", "1000"),
            ("training.batch", "10"),
            ("training.optimizer.sgd.momentum", "0.5"),
            ("aggregation.weights", "\"uniform\""),
            ("personalisation.head.epochs", "200"),
            ("personalisation.gate.epochs", "200"),
            ("personalisation.gate.weight-decay", "0.0005"),
        ],
    ),
    (
        "moon-cifar10",
        "moon",
        &[
            ("run.rounds", "100"),
            ("data.clients", "10"),
            ("training.epochs", "10"),
            ("training.batch", "64"),
            ("training.drop-last", "true"),
            ("training.optimizer.sgd.learning-rate", "0.01"),
            ("training.optimizer.sgd.momentum", "0.9"),
            ("training.optimizer.sgd.weight-decay", "1e-5"),
            ("augment.random-shift", "4"),
            ("augment.padding", "\"reflect\""),
            ("algorithm.moon.mu", "5.0"),
            ("algorithm.moon.tau", "0.5"),
        ],
    ),
    (
        "fedavg-cifar",
        "fedsgd",
        &[
            ("training.schedule.exponential.gamma", "0.9934"),
            ("training.decay-on", "\"hidden-linear\""),
            ("training.optimizer.sgd.weight-decay", "0.004"),
            ("augment.random-crop", "24"),
        ],
    ),
    ("fedavg-cifar", "fedavg", &[("training.schedule.exponential.gamma", "0.99"), ("training.epochs", "5")]),
    ("fedavg-table2", "e20-b10", &[("training.epochs", "20"), ("training.batch", "10")]),
    (
        "fedmix-cifar10",
        "fedmatch",
        &[
            ("algorithm.fedmatch.psi-start", "0.2"),
            ("algorithm.fedmatch.rand-augment", "6"),
            ("algorithm.fedmatch.rand-augment-strength", "0.44"),
            ("algorithm.fedmatch.shift", "0"),
            ("algorithm.fedmatch.flip", "false"),
        ],
    ),
    (
        "fedmix-cifar10",
        "fedmix-fedloss",
        &[
            ("run.rounds", "150"),
            ("data.clients", "100"),
            ("round.fraction", "0.05"),
            ("training.batch", "64"),
            ("training.optimizer.sgd.learning-rate", "0.001"),
            ("data.labelled", "1000"),
            ("data.pooled", "true"),
            ("data.max-test-samples", "2000"),
            ("data.validation", "2000"),
        ],
    ),
    (
        "fafi-cifar10",
        "fafi",
        &[
            ("model.name", "\"resnet-18\""),
            ("training.epochs", "300"),
            ("training.batch", "512"),
            ("training.clip-norm", "1.0"),
            ("training.optimizer.sgd.learning-rate", "0.05"),
            ("training.optimizer.sgd.momentum", "0.9"),
            ("augment.random-resized-crop", "0.2"),
            ("augment.hue", "0.1"),
            ("augment.grey", "0.2"),
        ],
    ),
];

/// All keys of a table with their values, below this name.
fn flatten(table: &toml::Table, below: &str, found: &mut BTreeMap<String, toml::Value>) {
    for (key, value) in table {
        let name = if below.is_empty() { key.clone() } else { format!("{below}.{key}") };
        match value {
            toml::Value::Table(table) => flatten(table, &name, found),
            value => _ = found.insert(name, value.clone()),
        }
    }
}

/// What a variant of the full form of a file sets, in the order in which the later replaces the earlier.
fn full(file: &toml::Table, variant: &str) -> BTreeMap<String, toml::Value> {
    let at = |path: &[&str]| {
        path.iter().try_fold(file, |table, key| table.get(*key)?.as_table()).cloned().unwrap_or_default()
    };
    let mut form = at(&["forms", "full"]);
    for key in ["variants", "grid", "tune"] {
        form.remove(key);
    }
    let mut found = BTreeMap::new();
    for table in
        [at(&["base"]), form, at(&["variants", variant]), at(&["forms", "full", "variants", variant])]
    {
        flatten(&table, "", &mut found);
    }
    found
}

#[test]
fn full_forms_are_the_published_set_ups() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/experiments");
    for (experiment, variant, keys) in SETUPS {
        let text = fs::read_to_string(folder.join(experiment).with_extension("toml")).expect("an experiment");
        let found = full(&text.parse().expect("TOML"), variant);
        for (key, value) in keys {
            let expected: toml::Value =
                format!("it = {value}").parse::<toml::Table>().expect("TOML")["it"].clone();
            assert_eq!(found.get(*key), Some(&expected), "{experiment}, {variant}: {key}");
        }
    }
}
