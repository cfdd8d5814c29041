//! A connection that comes back after an outage.

use std::time::{Duration, Instant};

use postgres::{Client, Error};

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
        let store = self.address.to_string();
        if found > schema::KNOWN {
            return Err(StoreError::Newer { store, found, known: schema::KNOWN });
        }
        Ok(())
    }

    /// Does this, connecting first where there is no connection. Nothing is tried again.
    ///
    /// # Errors
    /// [`StoreError::Refused`].
    pub fn once<T>(
        &mut self,
        work: &mut dyn FnMut(&mut Client) -> Result<T, Error>,
    ) -> Result<T, StoreError> {
        let done = match &mut self.client {
            Some(Connected(client)) if !client.is_closed() => work(client),
            client => match self.address.connect() {
                Ok(made) => work(&mut client.insert(Connected(made)).0),
                Err(error) => Err(error),
            },
        };
        done.map_err(|source| {
            if source.code().is_none() {
                // The next question on such a connection might get the answer to an earlier one.
                self.client = None;
            }
            StoreError::Refused { store: self.address.to_string(), source }
        })
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
