//! Errors of partitions.

use thiserror::Error;

/// Why a partition is impossible. The operator's configuration is at fault, except for [`Self::Label`].
#[derive(Clone, Debug, PartialEq, Error)]
pub enum PartitionError {
    /// There are no clients.
    #[error("a partition needs at least one client")]
    NoClients,
    /// A client would get no sample.
    #[error("{clients} clients cannot each get one of {samples} samples; use fewer clients or more samples")]
    TooFewSamples {
        /// Clients asked for.
        clients: usize,
        /// Samples to divide.
        samples: usize,
    },
    /// More samples than a 32-bit index can address.
    #[error("{samples} samples are more than the {} that can be indexed", u32::MAX)]
    TooManySamples {
        /// Samples to divide.
        samples: usize,
    },
    /// Zero shards for each client.
    #[error("`per-client` is 0: each client needs at least one shard")]
    NoShards,
    /// A shard would be empty.
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
    /// The data has no roles.
    #[error("the data has no roles; use another partition, or a text")]
    NoRoles,
    /// There are more clients than roles.
    #[error("{clients} clients cannot each get one of {roles} roles; use at most {roles} clients")]
    TooFewRoles {
        /// Clients asked for.
        clients: usize,
        /// Roles that have samples.
        roles: usize,
    },
    /// Zero classes for each client.
    #[error("`per-client` is 0: each client needs at least one class")]
    NoClasses,
    /// A client would need more classes than exist.
    #[error(
        "{per_client} classes for each client are more than the {classes} that have samples; lower `per-client`"
    )]
    TooManyClasses {
        /// Classes for each client.
        per_client: usize,
        /// Classes that have samples.
        classes: usize,
    },
    /// A class would have no client, and its samples would be unused.
    #[error(
        "{clients} clients with {per_client} classes each cannot hold all {classes} classes, and every sample is to be used; \
         raise `per-client` or the number of clients"
    )]
    UnheldClasses {
        /// Clients asked for.
        clients: usize,
        /// Classes for each of them.
        per_client: usize,
        /// Classes that have samples.
        classes: usize,
    },
    /// A class has fewer samples than needed.
    #[error("class {class} has {found} samples, and {needed} of it are needed: equally many of each class")]
    TooFewOfClass {
        /// The class.
        class: usize,
        /// How many are needed.
        needed: usize,
        /// How many it has.
        found: usize,
    },
    /// A class has fewer samples than clients that share it.
    #[error(
        "class {class} has {samples} samples for {holders} clients; lower `per-client` or the number of clients, or use more \
         samples"
    )]
    SmallClass {
        /// The class.
        class: usize,
        /// Its samples.
        samples: usize,
        /// Clients that share it.
        holders: usize,
    },
    /// The minimum for all clients exceeds the number of samples.
    #[error(
        "{clients} clients with at least {min} samples each need {}, and there are {samples}; lower `min` or the number of \
         clients",
        clients.saturating_mul(*min)
    )]
    TooLargeMinimum {
        /// Clients asked for.
        clients: usize,
        /// Least samples of a client.
        min: usize,
        /// Samples to divide.
        samples: usize,
    },
    /// No draw gave all clients the minimum.
    #[error(
        "with alpha = {alpha:?}, none of {draws} draws over {clients} clients and {samples} samples gave every client {min} (in the \
         best of them the smallest share had {best}); raise `alpha`, or lower `min` or the number of clients"
    )]
    MinimumNotMet {
        /// The concentration asked for.
        alpha: f64,
        /// Clients asked for.
        clients: usize,
        /// Samples to divide.
        samples: usize,
        /// Least samples of a client.
        min: usize,
        /// How many draws were made.
        draws: u64,
        /// The greatest smallest share of all draws.
        best: usize,
    },
    /// Every draw left a client without a sample.
    #[error(
        "with alpha = {alpha:?}, {draws} draws over {clients} clients and {samples} samples each left clients \
         without a sample (the last one {empty}); raise `alpha`, lower the number of clients, or let them be absent: \
         `empty = \"absent\"`"
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
