//! Devices that fall silent for good at a step of a round.

use std::time::Duration;

use shared::message::{SecureAnswer, ToServer};

use super::Simulator;
use super::queue::Happening;

/// After so much silence the aggregator gives a connection up.
const IDLE: Duration = Duration::from_secs(30);

/// What a device would have sent when it falls silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loses {
    /// Its keys.
    Keys,
    /// Shares of its secrets.
    Shares,
    /// Its update.
    Update,
    /// The shares that it holds of others.
    Reveal,
}

impl Loses {
    /// The steps of a round whose updates are hidden, in their order.
    pub const STEPS: [Self; 4] = [Self::Keys, Self::Shares, Self::Update, Self::Reveal];

    fn in_round(message: &ToServer) -> Option<(u32, Self)> {
        match message {
            ToServer::Update(header) => Some((header.round, Self::Update)),
            ToServer::Secure { round, answer, .. } => Some((
                *round,
                match **answer {
                    SecureAnswer::Keys(_) => Self::Keys,
                    SecureAnswer::Shares(_) => Self::Shares,
                    SecureAnswer::Revealed(_) => Self::Reveal,
                },
            )),
            _ => None,
        }
    }
}

impl Simulator {
    /// `device` sends everything before this step of `round`, and nothing from it on.
    pub fn lose(&mut self, device: usize, round: u32, step: Loses) {
        self.losses.insert(device, (round, step));
    }

    pub(super) fn is_lost_with(&self, device: usize, message: &ToServer) -> bool {
        let lost = self.losses.get(&device);
        lost.is_some_and(|lost| Loses::in_round(message) == Some(*lost))
    }

    /// Its process has ended, and is not started again; the aggregator learns of it by the silence.
    pub(super) fn falls_silent(&mut self, device: usize) {
        let peer = self.connection_of(device);
        self.devices[device].crash();
        if let Some(peer) = peer {
            self.silence(peer);
            self.schedule(IDLE, Happening::ServerLearnsOfCut(peer));
        }
    }
}
