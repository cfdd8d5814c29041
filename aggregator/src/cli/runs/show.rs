//! `aggregator runs show`: all that is known of one run.

use std::fmt::Write as _;
use std::path::Path;
use std::time::SystemTime;

use serde_json::json;
use shared::calendar::moment;
use shared::cli::wrapped;

use super::super::exit::Failure;
use super::super::terminal;
use super::Place;
use crate::commands::command;
use crate::page::Found;
use crate::report::clock::elapsed;
use crate::report::console;
use crate::report::table::Table;
use crate::report::units::{bytes, counted, grouped};
use crate::run::directory::RunDirectory;
use crate::runs::find::find;
use crate::runs::overview::Overview;
use crate::runs::sizes::bytes_in;
use crate::runs::surplus::Surplus;
use crate::storage::{Disk, FileLayer as _};

pub(super) fn show(place: &Place, run: &Path) -> Result<(), Failure> {
    let directory = find(&place.runs, run)?;
    let found = Found::read(&Disk, &directory, false)?;
    let overview = Overview::of(&directory, &found);
    let files = files(&directory)?;
    // What a process works on is not looked into further.
    let surplus = Surplus::of(&Disk, &directory, &found.config)?.ok().map(|surplus| surplus.bytes);
    if place.json {
        let mut object = json!(overview);
        object["origin"] = json!(found.about.as_ref().map(|about| &about.origin));
        object["files"] = files.iter().map(|(name, bytes)| json!({ "name": name, "bytes": bytes })).collect();
        object["prunable_bytes"] = json!(surplus);
        object["wall_seconds"] = json!(found.summary().times.wall);
        return terminal::print_json(&object);
    }
    let about = (&overview, &found);
    terminal::print(&text(about, &files, surplus, moment(SystemTime::now()), terminal::columns()))
}

/// What lies in the run's directory, with sizes.
fn files(directory: &RunDirectory) -> Result<Vec<(String, u64)>, Failure> {
    let root = directory.root();
    let names = Disk.list(root).map_err(|error| Failure::file("list", root, error))?;
    let sized = |name: String| {
        let path = root.join(&name);
        let slash = if path.is_dir() { "/" } else { "" };
        (name + slash, bytes_in(&path))
    };
    Ok(names.into_iter().map(sized).collect())
}

fn text(
    (run, found): (&Overview, &Found),
    files: &[(String, u64)],
    surplus: Option<u64>,
    now: i64,
    columns: usize,
) -> String {
    let mut text = format!("{}  {}\n", run.run, run.path.display());
    let since = match (&run.active, run.age(now)) {
        (Some(active), Some(age)) if !run.is_worked_on() => format!(" since {active} ({} ago)", elapsed(age)),
        _ => String::new(),
    };
    let rounds = format!("{} of {} closed", counted(run.rounds, "round"), grouped(run.planned as usize));
    let _ = writeln!(text, "{}{since}, {rounds}", run.state);
    if let Some(reason) = &run.reason {
        let reason = wrapped(reason, Some(columns.saturating_sub(2)), 0);
        let _ = writeln!(text, "  {}", reason.replace('\n', "\n  "));
    }
    if run.pruned {
        text.push_str("pruned: it cannot go on with more rounds\n");
    }
    let mut rows = vec![
        ("setting", format!("{} trains {} on {}", run.algorithm, run.model, run.data)),
        ("identity", run.id.to_string()),
    ];
    rows.extend(run.begun.iter().map(|begun| ("begun", begun.clone())));
    if let Some(about) = &found.about {
        for process in &about.origin.processes {
            let host = process.host.as_deref().unwrap_or("a machine without a name");
            rows.push(("machine", format!("{host}, aggregator {}", process.version)));
        }
        for (split, digest) in &about.origin.data {
            rows.extend([("data", format!("{split}, SHA-256")), ("data", digest.clone())]);
        }
        rows.extend(about.left_out.iter().map(|what| ("left out", what.clone())));
    }
    if run.changed.is_empty() {
        rows.push(("changed", "nothing against the defaults".to_owned()));
    }
    rows.extend(run.changed.iter().map(|(key, value)| ("changed", format!("{key} = {value}"))));
    let mut last = "";
    for (name, value) in rows {
        let shown = if name == last { "" } else { name };
        let _ = writeln!(text, "{shown:<8}  {value}");
        last = name;
    }
    let _ = write!(text, "\n{}\n", console::summary(&found.summary()));
    let rows = files.iter().map(|(name, size)| vec![name.clone(), bytes(*size)]).collect();
    let table = Table { head: vec!["file".to_owned(), "size".to_owned()], rows, left: 1 };
    text.push_str(&table.text());
    if let Some(surplus) = surplus.filter(|surplus| *surplus > 0) {
        let _ = writeln!(text, "\n`{}` would free {} of state/", command("runs prune"), bytes(surplus));
    }
    text
}
