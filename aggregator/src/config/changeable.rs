//! The keys that may change while a run lasts: none of them is part of what a round of training computes from its updates.

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

/// Whether a run goes on in its own folder where it differs from its configuration so far in these keys.
#[must_use]
pub fn may_change(differences: &[Difference]) -> bool {
    differences.iter().all(|(key, ..)| is_changeable(key))
}

fn is_changeable(key: &str) -> bool {
    let matches = |pattern: &str| key == pattern || pattern.ends_with('.') && key.starts_with(pattern);
    !key.starts_with(EXCEPT) && CHANGEABLE.iter().any(|pattern| matches(pattern))
}

#[cfg(test)]
mod tests {
    use super::super::keys::KEYS;
    use super::*;

    #[test]
    fn every_pattern_stands_for_keys_and_what_is_learned_is_among_none() {
        for pattern in CHANGEABLE.iter().chain([&EXCEPT]) {
            assert!(KEYS.iter().any(|key| key.path.starts_with(pattern)), "{pattern} is no key");
        }
        for key in ["run.seed", "evaluate.hold-out", "training.batch", "round.staleness.max", "data.path"] {
            assert!(!is_changeable(key), "{key}");
        }
        for key in ["run.rounds", "round.timeout", "early-stopping.target", "connection.heartbeat"] {
            assert!(is_changeable(key), "{key}");
        }
    }
}
