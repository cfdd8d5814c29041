//! `aggregator runs delete`: runs go with all their results.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use shared::client_state;

use super::super::exit::Failure;
use super::super::terminal;
use super::Place;
use super::confirm::{announce, confirmed};
use crate::report::units::{bytes, counted};
use crate::run::directory::RunDirectory;
use crate::run::reader;
use crate::runs::RunsError;
use crate::runs::claim;
use crate::runs::deletion::{delete as remove, is_leftover};
use crate::runs::find::find;
use crate::runs::sizes::bytes_in;
use crate::storage::Disk;

#[derive(Debug, Args)]
pub(super) struct DeleteArgs {
    /// The runs: their names, or their directories
    #[arg(value_name = "RUN", required = true)]
    named: Vec<PathBuf>,
    /// Delete without a question
    #[arg(long)]
    yes: bool,
}

/// A run that is to go.
pub(super) struct Doomed {
    pub(super) directory: RunDirectory,
    pub(super) bytes: u64,
    /// What else it costs, in words.
    costs: Vec<String>,
}

impl Doomed {
    /// Looks at the run, which no process may work on.
    pub(super) fn of(directory: RunDirectory) -> Result<Self, Failure> {
        let root = directory.root();
        if root.is_symlink() {
            return Err(RunsError::Link { path: root.to_owned() }.into());
        }
        drop(claim::to_read(&directory)?);
        let mut costs = Vec::new();
        if is_leftover(directory.root()) {
            costs.push("the rest of a deletion that was cut off".to_owned());
        } else if !directory.finished().is_file() {
            costs.push("it is not over, and could not be continued".to_owned());
        }
        // What cannot be read can be deleted all the same.
        let config = reader::configuration(&Disk, &directory).ok().flatten();
        if let Some(config) =
            config.filter(|config| directory.presence().is_file() && client_state::is_kept(&config.spec))
        {
            costs.push(format!(
                "its devices keep client state of it ({}), which no run asks for then; they remove it after some later runs",
                config.spec.algorithm.name
            ));
        }
        let bytes = bytes_in(directory.root());
        Ok(Self { directory, bytes, costs })
    }

    pub(super) fn line(&self) -> String {
        let mut line = format!("{}  {}", self.directory.root().display(), bytes(self.bytes));
        for cost in &self.costs {
            let _ = write!(line, "\n  {cost}");
        }
        line
    }
}

/// The bytes of all.
pub(super) fn sum(doomed: &[Doomed]) -> u64 {
    doomed.iter().map(|doomed| doomed.bytes).sum()
}

pub(super) fn delete(place: &Place, arguments: &DeleteArgs) -> Result<(), Failure> {
    // All are looked at before the first one goes.
    let mut doomed: Vec<Doomed> = Vec::new();
    for given in &arguments.named {
        let directory = leftover(place, given).map_or_else(|| find(&place.runs, given), Ok)?;
        if doomed.iter().all(|other| other.directory.root() != directory.root()) {
            doomed.push(Doomed::of(directory)?);
        }
    }
    let lines: Vec<String> = doomed.iter().map(Doomed::line).collect();
    announce(&lines, place.json)?;
    let question = format!("Delete {}, {}?", counted(doomed.len(), "run"), bytes(sum(&doomed)));
    if !confirmed(&question, arguments.yes)? {
        doomed.clear();
    }
    carry_out(&doomed)?;
    if place.json {
        let deleted: Vec<_> = doomed.iter().map(deleted).collect();
        return terminal::print_json(&json!({ "deleted": deleted, "bytes": sum(&doomed) }));
    }
    if doomed.is_empty() {
        return terminal::print("nothing was deleted\n");
    }
    terminal::print(&format!("deleted {}, {}\n", counted(doomed.len(), "run"), bytes(sum(&doomed))))
}

/// What is printed of a run that was deleted.
pub(super) fn deleted(doomed: &Doomed) -> serde_json::Value {
    json!({ "run": doomed.directory.name(), "path": doomed.directory.root(), "bytes": doomed.bytes })
}

/// Deletes one after the other.
pub(super) fn carry_out(doomed: &[Doomed]) -> Result<(), Failure> {
    for doomed in doomed {
        remove(&Disk, &doomed.directory)?;
    }
    Ok(())
}

/// The rest of a run, which is no run any more.
fn leftover(place: &Place, given: &PathBuf) -> Option<RunDirectory> {
    let places = [given.clone(), place.runs.join(given)];
    places.into_iter().find(|path| is_leftover(path) && path.is_dir()).map(RunDirectory::new)
}
