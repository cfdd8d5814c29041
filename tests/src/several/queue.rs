//! The queue of what happens in a simulation of several servers, by time.

use std::time::Duration;

use aggregator::leaves::message::{Frame, ToLeaf, ToRoot};
use aggregator::leaves::standing::Standing;
use bytes::Bytes;
use shared::message::{ToClient, ToServer};

use crate::device::Trained;

/// A process: a server, in one of its lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Life {
    pub(super) server: usize,
    pub(super) life: u32,
}

#[derive(Debug)]
pub(super) enum Happening {
    ServerStarts(usize),
    DeviceStarts(usize),
    /// A server says to the store that it lives.
    Looks(Life, u64),
    /// The store has said how the run stands, which it was asked at this moment.
    Looked(Life, u64, Standing, Duration),
    /// A leaf without a link looks for the root.
    Seeks(Life),
    /// A leaf makes its next durable step.
    LeafWorks(Life),
    /// The root's thread goes on.
    RootRuns(Life, u64),
    /// A stopped server goes on.
    Thaws(Life),
    ToRoot(u64, Life, Box<Frame<ToRoot>>),
    ToLeaf(u64, Life, Box<Frame<ToLeaf>>),
    /// The end of a link is noticed.
    RootLosesLink(u64, Life),
    LeafLosesLink(u64, Life),
    /// A server was stopped for longer than connections last.
    Silent(Life),
    Connected(u64),
    ToServer(u64, Life, Box<ToServer>, Option<Bytes>),
    ToDevice(u64, Box<ToClient>, Option<Bytes>),
    ServerLosesDevice(u64, Life),
    DeviceLosesServer(u64),
    Trained(usize, Box<Trained>),
    /// Something goes wrong by itself.
    Trouble,
}

impl Happening {
    /// In which process it happens.
    pub(super) fn life(&self) -> Option<Life> {
        match self {
            Self::Looks(life, _)
            | Self::Looked(life, ..)
            | Self::Seeks(life)
            | Self::LeafWorks(life)
            | Self::RootRuns(life, _)
            | Self::ToRoot(_, life, _)
            | Self::ToLeaf(_, life, _)
            | Self::RootLosesLink(_, life)
            | Self::LeafLosesLink(_, life)
            | Self::ToServer(_, life, _, _)
            | Self::ServerLosesDevice(_, life) => Some(*life),
            _ => None,
        }
    }
}
