//! What goes into a session and what comes out.

use shared::data::View;
use shared::eligibility::Ineligible;
use shared::id::ClientId;
use shared::message::{Progress, Refusal, TaskId, ToClient, ToServer, TrainReport, UpdateHeader, Verdict};
use shared::spec::RunSpec;

/// What the device brings to any run.
#[derive(Clone, Debug)]
pub struct DeviceProfile {
    /// Its identity.
    pub client: ClientId,
    /// Its number of training samples.
    pub samples: u64,
    /// Shape of one sample.
    pub shape: Vec<u32>,
    /// Number of classes its labels are drawn from.
    pub classes: u32,
    /// So many more of its training samples cannot be used.
    pub skipped: u64,
}

impl DeviceProfile {
    /// A device with these training samples, beside which it has `skipped` that cannot be used.
    #[must_use]
    pub fn of(client: ClientId, data: &View, skipped: u64) -> Self {
        let shape = data.shape().iter().map(|&axis| axis as u32).collect();
        Self { client, samples: data.len() as u64, shape, classes: data.classes() as u32, skipped }
    }
}

/// What goes in.
#[derive(Clone, Debug)]
pub enum Event {
    /// [`Action::Connect`] succeeded.
    Connected,
    /// [`Action::Connect`] failed, or the connection is gone.
    Disconnected {
        /// Why, for people.
        reason: String,
    },
    /// A message from the server. The payload of a task is in the driver's hands.
    Message(ToClient),
    /// Training goes on.
    Progressed(Progress),
    /// Training ended; the driver holds the update.
    Trained {
        /// The round.
        round: u32,
        /// How it went, or why there is no update.
        outcome: Result<TrainReport, String>,
        /// Whether the algorithm keeps something for the next round: that then depends on what becomes of the update.
        keeps: bool,
    },
    /// The device is not in a state to train, and has not begun.
    Ineligible {
        /// The round.
        round: u32,
        /// What is in the way.
        reason: Ineligible,
    },
    /// The held update cannot be read back.
    Lost {
        /// Its round.
        round: u32,
        /// Why.
        reason: String,
    },
    /// Time has passed.
    Tick,
    /// The user wants to stop.
    Stop,
}

/// What comes out.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Connect to the server.
    Connect,
    /// Send a message without payload.
    Send(ToServer),
    /// Send the held update.
    Upload(UpdateHeader),
    /// Activity on the received task's payload.
    Train {
        /// The round.
        round: u32,
        /// What is to be done in it.
        work: shared::message::TaskKind,
        /// The run.
        spec: Box<RunSpec>,
    },
    /// Stop training; no [`Event::Trained`] is wanted for it.
    Cancel,
    /// The held update is not needed any more.
    Forget {
        /// Its round.
        round: u32,
        /// What became of it, if the server said so.
        verdict: Option<Verdict>,
    },
    /// What became of an update that is not held any more: a newer task has overtaken the receipt.
    NotifyVerdict {
        /// Its round.
        round: u32,
        /// What became of it.
        verdict: Verdict,
    },
    /// Close the connection.
    Disconnect,
    /// Nothing more will happen.
    Finish(SessionEnd),
}

/// How a session ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionEnd {
    /// The run is over.
    Completed {
        /// Rounds that it had.
        rounds: u32,
    },
    /// The server does not take this client.
    Refused(Refusal),
    /// The user stopped it.
    Stopped,
}

/// What the client has in hand. Its update or task belongs to the run it was given in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Nothing.
    Idle,
    /// A task in training.
    Training(TaskId),
    /// A finished update without a receipt.
    Holding(TaskId),
}
