//! Small federations that train in milliseconds.

use aggregator::config::{Config, Raw};
use aggregator::data;
use models::ParamSet;
use rand::{Rng, RngExt as _};
use shared::data::View;
use shared::id::RunId;
use shared::seed::Seed;

use crate::keys::device_key;

/// A configuration and every client's data.
#[derive(Clone)]
pub struct Scenario {
    /// The configuration.
    pub config: Config,
    /// One share per client.
    pub shares: Vec<View>,
}

/// The place of the federation of this name, or else of one of those whose names begin so; `None` if none does.
pub fn draw(names: &[&str], prefix: &str, rng: &mut impl Rng) -> Option<usize> {
    let is_one = names.contains(&prefix);
    let fits = |name: &str| if is_one { name == prefix } else { name.starts_with(prefix) };
    let among: Vec<usize> = (0..names.len()).filter(|&place| fits(names[place])).collect();
    among.get(rng.random_range(0..among.len().max(1))).copied()
}

impl Scenario {
    /// The federation of this name with these keys, which come last. One whose name begins with `hidden` has those that hide updates, and
    /// devices that sign with their keys.
    ///
    /// # Panics
    /// As [`small`](Self::small).
    #[must_use]
    pub fn named(name: &str, hides: &[&str], keys: &[&str]) -> Self {
        if name.starts_with("hidden") { Self::of_devices(&[hides, keys].concat()) } else { Self::small(keys) }
    }

    /// The same among real devices, those of [`device_key`].
    ///
    /// # Panics
    /// As [`small`](Self::small).
    #[must_use]
    pub fn of_devices(overrides: &[&str]) -> Self {
        let clients = Self::small(overrides).config.data.clients as u32;
        let devices: Vec<String> =
            (0..clients).map(|index| format!("\"{}\"", device_key(index).public().client())).collect();
        let devices = format!("simulation.devices=[{}]", devices.join(","));
        Self::small(&overrides.iter().copied().chain([devices.as_str()]).collect::<Vec<_>>())
    }

    /// The model that the run begins with.
    ///
    /// # Panics
    /// If the network cannot be initialised: validated ones can.
    #[must_use]
    pub fn initial(&self) -> ParamSet {
        let seed = Seed::root(self.config.initial_seed).derive("initial parameters");
        let network = &self.config.spec.architecture;
        network.initialise(|tensor| seed.derive(tensor).rng()).expect("the configuration is valid")
    }

    /// Four clients, softmax regression on 160 glyphs, three rounds; `overrides` as on the command line.
    ///
    /// # Panics
    /// If the overrides make no sense: the test's mistake.
    #[must_use]
    pub fn small(overrides: &[&str]) -> Self {
        let defaults = [
            "model.name=linear",
            "run.rounds=3",
            "data.clients=4",
            "data.max-samples=160",
            "evaluate.every=0",
        ];
        let overrides: Vec<String> = defaults.iter().chain(overrides).map(ToString::to_string).collect();
        let raw = Raw::layered(None, &overrides).expect("the scenario's keys exist");
        let config = Config::validate(&raw, RunId::from_bytes([9; 8])).expect("the scenario makes sense");
        let shares = data::shares(&config).expect("glyphs can be drawn and divided");
        Self { config, shares }
    }
}
