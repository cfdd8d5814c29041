//! One run in figures: what a list says of it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

use serde::Serialize;
use shared::calendar::{moment, moment_in, utc};
use shared::id::RunId;
use toml::Value;

use super::sizes::bytes_in;
use crate::config::Changed;
use crate::control::is_paused;
use crate::page::Found;
use crate::report::standing::Standing;
use crate::report::units::percent;
use crate::run::directory::RunDirectory;

/// A run in figures. Names of fields are those of `--json`, and stay.
#[derive(Clone, Debug, Serialize)]
pub struct Overview {
    /// The name of its directory.
    pub run: String,
    /// Its directory.
    pub path: PathBuf,
    /// Its identity.
    pub id: RunId,
    /// How it stands: `running`, `paused`, `complete`, `stopped`, `failed` or `interrupted`.
    pub state: &'static str,
    /// Why it failed.
    pub reason: Option<String>,
    /// The algorithm.
    pub algorithm: String,
    /// The network.
    pub model: String,
    /// The data set.
    pub data: String,
    /// Closed rounds of training.
    pub rounds: usize,
    /// Rounds that it was asked for, and one more for each without a result.
    pub planned: u32,
    /// The last accuracy measured, in `[0, 1]`.
    pub accuracy: Option<f64>,
    /// The best one.
    pub best_accuracy: Option<f64>,
    /// The first round that had it; where there is none, the first with the lowest loss.
    pub best_round: Option<u32>,
    /// The last test loss.
    pub loss: Option<f64>,
    /// The lowest one.
    pub best_loss: Option<f64>,
    /// Size on disk.
    pub bytes: u64,
    /// When it began, in UTC.
    pub begun: Option<String>,
    /// When a round closed last, or the run ended, in UTC.
    pub active: Option<String>,
    /// Keys that have another value than by default, with their values.
    pub changed: BTreeMap<String, Value>,
    /// Whether devices take part, or did.
    pub served: bool,
    /// Whether it was stripped of what continues it.
    pub pruned: bool,
    /// Whether it is over and has left its results.
    pub over: bool,
}

impl Overview {
    /// The run in `directory`, as it was read.
    #[must_use]
    pub fn of(directory: &RunDirectory, found: &Found) -> Self {
        let (config, summary) = (&found.config, found.summary());
        let reason = match &found.standing {
            Standing::Failed { reason } => Some(reason.clone()),
            _ => None,
        };
        let running = found.standing == Standing::Running;
        let origin = found.about.as_ref().map(|about| &about.origin);
        let begun = origin.map(|origin| origin.begun.clone()).filter(|begun| !begun.is_empty());
        let closed = found.rounds.records.iter().rev().find_map(|round| round.closed.clone());
        let active = found.ended.clone().or(closed).or_else(|| begun.clone());
        let changed = Changed::of(&config.effective).into_iter().map(|changed| (changed.key, changed.value));
        Self {
            run: directory.name().into_owned(),
            path: directory.root().to_owned(),
            id: config.spec.run,
            state: if running && is_paused(directory) { "paused" } else { found.standing.name() },
            reason,
            algorithm: config.spec.algorithm.name.clone(),
            model: config.spec.architecture.name.clone(),
            data: config.data.set.to_string(),
            rounds: summary.rounds,
            planned: found.planned(),
            accuracy: summary.last.map(|(accuracy, _)| accuracy),
            best_accuracy: summary.best.map(|(accuracy, _)| accuracy),
            best_round: summary.best.or(summary.best_loss).map(|(_, round)| round),
            loss: summary.last_loss,
            best_loss: summary.best_loss.map(|(loss, _)| loss),
            bytes: bytes_in(directory.root()),
            begun,
            active: active.or_else(|| written(directory)),
            changed: changed.collect(),
            served: directory.presence().is_file(),
            pruned: directory.pruned().is_file(),
            over: directory.finished().is_file(),
        }
    }

    /// The last accuracy and the best one, or where numbers are learned the losses.
    #[must_use]
    pub fn scores(&self) -> [String; 2] {
        [(self.accuracy, self.loss), (self.best_accuracy, self.best_loss)].map(|score| match score {
            (Some(accuracy), _) => percent(accuracy),
            (None, Some(loss)) => format!("loss {loss:.4}"),
            (None, None) => "-".to_owned(),
        })
    }

    /// Whether a process works on it.
    #[must_use]
    pub fn is_worked_on(&self) -> bool {
        ["running", "paused"].contains(&self.state)
    }

    /// Milliseconds since it was [active](Self::active), if that is known. A clock that was set back gives none.
    #[must_use]
    pub fn age(&self, now: i64) -> Option<i64> {
        let active = self.active.as_deref().and_then(moment_in)?;
        Some(now.saturating_sub(active).max(0))
    }
}

/// Earlier programs have written no dates: when the run's newest file was.
fn written(directory: &RunDirectory) -> Option<String> {
    let modified = |path: PathBuf| std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    let newest = [directory.rounds(), directory.identity()].into_iter().filter_map(modified).max()?;
    Some(utc(moment(newest.max(UNIX_EPOCH))))
}
