//! The changes that can be made from the page: those of `aggregator devices` and `aggregator ticket`, each with a row that says who
//! has made it.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use serde::Deserialize;
use shared::id::ClientId;

use super::audit::Change;
use super::lab::Lab;
use crate::database::{Database, DatabaseError, moment};
use crate::enrolment::{Device, DeviceName, DeviceNameError, Standing};
use crate::issue::{IssueError, MAX_USES, NewTicket, Wanted, issue};
use crate::names::{self, called};
use crate::report::units::{counted, seconds};
use crate::storage::Disk;
use crate::transport::identity::{IdentityError, ServerIdentity};

/// What is done to a device.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Action {
    Approve,
    Revoke,
    Remove,
    Name,
}

/// The form of a device.
#[derive(Debug, Deserialize)]
pub(super) struct DeviceForm {
    pub(super) form: String,
    device: String,
    action: Action,
    #[serde(default)]
    name: String,
}

/// The form of a new ticket.
#[derive(Debug, Deserialize)]
pub(super) struct TicketForm {
    pub(super) form: String,
    uses: String,
    hours: String,
}

/// Why nothing was changed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ActionError {
    /// There is no such device.
    #[error("there is no such device: it was removed meanwhile")]
    Unknown,
    /// A name is no name.
    #[error(transparent)]
    Name(#[from] DeviceNameError),
    /// A number is none, or too large.
    #[error("{what} is a whole number from 1 to {most}")]
    Number {
        /// Which.
        what: &'static str,
        /// The greatest.
        most: u64,
    },
    /// No server was ever started here.
    #[error("no server was started here yet: `aggregator serve` makes the key that a ticket names")]
    NoServer,
    /// The server's key.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The ticket.
    #[error(transparent)]
    Issue(#[from] IssueError),
    /// The database.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

impl ActionError {
    /// Whether the visitor asked for something that cannot be.
    pub(super) fn is_visitors(&self) -> bool {
        matches!(self, Self::Unknown | Self::Name(_) | Self::Number { .. } | Self::NoServer)
    }
}

/// The longest life of a ticket, in hours: a year.
pub(super) const MAX_HOURS: u64 = 366 * 24;

/// Changes a device.
pub(super) fn change(lab: &Lab, form: &DeviceForm, visitor: SocketAddr) -> Result<(), ActionError> {
    let database = Database::open_existing(lab.directory())?.ok_or(ActionError::NoServer)?;
    let client: ClientId = form.device.parse().map_err(|_| ActionError::Unknown)?;
    let all = Device::all(&database)?;
    if !all.iter().any(|device| device.client == client) {
        return Err(ActionError::Unknown);
    }
    names::set(Device::names(&database)?);
    let before = called(client);
    let (done, what) = match form.action {
        Action::Approve => {
            (Device::stand(&database, client, Standing::In)?, format!("let {before} take part"))
        }
        Action::Revoke => (Device::stand(&database, client, Standing::Revoked)?, format!("revoked {before}")),
        Action::Remove => (Device::remove(&database, client)?, format!("removed {before}")),
        Action::Name => {
            let name = form.name.trim();
            let name = if name.is_empty() { None } else { Some(DeviceName::parse(name)?) };
            name.iter().try_for_each(|name| name.check_free(client, &all))?;
            let what = match &name {
                Some(name) => format!("called {before} {}", name.as_str()),
                None => format!("took the name of {before}"),
            };
            (Device::rename(&database, client, name.as_ref().map(DeviceName::as_str))?, what)
        }
    };
    if !done {
        return Err(ActionError::Unknown);
    }
    note(&database, visitor, what)
}

/// Makes a ticket.
pub(super) fn make_ticket(
    lab: &Lab,
    form: &TicketForm,
    visitor: SocketAddr,
) -> Result<NewTicket, ActionError> {
    let number = |text: &str, what, most: u64| {
        let number = text.trim().parse::<u64>().ok().filter(|number| (1..=most).contains(number));
        number.ok_or(ActionError::Number { what, most })
    };
    let uses = number(&form.uses, "the number of devices", MAX_USES.into())?;
    let hours = number(&form.hours, "the number of hours", MAX_HOURS)?;
    let database = Database::open_existing(lab.directory())?.ok_or(ActionError::NoServer)?;
    let identity = ServerIdentity::load(&Disk, lab.directory())?.ok_or(ActionError::NoServer)?;
    let lasts = Duration::from_secs(hours * 3600);
    let wanted = Wanted { uses: uses as u32, lasts, addresses: Vec::new() };
    let made = issue(&database, identity.key(), wanted, SystemTime::now())?;
    let what = format!(
        "made ticket {} for {} and {}",
        made.issued.number,
        counted(uses as usize, "device"),
        seconds(lasts.as_secs_f64())
    );
    note(&database, visitor, what)?;
    Ok(made)
}

fn note(database: &Database, visitor: SocketAddr, what: String) -> Result<(), ActionError> {
    let change = Change { at: moment(SystemTime::now()), who: format!("page, from {}", visitor.ip()), what };
    Ok(change.note(database)?)
}
