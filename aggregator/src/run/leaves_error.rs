//! What ends a run in one of several servers.

/// Why the run cannot go on in this process.
#[derive(Debug, thiserror::Error)]
pub enum LeavesError {
    /// Another process has the run by now.
    #[error("another server leads the run now")]
    Superseded,
    /// Updates that were accepted are not there any more: the round goes on without them, from what the store has.
    #[error(
        "accepted updates of {count} devices were lost with their server, and the devices deliver them again"
    )]
    Lost {
        /// How many.
        count: usize,
    },
    /// A leaf does not do what it must.
    #[error(
        "the server {leaf} {what}; run the same version, or the one before, with the same configuration on all of them"
    )]
    Faulty {
        /// Its name.
        leaf: String,
        /// What is wrong with it.
        what: String,
    },
    /// The root does not let this leaf in. The operator of this leaf is to change something.
    #[error("the server that leads does not let this one in: {why}")]
    Refused {
        /// Why, and what to do.
        why: String,
    },
    /// Leaves cannot be notified of a round.
    #[error("the other servers cannot be notified of round {round}: {why}")]
    NotNotified {
        /// Its number.
        round: u32,
        /// Why, and what to do.
        why: String,
    },
    /// What they share cannot be used.
    #[error("{0}")]
    Store(Box<dyn std::error::Error + Send + Sync>),
    /// This process is to stop.
    #[error("the server is stopped")]
    Stopped,
}

impl LeavesError {
    /// Whether the run goes on, here or on another machine, from what is durable.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        matches!(self, Self::Superseded | Self::Lost { .. } | Self::Stopped)
    }
}
