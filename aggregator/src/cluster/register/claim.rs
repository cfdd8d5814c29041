//! Uses of tickets, claimed in a store: a ticket has one use less and the device is admitted, for all servers, in one transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, SystemTime};

use postgres::{Client, Error, Transaction};
use shared::identity::PublicKey;
use shared::message::Refusal;
use shared::ticket::TicketSecret;

use super::rows::{Digest, Place, Stands};
use super::store::{lock, raise};
use crate::database::moment;
use crate::enrolment::{Claim, SharedTickets};

/// How long a device waits for the answer. One that comes later finds that it was admitted, or that nothing was used.
const PATIENCE: Duration = Duration::from_secs(5);

/// A device that shows a ticket.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) key: PublicKey,
    pub(super) digest: Digest,
    /// When it shows it, in milliseconds since 1970.
    pub(super) now: i64,
}

/// What the synchroniser's thread is asked for.
#[derive(Debug)]
pub(super) enum Message {
    Claim(Wanted, mpsc::SyncSender<Claim>),
    Stop,
}

/// Asks the synchroniser's thread.
#[derive(Clone, Debug)]
pub(super) struct Claims {
    pub(super) to: mpsc::Sender<Message>,
    /// Whether the store cannot be asked now.
    pub(super) away: Arc<AtomicBool>,
}

impl SharedTickets for Claims {
    fn claim(&self, key: PublicKey, ticket: TicketSecret, now: SystemTime) -> Claim {
        if self.away.load(Ordering::Relaxed) {
            return Claim::Unavailable;
        }
        let (reply, answer) = mpsc::sync_channel(1);
        let wanted = Wanted { key, digest: ticket.digest().to_vec(), now: moment(now) };
        if self.to.send(Message::Claim(wanted, reply)).is_err() {
            return Claim::Unavailable;
        }
        answer.recv_timeout(PATIENCE).unwrap_or(Claim::Unavailable)
    }
}

/// Answers all of these, in one transaction. `None` if the register is another one than that of `at`.
pub(super) fn claim(
    client: &mut Client,
    lab: &[u8],
    at: &Place,
    all: &[Wanted],
) -> Result<Option<Vec<Claim>>, Error> {
    let mut transaction = client.transaction()?;
    let Some(revision) = lock(&mut transaction, lab, &at.instance)? else { return Ok(None) };
    let revision = revision + 1;
    let (mut answers, mut raised) = (Vec::new(), false);
    for wanted in all {
        let answer = one(&mut transaction, lab, wanted, revision)?;
        raised |= answer.1;
        answers.push(answer.0);
    }
    if raised {
        raise(&mut transaction, lab, revision)?;
    }
    transaction.commit()?;
    Ok(Some(answers))
}

/// The answer, and whether anything was changed for it.
fn one(
    transaction: &mut Transaction<'_>,
    lab: &[u8],
    wanted: &Wanted,
    revision: i64,
) -> Result<(Claim, bool), Error> {
    let Wanted { key, digest, now } = wanted;
    let device = key.client();
    let known = transaction.query_opt(
        "SELECT standing FROM register_devices WHERE lab = $1 AND client = $2",
        &[&lab, &&device.as_bytes()[..]],
    )?;
    match known.map(|row| Stands::named(row.get(0))) {
        // The answer was lost, or it is at another server too.
        Some(Stands::IN) => return Ok((Claim::Granted, false)),
        Some(Stands::REVOKED) => return Ok((Claim::Refused(Refusal::Revoked), false)),
        _ => {}
    }
    // Whether it has expired is said by the database's clock, which all servers share.
    let ticket = transaction.query_opt(
        "SELECT remaining, expires <= (extract(epoch FROM now()) * 1000)::bigint FROM register_tickets
         WHERE lab = $1 AND digest = $2 AND NOT withdrawn",
        &[&lab, digest],
    )?;
    let refused = match ticket.map(|row| (row.get::<_, i64>(0), row.get::<_, bool>(1))) {
        None => Some(Refusal::TicketUnknown),
        Some((_, true)) => Some(Refusal::TicketExpired),
        Some((remaining, false)) if remaining <= 0 => Some(Refusal::TicketUsedUp),
        Some(_) => None,
    };
    if let Some(refusal) = refused {
        return Ok((Claim::Refused(refusal), false));
    }
    transaction.execute(
        "UPDATE register_tickets SET remaining = remaining - 1, revision = $3 WHERE lab = $1 AND digest = $2",
        &[&lab, digest, &revision],
    )?;
    transaction.execute(
        "INSERT INTO register_devices (lab, client, key, standing, since, stood, revision) VALUES ($1, $2, $3, $4, $5, $6, $6)
         ON CONFLICT (lab, client) DO UPDATE SET standing = excluded.standing, stood = excluded.stood, revision = excluded.revision",
        &[&lab, &&device.as_bytes()[..], &&key.as_bytes()[..], &Stands::IN.name(), now, &revision],
    )?;
    Ok((Claim::Granted, true))
}
