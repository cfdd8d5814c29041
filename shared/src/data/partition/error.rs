//! Why a partition is impossible.

use thiserror::Error;

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
    /// Nobody speaks in this data.
    #[error("the data has no roles; use another partition, or a text")]
    NoRoles,
    /// A role is one client's.
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
    /// A client cannot have so many different classes.
    #[error(
        "{per_client} classes for each client are more than the {classes} that have samples; lower `per-client`"
    )]
    TooManyClasses {
        /// Classes for each client.
        per_client: usize,
        /// Classes that have samples.
        classes: usize,
    },
    /// Some class would be given to nobody, and its samples left over.
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
    /// A class has fewer samples than are to be drawn of it.
    #[error("class {class} has {found} samples, and {needed} of it are needed: equally many of each class")]
    TooFewOfClass {
        /// The class.
        class: usize,
        /// How many are to be drawn.
        needed: usize,
        /// How many there are.
        found: usize,
    },
    /// A class has fewer samples than clients that should each get some of it.
    #[error(
        "class {class} has {samples} samples for {holders} clients; lower `per-client` or the number of clients, or use more \
         samples"
    )]
    SmallClass {
        /// The class.
        class: usize,
        /// Its samples.
        samples: usize,
        /// Clients that should get some of them.
        holders: usize,
    },
    /// So many samples for everybody are more than there are.
    #[error(
        "{clients} clients with at least {min} samples each need {}, and there are {samples}; lower `min` or the number of \
         clients",
        clients.saturating_mul(*min)
    )]
    TooLargeMinimum {
        /// Clients asked for.
        clients: usize,
        /// Samples that each should have at least.
        min: usize,
        /// Samples to divide.
        samples: usize,
    },
    /// In no draw everybody got the minimum.
    #[error(
        "with alpha = {alpha:?}, none of {draws} draws over {clients} clients and {samples} samples gave everybody {min} (in the \
         best of them the smallest share had {best}); raise `alpha`, or lower `min` or the number of clients"
    )]
    MinimumNotMet {
        /// The concentration asked for.
        alpha: f64,
        /// Clients asked for.
        clients: usize,
        /// Samples to divide.
        samples: usize,
        /// Samples that each should have at least.
        min: usize,
        /// How many draws were made.
        draws: u64,
        /// The greatest smallest share of all draws.
        best: usize,
    },
    /// In every draw some client remained without a sample, and a client without samples cannot train.
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
