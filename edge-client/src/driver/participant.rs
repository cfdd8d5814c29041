//! What a client brings to a run.

use std::time::Duration;

use models::Backend;
use shared::id::ClientId;
use shared::identity::SecretKey;

use super::Source;
use crate::allowance::Allowance;
use crate::pool::TrainPool;
use crate::sensors::Sensors;
use crate::session::DeviceProfile;
use crate::task::PrivateOnly;

/// What a client brings to a run.
#[derive(Clone)]
pub struct Participant {
    /// Its id.
    pub client: ClientId,
    /// The key that the id is the fingerprint of, by which it takes part in secure aggregation; a simulated one has none.
    pub identity: Option<SecretKey>,
    /// The least number of devices among which its updates must be hidden; without it, they need not be.
    pub secure_only: Option<u32>,
    /// What the noise of devices must keep all rounds within; without it, there need be none.
    pub private_only: Option<PrivateOnly>,
    /// Its samples.
    pub samples: Source,
    /// Whether the device is eligible to train.
    pub sensors: Sensors,
    /// What its memory allows; without it, there is no bound. It is measured again once samples are read [as the run says](Source).
    pub memory: Option<Allowance>,
    /// The processor that it trains on.
    pub backend: Backend,
    /// The threads that train.
    pub pool: TrainPool,
    /// Called once when the client has been idle for a while after a round.
    pub at_rest: fn(),
    /// Interval of [`Notice::Progress`](super::Notice::Progress) while training; without it, there is none.
    pub progress: Option<Duration>,
    /// Interval of [`Notice::Alive`](super::Notice::Alive) while the client makes progress; without it, there is none.
    pub alive: Option<Duration>,
}

impl Participant {
    /// What the server learns of the device.
    pub(super) fn profile(&self) -> DeviceProfile {
        self.bounds(match &self.samples {
            Source::Read(samples) => DeviceProfile::of(self.client, &samples.data, samples.skipped),
            Source::AsTheRunSays(_) => DeviceProfile::asking(self.client),
        })
    }

    /// What the owner of the device does not go beyond, in its profile.
    pub(super) fn bounds(&self, profile: DeviceProfile) -> DeviceProfile {
        let Self { memory, secure_only, private_only, .. } = *self;
        DeviceProfile { memory, secure_only, private_only, ..profile }
    }
}
