//! What goes into the coordinator and what comes out.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use shared::id::ClientId;
use shared::message::{Rejection, TaskKind, ToClient, ToServer, TrainReport};

use crate::round::Tally;

/// A connection, numbered by the driver. A client that reconnects comes on a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u64);

/// A payload that the driver has received and holds, numbered by the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UploadId(pub u64);

/// What goes in.
#[derive(Clone, Debug)]
pub enum Event {
    /// A message without payload.
    Message {
        /// From whom.
        peer: PeerId,
        /// What.
        message: ToServer,
    },
    /// A [`ToServer::Update`] whose payload is here, not yet looked into.
    Uploaded {
        /// From whom.
        peer: PeerId,
        /// For which round.
        round: u32,
        /// How the training went.
        report: TrainReport,
        /// The payload.
        upload: UploadId,
    },
    /// The peer is alive, although nothing is heard of it: its update waits for its turn to be received.
    Alive {
        /// Who.
        peer: PeerId,
    },
    /// The connection is gone.
    Disconnected {
        /// Which.
        peer: PeerId,
    },
    /// The client may not take part any more: nothing that comes on its connections counts from now on, and nobody waits for
    /// it. If it is let in again it is a newcomer.
    Revoked {
        /// Who.
        client: ClientId,
    },
    /// [`Action::Open`] is durable.
    Opened {
        /// The round.
        round: u32,
    },
    /// [`Action::Fold`] is done: durable and part of the sum, or not believed.
    Folded {
        /// The round.
        round: u32,
        /// Whose update.
        client: ClientId,
        /// What became of it.
        outcome: Result<(), Rejection>,
    },
    /// [`Action::Close`] is durable.
    Closed {
        /// The round.
        round: u32,
        /// Whether the model is good enough, or grows no better: training ends before all rounds are over.
        enough: bool,
    },
    /// [`Action::Remember`] is durable.
    Remembered,
    /// There is no room on this machine's disk: until there is, no round closes and none opens.
    Paused,
    /// There is room again.
    Resumed,
    /// For so long up to now the driver could attend to nothing: what came meanwhile is yet to be heard, and nobody was silent.
    Stalled {
        /// For how long.
        by: Duration,
    },
    /// Time has passed.
    Tick,
    /// The operator wants to stop; the run can be continued later.
    Stop,
}

/// What comes out.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Send a message without payload.
    Send {
        /// To whom.
        peer: PeerId,
        /// What.
        message: ToClient,
    },
    /// Close the connection once everything sent has had a chance to arrive.
    Disconnect {
        /// Which.
        peer: PeerId,
    },
    /// Make the opening of a round durable, prepare its broadcast, then report [`Event::Opened`]. A round
    /// is opened again when replacements join its cohort.
    Open(Opening),
    /// Send [`ToClient::Task`] with the round's broadcast.
    Broadcast {
        /// To whom.
        peer: PeerId,
        /// The round.
        round: u32,
    },
    /// Check the payload; if it is fine make it durable and fold it; then report [`Event::Folded`].
    Fold {
        /// The round.
        round: u32,
        /// Whose update.
        client: ClientId,
        /// The payload, with the report.
        upload: UploadId,
    },
    /// The payload is of no use.
    Drop {
        /// Which.
        upload: UploadId,
    },
    /// Close the round with the updates that are folded: make the decision durable, then the new global model and its
    /// evaluation; then report [`Event::Closed`]. The checkpoint may follow, before the next round's first update.
    Close {
        /// The round.
        round: u32,
        /// How it went.
        tally: Tally,
    },
    /// Make durable who is known by now, then report [`Event::Remembered`].
    Remember(Known),
    /// Tell the operator that rounds come to nothing. The run goes on.
    Alarm {
        /// Void rounds in a row.
        rounds: u32,
        /// Why the last updates were not accepted.
        reasons: Vec<String>,
        /// Until the next round opens.
        pause: Duration,
    },
    /// Nothing more will happen.
    Finish(Outcome),
}

/// A round as it opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// Its number, from 1.
    pub round: u32,
    /// What its members are asked for.
    pub work: TaskKind,
    /// The cohort with each member's declared number of samples.
    pub cohort: BTreeMap<ClientId, u64>,
    /// Every known client with its declared number of samples: the largest weight a replacement may bring,
    /// and who is to be waited for after a restart.
    pub roster: BTreeMap<ClientId, u64>,
    /// Where late updates count: the clients that were asked in an earlier round, and whose updates may still come.
    pub owed: BTreeMap<ClientId, Owed>,
    /// The clients that were away by then and may not know that an update of theirs counts, with the round that it was trained
    /// in.
    pub counted: BTreeMap<ClientId, u32>,
}

impl Opening {
    /// How many clients are known: those that were when the round opened, and whoever was recruited since.
    #[must_use]
    pub fn clients(&self) -> usize {
        let recruits = self.cohort.keys().filter(|client| !self.roster.contains_key(client));
        self.roster.len() + recruits.count()
    }
}

/// Who is known, where that is not what the newest opening says of it: since then somebody has come, declares another number of
/// samples, or may not take part any more. The next round's sums are made for all of them, here or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// The round that was opened last by then; 0 before the first.
    pub since: u32,
    /// Every known client with its declared number of samples.
    pub roster: BTreeMap<ClientId, u64>,
}

/// What a client was asked for, and has not sent yet. Where late updates count ([`Lateness`](crate::round::Lateness)), a member
/// whose update was not in when its round closed is *behind* for as long as that may count: it is not called off, and no cohort
/// that is to train has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owed {
    /// In this round.
    pub round: u32,
    /// The number of samples that it had declared by then.
    pub samples: u64,
}

/// How a run ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All rounds are closed.
    Completed,
    /// The operator stopped it; it can be continued.
    Stopped,
    /// All rounds are closed, and all were void.
    NoProgress {
        /// How many.
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
    /// So many of the closed rounds of training were void, in a row, up to the newest one.
    pub void: u32,
    /// The clients that were known; of a cohort all that may still take part are among them.
    pub roster: BTreeMap<ClientId, u64>,
    /// Where late updates count: the clients whose updates of an earlier round may still come.
    pub owed: BTreeMap<ClientId, Owed>,
    /// Whose updates are part of the round that closed last or of the open one, or of an earlier one and may not know it, with
    /// the rounds that these were trained in.
    pub counted: BTreeMap<ClientId, u32>,
    /// The round that was open, if one was.
    pub open: Option<Reopened>,
}

/// A round that was open when the aggregator went away.
#[derive(Clone, Debug)]
pub struct Reopened {
    /// As it was opened.
    pub opening: Opening,
    /// Whose updates are durable.
    pub accepted: BTreeSet<ClientId>,
    /// Those of them that were late, with the rounds that theirs were trained in.
    pub late: BTreeMap<ClientId, u32>,
    /// How it was to be closed, if that was decided.
    pub closing: Option<Closing>,
}

impl Reopened {
    /// The decision to close the round, if it can still be carried out: a void round needs no updates, any other one
    /// needs them all.
    #[must_use]
    pub fn decided(&self) -> Option<&Closing> {
        let complete =
            |closing: &&Closing| closing.tally.void || closing.contributors.is_subset(&self.accepted);
        self.closing.as_ref().filter(complete)
    }

    /// How the round closes whatever happens: as decided, or with the updates of the whole cohort.
    #[must_use]
    pub fn foregone(&self) -> Option<Tally> {
        let whole = !self.accepted.is_empty() && self.opening.cohort.keys().eq(&self.accepted);
        let decided = self.decided().map(|closing| closing.tally);
        decided.or_else(|| whole.then(|| Tally::of_whole(self.opening.cohort.len())))
    }
}

/// The decision to close a round: once it is durable, the round closes in this way and in no other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Closing {
    /// Whose updates make the new model.
    pub contributors: BTreeSet<ClientId>,
    /// Those of them that were late, with the rounds that theirs were trained in.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub late: BTreeMap<ClientId, u32>,
    /// How the round went.
    pub tally: Tally,
}
