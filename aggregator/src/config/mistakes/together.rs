//! Several mistakes in one configuration.

use super::{ConfigErrors, all};

/// The line of every error, or what else it begins with.
fn places(errors: &ConfigErrors) -> Vec<String> {
    let shown = errors.all().iter().map(ToString::to_string);
    shown
        .map(|text| text.rsplit_once("lab.toml:").map_or(text.clone(), |(_, rest)| rest.to_owned()))
        .collect()
}

#[test]
fn all_mistakes_are_reported_at_once_in_the_order_of_their_lines() {
    let errors = all(
        "[training]\nepoch = 5\nbatch = -1\n[round]\nfraction = 2\n[data]\nclients = 3\n\
         [model]\nname = \"mlp2nn\"\n[connection]\nheartbeat = 9\nlost-after = 8\n",
        &["run.seed=x", "update.precision=f8", "run.rounds"],
    );
    let shown = errors.to_string();
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 8, "{shown}");
    for (line, parts) in lines.iter().zip([
        &["the configuration has 7 mistakes:"][..],
        &["lab.toml:2: unknown key `training.epoch`, given 5", "did you mean `epochs`?"],
        &["lab.toml:3: `training.batch` cannot be -1", "at least 0"],
        &["lab.toml:5: `round.fraction` cannot be 2", "at most 1"],
        &["lab.toml:9: `model.name`: there is no \"mlp2nn\"", "did you mean `mlp-2nn`?"],
        &["--set run.seed=x: `run.seed` is \"x\" (a text)", "a whole number"],
        &["--set update.precision=f8: `update.precision`", "f32, f16, bf16"],
        &["--set run.rounds: there is no `=`"],
    ]) {
        for part in parts {
            assert!(line.contains(part), "{part:?} is not in: {line}");
        }
    }
}

#[test]
fn combinations_are_reported_beside_other_mistakes_with_the_place_of_each_key() {
    let errors = all(
        "[data]\nclients = 3\nset = \"minst\"\n[round]\ncount.min = 4\ntime = { min = 20, max = 10 }\n",
        &["connection.heartbeat=15"],
    );
    let shown: Vec<String> = errors.all().iter().map(ToString::to_string).collect();
    assert_eq!(shown.len(), 4, "{shown:?}");
    for (text, parts) in shown.iter().zip([
        &["lab.toml:3: `data.set`", "did you mean `mnist`?"][..],
        &[
            "round.min-updates = 4 (",
            "lab.toml:5)",
            "round.fraction = 1 (the default)",
            "data.clients = 3 (",
            "lab.toml:2)",
        ],
        &["round.min-wait = 20 (", "lab.toml:6)", "round.timeout = 10 ("],
        &["connection.heartbeat = 15 (--set)", "connection.timeout = 15 (the default)"],
    ]) {
        for part in parts {
            assert!(text.contains(part), "{part:?} is not in: {text}");
        }
    }
}

#[test]
fn no_mistake_is_reported_for_another_ones_sake() {
    for text in [
        // Were the default of 10 clients taken for these, their rounds could not close.
        "[data]\nclints = 20\n[round.count]\nmin = 15\n",
        "[data]\nclients = \"20\"\n[round.count]\nmin = 15\n",
        "[dta]\nclients = 20\n[round.count]\nmin = 15\n",
        // The model is not held against a data set that was not meant.
        "[data]\nset = \"fashion\"\npath = \"x\"\n",
        "[algorithm.fedsdg]\n[training]\nepochs = 2\n",
        "[algorithm.fedsgd]\n[training]\nbatch = 0\nepochs = 1.5\n",
        "[data.partition.shard]\nper-client = 5000\n",
        "[run\nrounds = 5\n",
    ] {
        let errors = all(text, &[]);
        assert_eq!(errors.all().len(), 1, "{text}{errors}");
    }
}

#[test]
fn every_line_that_is_no_toml_is_named_once() {
    let errors = all("[run]\nname = x y z\nseed = 1\nrounds = = 3\n", &["training.epochs=-1"]);
    let places = places(&errors);
    assert_eq!(places.len(), 3, "{places:?}");
    for (place, begins) in places.iter().zip(["2:", "4:", "--set training.epochs=-1"]) {
        assert!(place.starts_with(begins), "{places:?}");
    }
}

#[test]
fn a_screen_has_an_end() {
    let text: String = (0..1000).map(|number| format!("key{number} = 1\n")).collect();
    let errors = all(&text, &[]);
    assert_eq!(errors.all().len(), 1000);
    let shown = errors.to_string();
    assert_eq!(shown.lines().count(), ConfigErrors::SHOWN + 2);
    assert!(
        shown.starts_with("the configuration has 1000 mistakes:") && shown.ends_with("and 980 more"),
        "{shown}"
    );
}
