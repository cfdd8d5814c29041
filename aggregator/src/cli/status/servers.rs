//! What `aggregator status` says of runs that this server serves with others.

use std::fmt::Write as _;

use serde::Serialize;

use crate::cli::exit::Failure;
use crate::cli::terminal;
use crate::coordinator::Status;
use crate::leaves::shown::{Server, Together};
use crate::report::clock::elapsed;
use crate::report::units::counted;

/// Who serves a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Servers {
    /// Where the server that leads is reached.
    leads: String,
    /// The servers that are here.
    servers: Vec<Server>,
}

/// What a server that does not lead a run has of it: some of what one that leads has, by the same names.
#[derive(Serialize)]
struct Followed<'a> {
    name: &'a str,
    serving: bool,
    told: i64,
    status: &'a Status<i64>,
    #[serde(flatten)]
    servers: Servers,
}

/// Who serves the run of this name, if several servers do. What was heard of it long ago is of another time.
pub(super) fn of(all: &[Together], name: &str, now: i64) -> Option<Servers> {
    all.iter().find(|together| together.run == name && together.is_new(now)).map(Servers::from)
}

impl From<&Together> for Servers {
    fn from(Together { shown, .. }: &Together) -> Self {
        Self { leads: shown.leads.clone(), servers: shown.servers.clone() }
    }
}

impl<'a> Followed<'a> {
    fn new(together: &'a Together, now: i64) -> Self {
        let Together { run, shown } = together;
        let (serving, servers) = (together.is_new(now), together.into());
        Self { name: run, serving, told: shown.told, status: &shown.status, servers }
    }
}

/// Shows them, and fails if nothing was heard for a while of one of them.
pub(super) fn show(all: &[Together], json: bool, now: i64) -> Result<(), Failure> {
    for together in all {
        if json {
            terminal::print_json(&Followed::new(together, now))?;
        } else {
            terminal::print(&text(together, now))?;
        }
    }
    let old: Vec<_> = all.iter().filter(|together| !together.is_new(now)).collect();
    let Some(first) = old.first() else { return Ok(()) };
    Err(Failure::Idle(format!(
        "of {} nothing was heard for {}: this server does not run, or has no link to the one that leads",
        first.run,
        elapsed(now.saturating_sub(first.shown.told))
    )))
}

fn text(Together { run, shown }: &Together, now: i64) -> String {
    let mut out = format!(
        "{run}  served by several servers; {} leads, and said {} ago:\n{}\n",
        shown.leads,
        elapsed(now.saturating_sub(shown.told)),
        shown.text
    );
    let width = shown.servers.iter().map(|server| server.address.len()).max().unwrap_or(0);
    for server in &shown.servers {
        let leads = if server.address == shown.leads { ", leads" } else { "" };
        let devices = counted(server.devices, "device");
        let _ = writeln!(out, "  {:width$}  {devices}{leads}", server.address);
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn programs_find_a_run_of_several_servers_by_the_names_that_one_server_has() {
        let together = Together::example();
        let told = serde_json::to_value(Followed::new(&together, 1_003_000)).expect("it is JSON");
        assert_eq!(told["name"], "digits");
        assert_eq!(told["serving"], true);
        assert_eq!(told["told"], 1_000_000);
        assert_eq!(told["status"]["connected"], 3);
        assert_eq!(told["leads"], "a.example:4433");
        assert_eq!(told["servers"][1], json!({ "address": "leaf.example:4433", "devices": 1 }));
        let late = serde_json::to_value(Followed::new(&together, 2_000_000)).expect("it is JSON");
        assert_eq!(late["serving"], false);
        let heard = |name, now| of(std::slice::from_ref(&together), name, now).is_some();
        assert_eq!(
            [heard("digits", 1_003_000), heard("digits", 2_000_000), heard("others", 1_003_000)],
            [true, false, false]
        );
    }

    #[test]
    fn a_run_of_several_servers_is_shown_with_all_of_them() {
        let together = Together::example();
        assert_eq!(
            text(&together, 1_003_000),
            "digits  served by several servers; a.example:4433 leads, and said 3 s ago:\n\
             waiting for clients: 3 of 4 connected\n  \
             a.example:4433     2 devices, leads\n  leaf.example:4433  1 device\n"
        );
    }
}
