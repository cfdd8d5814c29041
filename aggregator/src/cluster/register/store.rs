//! The register of a lab in a store: what it says that is new, and changes to it.

use postgres::{Client, Error, IsolationLevel, Row, Transaction};
use shared::id::ClientId;
use shared::identity::PublicKey;

use super::rows::{
    Changed, DeviceRow, Extent, Left, Place, Pulled, Said, Stands, TheirDevice, TheirTicket, TicketRow,
};
use crate::enrolment::DeviceName;

/// Rows of removed devices, and of tickets that are good for nothing, that a lab keeps of each.
const KEPT: i64 = 1000;

/// Where the register of `lab` is, and up to which revision rows were deleted.
fn head(client: &mut impl postgres::GenericClient, lab: &[u8]) -> Result<Option<(Place, i64)>, Error> {
    let row =
        client.query_opt("SELECT instance, revision, purged FROM register_labs WHERE lab = $1", &[&lab])?;
    Ok(row.map(|row| (Place { instance: row.get(0), revision: row.get(1) }, row.get(2))))
}

/// What a server that has got to `at` has not read yet; `None` if there is nothing. A lab that is not there is entered, as `instance`, and one
/// that was put back to an earlier state is that from now on: no register was called so before.
pub(super) fn pull(
    client: &mut Client,
    lab: &[u8],
    at: Option<&Place>,
    instance: &[u8],
) -> Result<Option<Pulled>, Error> {
    // Most often nothing is new.
    match head(client, lab)? {
        Some((place, _)) if at == Some(&place) => return Ok(None),
        // Once other servers have raised the revision again, those that come later could not tell: so that all merge anew, it is another one.
        Some((place, _)) if at.is_some_and(|at| at.is_ahead_of(&place)) => {
            client.execute(
                "UPDATE register_labs SET instance = $3 WHERE lab = $1 AND instance = $2",
                &[&lab, &place.instance, &instance],
            )?;
        }
        Some(_) => {}
        None => {
            client.execute(
                "INSERT INTO register_labs (lab, instance) VALUES ($1, $2) ON CONFLICT DO NOTHING",
                &[&lab, &instance],
            )?;
        }
    }
    // All of it as of one moment.
    let mut transaction =
        client.build_transaction().isolation_level(IsolationLevel::RepeatableRead).read_only(true).start()?;
    let Some((place, purged)) = head(&mut transaction, lab)? else { return Ok(None) };
    let extent = match at {
        Some(at) if at.instance != place.instance || at.is_ahead_of(&place) => Extent::Another,
        Some(at) if at.revision < purged => Extent::Whole,
        Some(_) => Extent::Newer,
        None => Extent::Another,
    };
    let from = at.filter(|_| extent == Extent::Newer).map_or(-1, |at| at.revision);
    let devices = transaction.query(
        "SELECT client, key, name, standing, since, stood, revision FROM register_devices WHERE lab = $1 AND revision > $2",
        &[&lab, &from],
    )?;
    let tickets = transaction.query(
        "SELECT digest, uses, remaining, made, expires, withdrawn, revision FROM register_tickets WHERE lab = $1 AND revision > $2",
        &[&lab, &from],
    )?;
    transaction.commit()?;
    let devices = devices.iter().filter_map(device).collect();
    Ok(Some(Pulled { place, extent, purged, devices, tickets: tickets.iter().map(ticket).collect() }))
}

/// A device of the store, which other machines have written. One whose key is not its own is none.
fn device(row: &Row) -> Option<TheirDevice> {
    let client = ClientId::from_bytes(row.get::<_, &[u8]>(0).try_into().ok()?);
    let key = PublicKey::from_bytes(row.get::<_, &[u8]>(1).try_into().ok()?);
    let name = row.get::<_, Option<String>>(2).filter(|name| DeviceName::parse(name).is_ok());
    let said = Said { standing: Stands::named(row.get(3)), name };
    let device = DeviceRow { client, key, said, since: row.get(4) };
    (key.client() == client).then(|| TheirDevice { row: device, stood: row.get(5), revision: row.get(6) })
}

fn ticket(row: &Row) -> TheirTicket {
    let left = Left { remaining: row.get(2), withdrawn: row.get(5) };
    let ticket =
        TicketRow { digest: row.get(0), uses: row.get(1), left, made: row.get(3), expires: row.get(4) };
    TheirTicket { row: ticket, revision: row.get(6) }
}

/// Locks the register of a lab until the end of the transaction. `None` if it is another one than `instance`.
pub(super) fn lock(
    transaction: &mut Transaction<'_>,
    lab: &[u8],
    instance: &[u8],
) -> Result<Option<i64>, Error> {
    let row = transaction.query_opt(
        "SELECT revision FROM register_labs WHERE lab = $1 AND instance = $2 FOR UPDATE",
        &[&lab, &instance],
    )?;
    Ok(row.map(|row| row.get(0)))
}

/// Raises the revision of a lab that is locked.
pub(super) fn raise(transaction: &mut Transaction<'_>, lab: &[u8], revision: i64) -> Result<(), Error> {
    transaction.execute("UPDATE register_labs SET revision = $2 WHERE lab = $1", &[&lab, &revision]).map(drop)
}

/// Writes what was changed by a server that has merged all up to `at`. The place after that, or `None` if another server was faster.
pub(super) fn push(
    client: &mut Client,
    lab: &[u8],
    at: &Place,
    changed: &Changed,
) -> Result<Option<Place>, Error> {
    let mut transaction = client.transaction()?;
    if lock(&mut transaction, lab, &at.instance)? != Some(at.revision) {
        return Ok(None);
    }
    let place = Place { instance: at.instance.clone(), revision: at.revision + 1 };
    push_devices(&mut transaction, lab, changed, place.revision)?;
    push_tickets(&mut transaction, lab, changed, place.revision)?;
    raise(&mut transaction, lab, place.revision)?;
    transaction.commit()?;
    Ok(Some(place))
}

fn push_devices(
    transaction: &mut Transaction<'_>,
    lab: &[u8],
    changed: &Changed,
    revision: i64,
) -> Result<(), Error> {
    let devices = &changed.devices;
    if !devices.is_empty() {
        let clients: Vec<&[u8]> = devices.iter().map(|device| &device.client.as_bytes()[..]).collect();
        let keys: Vec<&[u8]> = devices.iter().map(|device| &device.key.as_bytes()[..]).collect();
        let names: Vec<Option<&str>> = devices.iter().map(|device| device.said.name.as_deref()).collect();
        let standings: Vec<&str> = devices.iter().map(|device| device.said.standing.name()).collect();
        let since: Vec<i64> = devices.iter().map(|device| device.since).collect();
        transaction.execute(
            "INSERT INTO register_devices (lab, client, key, name, standing, since, stood, revision)
             SELECT $1, client, key, name, standing, since, $7, $7
             FROM unnest($2::bytea[], $3::bytea[], $4::text[], $5::text[], $6::bigint[]) AS given (client, key, name, standing, since)
             ON CONFLICT (lab, client) DO UPDATE SET name = excluded.name, standing = excluded.standing, revision = excluded.revision,
                 stood = CASE WHEN register_devices.standing = excluded.standing THEN register_devices.stood ELSE excluded.stood END",
            &[&lab, &clients, &keys, &names, &standings, &since, &revision],
        )?;
    }
    if !changed.removed.is_empty() {
        let clients: Vec<&[u8]> = changed.removed.iter().map(|client| &client.as_bytes()[..]).collect();
        transaction.execute(
            "UPDATE register_devices SET standing = $4, name = NULL, stood = $3, revision = $3 WHERE lab = $1 AND client = ANY ($2)",
            &[&lab, &clients, &revision, &Stands::REMOVED.name()],
        )?;
        purge(transaction, lab, "register_devices", "standing = 'removed'")?;
    }
    Ok(())
}

fn push_tickets(
    transaction: &mut Transaction<'_>,
    lab: &[u8],
    changed: &Changed,
    revision: i64,
) -> Result<(), Error> {
    let tickets = &changed.tickets;
    if !tickets.is_empty() {
        let digests: Vec<&[u8]> = tickets.iter().map(|ticket| &ticket.digest[..]).collect();
        let numbers = |of: fn(&TicketRow) -> i64| -> Vec<i64> { tickets.iter().map(of).collect() };
        transaction.execute(
            "INSERT INTO register_tickets (lab, digest, uses, remaining, made, expires, revision)
             SELECT $1, digest, uses, remaining, made, expires, $7
             FROM unnest($2::bytea[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[])
                 AS given (digest, uses, remaining, made, expires)
             ON CONFLICT (lab, digest) DO UPDATE SET remaining = excluded.remaining, revision = excluded.revision",
            &[
                &lab,
                &digests,
                &numbers(|ticket| ticket.uses),
                &numbers(|ticket| ticket.left.remaining),
                &numbers(|ticket| ticket.made),
                &numbers(|ticket| ticket.expires),
                &revision,
            ],
        )?;
        let good_for_nothing =
            "(withdrawn OR remaining <= 0 OR expires <= (extract(epoch FROM now()) * 1000)::bigint)";
        purge(transaction, lab, "register_tickets", good_for_nothing)?;
    }
    if !changed.withdrawn.is_empty() {
        let digests: Vec<&[u8]> = changed.withdrawn.iter().map(|digest| &digest[..]).collect();
        transaction.execute(
            "UPDATE register_tickets SET withdrawn = true, revision = $3 WHERE lab = $1 AND digest = ANY ($2)",
            &[&lab, &digests, &revision],
        )?;
    }
    Ok(())
}

/// Deletes all but the newest of the rows that are kept for servers that were away.
fn purge(transaction: &mut Transaction<'_>, lab: &[u8], table: &str, old: &str) -> Result<(), Error> {
    let last = transaction.query_opt(
        &format!(
            "SELECT revision FROM {table} WHERE lab = $1 AND {old} ORDER BY revision DESC OFFSET $2 LIMIT 1"
        ),
        &[&lab, &KEPT],
    )?;
    let Some(last) = last.map(|row| row.get::<_, i64>(0)) else { return Ok(()) };
    transaction.execute(
        &format!("DELETE FROM {table} WHERE lab = $1 AND {old} AND revision <= $2"),
        &[&lab, &last],
    )?;
    transaction
        .execute("UPDATE register_labs SET purged = $2 WHERE lab = $1 AND purged < $2", &[&lab, &last])?;
    Ok(())
}
