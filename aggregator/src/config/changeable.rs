//! The keys that may change while a run lasts: none of them is part of what a round of training computes from its updates.

use super::Config;
use super::excerpt::Difference;

/// Such keys, or what they begin with.
const CHANGEABLE: [&str; 10] = [
    "run.rounds",
    "early-stopping.",
    "evaluate.every",
    "evaluate.batch",
    "evaluate.on-clients-every",
    "evaluate.command",
    "simulation.trainer",
    "round.",
    "eligibility.",
    "connection.",
];
/// But not these: what devices owe is kept under them.
const EXCEPT: &str = "round.staleness.";
/// Nor this where the server's rate goes by tests: the last bits of a loss depend on it.
const OF_TESTS: &str = "evaluate.batch";

/// Whether a run goes on in its own folder under `config`, which differs from its configuration so far in these keys.
#[must_use]
pub fn may_change(differences: &[Difference], config: &Config) -> bool {
    let learns_by_tests = config.server.plateau.patience.is_some();
    let is_free = |key: &str| is_changeable(key) && !(learns_by_tests && key == OF_TESTS);
    differences.iter().all(|(key, ..)| is_free(key))
}

fn is_changeable(key: &str) -> bool {
    !key.starts_with(EXCEPT) && is_among(key, &CHANGEABLE)
}

/// Whether a key is one of these, or begins with one of those that end with a dot.
#[must_use]
pub fn is_among(key: &str, patterns: &[&str]) -> bool {
    patterns.iter().any(|&pattern| key == pattern || pattern.ends_with('.') && key.starts_with(pattern))
}

#[cfg(test)]
mod tests {
    use shared::id::RunId;

    use super::super::Raw;
    use super::super::keys::KEYS;
    use super::*;

    #[test]
    fn every_pattern_stands_for_keys_and_what_is_learned_is_among_none() {
        for pattern in CHANGEABLE.iter().chain([&EXCEPT, &OF_TESTS]) {
            assert!(KEYS.iter().any(|key| key.path.starts_with(pattern)), "{pattern} is no key");
        }
        for key in ["run.seed", "evaluate.hold-out", "training.batch", "round.staleness.max", "data.path"] {
            assert!(!is_changeable(key), "{key}");
        }
        for key in ["run.rounds", "round.timeout", "early-stopping.target", "connection.heartbeat"] {
            assert!(is_changeable(key), "{key}");
        }
    }

    #[test]
    fn a_rate_that_goes_by_tests_keeps_their_batches() {
        let config = |overrides: &[&str]| {
            let overrides: Vec<String> = overrides.iter().map(|&given| given.to_owned()).collect();
            let raw = Raw::layered(None, &overrides).expect("keys that exist");
            Config::validate(&raw, RunId::from_bytes([1; 8])).expect("valid")
        };
        let tested = ["data.labelled=50", "data.validation=50", "evaluate.every=1"];
        let falling = config(&[&tested[..], &["server.plateau.patience=5"]].concat());
        for (key, expected) in [("evaluate.batch", false), ("run.rounds", true), ("run.seed", false)] {
            let changed = [(key.to_owned(), String::new(), String::new())];
            assert_eq!(may_change(&changed, &falling), expected, "{key}");
            assert_eq!(may_change(&changed, &config(&tested)), key != "run.seed", "{key}");
        }
    }
}
