//! The seam of a cluster: what a run asks of its leaves.
//!
//! Where several aggregators serve one run, each is a *leaf*: it has the connections and the accepted updates of its devices. One of them is
//! also the *root*, which has the run. It decides, and asks the leaves for sums: whole numbers, which are the same however they are
//! grouped. An update counts once the root has made the checkpoint of its round durable, and only then does its device hear so: until
//! then the device keeps it, so that nothing is lost with a leaf.

use std::collections::BTreeSet;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use shared::by_class::ByClass;
use shared::id::ClientId;
use shared::message::{Rejection, UpdateHeader};
use shared::record::Record;

use super::Broadcast;
use super::directory::RunDirectory;
use super::lease::Lease;
use super::leaves_error::LeavesError;
use crate::coordinator::{Agreement, Opening};

/// An update in the spool of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafUpload {
    /// The connection to the leaf.
    pub link: u64,
    /// The leaf's number for it.
    pub number: u64,
}

/// An update that a leaf has accepted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldUpdate {
    /// Whose it is.
    pub client: ClientId,
    /// The round that it was trained in, and how the training went.
    pub header: UpdateHeader,
    /// Results by class of the model that the client was sent, if the run asks for them.
    pub tested: ByClass,
    /// The bytes that came.
    pub bytes: u64,
}

/// A round, as the leaves are told it.
#[derive(Clone, Copy, Debug)]
pub struct RoundAtLeaves<'a> {
    /// How it opened.
    pub opening: &'a Opening,
    /// Rounds of training before it without a result.
    pub failed: u32,
    /// The length to which updates are clipped, if that adapts.
    pub clip: Option<f64>,
    /// What its devices are sent.
    pub broadcast: &'a Broadcast,
    /// Who takes part, where updates are hidden and that is durable.
    pub agreement: Option<&'a Agreement>,
    /// Whether it was open before, so that leaves may have updates of it.
    pub resumes: bool,
}

/// The leaves of a cluster, and what they share.
pub trait Leaves: Send {
    /// Tells all leaves, also those that come later, of the open round; of one that is open already, what has changed. Gives the updates of
    /// it that they have accepted, at most one for a client.
    fn open(&mut self, round: RoundAtLeaves<'_>) -> Result<Vec<HeldUpdate>, LeavesError>;
    /// Tells all leaves, also those that come later, who takes part in the open round, whose updates are hidden.
    fn agreed(&mut self, round: u32, agreement: &Agreement);
    /// Accepts updates. They are durable then, where they are. `None` of one that was lost with its leaf.
    fn accept(
        &mut self,
        round: u32,
        uploads: &[(ClientId, LeafUpload)],
    ) -> Result<Vec<Option<Result<HeldUpdate, Rejection>>>, LeavesError>;
    /// An update is not needed.
    fn discard(&mut self, upload: LeafUpload);
    /// The sums of the updates of these clients, in as many parts as there are leaves that have any.
    fn sums(&mut self, round: u32, clients: &BTreeSet<ClientId>) -> Result<Vec<Record>, LeavesError>;
    /// The update of one of these clients, as it came.
    fn update(&mut self, round: u32, client: ClientId) -> Result<Bytes, LeavesError>;
    /// Makes what the run has in `directory` durable for all of them. `closed` rounds are over for good then.
    fn keep(&mut self, directory: &RunDirectory, closed: u32) -> Result<(), LeavesError>;
    /// The lease of the root.
    fn lease(&self) -> Option<Lease>;
}
