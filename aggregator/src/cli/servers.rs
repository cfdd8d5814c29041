//! What `aggregator status` says of runs that this server serves with others.

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;

use super::exit::Failure;
use super::terminal;
use crate::leaves::shown::Shown;
use crate::report::clock::elapsed;
use crate::report::units::counted;
use crate::run::directory::RunDirectory;

/// After this time without a word, in milliseconds, something is in the way: the server that leads tells every second.
const OLD: i64 = 10_000;

/// A run that this server serves with others.
#[derive(Serialize)]
pub(super) struct Together {
    /// The run's name.
    run: String,
    #[serde(flatten)]
    shown: Shown,
}

/// The runs in this folder that are served with other servers and are not over, or the one of this name.
pub(super) fn together(runs: &Path, wanted: Option<&str>, now: i64) -> Vec<Together> {
    let is_wanted = |run: &str| wanted.is_none_or(|wanted| wanted == run);
    let goes_on = |run: &str| !RunDirectory::new(runs.join(run)).finished().exists();
    let all = Shown::all(runs).into_iter().filter(|(run, _)| is_wanted(run) && goes_on(run));
    let mut all: Vec<_> = all.map(|(run, shown)| Together { run, shown }).collect();
    // What is left of others is not of now.
    if all.iter().any(|together| together.is_new(now)) {
        all.retain(|together| together.is_new(now));
    }
    all
}

impl Together {
    /// Whether the server that leads was heard a moment ago.
    pub(super) fn is_new(&self, now: i64) -> bool {
        now - self.shown.told <= OLD
    }
}

/// Shows them, and fails if nothing was heard for a while of one of them.
pub(super) fn show(all: &[Together], json: bool, now: i64) -> Result<(), Failure> {
    for together in all {
        if json {
            terminal::print_json(together)?;
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
    use std::time::Duration;

    use super::*;
    use crate::coordinator::{Status, WaitingFor};
    use crate::leaves::shown::Server;

    #[test]
    fn a_run_of_several_servers_is_shown_with_all_of_them() {
        let status = Status {
            closed: 2,
            rounds: 9,
            failed: 0,
            connected: 3,
            known: 3,
            waiting_for: WaitingFor::Clients { connected: 3, needed: 4 },
            since: Duration::from_secs(1),
            paused: false,
            held: false,
            own: None,
            load: None,
        };
        let server = |address: &str, devices| Server { address: address.to_owned(), devices };
        let shown = Shown {
            leads: "a.example:4433".to_owned(),
            told: 1_000_000,
            text: status.to_string(),
            status: status.at(1_000_000),
            servers: vec![server("a.example:4433", 2), server("leaf.example:4433", 1)],
        };
        let together = Together { run: "digits".to_owned(), shown };
        assert_eq!(
            text(&together, 1_003_000),
            "digits  served by several servers; a.example:4433 leads, and said 3 s ago:\n\
             waiting for clients: 3 of 4 connected\n  \
             a.example:4433     2 devices, leads\n  leaf.example:4433  1 device\n"
        );
    }
}
