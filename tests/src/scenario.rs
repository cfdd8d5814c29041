//! Small federations that train in milliseconds.

use aggregator::config::{Config, Raw};
use aggregator::data;
use shared::data::View;
use shared::id::RunId;

/// A configuration and every client's data.
#[derive(Clone)]
pub struct Scenario {
    /// The configuration.
    pub config: Config,
    /// One share per client.
    pub shares: Vec<View>,
}

impl Scenario {
    /// Four clients, softmax regression on 160 glyphs, three rounds; `overrides` as on the command line.
    ///
    /// # Panics
    /// If the overrides make no sense: the test's mistake.
    #[must_use]
    pub fn small(overrides: &[&str]) -> Self {
        let defaults =
            ["model.name=linear", "run.rounds=3", "data.clients=4", "data.limit=160", "evaluate.every=0"];
        let overrides: Vec<String> = defaults.iter().chain(overrides).map(ToString::to_string).collect();
        let raw = Raw::layered(None, &overrides).expect("the scenario's keys exist");
        let config = Config::validate(&raw, RunId::from_bytes([9; 8])).expect("the scenario makes sense");
        let shares = data::shares(&config).expect("glyphs can be drawn and divided");
        Self { config, shares }
    }
}
