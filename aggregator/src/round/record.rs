//! The record of a closed round.

use std::collections::BTreeMap;

use models::Measure;
use serde::{Deserialize, Serialize};
use shared::by_class::ByClass;
use shared::id::ClientId;

use super::tally::is_zero;
use super::{Dominance, WaitedFor};

/// What one closed round did: one line of `rounds.jsonl`. Fields that this version does not know are skipped when it is read.
///
/// Every arrival is exactly one of accepted, rejected and discarded. Of the sampled clients, those that neither
/// delivered nor failed, nor said that they could not now, nor were lost had not answered when the round closed.
///
/// If the aggregator was restarted during the round, accepted updates are counted from its opening, and the bytes include those
/// updates and one task for each. Everything else (rejected and discarded updates, failures, other messages, seconds) is counted
/// from the restart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a key of its own in the file")]
pub struct RoundRecord {
    /// The round, counted from 1.
    pub round: u32,
    /// Accuracy of the new global model on the test set, in `[0, 1]`; `None` when it was not tested, or predicts numbers.
    pub accuracy: Option<f64>,
    /// Mean loss on the test set, which is the cross-entropy in nats for classification; `None` when it was not tested or is not
    /// finite.
    pub loss: Option<f64>,
    /// Mean local training loss over the accepted updates; `None` without one or when it is not finite.
    pub train_loss: Option<f64>,
    /// Mean of the optimiser's steps that clients took, over the accepted updates that were trained; `None` without one. It is u of
    /// McMahan et al. 2017, `E n / (K B)`, where clients have equally many samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<f64>,
    /// What the algorithm measured beside that, by name: the mean over the accepted updates. Of other tasks than classification what
    /// was measured on the test set as well (`f1`, `mae`, ...).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, f64>,
    /// Whether nothing was trained: the round after the last one of training, for tests of the last model.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub closing: bool,
    /// What each client measured, by name, if clients were to test the model that they were sent: that of the round before.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub clients: BTreeMap<ClientId, BTreeMap<String, f64>>,
    /// How those tests went by class, over all clients together, if the run asks for it.
    #[serde(default, skip_serializing_if = "ByClass::is_empty")]
    pub by_class: ByClass,
    /// Clients in the cohort.
    pub sampled: usize,
    /// Updates that were folded.
    pub accepted: usize,
    /// Updates that were refused: malformed, out of bounds, not asked for.
    pub rejected: usize,
    /// Updates that were in order and of no use: late or sent twice.
    pub discarded: usize,
    /// Clients that said that they could not train.
    pub failed: usize,
    /// Accepted updates that were trained on the model of an earlier round.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub late: usize,
    /// Clients that were not in a state to train.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub not_now: usize,
    /// Clients that disappeared.
    pub lost: usize,
    /// Bytes sent to clients.
    pub bytes_down: u64,
    /// Bytes received from clients.
    pub bytes_up: u64,
    /// Seconds from opening to closing.
    pub seconds: f64,
    /// When it was closed, in UTC: `2025-11-21T15:35:07Z`. Older records lack this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed: Option<String>,
    /// Seconds before it in which no round was open: the run waited for clients, or paused. Older records lack this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited_seconds: Option<f64>,
    /// Seconds of the test of its model, if it was tested. Older records lack this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_seconds: Option<f64>,
    /// Seconds of aggregation, and of the disk as far as the run waited for it. Older records lack this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_seconds: Option<f64>,
    /// What the round waited for last.
    pub waited_for: WaitedFor,
    /// Whether the global model predicts few classes for all inputs from this round on, and did not before or should
    /// not any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub collapsed: bool,
    /// Whether the server's own training has diverged, so that the round ended without it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub diverged: bool,
    /// A device that had most of the weight, or would have had it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dominance: Option<Dominance>,
    /// Whether the round was void: it closed with too few updates, and left the model unchanged. Older records lack this.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub void: bool,
}

impl RoundRecord {
    /// Seconds since the round before, or since a process began to work on the run: all parts together.
    #[must_use]
    pub fn wall_seconds(&self) -> f64 {
        let parts = [self.waited_seconds, self.test_seconds, self.disk_seconds];
        parts.into_iter().flatten().fold(self.seconds, |sum, part| sum + part)
    }

    /// What was measured of the model beside its loss, if the task is not classification.
    #[must_use]
    pub fn measures(&self) -> Vec<(Measure, f64)> {
        let found = |measure: Measure| Some((measure, *self.metrics.get(measure.name())?));
        Measure::ALL.into_iter().filter_map(found).collect()
    }

    /// Without what differs from one process to another: its times.
    #[must_use]
    pub fn without_times(&self) -> Self {
        Self {
            seconds: 0.0,
            closed: None,
            waited_seconds: None,
            test_seconds: None,
            disk_seconds: None,
            ..self.clone()
        }
    }
}

/// Whether a metric of [`RoundRecord::metrics`] describes the model that the round leaves, and not the training in it.
#[must_use]
pub fn of_a_model(metric: &str) -> bool {
    metric.starts_with("fused-")
        || metric.contains("-inconsistency")
        || Measure::ALL.iter().any(|measure| measure.name() == metric)
        || [
            "validation-accuracy",
            "validation-loss",
            "best-member",
            "mean-member",
            "members",
            "global-class-coverage",
            "global-entropy",
            "epsilon",
            "epsilon-if-secret",
            "clip",
            "server-rate-share",
        ]
        .contains(&metric)
}

/// A closed round and its contributors.
#[derive(Clone, Debug, PartialEq)]
pub struct ClosedRound {
    /// Its record.
    pub record: RoundRecord,
    /// Clients whose updates were accepted; empty if that is no longer known.
    pub contributors: Vec<ClientId>,
    /// What their updates took, as far as that is known.
    pub work: BTreeMap<ClientId, UpdateWork>,
}

/// What an accepted update took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UpdateWork {
    /// Seconds of training, as the device says.
    pub seconds: f64,
    /// Bytes of the update, if it is on disk.
    pub bytes: Option<u64>,
}
