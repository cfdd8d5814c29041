//! Events, which go into the coordinator, and actions, which come out.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use shared::aggregation::Scale;
use shared::id::ClientId;
use shared::message::{
    CountedUpdate, Rejection, Rounding, TaskKind, ToClient, ToServer, UpdateHeader, counted_update,
};
use shared::secure::{Advertised, Sealed, Share};
use shared::spec::{RunSpec, SecureAggregation};

use crate::round::{SampleCap, Tally};

/// A connection, numbered by the driver. A client that reconnects comes on a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u64);

/// A payload that the driver has received and holds, numbered by the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UploadId(pub u64);

/// An update that has arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// The sender.
    pub peer: PeerId,
    /// The round that it was trained in, and how the training went.
    pub header: UpdateHeader,
    /// The payload.
    pub upload: UploadId,
}

/// An input of the coordinator.
#[derive(Clone, Debug)]
pub enum Event {
    /// A message without payload arrived.
    Message {
        /// The sender.
        peer: PeerId,
        /// The message.
        message: ToServer,
    },
    /// A [`ToServer::Update`] arrived; its payload is not checked yet.
    Uploaded(Arrival),
    /// The peer is alive although it is silent: its update waits for its turn to be received.
    Alive {
        /// The connection.
        peer: PeerId,
    },
    /// The connection has ended.
    Disconnected {
        /// The connection.
        peer: PeerId,
    },
    /// A server whose devices were connected through it has left: they come again, as after a restart of this machine.
    ServerLeft,
    /// Where another server may come to lead the run: the store has said that none does for some time. Both moments are by the time that
    /// events are handled at.
    Leads {
        /// When the store was asked.
        asked: Duration,
        /// None leads before this moment.
        until: Duration,
    },
    /// The client was revoked: nothing that arrives on its connections counts from now on, and no round waits for it. If it is
    /// admitted again, it is a newcomer.
    Revoked {
        /// The client.
        client: ClientId,
    },
    /// [`Action::Open`] is durable.
    Opened {
        /// The round.
        round: u32,
    },
    /// [`Action::Fold`] is done: the update is durable and part of the sum, or was rejected.
    Folded {
        /// The round.
        round: u32,
        /// The client that sent it.
        client: ClientId,
        /// The [fingerprint](shared::message::TrainReport::fingerprint) of its report if it was accepted.
        outcome: Result<u32, Rejection>,
    },
    /// An update was lost with the machine that was to [fold](Action::Fold) it: its client is asked again, and still has it.
    Lost {
        /// The round.
        round: u32,
        /// The client that sent it.
        client: ClientId,
    },
    /// [`Action::Agree`] is durable.
    Agreed {
        /// The round.
        round: u32,
    },
    /// [`Action::Decide`] is durable.
    Decided {
        /// The round.
        round: u32,
    },
    /// [`Action::Close`] is durable.
    Closed {
        /// The round.
        round: u32,
        /// Whether the round is void, which the sum of hidden updates may turn out to be when it is seen.
        void: bool,
        /// Whether training ends here, before all rounds are over: the target is reached, or the patience is used up.
        enough: bool,
    },
    /// [`Action::SaveRoster`] is durable.
    RosterSaved,
    /// This machine's disk is full: until [`Event::Resumed`], no round opens or closes.
    Paused,
    /// The disk has space again.
    Resumed,
    /// Whether new rounds are held back, because the operator has asked for it. An open round goes on.
    Held(bool),
    /// The driver was stalled for this long: queued messages are not handled yet, so no peer may be timed out for it.
    Stalled {
        /// Length of the stall.
        by: Duration,
    },
    /// Time has passed.
    Tick,
    /// The operator wants to stop; the run can be continued later.
    Stop,
}

/// An output of the coordinator, for the driver to carry out.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Send a message without payload.
    Send {
        /// The receiver.
        peer: PeerId,
        /// The message.
        message: ToClient,
    },
    /// Close the connection once everything sent has had a chance to arrive.
    Disconnect {
        /// The connection.
        peer: PeerId,
    },
    /// Make the opening of a round durable, prepare its broadcast, then report [`Event::Opened`]. A round
    /// is opened again when replacements join its cohort.
    Open(Opening),
    /// Send [`ToClient::Task`] with the round's broadcast.
    Broadcast {
        /// The receiver.
        peer: PeerId,
        /// The round.
        round: u32,
    },
    /// Check the payload; if it is valid, make it durable and fold it; then report [`Event::Folded`].
    Fold {
        /// The round that it is folded into.
        round: u32,
        /// The client that sent it.
        client: ClientId,
        /// The payload, with the report.
        upload: UploadId,
    },
    /// Tell the operator that the client state of a device is not what it must be. Each is the update that it stands after.
    StateDiffers {
        /// The client.
        client: ClientId,
        /// By what the server knows.
        server: Option<CountedUpdate>,
        /// By the device's word.
        device: Option<CountedUpdate>,
    },
    /// Make durable who takes part in a round whose updates are hidden, then report [`Event::Agreed`].
    Agree {
        /// The round.
        round: u32,
        /// Who, and what they have sent each other.
        agreement: Box<Agreement>,
    },
    /// Make durable whose hidden updates count, then report [`Event::Decided`]: no masks are taken away before.
    Decide {
        /// The round.
        round: u32,
        /// Its counts.
        tally: Tally,
    },
    /// Delete the payload.
    Drop {
        /// The payload.
        upload: UploadId,
    },
    /// Close the round with the updates that are folded: make the decision durable, then the new global model and its
    /// evaluation; then report [`Event::Closed`]. The checkpoint may follow, before the next round's first update.
    Close {
        /// The round.
        round: u32,
        /// Its counts.
        tally: Tally,
    },
    /// The same where updates are hidden, once their masks can be taken away.
    Unmask {
        /// The round.
        round: u32,
        /// Its counts.
        tally: Tally,
        /// The shares of secrets with which they are, by whose secrets they are of.
        revealed: Revealed,
    },
    /// Make the roster durable, then report [`Event::RosterSaved`].
    SaveRoster(RosterSnapshot),
    /// Warn the operator of void rounds. The run continues.
    Alarm {
        /// Void rounds in a row.
        rounds: u32,
        /// Why the last updates were not accepted.
        reasons: Vec<String>,
        /// Pause until the next round opens.
        pause: Duration,
    },
    /// Warn the operator that more clients are known than the private run is for.
    Outgrown {
        /// How many are known.
        known: usize,
        /// For how many it is.
        devices: u32,
    },
    /// The run is over; no action follows.
    Finish(Outcome),
}

/// Rounds of training that have asked each client.
pub type Participations = BTreeMap<ClientId, u32>;

/// A round as it opens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    /// Its number, from 1.
    #[serde(skip)]
    pub round: u32,
    /// What its members are asked for.
    pub work: TaskKind,
    /// The cohort with each member's declared number of samples.
    pub cohort: BTreeMap<ClientId, u64>,
    /// Every known client with its declared number of samples: it bounds the weight of every update, and says whom to wait for
    /// after a restart.
    pub roster: BTreeMap<ClientId, u64>,
    /// The number of samples that an update counts for at most, under the run's [bounds](crate::round::WeightBounds).
    #[serde(default, skip_serializing_if = "SampleCap::is_none")]
    pub sample_cap: SampleCap,
    /// Where late updates count: outstanding tasks of earlier rounds, by client.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub owed: BTreeMap<ClientId, OutstandingTask>,
    /// Clients that are away and may not know that their last update was accepted, with the round that it was trained in.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counted: BTreeMap<ClientId, u32>,
    /// Where clients keep state: the last update of each client that counted. `None` where they keep none, and in openings of
    /// earlier programs.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "counted_update::ledger")]
    pub ledger: Option<BTreeMap<ClientId, CountedUpdate>>,
    /// Where participations are bounded: those before this round.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub participations: Participations,
    /// Where updates are hidden: the number of the first exchange of keys. After a restart it is one that was not used before.
    #[serde(default, skip_serializing_if = "is_first")]
    pub exchange: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_first(exchange: &u32) -> bool {
    *exchange == 0
}

/// Shares of secrets, by whose they are.
pub type Revealed = BTreeMap<ClientId, Vec<Share>>;

/// Who takes part in a round whose updates are hidden, and what they have sent each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agreement {
    /// The number of the exchange.
    pub attempt: u32,
    /// What its members have said of themselves.
    pub advertised: BTreeMap<ClientId, Advertised>,
    /// The neighbours of each of them, in order.
    pub neighbours: BTreeMap<ClientId, Vec<ClientId>>,
    /// The shares of those that take part, by whom they are of and for whom.
    pub sealed: BTreeMap<ClientId, BTreeMap<ClientId, Sealed>>,
}

impl Agreement {
    /// What those that take part have said of themselves.
    #[must_use]
    pub fn members(&self) -> BTreeMap<ClientId, Advertised> {
        let takes_part = |client: &ClientId| self.sealed.contains_key(client);
        let members = self.advertised.iter().filter(|(client, _)| takes_part(client));
        members.map(|(client, said)| (*client, *said)).collect()
    }

    /// What those need of it who accept updates: the number of the exchange, and who takes part.
    #[must_use]
    pub fn outline(&self) -> Self {
        let sealed = self.sealed.keys().map(|client| (*client, BTreeMap::new())).collect();
        Self { attempt: self.attempt, sealed, ..Self::default() }
    }

    /// How many holders put a secret of this member together.
    #[must_use]
    pub fn threshold(&self, client: ClientId, secure: &SecureAggregation) -> usize {
        secure.holders_needed(self.neighbours.get(&client).map_or(0, Vec::len))
    }
}

impl Opening {
    /// The format of the round's sums, with room for every client on the roster.
    #[must_use]
    pub fn scale(&self, spec: &RunSpec, max_abs: f32) -> Scale {
        if let Some(noise) = spec.device_noise {
            return noise.scale(max_abs);
        }
        let weights = spec.aggregation.weights;
        let largest = self.roster.values().map(|&samples| weights.of(self.sample_cap.of(samples))).max();
        Scale::agree_in(spec.secure.integers, max_abs, largest.unwrap_or(1), self.roster.len())
    }

    /// How hidden updates become whole numbers.
    #[must_use]
    pub fn rounding(&self, spec: &RunSpec, max_abs: f32) -> Rounding {
        Rounding { scale: self.scale(spec, max_abs), most_samples: self.sample_cap.of(u64::MAX) }
    }

    /// The known clients: those on the roster when the round opened, and those recruited since.
    #[must_use]
    pub fn known(&self) -> BTreeMap<ClientId, u64> {
        let mut known = self.cohort.clone();
        known.extend(&self.roster);
        known
    }
}

/// The roster, if it has changed since the last round was opened: a client has joined, was revoked, or declares another number
/// of samples. The scale of the next round's sums depends on all of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RosterSnapshot {
    /// The newest round when it was saved; 0 before the first.
    pub since: u32,
    /// Every known client with its declared number of samples.
    pub roster: BTreeMap<ClientId, u64>,
}

/// A task of a closed round whose update has not arrived. Where late updates count ([`Lateness`](crate::round::Lateness)), the
/// client is a *straggler* for as long as the update may count: the task is not cancelled, and no cohort that trains includes
/// the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutstandingTask {
    /// The round of the task.
    pub round: u32,
    /// The number of samples that the client had declared then.
    pub samples: u64,
}

/// How a run ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All rounds are closed.
    Completed,
    /// The operator stopped it; it can be continued.
    Stopped,
    /// Too many rounds in a row were void.
    NoProgress {
        /// Their number.
        rounds: u32,
        /// Why the last updates were not accepted.
        reasons: Vec<String>,
    },
}

/// Where a run continues. The default is its beginning.
#[derive(Clone, Debug, Default)]
pub struct Resume {
    /// Rounds that are closed.
    pub closed: u32,
    /// The round that training ended with before all were over.
    pub ended: Option<u32>,
    /// Void rounds of training, which do not count towards those of the run.
    pub failed: u32,
    /// Void rounds of training in a row, up to the newest.
    pub void: u32,
    /// The roster; it includes every member of the open round's cohort that was not revoked.
    pub roster: BTreeMap<ClientId, u64>,
    /// Where late updates count: outstanding tasks of earlier rounds, by client.
    pub owed: BTreeMap<ClientId, OutstandingTask>,
    /// Clients that may not know that their last update was accepted, with the round that it was trained in.
    pub counted: BTreeMap<ClientId, u32>,
    /// Where clients keep state: the last update of each client that counted. `None` if that is not known.
    pub ledger: Option<BTreeMap<ClientId, CountedUpdate>>,
    /// Where participations are bounded: those so far, with the open round's.
    pub participations: Participations,
    /// The round that was open, if one was.
    pub open: Option<Reopened>,
}

/// A round that was open when the previous process ended.
#[derive(Clone, Debug)]
pub struct Reopened {
    /// Its opening.
    pub opening: Opening,
    /// Clients whose updates are durable.
    pub accepted: BTreeSet<ClientId>,
    /// Those of them whose updates were late, with the rounds that these were trained in.
    pub late: BTreeMap<ClientId, u32>,
    /// The decision to close it, if there was one.
    pub closing: Option<Closing>,
    /// Where updates are hidden: who takes part, if that is durable.
    pub agreement: Option<Agreement>,
    /// The [fingerprints](shared::message::TrainReport::fingerprint) of the accepted updates, where these count only when the round has
    /// closed.
    pub fingerprints: BTreeMap<ClientId, u32>,
}

impl Reopened {
    /// The decision to close the round, if it can still be carried out: a void round needs no updates, any other needs all of
    /// the contributors'.
    #[must_use]
    pub fn decided(&self) -> Option<&Closing> {
        let complete =
            |closing: &&Closing| closing.tally.void || closing.contributors.is_subset(&self.accepted);
        self.closing.as_ref().filter(complete)
    }

    /// The counts that the round will close with, if that is certain: as decided, or with the whole cohort.
    #[must_use]
    pub fn foregone(&self) -> Option<Tally> {
        let whole = !self.accepted.is_empty() && self.opening.cohort.keys().eq(&self.accepted);
        let decided = self.decided().map(|closing| closing.tally);
        decided.or_else(|| whole.then(|| Tally::of_whole(self.opening.cohort.len())))
    }
}

/// The decision to close a round. Once it is durable, the round closes with these updates and no others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closing {
    /// Clients whose updates make the new model.
    pub contributors: BTreeSet<ClientId>,
    /// Those of them whose updates were late, with the rounds that these were trained in.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub late: BTreeMap<ClientId, u32>,
    /// Its counts.
    pub tally: Tally,
}
