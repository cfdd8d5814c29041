//! The queue of simulated events, by time.

use std::time::Duration;

use aggregator::coordinator::PeerId;
use bytes::Bytes;
use shared::message::{ResumePoint, ToClient, ToServer};

use crate::device::Trained;

#[derive(Debug)]
pub(super) enum Happening {
    ToServer {
        peer: PeerId,
        message: Box<ToServer>,
        payload: Option<Bytes>,
    },
    ToDevice {
        peer: PeerId,
        message: Box<ToClient>,
        payload: Option<Bytes>,
    },
    /// The beginning of an update has arrived, and no more will.
    Begun {
        peer: PeerId,
        partial: ResumePoint,
        beginning: Bytes,
    },
    /// The beginning of a task has arrived, and its connection is cut.
    TaskBegun {
        peer: PeerId,
        round: u32,
        total: u64,
        beginning: Bytes,
    },
    /// The aggregator's next durable step is made.
    StepIsMade {
        server_life: u32,
    },
    ServerLearnsOfCut(PeerId),
    DeviceLearnsOfCut(PeerId),
    Connected(PeerId),
    Trained {
        device: usize,
        trained: Box<Trained>,
    },
    DeviceStarts(usize),
    ServerStarts,
}

/// A moment, a number that keeps what falls on one moment in order, and what happens.
pub(super) struct Scheduled(pub(super) Duration, pub(super) u64, pub(super) Happening);

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}
