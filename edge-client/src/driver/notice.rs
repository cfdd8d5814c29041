//! What the driver tells whoever watches.

use std::time::Duration;

use shared::eligibility::Ineligible;
use shared::identity::PublicKey;
use shared::message::{Progress, Refusal, TaskKind, TrainReport, Verdict};
use shared::spec::RunSpec;

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Notice {
    /// A connection was made.
    Connected {
        /// Where to.
        server: String,
    },
    /// There is no connection, or it is gone; the client tries again after `retry`.
    Disconnected {
        /// Where to.
        server: String,
        /// Why.
        reason: String,
        /// Until the next attempt.
        retry: Duration,
    },
    /// The server does not take the client now, and may later: the client comes again.
    TurnedBack {
        /// Why.
        refusal: Refusal,
    },
    /// The server has another key from now on.
    ServerKey {
        /// The new one.
        key: PublicKey,
    },
    /// The server takes the client into its run.
    Joined {
        /// The run's specification.
        spec: Box<RunSpec>,
    },
    /// A task is coming in.
    Receiving {
        /// The round.
        round: u32,
        /// Bytes of the broadcast that are here.
        received: u64,
        /// Bytes that it has.
        total: u64,
    },
    /// Work on a task begins.
    Training {
        /// The round.
        round: u32,
        /// What is to be done.
        work: TaskKind,
    },
    /// Training goes on; told as often as [`Participant::progress`](super::Participant::progress) says.
    Progress(Progress),
    /// The client gets on: it has nothing to do, or its task has come further since this was told last. Told as often as
    /// [`Participant::alive`](super::Participant::alive) says.
    Alive,
    /// Work on a task ended.
    Trained {
        /// The round.
        round: u32,
        /// What was done.
        work: TaskKind,
        /// How it went.
        report: TrainReport,
        /// Bytes of the update.
        bytes: usize,
    },
    /// The device is not in a state to do what it was asked for.
    Ineligible {
        /// The round.
        round: u32,
        /// What is in the way.
        reason: Ineligible,
    },
    /// There is no room on the disk for the finished update, or for the personal model that was made with it: both stay in
    /// memory, nothing is sent, and it is tried again until there is.
    NoRoom {
        /// The round.
        round: u32,
        /// What the disk says.
        reason: String,
    },
    /// There is no room on the disk for what the algorithm keeps after a round that is settled: it stays in the outbox, and is
    /// tried again until there is.
    NoRoomForState {
        /// The round.
        round: u32,
        /// What the disk says.
        reason: String,
    },
    /// Training failed.
    Failed {
        /// The round.
        round: u32,
        /// Why.
        reason: String,
    },
    /// The server said what became of the update.
    Receipt {
        /// The round.
        round: u32,
        /// What it said.
        verdict: Verdict,
    },
}
