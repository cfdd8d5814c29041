//! What `aggregator status` shows of a run.

use std::path::Path;

use serde::Serialize;

#[cfg(feature = "cluster")]
use super::servers::Servers;
use crate::history::{StoredArrival, StoredEvent, StoredRound, StoredRun, StoredSkipped};

/// All that is shown of one run.
#[derive(Serialize)]
pub(super) struct Shown {
    /// The name of its directory.
    pub(super) name: String,
    #[serde(flatten)]
    pub(super) run: StoredRun,
    /// Whether some process serves it now.
    pub(super) serving: bool,
    /// The newest rounds, an open one among them.
    pub(super) newest: Vec<StoredRound>,
    /// The verdicts on the updates of the newest round.
    pub(super) arrivals: Vec<StoredArrival>,
    /// Training samples that devices left out.
    pub(super) left_out: Vec<StoredSkipped>,
    pub(super) events: Vec<StoredEvent>,
    /// Who serves it, if several servers do.
    #[cfg(feature = "cluster")]
    #[serde(flatten)]
    pub(super) servers: Option<Servers>,
}

/// The name of a run's directory.
pub(in crate::cli) fn name(run: &StoredRun) -> String {
    let path = Path::new(&run.directory);
    path.file_name().map_or_else(|| run.directory.clone(), |name| name.to_string_lossy().into_owned())
}
