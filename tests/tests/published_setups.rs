//! Forms of experiments are the published set-ups, key by key.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// What a variant of a form sets: experiment, form, variant, and keys with their values as TOML has them.
type Setup = (&'static str, &'static str, &'static str, &'static [(&'static str, &'static str)]);

/// `FedMix`'s figures 5, 6 and 7.
const FEDMIX_FIGURE: &[(&str, &str)] = &[
    ("data.set", "\"cifar-10\""),
    ("data.clients", "100"),
    ("data.normalise", "\"cifar-10\""),
    ("data.pooled", "true"),
    ("model.name", "\"resnet-9\""),
    ("run.rounds", "150"),
    ("round.fraction", "0.05"),
    ("training.chunks", "1"),
    ("training.optimizer.sgd.learning-rate", "0.001"),
];

/// How the authors' program of MOON trains.
const MOON: &[(&str, &str)] = &[
    ("run.rounds", "100"),
    ("training.epochs", "10"),
    ("training.batch", "64"),
    ("training.drop-last", "true"),
    ("training.optimizer.sgd.learning-rate", "0.01"),
    ("training.optimizer.sgd.momentum", "0.9"),
    ("training.optimizer.sgd.weight-decay", "1e-5"),
    ("data.normalise", "\"cifar-10\""),
    ("augment.random-shift", "4"),
    ("augment.padding", "\"reflect\""),
    ("algorithm.moon.mu", "5.0"),
    ("algorithm.moon.tau", "0.5"),
];

/// How every client of PFL-MoE learns alone.
const PFL_LOCAL: &[(&str, &str)] = &[
    ("training.epochs", "100"),
    ("training.batch", "64"),
    ("training.optimizer.adam.learning-rate", "0.001"),
];

const SETUPS: [Setup; 22] = [
    (
        "pfl-fashion",
        "full",
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
            ("data.normalise", "\"fashion-mnist\""),
            ("augment.random-shift", "4"),
            ("augment.horizontal-flip", "0.5"),
            ("personalisation.augment", "true"),
            ("personalisation.head.epochs", "200"),
            ("personalisation.gate.epochs", "200"),
            ("personalisation.gate.weight-decay", "0.0005"),
        ],
    ),
    ("pfl-fashion", "full", "local", PFL_LOCAL),
    ("pfl-cifar10", "full", "local", PFL_LOCAL),
    ("pfl-cifar10", "vgg", "local", PFL_LOCAL),
    (
        "pfl-cifar10",
        "vgg",
        "fedavg",
        &[
            ("model.name", "\"vgg-16\""),
            ("data.normalise", "\"cifar-10\""),
            ("personalisation.head.learning-rate", "0.005"),
        ],
    ),
    (
        "pfl-cifar10",
        "full",
        "fedavg",
        &[
            ("run.rounds", "1000"),
            ("training.batch", "10"),
            ("training.optimizer.sgd.momentum", "0.5"),
            ("aggregation.weights", "\"uniform\""),
            ("data.normalise", "\"cifar-10\""),
            ("augment.random-shift", "4"),
            ("augment.horizontal-flip", "0.5"),
            ("personalisation.augment", "true"),
            ("personalisation.head.epochs", "200"),
            ("personalisation.gate.epochs", "200"),
            ("personalisation.gate.weight-decay", "0.0005"),
        ],
    ),
    ("moon-cifar10", "full", "moon", MOON),
    ("moon-cifar10", "full", "fedavg", &[("data.clients", "10")]),
    ("moon-parties", "full", "moon", MOON),
    ("moon-beta", "full", "moon", MOON),
    ("moon-cifar100", "full", "moon", &[("augment.random-rotation", "15.0"), ("training.drop-last", "true")]),
    (
        "fedavg-cifar",
        "full",
        "fedsgd",
        &[
            ("training.schedule.exponential.gamma", "0.9934"),
            ("training.decay-on", "\"hidden-linear\""),
            ("training.optimizer.sgd.weight-decay", "0.004"),
            ("augment.random-crop", "24"),
        ],
    ),
    (
        "fedavg-cifar",
        "full",
        "fedavg",
        &[("training.schedule.exponential.gamma", "0.99"), ("training.epochs", "5")],
    ),
    ("fedavg-table2", "full", "e20-b10", &[("training.epochs", "20"), ("training.batch", "10")]),
    ("fedmix-weights", "full", "published", FEDMIX_FIGURE),
    ("fedmix-mu", "full", "fedmix", FEDMIX_FIGURE),
    ("fedmix-labels", "full", "fedmix", FEDMIX_FIGURE),
    (
        "fedmix-cifar10",
        "full",
        "fedmix-equal",
        &[
            ("server.mixing.clients", "0.3333333"),
            ("server.mixing.server", "0.3333333"),
            ("server.mixing.previous", "0.3333333"),
        ],
    ),
    (
        "fedmix-cifar10",
        "full",
        "fedmatch",
        &[
            ("algorithm.fedmatch.psi-start", "0.2"),
            ("algorithm.fedmatch.rand-augment", "6"),
            ("algorithm.fedmatch.rand-augment-strength", "0.44"),
            ("algorithm.fedmatch.shift", "0"),
            ("algorithm.fedmatch.flip", "false"),
            ("server.plateau.patience", "20"),
            ("server.plateau.factor", "0.3333333"),
            ("evaluate.every", "1"),
        ],
    ),
    (
        "fedmix-cifar10",
        "full",
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
        "full",
        "fafi",
        &[
            ("model.name", "\"resnet-18\""),
            ("data.normalise", "\"cifar-10\""),
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
    ("fedavg-shakespeare", "full", "fedsgd", &[("data.clients", "244")]),
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

/// What a variant of a form of a file sets, in the order in which the later replaces the earlier.
fn set_by(file: &toml::Table, form: &str, variant: &str) -> BTreeMap<String, toml::Value> {
    let at = |path: &[&str]| {
        path.iter().try_fold(file, |table, key| table.get(*key)?.as_table()).cloned().unwrap_or_default()
    };
    let mut of_form = at(&["forms", form]);
    for key in ["variants", "grid", "tune"] {
        of_form.remove(key);
    }
    let mut found = BTreeMap::new();
    for table in
        [at(&["base"]), of_form, at(&["variants", variant]), at(&["forms", form, "variants", variant])]
    {
        flatten(&table, "", &mut found);
    }
    found
}

#[test]
fn forms_are_the_published_set_ups() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/experiments");
    for (experiment, form, variant, keys) in SETUPS {
        let text = fs::read_to_string(folder.join(experiment).with_extension("toml")).expect("an experiment");
        let found = set_by(&text.parse().expect("TOML"), form, variant);
        for (key, value) in keys {
            let expected: toml::Value =
                format!("it = {value}").parse::<toml::Table>().expect("TOML")["it"].clone();
            assert_eq!(found.get(*key), Some(&expected), "{experiment}, form {form}, {variant}: {key}");
        }
    }
}
