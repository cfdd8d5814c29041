//! How a run stands, and what it was made of: what a report says beside its rounds.

use serde::{Deserialize, Serialize};

use crate::round::RoundRecord;
use crate::round::stopping::{self, EarlyEnd};

/// How a run stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Standing {
    /// A process works on it.
    Running,
    /// Its rounds are over.
    Complete {
        /// Why there were fewer than it was asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        early: Option<EarlyEnd>,
    },
    /// An operator stopped it; the same command continues it.
    Stopped,
    /// It ended without success, or a process could not go on with it.
    Failed {
        /// Why, and what to do about it.
        reason: String,
    },
    /// No process works on it, and the last one could not say why: it was killed, or the power failed.
    #[default]
    Interrupted,
}

impl Standing {
    /// In a word.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Complete { .. } => "complete",
            Self::Stopped => "stopped",
            Self::Failed { .. } => "failed",
            Self::Interrupted => "interrupted",
        }
    }
}

/// How many rounds of training a run has that stands so and wants `rounds` of them with a result, as far as its records tell.
#[must_use]
pub fn planned(records: &[RoundRecord], rounds: u32, standing: &Standing) -> u32 {
    let planned = stopping::planned(records, rounds);
    if !matches!(standing, Standing::Complete { early: None }) {
        return planned;
    }
    // Earlier programs counted void rounds as the others.
    let trained = records.iter().rfind(|record| !record.closing).map_or(0, |record| record.round);
    planned.min(trained.max(rounds))
}

/// Where a run comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// When it began, in UTC.
    pub begun: String,
    /// The machines and versions that have worked on it, each once.
    #[serde(default)]
    pub processes: Vec<Process>,
    /// SHA-256 of the samples and labels that this side has read, by split.
    #[serde(default)]
    pub data: Vec<(String, String)>,
}

/// What has worked on a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// The machine's name; `None` if the system does not say it.
    pub host: Option<String>,
    /// The version of the aggregator.
    pub version: String,
}

impl Process {
    /// This one.
    #[must_use]
    pub fn this() -> Self {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
        let host = host.or_else(|| std::env::var("HOSTNAME").ok()).map(|name| name.trim().to_owned());
        Self { host: host.filter(|name| !name.is_empty()), version: env!("CARGO_PKG_VERSION").to_owned() }
    }
}
