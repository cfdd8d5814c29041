//! `edge-client status`.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use shared::calendar::{moment, utc};

use super::arguments::StatusArguments;
use super::error::{CliError, Exit};
use super::event::printable;
use super::stream::Stream;
use crate::status::line::size;
use crate::status::{DeviceStatus, StatusFile};
use crate::store::{PersonalModels, is_in_use};
use crate::system::System;
use crate::system::power::{batteries, plugged_in, zones};

/// How often `--watch` looks again.
const INTERVAL: Duration = Duration::from_secs(1);

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Found {
    /// Whether a process takes part now.
    running: bool,
    /// What it does, or what the last one did.
    status: Option<DeviceStatus>,
    /// Bytes of the update that waits for the server; absent if none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting_update: Option<u64>,
    /// When the newest personal model was made, milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    personal_model: Option<i64>,
    /// Of the hottest part, in degrees Celsius.
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    /// Per cent in the emptiest battery.
    #[serde(skip_serializing_if = "Option::is_none")]
    battery: Option<u8>,
    /// Whether it has another supply than batteries; absent without a battery.
    #[serde(skip_serializing_if = "Option::is_none")]
    plugged_in: Option<bool>,
}

impl Found {
    fn look(state: &Path, system: &System) -> Result<Self, CliError> {
        let failed = |error: io::Error| {
            CliError::new(Exit::Local, format!("cannot read the status in {}: {error}", state.display()))
        };
        let status = StatusFile::of(state).read().map_err(failed)?;
        let modified = |path: &Path| path.metadata().and_then(|found| found.modified()).ok().map(moment);
        let personal = PersonalModels::of(state);
        let batteries = batteries(system);
        Ok(Self {
            running: is_in_use(state),
            status,
            waiting_update: state.join("outbox/update").metadata().ok().map(|found| found.len()),
            personal_model: personal.latest().and_then(|run| modified(&personal.path(run))),
            temperature: zones(system).into_iter().map(|zone| zone.celsius).max_by(f64::total_cmp),
            battery: batteries.iter().filter_map(|battery| battery.percent).min(),
            plugged_in: (!batteries.is_empty()).then(|| plugged_in(system)),
        })
    }

    /// For people.
    fn text(&self, state: &Path, now: i64) -> String {
        let mut text = String::new();
        let mut line = |name: &str, says: &str| {
            let _ = writeln!(text, "{name:<10}{}", printable(says));
        };
        let Some(status) = &self.status else {
            let never = if self.running { "takes part, and says nothing yet" } else { "has not joined yet" };
            return format!("the device of {} {never}\n", state.display());
        };
        let ago = |at: i64| span(now - at);
        let whole = status.client.to_string();
        line("device", &format!("{} ({whole}), {}", status.client.short(), status.software));
        if self.running && status.ended.is_some() {
            line("process", "another command uses the state directory");
        } else if self.running {
            line("process", &format!("{}, for {}", status.process, ago(status.began)));
            line("doing", &format!("{}, for {}", status.doing, ago(status.since)));
        } else {
            let (told, ago) = (utc(status.told), ago(status.told));
            let how = match &status.ended {
                Some(how) => format!("not running since {told} ({ago} ago): {how}"),
                None => format!(
                    "not running: its process was killed, or the power failed, after {told} ({ago} ago), when it was heard of last"
                ),
            };
            line("doing", &format!("nothing: {how}"));
        }
        let next = status.next_attempt.map(|at| format!(", tries again in {}", span((at - now).max(0))));
        let connected = match status.connected {
            Some(since) if self.running => format!("connected for {}", ago(since)),
            _ => format!("not connected{}", next.filter(|_| self.running).unwrap_or_default()),
        };
        line("server", &format!("{}, {connected}", status.server));
        if let Some(trouble) = &status.trouble {
            line("trouble", trouble);
        }
        if let Some(run) = status.run {
            line("run", &run.to_string());
        }
        let DeviceStatus { accepted, rejected, discarded, failed, .. } = status;
        line(
            "updates",
            &format!("{accepted} accepted, {rejected} rejected, {discarded} not needed, {failed} failed"),
        );
        for (index, last) in status.last.iter().enumerate() {
            let because = if last.reason.is_empty() { String::new() } else { format!(": {}", last.reason) };
            let says = format!("round {} {}{because}, {} ago", last.round, last.result, ago(last.at));
            line(if index == 0 { "last" } else { "" }, &says);
        }
        if let Some(bytes) = self.waiting_update {
            line("outbox", &format!("holds an update of {} until the server has confirmed it", size(bytes)));
        }
        if let Some(made) = self.personal_model {
            line("personal", &format!("model made {} ago", ago(made)));
        }
        if let Some(celsius) = self.temperature {
            line("heat", &format!("{celsius:.0} \u{b0}C"));
        }
        if let Some(percent) = self.battery {
            let supply = if self.plugged_in == Some(true) { "plugged in" } else { "on battery" };
            line("battery", &format!("{percent} %, {supply}"));
        }
        text
    }
}

/// `12 s`, `3.5 min`.
fn span(milliseconds: i64) -> String {
    let seconds = milliseconds.max(0) as f64 / 1e3;
    match seconds {
        0.0..120.0 => format!("{seconds:.0} s"),
        120.0..7200.0 => format!("{:.1} min", seconds / 60.0),
        7200.0..172_800.0 => format!("{:.1} h", seconds / 3600.0),
        _ => format!("{:.1} days", seconds / 86_400.0),
    }
}

pub(super) fn run(arguments: &StatusArguments) -> Result<(), CliError> {
    let state = arguments.state.directory()?;
    let system = System::this();
    let mut out = io::stdout().lock();
    // On a terminal each look takes the place of the one before.
    let clear = if arguments.watch && out.is_terminal() && !arguments.json { "\x1b[H\x1b[2J" } else { "" };
    loop {
        let found = Found::look(&state, &system)?;
        let text = if arguments.json {
            serde_json::to_string(&found).expect("a status is text and numbers") + "\n"
        } else {
            wrapped_lines(&found.text(&state, moment(SystemTime::now())))
        };
        write!(out, "{clear}{text}").and_then(|()| out.flush()).map_err(CliError::output)?;
        if !arguments.watch {
            return Ok(());
        }
        std::thread::sleep(INTERVAL);
    }
}

fn wrapped_lines(text: &str) -> String {
    let columns = Stream::Out.columns();
    text.lines().map(|line| shared::cli::wrapped(line, columns, 10) + "\n").collect()
}

#[cfg(test)]
mod tests {
    use shared::id::ClientId;
    use shared::message::Verdict;

    use super::*;
    use crate::driver::Notice;

    fn found(running: bool) -> Found {
        let mut status = DeviceStatus::begin(ClientId::from_bytes([7; 16]), "lab:4433", 0);
        status.handle(&Notice::Connected { server: "lab:4433".to_owned() }, 1_000);
        status.handle(&Notice::Receipt { round: 3, verdict: Verdict::Accepted }, 61_000);
        Found {
            running,
            status: Some(status),
            waiting_update: Some(642_000),
            personal_model: None,
            temperature: Some(48.4),
            battery: Some(80),
            plugged_in: Some(false),
        }
    }

    #[test]
    fn a_running_device_says_what_it_does_and_has_done() {
        let text = found(true).text(Path::new("state"), 121_000);
        for part in [
            "device    07070707 (07070707070707070707070707070707), edge-client ",
            "doing     waiting for a task, for ",
            "server    lab:4433, connected for 2.0 min\n",
            "updates   1 accepted, 0 rejected, 0 not needed, 0 failed\n",
            "last      round 3 accepted, 60 s ago\n",
            "outbox    holds an update of 642 kB",
            "heat      48 \u{b0}C\n",
            "battery   80 %, on battery\n",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
    }

    #[test]
    fn a_device_that_does_not_run_says_since_when_and_why() {
        let killed = found(false).text(Path::new("state"), 121_000);
        let heard = "nothing: not running: its process was killed, or the power failed, after 1970-01-01T00:01:01Z (60 s ago)";
        assert!(killed.contains(heard), "{killed}");
        assert!(killed.contains("not connected\n"), "{killed}");
        let mut stopped = found(false);
        stopped.status.as_mut().unwrap().end("the run is over after 3 rounds", 61_000);
        let stopped = stopped.text(Path::new("state"), 121_000);
        assert!(stopped.contains("the run is over after 3 rounds"), "{stopped}");
        let none = Found { status: None, ..found(false) }.text(Path::new("state"), 0);
        assert_eq!(none, "the device of state has not joined yet\n");
    }
}
