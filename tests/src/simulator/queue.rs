//! The queue of simulated events, by time.

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
