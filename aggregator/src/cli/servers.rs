//! What `aggregator status` says of runs that this server serves with others.

use std::fmt::Write as _;

use super::exit::Failure;
use super::terminal;
use crate::leaves::shown::Together;
use crate::report::clock::elapsed;
use crate::report::units::counted;

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
    use super::*;

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
