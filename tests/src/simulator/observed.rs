//! What a test sees of a simulation.

use std::collections::BTreeMap;
use std::time::Duration;

use shared::id::ClientId;
use shared::message::CountedUpdate;

use super::Simulator;
use crate::device::Device;
use crate::server::Server;

impl Simulator {
    /// The differences in client state that the operator was notified of: the client, the round of the server, and that of the
    /// device.
    #[must_use]
    pub fn told(&self) -> &[(ClientId, Option<CountedUpdate>, Option<CountedUpdate>)] {
        &self.told
    }

    /// How often each device began to train in each round.
    #[must_use]
    pub fn trainings(&self) -> &BTreeMap<(u32, ClientId), usize> {
        &self.trainings
    }

    /// How many devices were told in a round that their updates were accepted.
    #[must_use]
    pub fn promised(&self, round: u32) -> usize {
        self.promised.iter().filter(|(promised, _)| *promised == round).count()
    }

    /// Virtual time.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.now
    }

    /// The aggregator, while it lives.
    #[must_use]
    pub fn server(&self) -> Option<&Server> {
        self.server.as_ref()
    }

    /// The devices.
    #[must_use]
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }
}
