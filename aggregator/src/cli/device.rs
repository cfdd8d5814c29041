//! `aggregator devices show`: one device, and what it has done in each run.

use std::fmt::Write as _;
use std::path::Path;
use std::time::SystemTime;

use serde::Serialize;
use shared::calendar::utc;

use super::exit::Failure;
use super::terminal;
use crate::database::{Database, moment};
use crate::enrolment::{Device, Standing};
use crate::events::printable;
use crate::history::DeviceRecord;
use crate::report::clock::elapsed;
use crate::report::units::{bytes, percent, seconds};

#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    device: &'a Device,
    runs: Vec<DeviceRecord>,
}

/// Shows a device of the database.
pub(super) fn show(device: &Device, database: &Database, json: bool) -> Result<(), Failure> {
    let runs = database.device_records(&device.client.to_string())?;
    let shown = Shown { device, runs };
    terminal::show(json, &shown, || text(&shown, moment(SystemTime::now())))
}

/// Whether a device may join, for people.
pub(super) fn standing(standing: Standing) -> &'static str {
    match standing {
        Standing::In => "yes",
        Standing::Waiting => "waits",
        Standing::Revoked => "revoked",
    }
}

fn text(shown: &Shown<'_>, now: i64) -> String {
    let Shown { device, runs } = shown;
    let unknown = || "-".to_owned();
    let ago = |at: i64| format!("{} ({} ago)", utc(at), elapsed(now.saturating_sub(at)));
    let facts = [
        ("device", device.client.to_string()),
        ("name", device.name.clone().unwrap_or_else(unknown)),
        ("may join", standing(device.standing).to_owned()),
        ("first here", ago(device.since)),
        ("last here", ago(device.seen)),
        ("from", device.address.as_deref().map_or_else(unknown, printable)),
        ("software", device.software.as_deref().map_or_else(unknown, printable)),
        ("samples", device.samples.map_or_else(unknown, |samples| samples.to_string())),
    ];
    let mut page = String::new();
    for (what, value) in facts {
        let _ = writeln!(page, "{what:<10}  {value}");
    }
    if runs.is_empty() {
        page.push_str("\nit has answered in no round of a run that was served here\n");
        return page;
    }
    let _ = writeln!(
        page,
        "\n{:<20} {:>6} {:>8} {:>8} {:>4} {:>6} {:>9} {:>8}",
        "run", "rounds", "accepted", "rejected", "late", "failed", "training", "sent"
    );
    for run in runs {
        let name = Path::new(&run.directory).file_name().unwrap_or_default().to_string_lossy();
        let _ = writeln!(
            page,
            "{:<20} {:>6} {:>8} {:>8} {:>4} {:>6} {:>9} {:>8}",
            printable(&name),
            run.rounds,
            run.accepted,
            run.rejected,
            run.discarded,
            run.failed,
            run.seconds.map_or_else(unknown, seconds),
            run.bytes.map_or_else(unknown, |sum| bytes(sum as u64)),
        );
        if let Some(accuracy) = run.own_accuracy {
            let _ = writeln!(page, "  accuracy on its own samples: {}", percent(accuracy));
        }
        if run.not_now > 0 {
            let _ = writeln!(page, "  not in a state to train in {} of these rounds", run.not_now);
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use shared::id::ClientId;
    use shared::identity::PublicKey;

    use super::*;

    #[test]
    fn a_device_and_its_runs_fit_eighty_columns() {
        let device = Device {
            client: ClientId::from_bytes([0xab; 16]),
            key: PublicKey::from_bytes([1; 32]),
            name: Some("window sill".to_owned()),
            standing: Standing::In,
            since: 0,
            seen: 90_000,
            address: None,
            software: Some("edge-client 0.1.0".to_owned()),
            samples: Some(80),
        };
        let run = DeviceRecord {
            run: "ab".repeat(8),
            directory: "/lab/runs/glyphs-fedavg".to_owned(),
            rounds: 12,
            accepted: 10,
            rejected: 1,
            discarded: 1,
            failed: 0,
            not_now: 0,
            seconds: Some(61.5),
            bytes: Some(1_234_567.0),
            own_accuracy: Some(0.875),
        };
        let page = text(&Shown { device: &device, runs: vec![run] }, 100_000);
        for part in
            ["window sill", "last here   1970-01-01T00:01:30Z (10", "glyphs-fedavg", "1.2 MB", "87.5 %"]
        {
            assert!(page.contains(part), "{part:?} is not in:\n{page}");
        }
        assert!(page.lines().all(|line| line.chars().count() <= 80), "{page}");
        let none = text(&Shown { device: &device, runs: Vec::new() }, 100_000);
        assert!(none.contains("answered in no round"), "{none}");
    }
}
