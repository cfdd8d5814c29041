//! Known devices and their admission.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use rusqlite::{OptionalExtension as _, Row, params};
use shared::id::ClientId;
use shared::identity::PublicKey;
use shared::message::Refusal;
use shared::ticket::TicketSecret;

use super::Policy;
use super::pending::evict_pending;
use super::tickets::redeem;
use crate::database::{Database, DatabaseError, moment};

/// The standing of a device with this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Standing {
    /// Enrolled: it may take part.
    In,
    /// It awaits the operator's approval.
    Waiting,
    /// It was revoked.
    Revoked,
}

impl Standing {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Waiting => "waiting",
            Self::Revoked => "revoked",
        }
    }
}

impl ToSql for Standing {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::from(self.name()))
    }
}

impl FromSql for Standing {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        match value.as_str()? {
            "in" => Ok(Self::In),
            "waiting" => Ok(Self::Waiting),
            "revoked" => Ok(Self::Revoked),
            _ => Err(FromSqlError::InvalidType),
        }
    }
}

/// A known device.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Device {
    /// Its id.
    #[serde(rename = "device")]
    pub client: ClientId,
    /// Its key.
    pub key: PublicKey,
    /// The name that the operator gave it.
    pub name: Option<String>,
    /// Its standing.
    pub standing: Standing,
    /// When it first connected, in milliseconds since 1970.
    pub since: i64,
    /// When it was last here: connected, to about ten seconds.
    pub seen: i64,
    /// Its address then.
    pub address: Option<String>,
    /// Its program then.
    pub software: Option<String>,
    /// Its training samples then.
    pub samples: Option<i64>,
}

/// The last connection of a device.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The time.
    pub at: SystemTime,
    /// The device's address.
    pub address: IpAddr,
    /// The device's software.
    pub software: String,
    /// The number of its training samples.
    pub samples: u64,
}

impl Seen {
    /// Greatest length of a program's name, in characters.
    pub const SOFTWARE: usize = 100;
}

/// What a device shows to be admitted.
#[derive(Clone, Debug)]
pub(super) enum Shown {
    /// Its key alone.
    Nothing,
    /// A ticket, to be used here.
    Ticket(TicketSecret),
    /// A ticket that was used at all servers, or not.
    Claimed(Result<(), Refusal>),
}

/// The decision on a device that connects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admittance {
    /// It may take part.
    In,
    /// It may not take part.
    Refused(Refusal),
}

/// A device that was seen this lately is connected: its last moment here is noted every ten seconds.
const HERE: Duration = Duration::from_secs(25);

impl Device {
    /// What [`presence`](Self::presence) can be.
    pub const PRESENCES: [&str; 4] = ["here", "away", "waiting", "revoked"];

    /// Whether it may take part, and if so whether it is connected at `now`, in milliseconds since 1970, as far as is known.
    #[must_use]
    pub fn presence(&self, now: i64) -> &'static str {
        let silent = now.saturating_sub(self.seen);
        match self.standing {
            Standing::In if silent < HERE.as_millis() as i64 => "here",
            Standing::In => "away",
            standing => standing.name(),
        }
    }

    /// Decides on a device at `address` that has proved `key`, by the table in [`enrolment`](crate::enrolment).
    pub fn admit(
        database: &Database,
        key: PublicKey,
        ticket: Option<TicketSecret>,
        policy: Policy,
        address: IpAddr,
        now: SystemTime,
    ) -> Result<Admittance, DatabaseError> {
        let shown = ticket.map_or(Shown::Nothing, Shown::Ticket);
        Self::admit_with(database, key, &shown, policy, address, now)
    }

    pub(super) fn admit_with(
        database: &Database,
        key: PublicKey,
        shown: &Shown,
        policy: Policy,
        address: IpAddr,
        now: SystemTime,
    ) -> Result<Admittance, DatabaseError> {
        let client = key.client();
        let shows_nothing = matches!(shown, Shown::Nothing);
        // Most devices are known, so that nothing has to be written.
        match Self::find(database, client)?.map(|device| device.standing) {
            Some(Standing::In) => return Ok(Admittance::In),
            Some(Standing::Revoked) => return Ok(Admittance::Refused(Refusal::Revoked)),
            Some(Standing::Waiting) if shows_nothing && policy != Policy::Anyone => {
                return Ok(Admittance::Refused(Refusal::Pending { client }));
            }
            None if shows_nothing && policy == Policy::Ticket => {
                return Ok(Admittance::Refused(Refusal::Unknown));
            }
            Some(Standing::Waiting) | None => {}
        }
        database.write("enrol a device in", |transaction| {
            // Another connection of the device, or another process, may have been faster.
            let known: Option<Standing> = transaction
                .query_row("SELECT standing FROM devices WHERE client = ?1", [client.as_bytes()], |row| {
                    row.get(0)
                })
                .optional()?;
            match known {
                Some(Standing::In) => return Ok(Admittance::In),
                Some(Standing::Revoked) => return Ok(Admittance::Refused(Refusal::Revoked)),
                Some(Standing::Waiting) | None => {}
            }
            let used = match shown {
                Shown::Nothing => None,
                Shown::Ticket(ticket) => Some(redeem(transaction, *ticket, now)?),
                Shown::Claimed(claimed) => Some(claimed.clone()),
            };
            let standing = match used {
                Some(Ok(())) => Standing::In,
                // It is not known here yet that it was.
                Some(Err(Refusal::Revoked)) => return Ok(Admittance::Refused(Refusal::Revoked)),
                Some(Err(refusal)) if policy == Policy::Ticket => return Ok(Admittance::Refused(refusal)),
                _ if policy == Policy::Anyone => Standing::In,
                _ => Standing::Waiting,
            };
            if standing == Standing::Waiting && known.is_none() {
                evict_pending(transaction)?;
            }
            transaction.execute(
                "INSERT INTO devices (client, key, standing, since, seen, address) VALUES (?1, ?2, ?3, ?4, ?4, ?5)
                 ON CONFLICT (client) DO UPDATE SET standing = excluded.standing WHERE standing = 'waiting'",
                params![client.as_bytes(), key.as_bytes(), standing, moment(now), address.to_string()],
            )?;
            Ok(match standing {
                Standing::In => Admittance::In,
                Standing::Waiting | Standing::Revoked => Admittance::Refused(Refusal::Pending { client }),
            })
        })
    }

    /// The device with this id.
    pub fn find(database: &Database, client: ClientId) -> Result<Option<Self>, DatabaseError> {
        database.read("look for a device in", |connection| {
            connection
                .prepare("SELECT * FROM devices WHERE client = ?1")?
                .query_row([client.as_bytes()], Self::of)
                .optional()
        })
    }

    /// All devices, by their names and ids.
    pub fn all(database: &Database) -> Result<Vec<Self>, DatabaseError> {
        database.read("list the devices of", |connection| {
            let mut all = connection.prepare("SELECT * FROM devices ORDER BY name IS NULL, name, client")?;
            all.query_map([], Self::of)?.collect()
        })
    }

    /// Looks whether the id of every device is that of its key. A row in which it is not was changed by something else than this
    /// program, and the device that it was of is unknown: one that was revoked could enrol again.
    ///
    /// # Errors
    /// [`DatabaseError::Damaged`] if a row was changed.
    pub fn verify(database: &Database) -> Result<(), DatabaseError> {
        let changed = Self::all(database)?.into_iter().find(|device| device.key.client() != device.client);
        changed.map_or(Ok(()), |device| {
            let reason = format!("the device {} has the key of {}", device.client, device.key.client());
            Err(DatabaseError::Damaged { path: database.path().to_owned(), reason })
        })
    }

    /// The standing of every device.
    pub fn standing(database: &Database) -> Result<BTreeMap<ClientId, Standing>, DatabaseError> {
        database.read("look who may take part in", |connection| {
            let mut all = connection.prepare("SELECT client, standing FROM devices")?;
            all.query_map([], |row| Ok((ClientId::from_bytes(row.get(0)?), row.get(1)?)))?.collect()
        })
    }

    /// The names that the operator gave devices.
    pub fn names(database: &Database) -> Result<BTreeMap<ClientId, String>, DatabaseError> {
        database.read("read the names of devices in", |connection| {
            let mut all = connection.prepare("SELECT client, name FROM devices WHERE name IS NOT NULL")?;
            all.query_map([], |row| Ok((ClientId::from_bytes(row.get(0)?), row.get(1)?)))?.collect()
        })
    }

    /// Records that these devices are connected.
    pub fn note_heard(database: &Database, here: &[ClientId], now: SystemTime) -> Result<(), DatabaseError> {
        if here.is_empty() {
            return Ok(());
        }
        database.write("note who is here in", |transaction| {
            let mut note =
                transaction.prepare("UPDATE devices SET seen = max(seen, ?2) WHERE client = ?1")?;
            here.iter().try_for_each(|client| note.execute(params![client.as_bytes(), moment(now)]).map(drop))
        })
    }

    /// The last addresses of enrolled devices, at most `most` of them, the newest one last.
    pub fn addresses(database: &Database, most: usize) -> Result<Vec<IpAddr>, DatabaseError> {
        let texts: Vec<String> = database.read("look from where devices come in", |connection| {
            connection
                .prepare(
                    "SELECT address FROM devices WHERE standing = 'in' AND address IS NOT NULL \
                     ORDER BY seen DESC, client LIMIT ?1",
                )?
                .query_map([i64::try_from(most).unwrap_or(i64::MAX)], |row| row.get(0))?
                .collect()
        })?;
        Ok(texts.iter().rev().filter_map(|text| text.parse().ok()).collect())
    }

    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            client: ClientId::from_bytes(row.get("client")?),
            key: PublicKey::from_bytes(row.get("key")?),
            name: row.get("name")?,
            standing: row.get("standing")?,
            since: row.get("since")?,
            seen: row.get("seen")?,
            address: row.get("address")?,
            software: row.get("software")?,
            samples: row.get("samples")?,
        })
    }

    /// Records the last connections. Devices that were removed in the meantime are ignored.
    pub fn note(database: &Database, seen: &BTreeMap<ClientId, Seen>) -> Result<(), DatabaseError> {
        if seen.is_empty() {
            return Ok(());
        }
        database.write("note who was here in", |transaction| {
            let mut note = transaction.prepare(
                "UPDATE devices SET seen = ?2, address = ?3, software = ?4, samples = ?5 WHERE client = ?1",
            )?;
            for (client, seen) in seen {
                let samples = i64::try_from(seen.samples).unwrap_or(i64::MAX);
                let address = seen.address.to_string();
                note.execute(params![client.as_bytes(), moment(seen.at), address, seen.software, samples])?;
            }
            Ok(())
        })
    }

    /// Sets the standing of a device. False if there is no such device.
    pub fn stand(database: &Database, client: ClientId, standing: Standing) -> Result<bool, DatabaseError> {
        database.write("change a device in", |transaction| {
            let changed = transaction.execute(
                "UPDATE devices SET standing = ?2 WHERE client = ?1",
                params![client.as_bytes(), standing],
            )?;
            Ok(changed > 0)
        })
    }

    /// Sets or removes the name of a device. False if there is no such device.
    pub fn rename(database: &Database, client: ClientId, name: Option<&str>) -> Result<bool, DatabaseError> {
        database.write("name a device in", |transaction| {
            let changed = transaction.execute(
                "UPDATE devices SET name = ?2 WHERE client = ?1",
                params![client.as_bytes(), name],
            )?;
            Ok(changed > 0)
        })
    }

    /// Removes a device, which then needs to enrol again. False if there is no such device.
    pub fn remove(database: &Database, client: ClientId) -> Result<bool, DatabaseError> {
        database.write("remove a device from", |transaction| {
            let removed =
                transaction.execute("DELETE FROM devices WHERE client = ?1", [client.as_bytes()])?;
            Ok(removed > 0)
        })
    }
}

#[cfg(test)]
mod tests;
