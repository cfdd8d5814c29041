//! `aggregator devices`: who may take part.

use std::io::IsTerminal as _;
use std::time::SystemTime;

use clap::Subcommand;
use serde_json::json;

use super::exit::Failure;
use super::ticket::tell_if_not_carried;
use super::{LabArgs, device, terminal};
use crate::commands::command;
use crate::database::{Database, DatabaseError, moment};
use crate::enrolment::{Device, DeviceName, ENOUGH, Standing};
use crate::events::printable;
use crate::report::table::Table;
use crate::report::units::seconds;

#[derive(Debug, Subcommand)]
pub(super) enum DevicesCommand {
    /// List the devices that were here, and whether they may take part
    List,
    /// Show one device: what it is, and what it has done in each run
    Show {
        /// Its id, its first digits, or its name
        #[arg(value_name = "DEVICE")]
        device: String,
    },
    /// Let devices take part: some that wait for it, or were revoked
    Approve {
        /// Ids, their first digits, or names
        #[arg(value_name = "DEVICE", required_unless_present = "waiting")]
        devices: Vec<String>,
        /// All that wait
        #[arg(long, conflicts_with = "devices")]
        waiting: bool,
    },
    /// Call a device something
    Name {
        /// Its id, its first digits, or its name so far
        #[arg(value_name = "DEVICE")]
        device: String,
        /// Its name from now on; without it, it has none
        #[arg(value_name = "NAME", value_parser = DeviceName::parse)]
        name: Option<DeviceName>,
    },
    /// Throw devices out: their connections are cut at once, and no ticket lets them in again
    Revoke {
        /// Ids, their first digits, or names
        #[arg(value_name = "DEVICE", required = true)]
        devices: Vec<String>,
    },
    /// Forget devices: each needs a ticket again
    Remove {
        /// Ids, their first digits, or names
        #[arg(value_name = "DEVICE", required = true)]
        devices: Vec<String>,
    },
}

pub(super) fn devices(lab: &LabArgs, command: DevicesCommand) -> Result<(), Failure> {
    let directory = lab.directory();
    let database = Database::open_existing(&directory)?;
    let database = database.ok_or_else(|| {
        Failure::Environment(format!(
            "no aggregator has worked with {} yet: give the --runs or --identity of `aggregator serve`",
            directory.display()
        ))
    })?;
    let all = Device::all(&database)?;
    let approve = |device: &Device| Device::stand(&database, device.client, Standing::In);
    let change = |devices: &[&Device], said, step: &dyn Fn(&Device) -> Result<bool, DatabaseError>| {
        change(&database, devices, said, lab.json, step)
    };
    match command {
        DevicesCommand::List => list(&all, lab.json),
        DevicesCommand::Show { device: wanted } => device::show(one(&all, &wanted)?, &database, lab.json),
        DevicesCommand::Approve { devices: _, waiting: true } => {
            let waiting: Vec<_> = all.iter().filter(|device| device.standing == Standing::Waiting).collect();
            if waiting.is_empty() && !lab.json {
                return terminal::print("no device waits\n");
            }
            change(&waiting, "may take part", &approve)
        }
        DevicesCommand::Approve { devices, .. } => change(&named(&all, &devices)?, "may take part", &approve),
        DevicesCommand::Revoke { devices } => {
            change(&named(&all, &devices)?, "may not take part any more", &|device| {
                Device::stand(&database, device.client, Standing::Revoked)
            })?;
            tell_if_not_carried(&database, &directory);
            Ok(())
        }
        DevicesCommand::Remove { devices } => {
            change(&named(&all, &devices)?, "is forgotten, and needs a ticket to come again", &|device| {
                Device::remove(&database, device.client)
            })?;
            tell_if_not_carried(&database, &directory);
            Ok(())
        }
        DevicesCommand::Name { device, name } => {
            let device = one(&all, &device)?;
            if let Some(name) = &name {
                name.check_free(device.client, &all).map_err(|error| Failure::Usage(error.to_string()))?;
            }
            let said = name
                .as_ref()
                .map_or_else(|| "has no name".to_owned(), |name| format!("is called {}", name.as_str()));
            change(&[device], &said, &|device| {
                Device::rename(&database, device.client, name.as_ref().map(DeviceName::as_str))
            })
        }
    }
}

/// Changes devices one by one and says so of each, or prints what they are afterwards as a JSON array.
fn change(
    database: &Database,
    devices: &[&Device],
    said: &str,
    json: bool,
    step: &dyn Fn(&Device) -> Result<bool, DatabaseError>,
) -> Result<(), Failure> {
    for device in devices {
        // Removed meanwhile by another process.
        step(device)?;
        if !json {
            terminal::print(&format!("device {} {said}\n", called(device)))?;
        }
    }
    if !json {
        return Ok(());
    }
    let all = Device::all(database)?;
    let now = |device: &&Device| {
        let known = all.iter().find(|known| known.client == device.client);
        // A removed device has neither name nor standing.
        let (name, standing) = known.map_or((None, None), |known| (known.name.clone(), Some(known.standing)));
        json!({ "device": device.client, "name": name, "standing": standing })
    };
    terminal::print_json(&devices.iter().map(now).collect::<Vec<_>>())
}

fn called(device: &Device) -> String {
    match &device.name {
        Some(name) => format!("{name} ({})", device.client.short()),
        None => device.client.to_string(),
    }
}

/// The devices that are meant, each by its name or by what its id begins with.
fn named<'a>(all: &'a [Device], names: &[String]) -> Result<Vec<&'a Device>, Failure> {
    names.iter().map(|name| one(all, name)).collect()
}

fn one<'a>(all: &'a [Device], name: &str) -> Result<&'a Device, Failure> {
    if let Some(device) = all.iter().find(|device| device.name.as_deref() == Some(name)) {
        return Ok(device);
    }
    let digits = name.to_ascii_lowercase();
    let begins = |device: &&Device| digits.len() >= ENOUGH && device.client.to_string().starts_with(&digits);
    let mut found = all.iter().filter(begins);
    match (found.next(), found.next()) {
        (Some(device), None) => Ok(device),
        (Some(_), Some(_)) => {
            Err(Failure::Usage(format!("several devices' ids begin with {digits}: give more digits")))
        }
        (None, _) => Err(Failure::Usage(format!(
            "no device has the name {name:?} or an id that begins so (give {ENOUGH} digits at least): `{}` shows all",
            command("devices list")
        ))),
    }
}

fn list(all: &[Device], json: bool) -> Result<(), Failure> {
    if json {
        return terminal::print_json(&json!(all));
    }
    if all.is_empty() {
        return terminal::print(&format!(
            "no device was here yet; `{}` prints what one joins with\n",
            command("ticket")
        ));
    }
    let columns = std::io::stdout().is_terminal().then(terminal::columns);
    let table = table(all, moment(SystemTime::now()));
    // What reads a pipe finds a device on each line.
    let page = columns.map_or_else(|| table.text(), |columns| table.fitted(columns));
    terminal::print(&page)
}

fn table(all: &[Device], now: i64) -> Table {
    let or_none = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let row = |device: &Device| {
        vec![
            device.client.to_string(),
            or_none(device.name.clone()),
            device::standing(device.standing).to_string(),
            format!("{} ago", seconds((now - device.seen).max(0) as f64 / 1e3)),
            or_none(device.samples.map(|samples| samples.to_string())),
            printable(device.address.as_deref().unwrap_or("-")),
        ]
    };
    let head = ["device", "name", "may join", "last here", "samples", "from"].map(str::to_owned).to_vec();
    Table { head, rows: all.iter().map(row).collect(), left: 3 }
}

#[cfg(test)]
mod tests {
    use shared::id::ClientId;
    use shared::identity::PublicKey;

    use super::*;

    fn device(byte: u8, name: Option<&str>) -> Device {
        Device {
            client: ClientId::from_bytes([byte; 16]),
            key: PublicKey::from_bytes([byte; 32]),
            name: name.map(str::to_owned),
            standing: Standing::In,
            since: 0,
            seen: 0,
            address: None,
            software: None,
            samples: None,
        }
    }

    #[test]
    fn devices_of_a_narrow_terminal_stand_in_blocks() {
        let all = [device(0xab, Some("bench-pi-1")), device(0xcd, None)];
        let table = table(&all, 61_000);
        let wide = table.text();
        assert!(wide.lines().any(|line| line.starts_with("device ") && line.ends_with("from")), "{wide}");
        assert!(wide.contains("bench-pi-1") && wide.contains("61.0 s ago"), "{wide}");
        let narrow = table.fitted(79);
        assert!(narrow.lines().all(|line| line.chars().count() <= 79), "{narrow}");
        assert!(narrow.contains("\n  name       bench-pi-1\n"), "{narrow}");
    }

    #[test]
    fn a_device_is_named_by_its_name_or_by_what_its_id_begins_with() {
        let mut twin = device(0xab, None);
        twin.client = "abababababababababababababababac".parse().unwrap();
        let all = [device(0xab, None), twin, device(0xcd, Some("abab")), device(0xef, None)];
        let found = |name: &str| one(&all, name).map(|device| device.client.short()).ok();
        assert_eq!(found("abab").as_deref(), Some("cdcdcdcd"), "names come first");
        assert_eq!(found("EFEF").as_deref(), Some("efefefef"));
        assert_eq!(found("efe"), None, "too few digits");
        assert_eq!(found("ababab"), None, "of two");
        assert_eq!(found(&"ab".repeat(16)).as_deref(), Some("abababab"));
        assert_eq!(found("0123"), None);
    }
}
