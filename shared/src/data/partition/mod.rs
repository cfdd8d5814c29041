//! Partitions of a data set among simulated clients, from IID to strong label and quantity skew.
//!
//! Every partition uses every sample exactly once and depends only on the labels, the number of clients and the seed.
//! Every client gets at least one sample, except with [`Empty::Absent`]. A client's samples are in ascending order.
//!
//! | partition | shares | source |
//! |---|---|---|
//! | [`iid`](Partition::Iid) | equal shares at random | `McMahan` et al. 2017 |
//! | [`shards`](Partition::Shards) | shards of the samples sorted by label | `McMahan` et al. 2017 |
//! | [`classes`](Partition::Classes) | samples of c classes | Li et al. 2022, "#C = c" |
//! | [`dirichlet`](Partition::Dirichlet) | each class in Dirichlet proportions | Hsu et al. 2019 |
//! | [`dirichlet-capped`](Partition::DirichletCapped) | the same, with a cap near the mean and a minimum | Li et al. 2021 (MOON) |
//! | [`role`](Partition::Role) | the lines of roles in plays | `McMahan` et al. 2017 |
//! | [`quantity`](Partition::Quantity) | random samples, their number in Dirichlet proportions | Li et al. 2022, "q ~ Dir" |
//!
//! With every partition, a client's samples may arrive in [slices](stream), one each round.
//!
//! The data of real devices is not partitioned.

mod balanced;
mod capped;
mod classes;
mod dirichlet;
mod error;
mod iid;
mod proportions;
mod quantity;
mod roles;
mod shards;
pub mod stream;

use std::borrow::Cow;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::Dataset;
use crate::seed::Seed;
use crate::settings::Kind;

pub use balanced::balanced;
pub use error::PartitionError;

crate::choice! {
    /// How samples are divided among clients.
    pub enum Partition {
        /// Equal shares at random
        ///
        /// Their sizes differ by at most one (`McMahan` et al. 2017, section 3).
        Iid {}
        /// Samples sorted by label and cut into equal shards, of which each client is dealt a fixed number
        ///
        /// Pathological label skew (`McMahan` et al. 2017, section 3), published for MNIST with 100 clients and 2 shards. A client then
        /// sees about as many classes, and never more than twice as many if no class is smaller than a shard.
        Shards {
            /// Shards of sorted labels dealt to each client
            per_client: usize = 2, in Kind::POSITIVE;
        }
        /// Each class divided equally among the clients that get it; every client gets a fixed number of classes
        ///
        /// Label skew by number (Li et al. 2022, NIID-Bench, "#C = c"). The classes' numbers of clients differ by at most one.
        Classes {
            /// Classes that each client has samples of
            per_client: usize = 2, in Kind::POSITIVE;
        }
        /// Each class divided in proportions drawn from a symmetric Dirichlet distribution over the clients
        ///
        /// Hsu et al. 2019, arXiv 1909.06335; Yurochkin et al. 2019.
        Dirichlet {
            /// Label skew: small gives each class to few clients
            alpha: f64 = 0.5, in Kind::RATE;
            /// A draw that leaves clients empty: redraw, or absent (they do not take part)
            empty: Empty = Empty::Redraw;
        }
        /// The Dirichlet partition of MOON's experiments
        ///
        /// Li, He, Song 2021, their `partition_data`; first in Yurochkin et al. 2019: classes are divided one after the other, a client
        /// that holds the mean number of samples already gets nothing of the next class, and everything is drawn again until the
        /// smallest share has `min` samples. Published with 10.
        DirichletCapped {
            /// Label skew, no client far above the mean (MOON's)
            alpha: f64 = 0.5, in Kind::RATE;
            /// Samples that every client has at least
            min: usize = 10, in Kind::POSITIVE;
        }
        /// Random samples, their numbers in Dirichlet proportions
        ///
        /// Quantity skew (Li et al. 2022, NIID-Bench, "q ~ Dir"), drawn again until the smallest share has `min` samples. Published
        /// with 10.
        Quantity {
            /// Skew of sizes: small gives nearly all to few clients
            alpha: f64 = 0.5, in Kind::RATE;
            /// Samples that every client has at least
            min: usize = 10, in Kind::POSITIVE;
        }
        /// Every role of a text is a client
        ///
        /// `McMahan` et al. 2017, section 3, Shakespeare. With fewer clients than roles, each client gets several, whose numbers
        /// differ by at most one.
        Role {}
    }
}

crate::named!(Empty);

/// What to do about a draw that leaves clients without a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Empty {
    /// It is made again, up to 100 times: the distribution given that no client is empty. Many clients with a small
    /// `alpha` make such draws too rare to be met.
    #[default]
    Redraw,
    /// It stands, and the clients without a sample do not take part: the distribution as published, for any number of
    /// clients. The federation is then smaller by them.
    Absent,
}

impl Partition {
    /// Divides a data set among `clients`, as [`split`](Self::split) does. Partitions by class see text as one class.
    pub fn divide(&self, dataset: &Dataset, clients: usize, seed: &Seed) -> Result<Shares, PartitionError> {
        let (labels, classes) = classes_of(dataset);
        self.split_by(Division { labels: &labels, classes, clients }, dataset.authors(), seed)
    }

    /// Divides some samples of a data set, at these positions, among `clients`: as [`divide`](Self::divide), without authors.
    pub fn divide_some(
        &self,
        dataset: &Dataset,
        samples: &[u32],
        clients: usize,
        seed: &Seed,
    ) -> Result<Shares, PartitionError> {
        let (labels, classes) = classes_of(dataset);
        let labels: Vec<u32> = samples.iter().map(|&sample| labels[sample as usize]).collect();
        let mut shares = self.split(&labels, classes, clients, seed)?;
        shares.iter_mut().flatten().for_each(|position| *position = samples[*position as usize]);
        Ok(shares)
    }

    /// Divides the samples with these `labels`, each below `classes`, among `clients`.
    ///
    /// Entry `k` of the result lists the samples of client `k` as ascending positions in `labels`. It is empty only with
    /// [`Empty::Absent`].
    pub fn split(
        &self,
        labels: &[u32],
        classes: usize,
        clients: usize,
        seed: &Seed,
    ) -> Result<Shares, PartitionError> {
        self.split_by(Division { labels, classes, clients }, &[], seed)
    }

    fn split_by(&self, of: Division<'_>, roles: &[u32], seed: &Seed) -> Result<Shares, PartitionError> {
        let (samples, clients) = (of.labels.len(), of.clients);
        if clients == 0 {
            return Err(PartitionError::NoClients);
        }
        if clients > samples {
            return Err(PartitionError::TooFewSamples { clients, samples });
        }
        if u32::try_from(samples).is_err() {
            return Err(PartitionError::TooManySamples { samples });
        }
        check_labels(of.labels, of.classes)?;
        let mut shares = match *self {
            Self::Iid {} => iid::split(samples, clients, &seed.derive("iid")),
            Self::Shards { per_client } => shards::split(of, per_client, &seed.derive("shards"))?,
            Self::Classes { per_client } => classes::split(of, per_client, &seed.derive("classes"))?,
            Self::Dirichlet { alpha, empty } => {
                dirichlet::split(of, (alpha, empty), &seed.derive("dirichlet"))?
            }
            Self::DirichletCapped { alpha, min } => {
                capped::split(of, (alpha, min), &seed.derive("dirichlet-capped"))?
            }
            Self::Quantity { alpha, min } => {
                quantity::split(samples, clients, (alpha, min), &seed.derive("quantity"))?
            }
            Self::Role {} => roles::split(roles, clients, &seed.derive("role"))?,
        };
        for share in &mut shares {
            share.sort_unstable();
        }
        Ok(shares)
    }
}

/// The samples of every client.
type Shares = Vec<Vec<u32>>;

/// What is divided among whom. A partition is asked only where `1 <= clients <= labels.len()` and labels are below `classes`.
#[derive(Clone, Copy)]
struct Division<'a> {
    labels: &'a [u32],
    classes: usize,
    clients: usize,
}

/// The samples of every class, ascending.
fn by_class(labels: &[u32], classes: usize) -> Vec<Vec<u32>> {
    let mut members = vec![Vec::new(); classes];
    for (sample, &label) in (0..).zip(labels) {
        members[label as usize].push(sample);
    }
    members
}

fn check_labels(labels: &[u32], classes: usize) -> Result<(), PartitionError> {
    match labels.iter().position(|&label| label as usize >= classes) {
        Some(row) => Err(PartitionError::Label { row, label: labels[row], classes }),
        None => Ok(()),
    }
}

/// All samples in a random order.
pub(crate) fn shuffled(samples: usize, seed: &Seed) -> Vec<u32> {
    let mut order: Vec<u32> = (0..samples as u32).collect();
    crate::seed::shuffle(&mut order, &mut seed.rng());
    order
}

/// The places of part `part` when `total` items are cut into `parts` whose sizes differ by at most one.
fn part(total: usize, parts: usize, part: usize) -> Range<usize> {
    let begin = |part: usize| (total as u128 * part as u128 / parts as u128) as usize;
    begin(part)..begin(part + 1)
}

/// The labels of a data set by which it is divided, and its classes: one for samples with several labels or with none.
fn classes_of(dataset: &Dataset) -> (Cow<'_, [u32]>, usize) {
    if dataset.labels_each() == 1 {
        (Cow::Borrowed(dataset.labels()), dataset.classes())
    } else {
        (Cow::Owned(vec![0; dataset.len()]), 1)
    }
}

#[cfg(test)]
mod tests {
    #![expect(unreachable_pub, reason = "the macro declares what other modules use")]

    use super::*;
    use crate::settings::complete;
    use proptest::prelude::*;

    crate::section! {
        /// A section that has one.
        pub struct Section {
            /// It.
            pub partition: Partition = Partition::default();
        }
    }

    const ALL: [Partition; 8] = [
        Partition::Iid {},
        Partition::Shards { per_client: 2 },
        Partition::Classes { per_client: 2 },
        Partition::Dirichlet { alpha: 0.5, empty: Empty::Redraw },
        Partition::Dirichlet { alpha: 0.5, empty: Empty::Absent },
        Partition::DirichletCapped { alpha: 0.5, min: 10 },
        Partition::Quantity { alpha: 0.5, min: 10 },
        Partition::Role {},
    ];

    #[test]
    fn toml_form() {
        for (text, partition) in [
            ("{ iid = {} }", Partition::Iid {}),
            ("{ shards = { per-client = 2 } }", Partition::Shards { per_client: 2 }),
            ("{ classes = { per-client = 3 } }", Partition::Classes { per_client: 3 }),
            ("{ dirichlet = { alpha = 0.5 } }", Partition::Dirichlet { alpha: 0.5, empty: Empty::Redraw }),
            (
                "{ dirichlet = { alpha = 0.5, empty = 'absent' } }",
                Partition::Dirichlet { alpha: 0.5, empty: Empty::Absent },
            ),
            ("{ dirichlet-capped = { alpha = 0.1 } }", Partition::DirichletCapped { alpha: 0.1, min: 10 }),
            ("{ quantity = { alpha = 2.0, min = 1 } }", Partition::Quantity { alpha: 2.0, min: 1 }),
        ] {
            let given = format!("partition = {text}").parse().unwrap();
            let read: Section = complete::<Section>(given).try_into().unwrap();
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
                Partition::Classes { per_client },
                Partition::Dirichlet { alpha, empty: Empty::Redraw },
                Partition::Dirichlet { alpha, empty: Empty::Absent },
                Partition::DirichletCapped { alpha, min: 2 },
                Partition::Quantity { alpha, min: 2 },
            ] {
                // Requests that cannot be met have their own tests.
                let Ok(shares) = partition.split(&labels, 5, clients, &seed) else { continue };
                prop_assert_eq!(shares.len(), clients);
                let absent = partition == Partition::Dirichlet { alpha, empty: Empty::Absent };
                prop_assert!(shares.iter().all(|share| (absent || !share.is_empty()) && share.is_sorted()));
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
        for partition in ALL.into_iter().filter(|partition| *partition != Partition::Role {}) {
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
        let mut counts = vec![0; classes];
        for &sample in share {
            counts[labels[sample as usize] as usize] += 1;
        }
        counts
    }
}
