//! The states of a run. The table of the [module](super) has the transitions.

use std::time::Duration;

use super::open_round::OpenRound;
use super::receipts::Contributors;

#[derive(Debug)]
pub(super) enum State {
    /// Waiting for clients.
    Gathering {
        since: Duration,
        /// Number of clients that must be connected.
        need: usize,
        /// Clients that were known before a restart are waited for until this moment.
        known_until: Duration,
        /// No round opens before this moment: the last one was void.
        pause_until: Duration,
    },
    /// The opening is being made durable.
    Opening {
        round: OpenRound,
        since: Duration,
    },
    Open {
        round: OpenRound,
    },
    /// The close is being made durable.
    Closing {
        since: Duration,
        void: bool,
        reasons: Vec<String>,
        /// Where receipts wait for the close: whose updates count.
        contributors: Contributors,
    },
    Finished,
}

impl State {
    /// The round that is open, or opens.
    pub(super) fn round(&self) -> Option<&OpenRound> {
        match self {
            Self::Open { round } | Self::Opening { round, .. } => Some(round),
            Self::Gathering { .. } | Self::Closing { .. } | Self::Finished => None,
        }
    }

    /// The same, to change it.
    pub(super) fn round_mut(&mut self) -> Option<&mut OpenRound> {
        match self {
            Self::Open { round } | Self::Opening { round, .. } => Some(round),
            Self::Gathering { .. } | Self::Closing { .. } | Self::Finished => None,
        }
    }

    /// The same, if it has this number.
    pub(super) fn round_numbered(&mut self, number: u32) -> Option<&mut OpenRound> {
        self.round_mut().filter(|round| round.number() == number)
    }
}
