//! Which sample goes to which client: the heterogeneity of a simulated federation.
//!
//! Every partition uses every sample exactly once, gives every client at least one, and depends on nothing but
//! the labels, the number of clients and the seed. A client's samples are listed in ascending order.
//!
//! The federation's data on real devices is not partitioned: it is where it is. These are for simulation.

mod dirichlet;
mod iid;
mod shards;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::seed::Seed;

/// How samples are divided among clients.
///
/// In TOML: `partition = { iid = {} }`, `{ shards = { per-client = 2 } }` or `{ dirichlet = { alpha = 0.5 } }`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "kebab-case", deny_unknown_fields)]
pub enum Partition {
    /// A uniformly random division into shares whose sizes differ by at most one (`McMahan` et al. 2017, section 3).
    Iid {},
    /// Pathological label skew (`McMahan` et al. 2017, section 3): the samples, sorted by label, are cut into equal
    /// shards, and each client is dealt a fixed number of them. Published for MNIST with 100 clients and 2 shards.
    Shards {
        /// Shards that each client gets, at least 1. A client then sees about as many classes, and never more
        /// than twice as many if no class is smaller than a shard.
        per_client: usize,
    },
    /// Label skew of adjustable strength (Hsu et al. 2019, arXiv 1909.06335; Yurochkin et al. 2019): each class is
    /// divided in proportions drawn from a symmetric Dirichlet distribution over the clients.
    Dirichlet {
        /// Concentration, greater than 0. Small values give each class to few clients; large values approach IID
        /// labels with equal shares.
        alpha: f64,
    },
}

/// Why a partition is impossible. The operator's configuration is at fault, except for [`Self::Label`].
#[derive(Clone, Debug, PartialEq, Error)]
pub enum PartitionError {
    /// Nobody to give samples to.
    #[error("a partition needs at least one client")]
    NoClients,
    /// Some client would remain without a sample.
    #[error("{clients} clients cannot each get one of {samples} samples; use fewer clients or more samples")]
    TooFewSamples {
        /// Clients asked for.
        clients: usize,
        /// Samples to divide.
        samples: usize,
    },
    /// More samples than an index of 32 bits can tell apart.
    #[error("{samples} samples are more than the {} that can be indexed", u32::MAX)]
    TooManySamples {
        /// Samples to divide.
        samples: usize,
    },
    /// Zero shards for each client.
    #[error("`per-client` is 0: each client needs at least one shard")]
    NoShards,
    /// Some shard would be empty.
    #[error(
        "{clients} clients with {per_client} shards each need more shards than there are samples ({samples}); \
         lower `per-client` or the number of clients"
    )]
    TooManyShards {
        /// Clients asked for.
        clients: usize,
        /// Shards for each of them.
        per_client: usize,
        /// Samples to divide.
        samples: usize,
    },
    /// The concentration is not a positive number.
    #[error("`alpha` is {alpha}: it must be a positive, finite number such as 0.5")]
    Alpha {
        /// The value asked for.
        alpha: f64,
    },
    /// In every draw some client remained without a sample, and a client without samples cannot train.
    #[error(
        "with alpha = {alpha}, {draws} draws over {clients} clients and {samples} samples each left clients \
         without a sample (the last one {empty}); raise `alpha` or lower the number of clients"
    )]
    EmptyClients {
        /// The concentration asked for.
        alpha: f64,
        /// Clients asked for.
        clients: usize,
        /// Samples to divide.
        samples: usize,
        /// How many draws were made.
        draws: u64,
        /// Clients without a sample in the last draw.
        empty: usize,
    },
    /// A label is not the number of a class.
    #[error("sample {row} has label {label}, but there are {classes} classes, counted from 0")]
    Label {
        /// The sample, counted from 0.
        row: usize,
        /// Its label.
        label: u32,
        /// The number of classes.
        classes: usize,
    },
}

impl Partition {
    /// Divides the samples with these `labels`, each below `classes`, among `clients`.
    ///
    /// Entry `k` of the result lists the samples of client `k` as ascending positions in `labels`.
    pub fn split(
        &self,
        labels: &[u32],
        classes: usize,
        clients: usize,
        seed: &Seed,
    ) -> Result<Vec<Vec<u32>>, PartitionError> {
        let samples = labels.len();
        if clients == 0 {
            return Err(PartitionError::NoClients);
        }
        if clients > samples {
            return Err(PartitionError::TooFewSamples { clients, samples });
        }
        if u32::try_from(samples).is_err() {
            return Err(PartitionError::TooManySamples { samples });
        }
        if let Some(row) = labels.iter().position(|&label| label as usize >= classes) {
            return Err(PartitionError::Label { row, label: labels[row], classes });
        }
        let mut shares = match *self {
            Self::Iid {} => iid::split(samples, clients, &seed.derive("iid")),
            Self::Shards { per_client } => {
                shards::split(labels, clients, per_client, &seed.derive("shards"))?
            }
            Self::Dirichlet { alpha } => {
                dirichlet::split(labels, classes, clients, alpha, &seed.derive("dirichlet"))?
            }
        };
        for share in &mut shares {
            share.sort_unstable();
        }
        Ok(shares)
    }
}

/// All samples in a random order.
fn shuffled(samples: usize, seed: &Seed) -> Vec<u32> {
    let mut order: Vec<u32> = (0..samples as u32).collect();
    crate::seed::shuffle(&mut order, &mut seed.rng());
    order
}

/// Where part `part` of `parts` begins when `total` items are cut into parts whose sizes differ by at most one.
fn boundary(total: usize, parts: usize, part: usize) -> usize {
    (total as u128 * part as u128 / parts as u128) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Serialize, Deserialize, Debug, PartialEq)]
    struct Section {
        partition: Partition,
    }

    const ALL: [Partition; 3] =
        [Partition::Iid {}, Partition::Shards { per_client: 2 }, Partition::Dirichlet { alpha: 0.5 }];

    #[test]
    fn toml_form() {
        for (text, partition) in [
            ("{ iid = {} }", Partition::Iid {}),
            ("{ shards = { per-client = 2 } }", Partition::Shards { per_client: 2 }),
            ("{ dirichlet = { alpha = 0.5 } }", Partition::Dirichlet { alpha: 0.5 }),
        ] {
            let read: Section = toml::from_str(&format!("partition = {text}")).unwrap();
            assert_eq!(read, Section { partition });
            let written = toml::to_string(&read).unwrap();
            assert_eq!(toml::from_str::<Section>(&written).unwrap(), read);
        }
    }

    #[test]
    fn unknown_keys_are_named_with_the_accepted_ones() {
        let error = |text: &str| toml::from_str::<Section>(text).unwrap_err().to_string();
        let field = error("partition = { dirichlet = { alpha = 1.0, beta = 1.0 } }");
        assert!(field.contains("beta") && field.contains("alpha"), "{field}");
        let variant = error("partition = { sharts = {} }");
        assert!(variant.contains("`sharts`") && variant.contains("`shards`"), "{variant}");
        assert!(error("partition = { iid = { x = 1 } }").contains("keys in table: x"));
        assert!(error("partition = { shards = { per_client = 1 } }").contains("per-client"));
    }

    #[test]
    fn postcard_round_trip() {
        for partition in ALL {
            let bytes = postcard::to_stdvec(&partition).unwrap();
            assert_eq!(postcard::from_bytes::<Partition>(&bytes).unwrap(), partition);
        }
    }

    #[test]
    fn impossible_requests_are_refused_with_the_numbers() {
        let seed = Seed::root(1);
        for partition in ALL {
            let split = |labels: &[u32], clients| partition.split(labels, 2, clients, &seed).unwrap_err();
            assert_eq!(split(&[0, 1], 0), PartitionError::NoClients);
            assert_eq!(split(&[0, 1], 3), PartitionError::TooFewSamples { clients: 3, samples: 2 });
            assert_eq!(split(&[], 1), PartitionError::TooFewSamples { clients: 1, samples: 0 });
            assert_eq!(split(&[0, 2], 1), PartitionError::Label { row: 1, label: 2, classes: 2 });
        }
    }

    proptest! {
        #[test]
        fn every_sample_is_used_once_and_every_client_has_one(
            labels in prop::collection::vec(0_u32..5, 1..300),
            clients in 1_usize..12,
            per_client in 1_usize..4,
            alpha in 0.3..10.0_f64,
            number: u64,
        ) {
            let seed = Seed::root(number);
            for partition in [
                Partition::Iid {},
                Partition::Shards { per_client },
                Partition::Dirichlet { alpha },
            ] {
                // Requests that cannot be met have their own tests.
                let Ok(shares) = partition.split(&labels, 5, clients, &seed) else { continue };
                prop_assert_eq!(shares.len(), clients);
                prop_assert!(shares.iter().all(|share| !share.is_empty() && share.is_sorted()));
                let mut used = shares.concat();
                used.sort_unstable();
                prop_assert_eq!(used, (0..labels.len() as u32).collect::<Vec<_>>());
                prop_assert_eq!(partition.split(&labels, 5, clients, &seed).unwrap(), shares);
            }
        }
    }

    #[test]
    fn another_seed_is_another_split() {
        let labels = labels::in_turn(1000, 10);
        for partition in ALL {
            let split = |number| partition.split(&labels, 10, 10, &Seed::root(number)).unwrap();
            assert_ne!(split(1), split(2), "{partition:?}");
        }
    }
}

#[cfg(test)]
mod labels {
    /// `count` samples of `classes` classes in turn.
    pub(super) fn in_turn(count: usize, classes: usize) -> Vec<u32> {
        (0..count).map(|sample| (sample % classes) as u32).collect()
    }

    /// Samples of each class in one client's share.
    pub(super) fn histogram(labels: &[u32], classes: usize, share: &[u32]) -> Vec<usize> {
        crate::data::dataset::histogram(share.iter().map(|&sample| labels[sample as usize]), classes)
    }
}
