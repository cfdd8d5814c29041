//! Why a device does not hide its update, or reveals nothing.

use shared::algorithm::hidden::AloneError;
use shared::id::ClientId;
use shared::secure::PartyError;

use crate::failure::{Blame, Failure};

/// What a device refuses in an exchange.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// Nothing signs for this device.
    #[error(
        "this run hides its updates, and this client has no key to sign with: a simulated one cannot take part"
    )]
    NoKey,
    /// The secret of the exchange is not here.
    #[error(
        "the server goes on with an exchange of keys that this device does not know: its state directory was replaced"
    )]
    Unknown,
    /// The run does not hide its updates any more.
    #[error(
        "this run has hidden its updates, and now the server asks to see one: its operator should say why, and begin another run for that"
    )]
    Shown,
    /// The server leaves a step out.
    #[error("the server asks for {asked} before it has said who takes part; its operator should report this")]
    Order {
        /// What it asks for.
        asked: &'static str,
    },
    /// Too few devices for what the run promises.
    #[error("{found} devices would hide this device's update among theirs, and the run promises {least}")]
    TooFew {
        /// Devices of the exchange.
        found: usize,
        /// The least number.
        least: usize,
    },
    /// Another number of neighbours than follows from the number of devices.
    #[error(
        "this device would share masks with {found} of {members} devices, and it must with {expected}: fewer hide less"
    )]
    Degree {
        /// Its neighbours.
        found: usize,
        /// Devices of the exchange.
        members: usize,
        /// The neighbours that it must have.
        expected: usize,
    },
    /// A device that is named twice, or is this one.
    #[error(
        "the server names device {client} a second time among this device and its neighbours: a device that counts twice hides less"
    )]
    Twice {
        /// Which.
        client: ClientId,
    },
    /// Keys that their device has not signed for this exchange.
    #[error("the keys of device {client} are not signed by it for this round: they were replaced on the way")]
    NotGenuine {
        /// Which.
        client: ClientId,
    },
    /// A device that is no neighbour.
    #[error("the server names device {client}, which is not one that this device shares masks with")]
    Foreign {
        /// Which.
        client: ClientId,
    },
    /// Too few neighbours to take the mask of a lost device away, or few enough to be all the server's.
    #[error(
        "{found} of {needed} devices are left that hold a device's secret: fewer could be all the server's own"
    )]
    TooFewLeft {
        /// Devices that are left, with this one.
        found: usize,
        /// The least number.
        needed: usize,
    },
    /// A neighbour about which it is not said whether its update counts.
    #[error("the server does not say whether the update of device {client} counts")]
    Unnamed {
        /// Which.
        client: ClientId,
    },
    /// A second answer to the same question.
    #[error(
        "the server asks a second time for {asked} in one round, and differently: with two answers it could see a single update"
    )]
    Second {
        /// What it asks for.
        asked: &'static str,
    },
    /// The update is another one than the device has hidden before.
    #[error(
        "training again gave another update than before, which was hidden already: with both the server could see their difference"
    )]
    OtherUpdate,
    /// The rounding is none.
    #[error("the server names a rounding that is none, or has no room for {samples} samples")]
    Rounding {
        /// What this device's update is to count for.
        samples: u64,
    },
    /// It is decided already whose updates count.
    #[error("the round was decided without this device's update")]
    Decided,
    /// Keys or shares of a neighbour are unusable.
    #[error(transparent)]
    Party(#[from] PartyError),
    /// The update cannot be hidden.
    #[error(transparent)]
    Alone(#[from] AloneError),
    /// The run's network is none.
    #[error(transparent)]
    Network(#[from] models::ArchitectureError),
    /// The run's algorithm is not known here.
    #[error(transparent)]
    Algorithm(#[from] shared::algorithm::registry::RegistryError),
}

impl Refused {
    /// Whether it is what a server would do that wants to see a single update. An honest one never does it.
    #[must_use]
    pub fn is_suspicious(&self) -> bool {
        matches!(
            self,
            Self::Shown
                | Self::TooFew { .. }
                | Self::Degree { .. }
                | Self::Twice { .. }
                | Self::NotGenuine { .. }
                | Self::Foreign { .. }
                | Self::TooFewLeft { .. }
                | Self::Unnamed { .. }
                | Self::Second { .. }
        )
    }

    /// The failure that the driver reports.
    #[must_use]
    pub fn failure(&self) -> Failure {
        let blame = match self {
            Self::Unknown | Self::OtherUpdate => Blame::Machine,
            Self::NoKey => Blame::Program,
            _ => Blame::Server,
        };
        Failure::new(blame, self)
    }
}
