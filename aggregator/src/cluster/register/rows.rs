//! What the servers of a lab tell each other: rows of devices and tickets.

use rusqlite::types::{FromSql, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use shared::id::ClientId;
use shared::identity::PublicKey;

use crate::enrolment::Standing;

/// The standing of a device at one side. Where there is no such device it was removed, or never known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stands(pub(super) Option<Standing>);

impl Stands {
    /// A device that is not there.
    pub(super) const REMOVED: Self = Self(None);
    /// One that may take part.
    pub(super) const IN: Self = Self(Some(Standing::In));
    /// One that waits for approval.
    pub(super) const WAITING: Self = Self(Some(Standing::Waiting));
    /// One that was revoked.
    pub(super) const REVOKED: Self = Self(Some(Standing::Revoked));

    /// Its name in tables.
    pub(super) fn name(self) -> &'static str {
        self.0.map_or("removed", Standing::name)
    }

    /// The one of this name. What no name is known of lets no device in.
    pub(super) fn named(name: &str) -> Self {
        let all = [Self::REMOVED, Self::IN, Self::WAITING, Self::REVOKED];
        all.into_iter().find(|stands| stands.name() == name).unwrap_or(Self::REVOKED)
    }
}

impl ToSql for Stands {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::from(self.name()))
    }
}

impl FromSql for Stands {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        value.as_str().map(Self::named)
    }
}

/// What one side says of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) standing: Stands,
    pub(super) name: Option<String>,
}

/// A device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DeviceRow {
    pub(super) client: ClientId,
    pub(super) key: PublicKey,
    pub(super) said: Said,
    /// When it first connected, in milliseconds since 1970.
    pub(super) since: i64,
}

/// The digest of a ticket's secret.
pub(super) type Digest = Vec<u8>;

/// What one side says of a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Left {
    /// How many more devices it lets in.
    pub(super) remaining: i64,
    /// Whether it was withdrawn, or deleted because it was no longer good.
    pub(super) withdrawn: bool,
}

/// A ticket. Times are milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TicketRow {
    pub(super) digest: Digest,
    pub(super) uses: i64,
    pub(super) left: Left,
    pub(super) made: i64,
    pub(super) expires: i64,
}

/// Where in the history of a lab's register a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The register: another one after its tables were lost, or put back to an earlier state.
    pub(super) instance: Vec<u8>,
    /// The revision up to which all was read.
    pub(super) revision: i64,
}

impl Place {
    /// Whether the register has gone back since it was here.
    pub(super) fn is_ahead_of(&self, now: &Self) -> bool {
        self.instance == now.instance && self.revision > now.revision
    }
}

/// What was changed here since the servers have agreed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Changed {
    pub(super) devices: Vec<DeviceRow>,
    pub(super) removed: Vec<ClientId>,
    pub(super) tickets: Vec<TicketRow>,
    pub(super) withdrawn: Vec<Digest>,
}

impl Changed {
    pub(super) fn is_empty(&self) -> bool {
        let Self { devices, removed, tickets, withdrawn } = self;
        devices.is_empty() && removed.is_empty() && tickets.is_empty() && withdrawn.is_empty()
    }
}

/// A device as the store has it.
#[derive(Clone, Debug)]
pub(super) struct TheirDevice {
    pub(super) row: DeviceRow,
    /// The revision with which it got its standing.
    pub(super) stood: i64,
    /// The revision with which anything of it changed.
    pub(super) revision: i64,
}

/// A ticket as the store has it.
#[derive(Clone, Debug)]
pub(super) struct TheirTicket {
    pub(super) row: TicketRow,
    pub(super) revision: i64,
}

/// How much of the store was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// What has changed since this server read last.
    Newer,
    /// All: some rows that it did not see yet were deleted.
    Whole,
    /// All, of another register than the one that it knows.
    Another,
}

/// What was read of the store.
#[derive(Clone, Debug)]
pub(super) struct Pulled {
    pub(super) place: Place,
    pub(super) extent: Extent,
    /// The greatest revision of a row that was deleted.
    pub(super) purged: i64,
    pub(super) devices: Vec<TheirDevice>,
    pub(super) tickets: Vec<TheirTicket>,
}
