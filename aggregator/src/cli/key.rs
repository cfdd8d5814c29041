//! `aggregator key`: the server's key, and a new one.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::Subcommand;
use serde_json::json;

use super::exit::Failure;
use super::state_directory::{option, relocate};
use super::ticket::lasting;
use super::{LabArgs, terminal};
use crate::report::units::seconds;
use crate::storage::Disk;
use crate::transport::identity::{IdentityError, ServerIdentity};

#[derive(Debug, Subcommand)]
pub(super) enum KeyCommand {
    /// Print the key that devices know the server by
    Show,
    /// Move the key, and what the server knows of devices, to another directory: out of the runs, for example
    ///
    /// The server must be stopped. A service or a script that names the former directory (--identity) must name the new one;
    /// where no server looks by itself, the option is printed that every command needs from then on.
    Move {
        /// Where to [default: ~/.local/state/aggregator]
        #[arg(long, value_name = "DIR")]
        to: Option<PathBuf>,
    },
    /// Give the server a new key
    ///
    /// Devices that are connected hear of it at once, also from a server that is running; others when they come by within
    /// --overlap, and know the server by its new key from then on. A device that is away for longer needs a new ticket, and
    /// so does one whose ticket was printed before the change and is used after it.
    Rotate {
        /// How long devices may still ask for the present key, as in 24h or 30d
        #[arg(long, value_name = "TIME", default_value = "30d", value_parser = lasting)]
        overlap: Duration,
        /// Even though the key was changed not long ago
        #[arg(long)]
        force: bool,
    },
}

pub(super) fn key(lab: &LabArgs, command: &KeyCommand) -> Result<(), Failure> {
    let directory = lab.directory();
    let (identity, said) = match command {
        KeyCommand::Move { to } => {
            let (from, to) = relocate(lab, to.as_deref())?;
            let option = option(&lab.runs, &to);
            let needed = option.as_ref().map_or_else(String::new, |option| {
                format!(
                    "No command looks there by itself: give `aggregator serve` and all others {option} from now on\n"
                )
            });
            let moved = || format!("moved from {} to {}\n{needed}", from.display(), to.display());
            return terminal::show(lab.json, &json!({ "from": from, "to": to, "option": option }), moved);
        }
        KeyCommand::Show => {
            let identity = ServerIdentity::load(&Disk, &directory)?;
            let absent = || Failure::environment(IdentityError::Absent { path: directory.clone() });
            (identity.ok_or_else(absent)?, None)
        }
        KeyCommand::Rotate { overlap, force } => {
            let identity = ServerIdentity::rotate(&Disk, &directory, *overlap, *force, SystemTime::now());
            let said = format!("devices may ask for the former key for {}", seconds(overlap.as_secs_f64()));
            (identity?, Some(said))
        }
    };
    if lab.json {
        return terminal::print_json(&json!({ "key": identity.key() }));
    }
    terminal::print(&format!("{}\n", identity.key()))?;
    if let Some(said) = said {
        terminal::tell(&said);
    }
    Ok(())
}
