//! Events into a session, and actions out of it.

use std::sync::Arc;

use shared::data::View;
use shared::eligibility::Ineligible;
use shared::id::{ClientId, RunId};
use shared::message::{
    CountedUpdate, Progress, Refusal, TaskId, TaskKind, ToClient, ToServer, TrainReport, UpdateHeader,
    Verdict,
};
use shared::spec::{Reading, RunSpec, SpecError};

use crate::address_book::Pass;
use crate::allowance::{Allowance, TooLarge};
use crate::failure::Failure;
use crate::task::PrivateOnly;

/// What a device tells the server of itself.
#[derive(Clone, Debug)]
pub struct DeviceProfile {
    /// Its client id.
    pub client: ClientId,
    /// Number of its training samples.
    pub samples: u64,
    /// Shape of one sample.
    pub shape: Vec<u32>,
    /// Number of classes that its labels are drawn from.
    pub classes: u32,
    /// The names of these classes, in their order; empty if they have none. The server is not told.
    pub class_names: Vec<String>,
    /// Number of training samples that it skips as unusable.
    pub skipped: u64,
    /// What its memory allows; `None` if there is no bound. The server is not told.
    pub memory: Option<Allowance>,
    /// The least number of devices among which its updates must be hidden; `None` if they need not be. The server is not told.
    pub secure_only: Option<u32>,
    /// What the noise of devices must keep all rounds within; `None` if there need be none. The server is not told.
    pub private_only: Option<PrivateOnly>,
    /// Whether its samples are not read yet, and the run is asked how: they are the numbers above then.
    pub asks: bool,
}

impl DeviceProfile {
    /// The profile of a device that has not read its samples, and asks the run how.
    #[must_use]
    pub fn asking(client: ClientId) -> Self {
        Self {
            client,
            samples: 0,
            shape: Vec::new(),
            classes: 0,
            class_names: Vec::new(),
            skipped: 0,
            memory: None,
            secure_only: None,
            private_only: None,
            asks: true,
        }
    }

    /// The profile of a device with these training samples, which skips `skipped` others.
    #[must_use]
    pub fn of(client: ClientId, data: &View, skipped: u64) -> Self {
        let shape = data.shape().iter().map(|&axis| axis as u32).collect();
        let (samples, classes) = (data.len() as u64, data.classes() as u32);
        let class_names = data.dataset().class_names().to_vec();
        Self { samples, shape, classes, class_names, skipped, asks: false, ..Self::asking(client) }
    }
}

/// What the driver reports to the session.
#[derive(Clone, Debug)]
pub enum Event {
    /// [`Action::Connect`] succeeded.
    Connected,
    /// [`Action::Connect`] failed, or the connection was lost.
    Disconnected {
        /// Why, for people.
        reason: String,
        /// Whether the server has addresses that were not tried since the last attempt at all of them.
        elsewhere: bool,
    },
    /// A message from the server. The driver holds the payload of a task.
    Message(ToClient),
    /// [`Action::Read`] is done: the profile of the device, or why its samples cannot be used.
    Read(Result<DeviceProfile, Failure>),
    /// Training advanced.
    Progressed(Progress),
    /// Training ended; the driver holds the update.
    Trained {
        /// The round.
        round: u32,
        /// How it went, or why there is no update.
        outcome: Result<TrainReport, Failure>,
        /// Whether client state goes with the update, which the verdict on the update then decides.
        keeps: bool,
    },
    /// The device does not meet the run's conditions, and has not begun.
    Ineligible {
        /// The round.
        round: u32,
        /// Which condition is not met.
        reason: Ineligible,
    },
    /// [`Action::Sync`] is done: no power failure loses the held update and its client state any more.
    Synced {
        /// Its round.
        round: u32,
    },
    /// What [`Action::LookUpState`] has found.
    State {
        /// The update that the client state stands after; `None` if there is none.
        after: Option<CountedUpdate>,
    },
    /// [`Action::LookForTests`] has found nothing to test models on.
    Untested {
        /// What is missing.
        reason: String,
    },
    /// The held update cannot be made durable, or not be read back.
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

/// What the session asks of the driver.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Connect to the server, at these of its addresses.
    Connect(Pass),
    /// Send a message without payload.
    Send(ToServer),
    /// Close the connection, read the samples in this way, then report [`Event::Read`].
    Read(Reading),
    /// Close the connection, which is not the session's end.
    HangUp,
    /// Make the held update durable with its client state, then report [`Event::Synced`].
    Sync {
        /// The round.
        round: u32,
    },
    /// Send the held update.
    Upload(UpdateHeader),
    /// Look up which client state of this run is committed, then report [`Event::State`]; nothing if it is not known.
    LookUpState {
        /// The run.
        run: RunId,
    },
    /// Report that client state is not what it must be by what the server knows: the updates after which either stands.
    NotifyState {
        /// The server's word.
        server: Option<CountedUpdate>,
        /// What the device has.
        device: Option<CountedUpdate>,
    },
    /// Look whether the device can test the run's models, then report [`Event::Untested`] if it cannot.
    LookForTests {
        /// The run.
        spec: Arc<RunSpec>,
    },
    /// Begin the task whose payload was received.
    Train {
        /// The round.
        round: u32,
        /// What the task asks for.
        work: TaskKind,
        /// The run.
        spec: Arc<RunSpec>,
    },
    /// Stop training; no [`Event::Trained`] is wanted for it.
    Cancel,
    /// Drop the held update.
    Forget {
        /// Its round.
        round: u32,
        /// The server's verdict, if it sent one.
        verdict: Option<Verdict>,
    },
    /// Report the verdict on an update that a newer task has replaced.
    NotifyVerdict {
        /// Its round.
        round: u32,
        /// The verdict.
        verdict: Verdict,
    },
    /// Close the connection.
    Disconnect,
    /// The session is over.
    Finish(SessionEnd),
}

/// How a session ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionEnd {
    /// The run is over.
    Completed {
        /// Number of its rounds.
        rounds: u32,
    },
    /// The server refuses this client.
    Refused(Refusal),
    /// The run uses what this version of the program does not know.
    Outdated(SpecError),
    /// The run needs more memory than this device allows.
    TooLarge(TooLarge),
    /// This device can never take part in the run as it is.
    Unfit(Failure),
    /// The user stopped it.
    Stopped,
}

/// What the client is doing. A task belongs to the run that it was given in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Nothing.
    Idle,
    /// Training.
    Training(TaskId),
    /// Holding a finished update that has no receipt yet.
    Holding(TaskId),
}
