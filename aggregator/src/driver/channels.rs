//! What the driver tells whoever watches.

use shared::id::ClientId;

use crate::coordinator::Status;
use crate::round::RoundRecord;

/// What came of a client's work. Reasons are what clients said, or quote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived<'a> {
    /// Its update is durable and counts.
    Accepted,
    /// Its update is not believed: why.
    Rejected(&'a str),
    /// Its update is of no use: why.
    Discarded(&'a str),
    /// It could not train: why.
    Failed(&'a str),
    /// It is not in a state to train: why.
    NotNow(&'a str),
}

impl Arrived<'_> {
    /// Its name in the database.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Rejected(_) => "rejected",
            Self::Discarded(_) => "discarded",
            Self::Failed(_) => "failed",
            Self::NotNow(_) => "not-now",
        }
    }

    /// Why, where there is a reason.
    #[must_use]
    pub fn reason(&self) -> &str {
        match self {
            Self::Accepted => "",
            Self::Rejected(reason)
            | Self::Discarded(reason)
            | Self::Failed(reason)
            | Self::NotNow(reason) => reason,
        }
    }
}

/// What the driver tells whoever watches.
#[derive(Debug)]
pub enum Notice<'a> {
    /// What the run waits for has changed, or time has passed.
    Status(&'a Status),
    /// A round was opened, durably; again when members have joined it.
    Opened {
        /// The round.
        round: u32,
        /// Members.
        cohort: usize,
    },
    /// Something came of a member's work in a round, or of what somebody else sent.
    Arrival {
        /// The round that it was meant for.
        round: u32,
        /// Whose it is.
        client: ClientId,
        /// What came of it.
        what: Arrived<'a>,
    },
    /// A device leaves samples out that it cannot use.
    LeftOut {
        /// Which.
        client: ClientId,
        /// How many training samples.
        samples: u64,
    },
    /// The run gets on: no durable step is in hand, or one has come further since this was told last.
    Alive,
    /// A round was closed.
    Round(&'a RoundRecord),
    /// Something that an operator may want to see, and that any number of strangers can bring about: it is shown, and not
    /// written down.
    Aside(String),
    /// Something an operator should know.
    Remark(String),
    /// Something an operator must know: the run comes to nothing unless somebody does something.
    Alarm(String),
}
