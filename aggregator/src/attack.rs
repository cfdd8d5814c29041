//! Simulated attacks, to test the robustness of aggregation rules.
//!
//! The attacking clients are drawn from the run's seed and are the same in every round: variants of an experiment with the same
//! seed have the same attackers.

use std::collections::BTreeSet;
use std::fmt;

use shared::choice;
use shared::seed::{Seed, shuffle};
use shared::settings::Kind;
use shared::share;

choice! {
    /// What an attacker does.
    pub enum Attack {
        /// No attack; `serve` refuses others
        None {}
        /// Attackers send the opposite of their update
        SignFlip {}
        /// Attackers send a multiple of their update
        Scaled {
            /// Attackers send this multiple of their update
            factor: f64 = 10.0, in Kind::FINITE;
        }
        /// Attackers train on labels C - 1 - y
        LabelFlip {}
        /// Attackers declare many samples and send zeros
        InflatedSamples {
            /// Attackers declare this many
            samples: u32 = u32::MAX, in Kind::POSITIVE;
        }
    }
}

impl Attack {
    /// What an attacker multiplies its update with; `None` if it sends what it has trained.
    #[must_use]
    pub fn factor(self) -> Option<f32> {
        match self {
            Self::None {} | Self::LabelFlip {} => None,
            Self::SignFlip {} => Some(-1.0),
            Self::Scaled { factor } => Some(factor as f32),
            Self::InflatedSamples { .. } => Some(0.0),
        }
    }

    /// The number of samples that an attacker declares; `None` if it is that of those it has.
    #[must_use]
    pub fn samples(self) -> Option<u64> {
        match self {
            Self::InflatedSamples { samples } => Some(u64::from(samples)),
            Self::None {} | Self::SignFlip {} | Self::Scaled { .. } | Self::LabelFlip {} => None,
        }
    }
}

impl fmt::Display for Attack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None {} => f.write_str("none"),
            Self::SignFlip {} => f.write_str("sign flip"),
            Self::Scaled { factor } => write!(f, "updates {factor} times as large"),
            Self::LabelFlip {} => f.write_str("label flip"),
            Self::InflatedSamples { samples } => write!(f, "{samples} declared samples and no updates"),
        }
    }
}

/// An attack on a federation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attackers {
    /// The attack; not [`Attack::None`].
    pub attack: Attack,
    /// The fraction of clients that attack, in `(0, 1]`.
    pub share: f64,
}

impl Attackers {
    /// The number of attackers among `clients`.
    #[must_use]
    pub fn count(&self, clients: usize) -> usize {
        share::of(self.share, clients)
    }

    /// The attackers among `clients`, as indices from 0, in a run with this seed.
    #[must_use]
    pub fn among(&self, clients: usize, seed: &Seed) -> BTreeSet<usize> {
        let mut all: Vec<usize> = (0..clients).collect();
        shuffle(&mut all, &mut seed.derive("attackers").rng());
        all.into_iter().take(self.count(clients)).collect()
    }

    /// A description of the attack and the attackers for people.
    #[must_use]
    pub fn describe(&self, clients: usize, seed: &Seed) -> String {
        let among = self.among(clients, seed);
        let names: Vec<String> = among.iter().map(|index| format!("client {index}")).collect();
        format!("{}: {}", self.counted(clients), names.join(", "))
    }

    /// The same without saying who they are.
    #[must_use]
    pub fn counted(&self, clients: usize) -> String {
        format!("{} by {} of {clients} clients", self.attack, self.count(clients))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attackers_are_a_share_of_the_clients_and_come_from_the_seed() {
        let attackers = Attackers { attack: Attack::SignFlip {}, share: 0.2 };
        let counts = [(4, 0), (5, 1), (9, 1), (10, 2), (100, 20)];
        for (clients, count) in counts {
            assert_eq!(attackers.count(clients), count, "{clients}");
        }
        assert_eq!(Attackers { share: 0.29, ..attackers }.count(100), 29);
        let among = |seed| attackers.among(100, &Seed::root(seed));
        assert_eq!(among(1), among(1));
        assert_ne!(among(1), among(2));
        assert!(among(1).len() == 20 && among(1).iter().all(|&index| index < 100));
        let everybody = Attackers { share: 1.0, ..attackers };
        assert_eq!(everybody.among(3, &Seed::root(1)), BTreeSet::from([0, 1, 2]));
    }

    #[test]
    fn attackers_are_named() {
        let attackers = Attackers { attack: Attack::Scaled { factor: 10.0 }, share: 1.0 };
        let text = attackers.describe(2, &Seed::root(1));
        assert_eq!(text, "updates 10 times as large by 2 of 2 clients: client 0, client 1");
    }
}
