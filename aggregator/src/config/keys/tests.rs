//! The table of keys against the types of the configuration.

use std::collections::BTreeSet;

use shared::aggregation::Rule;

use super::*;
use crate::attack::Attack;
use crate::config::raw::{AggregationTable, SimulationTable};
use crate::config::{DataSet, Raw, layers};

/// The full paths of all values in a table; an empty table counts as a value.
fn leaves(table: &toml::Table, prefix: &str, into: &mut BTreeSet<String>) {
    for (name, value) in table {
        let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        match value {
            toml::Value::Table(inner) if !inner.is_empty() && find(&path).is_none() => {
                leaves(inner, &path, into);
            }
            _ => {
                into.insert(path);
            }
        }
    }
}

#[test]
fn keys_are_exactly_the_fields() {
    let mut fields = BTreeSet::new();
    let alternatives = [
        "partition = { iid = {} }\n[training]\nclip = 1\nschedule.exponential.factor = 0.9",
        "partition = { shards = { per-client = 2 } }\n[aggregation.server.adagrad]\n[training.schedule.cosine]\nlast = 0",
        "partition = { classes = { per-client = 2 } }\n[aggregation.server.adam]",
        "partition = { dirichlet = { alpha = 0.5 } }\n[aggregation.server.yogi]",
        "partition = { dirichlet-capped = { alpha = 0.5 } }",
        "partition = { quantity = { alpha = 0.5 } }",
        "partition = { role = {} }",
    ];
    for alternative in alternatives {
        let text = format!(
            "[run]\nname = \"x\"\n[server]\nmix = [1]\n[round]\nstart = 1\ncount.max = 1\ntime.max = 1\n[stop]\ntarget = 1\npatience = 1\n[personalisation]\nmethod = \"ft\"\n[update]\nbroadcast = \"f16\"\n\
             [model]\nname = \"x\"\nseed = 2\nnorm = \"batch\"\ninitialisation = \"he\"\n[model.layers]\n\
             [data]\npath = \"x\"\nlimit = 1\nlabelled = 1\nshape = [1]\nclasses = 1\nclass-names = [\"x\"]\n\
             mean = [0]\ndeviation = [1]\n{alternative}"
        );
        let raw: Raw = toml::from_str(&text).expect("every optional key set");
        leaves(&layers::to_table(&raw).expect("a table"), "", &mut fields);
    }
    for rule in Rule::ALL {
        let aggregation = AggregationTable { rule, ..AggregationTable::default() };
        let raw = Raw { aggregation, ..Raw::default() };
        leaves(&layers::to_table(&raw).expect("a table"), "", &mut fields);
    }
    for attack in Attack::ALL {
        let devices = Some(vec![String::new()]);
        let simulation = SimulationTable { attack, devices, ..SimulationTable::default() };
        let raw = Raw { simulation, ..Raw::default() };
        leaves(&layers::to_table(&raw).expect("a table"), "", &mut fields);
    }
    let keys: BTreeSet<String> = KEYS.iter().map(|key| key.path.to_owned()).collect();
    assert_eq!(fields, keys);
    assert_eq!(keys.len(), KEYS.len(), "a key is listed twice");
}

#[test]
fn optional_keys_are_the_ones_that_the_default_leaves_out() {
    let mut set = BTreeSet::new();
    leaves(&layers::to_table(&Raw::default()).expect("a table"), "", &mut set);
    let chosen = |path: &str| CHOICES.iter().any(|choice| path.starts_with(&format!("{choice}.")));
    for key in KEYS.iter().filter(|key| !chosen(key.path)) {
        assert_eq!(key.unset.is_none(), set.contains(key.path), "{}", key.path);
    }
}

#[test]
fn names_are_those_of_the_types() {
    let Some(Key { kind: Kind::OneOf(sets), .. }) = find("data.set") else { panic!("a list") };
    assert_eq!(*sets, DataSet::ALL.map(DataSet::name));
    for key in KEYS {
        let (Kind::OneOf(names) | Kind::SomeOf(names)) = key.kind else { continue };
        for name in names {
            let given = format!("{}={name}", key.path);
            assert!(Raw::layered(None, std::slice::from_ref(&given)).is_ok(), "{given}");
        }
    }
}

/// Whoever reads `aggregator config` learns of every value from the comment beside it.
#[test]
fn what_a_key_says_names_every_value_that_it_takes() {
    for key in KEYS {
        let (Kind::OneOf(names) | Kind::SomeOf(names)) = key.kind else { continue };
        // The list of data sets is longer than a line.
        if key.path == "data.set" {
            continue;
        }
        let words: Vec<&str> = key
            .says
            .split(|c: char| !c.is_ascii_alphanumeric() && c != '-')
            .filter(|word| !word.is_empty())
            .collect();
        for name in names {
            assert!(words.contains(name), "{}: {name} is not in {:?}", key.path, key.says);
        }
    }
}

#[test]
fn children_are_listed_in_order() {
    assert_eq!(
        children("training"),
        ["epochs", "batch", "drop-last", "optimizer", "schedule", "clip", "measure"]
    );
    let partitions = ["iid", "shards", "classes", "dirichlet", "dirichlet-capped", "quantity", "role"];
    assert_eq!(children("data.partition"), partitions);
    assert_eq!(children("")[0], "run");
    assert!(children("trainin").is_empty() && children("training.epochs").is_empty());
}

#[test]
fn ranges_are_said_in_words() {
    let says = |path: &str| find(path).expect("a key").kind.accepts();
    assert_eq!(says("training.epochs"), "a whole number, at least 0 and at most 4294967295");
    assert_eq!(says("run.rounds"), "a whole number, at least 1 and at most 4294967295");
    assert_eq!(says("round.fraction"), "a number of at least 0 and at most 1");
    assert_eq!(says("training.optimizer.sgd.momentum"), "a number of at least 0 and less than 1");
    assert_eq!(says("training.optimizer.sgd.rate"), "a number greater than 0");
    assert_eq!(says("aggregation.weights"), "\"samples\", \"uniform\", \"loss\"");
}
