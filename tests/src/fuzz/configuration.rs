//! Configuration by users: a file, and keys on the command line.

use aggregator::config::{Config, ConfigErrors, Raw};
use shared::id::RunId;

use super::{Seen, tmp};

const RUN: RunId = RunId::from_bytes([9; 8]);

/// Keys, values, and what makes trouble in texts.
pub const WORDS: &[&str] = &[
    "[run]",
    "[training]",
    "[algorithm.fedprox]\nmu = 0.1\n",
    "[model.layers]",
    "[[model.head]]",
    "seed = 1",
    "epochs = ",
    "data.clients = ",
    "rounds = 0",
    "{ constant = {} }",
    "inf",
    "-1",
    "1e400",
    "'''",
    "\"\"\"",
    "\u{fffd}",
    "é",
    "[[[[[[[[[[[[[[[[",
    "a.b.c.d.e.f.g",
];

/// A file. A configuration that makes sense is written and read again.
///
/// # Panics
/// If it then means something else.
#[must_use]
pub fn file(bytes: &[u8]) -> Seen {
    let path = tmp::file("run.toml", bytes);
    let read = Config::read(Some(&path), &[], RUN);
    if let Ok(config) = &read {
        round_trip(config);
    }
    seen(&read)
}

/// The effective configuration is the same one.
fn round_trip(config: &Config) {
    let path = tmp::file("effective.toml", config.effective.to_toml().as_bytes());
    let again = Config::read(Some(&path), &[], RUN);
    let again = again.unwrap_or_else(|errors| panic!("what was accepted is refused: {errors}"));
    assert_eq!(again.effective, config.effective);
}

fn seen(read: &Result<Config, ConfigErrors>) -> Seen {
    if let Err(errors) = read {
        // People read it.
        assert!(!errors.to_string().is_empty());
    }
    Seen::result(read)
}

/// One override per line.
///
/// # Panics
/// As [`file()`].
#[must_use]
pub fn overrides(bytes: &[u8]) -> Seen {
    let text = String::from_utf8_lossy(bytes);
    let overrides: Vec<String> = text.lines().take(20).map(str::to_owned).collect();
    let read = Config::read(None, &overrides, RUN);
    if let Ok(config) = &read {
        round_trip(config);
    }
    seen(&read)
}

/// The defaults, and the examples.
///
/// # Panics
/// If the examples cannot be read.
#[must_use]
pub fn files() -> Vec<Vec<u8>> {
    let mut files = vec![Raw::default().to_toml().into_bytes()];
    let examples = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/configs")).expect("the examples");
    let mut paths: Vec<_> = examples.map(|entry| entry.expect("readable").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    paths.sort();
    files.extend(paths.iter().map(|path| std::fs::read(path).expect("readable")));
    files
}

/// Overrides of each kind of value.
#[must_use]
pub fn lines() -> Vec<Vec<u8>> {
    [
        "training.epochs=5\nmodel.name=linear\nrun.rounds=3",
        "algorithm.fedprox.mu=0.5\naggregation.rule.median={}\ndata.clients=7",
        "data.partition.dirichlet.alpha=0.3\ntraining.schedule.step={every=2, factor=0.5}\nround.count.min=2",
        "run.name=a b\nmodel.seed=\nevaluate.every=0\nconnection.heartbeat=0.5",
        "personalisation.methods=[\"mf\", \"ft\"]\nround.time.max=60",
    ]
    .map(|lines| lines.as_bytes().to_vec())
    .into()
}
