//! The devices of a run: what each has done in it, as far as that is known.

use serde::{Deserialize, Serialize};
use shared::id::ClientId;

/// The devices of a served run at some moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Devices {
    /// When that was, in milliseconds since 1970.
    pub at: i64,
    /// Those that have answered in a round of the run, or were connected while it was served.
    pub devices: Vec<DeviceRow>,
}

/// One device in one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceRow {
    /// Its id.
    pub device: ClientId,
    /// What the operator calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Rounds that it has answered in.
    pub rounds: u32,
    /// Its updates that count.
    pub accepted: u32,
    /// Those that failed the checks.
    pub rejected: u32,
    /// Those that were late, or sent twice.
    pub late: u32,
    /// Rounds in which it could not train.
    pub failed: u32,
    /// Rounds in which it was not in a state to train.
    pub not_now: u32,
    /// The newest of these troubles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<Trouble>,
    /// Seconds of training of its accepted updates, as it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// Bytes of these updates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<f64>,
    /// The newest accuracy that it has found on its own samples, and the round of that test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_accuracy: Option<(f64, u32)>,
    /// Its training samples, when it connected last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    /// Its program then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub software: Option<String>,
    /// When it was heard last, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard: Option<i64>,
}

/// A result of a device that is no accepted update.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// The round.
    pub round: u32,
    /// `rejected`, `discarded`, `failed` or `not-now`.
    pub verdict: String,
    /// Why.
    pub reason: String,
}

impl DeviceRow {
    /// How often it gave no update that counts. One that has not answered may never have been asked, and is in no trouble.
    #[must_use]
    pub fn troubles(&self) -> u64 {
        let counts = [self.rejected, self.late, self.failed, self.not_now];
        counts.into_iter().map(u64::from).sum()
    }
}
