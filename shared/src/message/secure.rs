//! The messages of [secure aggregation](crate::secure), within one round of training.
//!
//! ```text
//! server: Advertise    device: Keys        while the device trains
//! server: Neighbours   device: Shares
//! server: Mask         device: its update, which is masked
//! server: Reveal       device: Revealed    once it is decided whose updates count
//! ```
//!
//! A server sends a step again to a device that has reconnected, and the device answers it again, the same. The receipt for the update
//! comes after the last step, when the round has closed.

use serde::{Deserialize, Serialize};

use crate::aggregation::Scale;
use crate::id::ClientId;
use crate::secure::{Advertised, Sealed, Values};

/// What the server asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum SecureStep {
    /// The device's keys.
    Advertise,
    /// Shares of its secrets for these.
    Neighbours {
        /// Number of devices that take part in the exchange.
        members: u32,
        /// Those among them that are its neighbours.
        neighbours: Vec<Advertised>,
    },
    /// Its update, with the masks that it shares with these.
    Mask {
        /// How the update becomes whole numbers.
        rounding: Rounding,
        /// The neighbours that take part, with the shares that each has sealed for it.
        present: Vec<(ClientId, Sealed)>,
    },
    /// Its shares of one secret of each neighbour that took part.
    Reveal {
        /// Those whose updates count: of their own masks.
        counted: Vec<ClientId>,
        /// The others: of their masking keys.
        missing: Vec<ClientId>,
    },
}

/// How updates become whole numbers, the same for all members: what the server folds an update with that it can see.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rounding {
    /// The format of the round's sums.
    pub scale: Scale,
    /// The greatest number of samples that an update counts for.
    pub most_samples: u64,
}

/// What the device answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum SecureAnswer {
    /// Its keys.
    Keys(Advertised),
    /// Shares of its secrets, sealed for each neighbour.
    Shares(Vec<(ClientId, Sealed)>),
    /// The shares that it was asked for, and that of its own mask, by whose secrets they are of.
    Revealed(Vec<(ClientId, Values)>),
}
