//! Notices: what the driver reports while it takes part.

use std::sync::Arc;
use std::time::Duration;

use shared::eligibility::Ineligible;
use shared::identity::PublicKey;
use shared::message::{CountedUpdate, Progress, Refusal, TaskKind, TrainReport, Verdict};
use shared::spec::RunSpec;

use crate::failure::Failure;

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Notice {
    /// A connection was made.
    Connected {
        /// The server's address.
        server: String,
    },
    /// There is no connection, or it was lost; the client tries again after `retry`, at once at another address of the server.
    Disconnected {
        /// The server's address.
        server: String,
        /// Why.
        reason: String,
        /// Time until the next attempt.
        retry: Duration,
    },
    /// The server does not admit the client yet; the client tries again.
    TurnedBack {
        /// Why.
        refusal: Refusal,
    },
    /// The server has a new key.
    ServerKey {
        /// The new key.
        key: PublicKey,
    },
    /// The server is reached at these addresses, and its key is the same everywhere. None removes those that it has told before.
    Servers {
        /// `HOST:PORT` or `IP:PORT`.
        addresses: Vec<String>,
    },
    /// The server admitted the client to its run.
    Joined {
        /// The run's specification.
        spec: Arc<RunSpec>,
    },
    /// A task is being received.
    Receiving {
        /// The round.
        round: u32,
        /// Bytes of the broadcast received so far.
        received: u64,
        /// Bytes of the whole broadcast.
        total: u64,
    },
    /// A task begins.
    Training {
        /// The round.
        round: u32,
        /// What the task asks for.
        work: TaskKind,
    },
    /// Training advances; reported every [`Participant::progress`](super::Participant::progress).
    Progress(Progress),
    /// The client is idle, or its task has advanced since the last keep-alive; reported every
    /// [`Participant::alive`](super::Participant::alive).
    Alive,
    /// A task is finished.
    Trained {
        /// The round.
        round: u32,
        /// What the task asked for.
        work: TaskKind,
        /// How the training went.
        report: TrainReport,
        /// Bytes of the update.
        bytes: usize,
    },
    /// The update is trained, and waits for the other devices among whose updates it is to be hidden.
    Hiding {
        /// The round.
        round: u32,
    },
    /// The update is hidden, and sent next.
    Hidden {
        /// The round.
        round: u32,
        /// The devices among whose updates it is hidden, with this one: at least as many.
        devices: usize,
    },
    /// The server has asked for what could show it a single update, and was refused.
    Refused {
        /// The round.
        round: u32,
        /// What was refused.
        reason: String,
    },
    /// The device does not meet the run's conditions for training now.
    Ineligible {
        /// The round.
        round: u32,
        /// Which condition is not met.
        reason: Ineligible,
    },
    /// The disk is full: the finished update, and a personal model made with it, stay in memory. Saving is retried, and
    /// nothing is sent before it succeeds.
    NoRoom {
        /// The round.
        round: u32,
        /// The disk's error.
        reason: String,
    },
    /// The disk is full: the client state of an acknowledged round stays in the outbox. Moving it is retried.
    NoRoomForState {
        /// The round.
        round: u32,
        /// The disk's error.
        reason: String,
    },
    /// The client state of the run is not what it must be by what the server knows. Each is the update that it stands
    /// after.
    State {
        /// The server's word.
        server: Option<CountedUpdate>,
        /// What the device has.
        device: Option<CountedUpdate>,
    },
    /// The run has its models tested on its devices, and this one has nothing to test them on.
    Untested {
        /// What is missing.
        reason: String,
    },
    /// A task failed.
    Failed {
        /// The round.
        round: u32,
        /// What went wrong, and who can fix it.
        failure: Failure,
    },
    /// The server's verdict on an update.
    Receipt {
        /// The round.
        round: u32,
        /// The verdict.
        verdict: Verdict,
    },
}
