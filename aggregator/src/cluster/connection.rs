//! A connection that comes back after an outage.

use std::time::{Duration, Instant};

use postgres::error::SqlState;
use postgres::{Client, Error};
use tokio::runtime::Handle;

use super::address::StoreAddress;
use super::error::StoreError;
use super::schema;

/// The first and the longest time between two attempts.
const BACKOFF: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(5)];

/// How long an outage lasts before it is told.
const NEWS: Duration = Duration::from_secs(1);

/// A connection to a store, made when it is needed.
#[derive(Debug)]
pub struct Connection {
    address: StoreAddress,
    client: Option<Connected>,
}

struct Connected(Client);

/// Ends a connection. That blocks, which no thread may that drives asynchronous tasks: then another one does it.
fn end(connected: Connected) {
    if Handle::try_current().is_ok() {
        // Without another thread, the system closes the socket with the process.
        let _ = std::thread::Builder::new().spawn(move || drop(connected));
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(connected) = self.client.take() {
            end(connected);
        }
    }
}

impl std::fmt::Debug for Connected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a client of PostgreSQL")
    }
}

/// What waits through an outage.
pub trait Patience {
    /// Hears why the store cannot be used, and that it is tried again; once for an outage.
    fn outage(&mut self, why: &StoreError);
    /// Hears that it is there again.
    fn over(&mut self);
    /// Waits this long, or less if there is no reason to wait any more. `false` gives up.
    fn wait(&mut self, time: Duration) -> bool;
}

impl Connection {
    /// One that is not made yet.
    #[must_use]
    pub fn new(address: StoreAddress) -> Self {
        Self { address, client: None }
    }

    /// The address.
    #[must_use]
    pub fn address(&self) -> &StoreAddress {
        &self.address
    }

    /// Brings the tables to this program's version.
    ///
    /// # Errors
    /// The database does not answer, lets this program not in, or is of a newer one.
    pub fn prepare(&mut self) -> Result<(), StoreError> {
        let found = self.once(&mut schema::prepare)?;
        self.check(found)
    }

    /// [`prepare`](Self::prepare), through outages. `None` once `patience` gives up.
    ///
    /// # Errors
    /// The database lets this program not in, or is of a newer one.
    pub fn prepare_lasting(&mut self, patience: &mut dyn Patience) -> Result<Option<()>, StoreError> {
        let found = self.lasting(patience, &mut schema::prepare)?;
        found.map(|found| self.check(found)).transpose()
    }

    fn check(&self, found: schema::Version) -> Result<(), StoreError> {
        if found.needs > schema::KNOWN {
            let store = self.address.to_string();
            return Err(StoreError::Newer { store, found: found.needs, known: schema::KNOWN });
        }
        Ok(())
    }

    /// Does this, connecting first where there is no connection. It is tried again at once where a connection that was used before
    /// turns out to have ended.
    ///
    /// # Errors
    /// [`StoreError::Refused`].
    pub fn once<T>(
        &mut self,
        work: &mut dyn FnMut(&mut Client) -> Result<T, Error>,
    ) -> Result<T, StoreError> {
        let used = self.client.take_if(|Connected(client)| !client.is_closed());
        let done = match used {
            Some(Connected(client)) => match self.attempt(client, work) {
                // It may have been cut long ago, which is only noticed now.
                Err(error) if error.code().is_none() => self.anew(work),
                done => done,
            },
            None => self.anew(work),
        };
        done.map_err(|source| StoreError::Refused { store: self.address.to_string(), source })
    }

    fn anew<T>(&mut self, work: &mut dyn FnMut(&mut Client) -> Result<T, Error>) -> Result<T, Error> {
        let client = self.address.connect()?;
        self.attempt(client, work)
    }

    /// Does this with a client, which is kept unless it is of no use any more.
    fn attempt<T>(
        &mut self,
        mut client: Client,
        work: &mut dyn FnMut(&mut Client) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let done = work(&mut client);
        // Without a code from the database, the next question might get the answer to an earlier one; and one that only reads is left. One
        // that stood still in a transaction has been ended.
        let of_no_use = |error: &Error| {
            error.code().is_none_or(|code| {
                [SqlState::READ_ONLY_SQL_TRANSACTION, SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT]
                    .contains(code)
            })
        };
        if !done.as_ref().is_err_and(of_no_use) {
            self.client = Some(Connected(client));
        }
        done
    }

    /// Does this as often as it takes: outages are waited through, with growing pauses. `None` once `patience` gives up.
    ///
    /// What is done must be the same done twice: it may have happened before its answer was lost.
    ///
    /// # Errors
    /// [`StoreError::Refused`] for what does not pass by itself.
    pub fn lasting<T>(
        &mut self,
        patience: &mut dyn Patience,
        work: &mut dyn FnMut(&mut Client) -> Result<T, Error>,
    ) -> Result<Option<T>, StoreError> {
        let [mut pause, most] = BACKOFF;
        let (mut since, mut told): (Option<Instant>, bool) = (None, false);
        loop {
            match self.once(work) {
                Ok(done) => {
                    if told {
                        patience.over();
                    }
                    return Ok(Some(done));
                }
                Err(error) if error.is_outage() => {
                    let first = *since.get_or_insert_with(Instant::now);
                    // What is over in a moment is no news.
                    if !told && first.elapsed() >= NEWS {
                        patience.outage(&error);
                        told = true;
                    }
                    if !patience.wait(pause) {
                        return Ok(None);
                    }
                    pause = (pause * 2).min(most);
                }
                Err(error) => return Err(error),
            }
        }
    }
}
