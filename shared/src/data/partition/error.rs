//! Errors of partitions.

use thiserror::Error;

/// Why a partition is impossible. The operator's configuration is at fault, except for [`Self::Label`].
///
/// In all variants: `clients` and `per_client` (shards or classes for each of them) are those asked for; `samples` are those
/// to divide, `classes` those that exist or have samples; `alpha` and `min` are the partition's settings; `draws` were made.
#[derive(Clone, Debug, PartialEq, Error)]
#[expect(missing_docs, reason = "fields are described once, above")]
pub enum PartitionError {
    /// There are no clients.
    #[error("a partition needs at least one client")]
    NoClients,
    /// A client would get no sample.
    #[error("{clients} clients cannot each get one of {samples} samples; use fewer clients or more samples")]
    TooFewSamples { clients: usize, samples: usize },
    /// More samples than a 32-bit index can address.
    #[error("{samples} samples are more than the {} that can be indexed", u32::MAX)]
    TooManySamples { samples: usize },
    /// Zero shards for each client.
    #[error("`per-client` is 0: each client needs at least one shard")]
    NoShards,
    /// A shard would be empty.
    #[error(
        "{clients} clients with {per_client} shards each need more shards than there are samples ({samples}); \
         lower `per-client` or the number of clients"
    )]
    TooManyShards { clients: usize, per_client: usize, samples: usize },
    /// The concentration is not a positive number.
    #[error("`alpha` is {alpha}: it must be a positive, finite number such as 0.5")]
    Alpha { alpha: f64 },
    /// The data has no roles.
    #[error("the data has no roles; use another partition, or a text")]
    NoRoles,
    /// There are more clients than roles.
    #[error("{clients} clients cannot each get one of {roles} roles; use at most {roles} clients")]
    TooFewRoles { clients: usize, roles: usize },
    /// Zero classes for each client.
    #[error("`per-client` is 0: each client needs at least one class")]
    NoClasses,
    /// A client would need more classes than exist.
    #[error(
        "{per_client} classes for each client are more than the {classes} that have samples; lower `per-client`"
    )]
    TooManyClasses { per_client: usize, classes: usize },
    /// A class would have no client, and its samples would be unused.
    #[error(
        "{clients} clients with {per_client} classes each cannot hold all {classes} classes, and every sample is to be used; \
         raise `per-client` or the number of clients"
    )]
    UnheldClasses { clients: usize, per_client: usize, classes: usize },
    /// A class has fewer samples than needed.
    #[error("class {class} has {found} samples, and {needed} of it are needed: equally many of each class")]
    TooFewOfClass { class: usize, needed: usize, found: usize },
    /// A class has fewer samples than clients that share it.
    #[error(
        "class {class} has {samples} samples for {holders} clients; lower `per-client` or the number of clients, or use more \
         samples"
    )]
    SmallClass { class: usize, samples: usize, holders: usize },
    /// The minimum for all clients exceeds the number of samples.
    #[error(
        "{clients} clients with at least {min} samples each need {}, and there are {samples}; lower `min` or the number of \
         clients",
        clients.saturating_mul(*min)
    )]
    TooLargeMinimum { clients: usize, min: usize, samples: usize },
    /// No draw gave all clients the minimum.
    #[error(
        "with alpha = {alpha:?}, none of {draws} draws over {clients} clients and {samples} samples gave every client {min} (in the \
         best of them the smallest share had {best}); raise `alpha`, or lower `min` or the number of clients"
    )]
    MinimumNotMet { alpha: f64, clients: usize, samples: usize, min: usize, draws: u64, best: usize },
    /// Every draw left a client without a sample.
    #[error(
        "with alpha = {alpha:?}, {draws} draws over {clients} clients and {samples} samples each left clients \
         without a sample (the last one {empty}); raise `alpha`, lower the number of clients, or let them be absent: \
         `empty = \"absent\"`"
    )]
    EmptyClients { alpha: f64, clients: usize, samples: usize, draws: u64, empty: usize },
    /// A label is not the number of a class.
    #[error("sample {row} has label {label}, but there are {classes} classes, counted from 0")]
    Label { row: usize, label: u32, classes: usize },
}
