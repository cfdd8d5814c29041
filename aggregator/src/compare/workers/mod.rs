//! Workers that share an experiment over a [store](crate::cluster): each takes a free run, and brings what it has back.
//!
//! Every worker has the experiment's folder on its own disk, as if it were alone. What it has of a run goes to the store when the run ends,
//! every few minutes while it goes on ([`Workers::due`]), and when the worker is stopped: a worker that takes over the run of one that
//! was killed continues from there. Where all has ended, every worker has all runs, and makes the tables of one process.
//!
//! | module | what it is |
//! |---|---|
//! | [`identity`] | which experiments are the same |
//! | `held` | the runs that this worker has taken, and their leases |
//! | `queue` | what is left, handed out |

mod held;
pub mod identity;
mod queue;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tracing::warn;

use super::collect::transfer;
use super::plan::{Plan, Planned, Standing};
use crate::cluster::address::StoreAddress;
use crate::cluster::connection::{Connection, Patience};
use crate::cluster::error::{StoreError, disk};
use crate::cluster::experiments::{self, Claim, Description, LEASE, Stands, Then};
use crate::cluster::file_store::Of;
use crate::cluster::files::{self, Chosen, Digests, Fetched, Kept};
use crate::cluster::schema;
use crate::report::standing::Process;
use crate::storage::{Disk, FileLayer as _};
use held::Held;

/// Connections that are kept while they are idle.
const IDLE: usize = 2;

/// Why workers cannot share an experiment.
#[derive(Debug, thiserror::Error)]
pub enum WorkersError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A run cannot be written into the experiment's folder.
    #[error(transparent)]
    Arrival(#[from] super::collect::error::CollectError),
    /// The experiment was removed from the store while it was worked on.
    #[error(
        "the store has the run {0} no more: the experiment was removed from it, or the database lost what it had acknowledged. What is \
         here stays, and the same command shares it anew"
    )]
    Forgotten(String),
    /// They were stopped.
    #[error("stopped")]
    Stopped,
}

/// This worker, and what it knows of the others.
#[derive(Debug)]
pub struct Workers {
    experiment: Description,
    /// Its name among the workers.
    name: String,
    /// [What computes](models::Backend::arithmetic) here.
    arithmetic: String,
    /// The experiment's folder.
    out: PathBuf,
    /// How long a run goes on before what it has goes to the store, at least.
    interval: Duration,
    address: StoreAddress,
    /// Idle connections.
    connections: Mutex<Vec<Connection>>,
    held: Arc<Held>,
    /// The runs that are here as they are in the store, and have ended.
    same: Mutex<BTreeSet<String>>,
    /// The runs that failed here.
    failed: Mutex<BTreeSet<String>>,
    stop: watch::Receiver<bool>,
    trouble: Mutex<Option<WorkersError>>,
    /// How many runs of others are waited for, as it was said last. Held by the one thread that asks the store what is free.
    asking: Mutex<Option<usize>>,
}

/// What is asked of the store. `None` if it was given up.
type Question<'a, T> = dyn FnMut(&mut Connection, &mut dyn Patience) -> Result<Option<T>, StoreError> + 'a;

/// Waits until all are stopped.
struct UntilStopped<'a>(&'a watch::Receiver<bool>);

impl Patience for UntilStopped<'_> {
    fn outage(&mut self, why: &StoreError) {
        warn!("{why}; what runs goes on, and it is tried again");
    }

    fn over(&mut self) {
        warn!("the store is there again");
    }

    fn wait(&mut self, time: Duration) -> bool {
        wait(time, self.0)
    }
}

/// Waits this long, or until all are stopped. Whether they are not.
fn wait(time: Duration, stop: &watch::Receiver<bool>) -> bool {
    /// How soon a stop is seen.
    const STEP: Duration = Duration::from_millis(100);
    let mut left = time;
    while !left.is_zero() && !*stop.borrow() {
        std::thread::sleep(left.min(STEP));
        left = left.saturating_sub(STEP);
    }
    !*stop.borrow()
}

impl Workers {
    /// Joins those who work on `plan`, before anything is chosen in it. This worker has the experiment in the folder `out`.
    ///
    /// # Errors
    /// The store cannot be used.
    pub fn join(
        address: StoreAddress,
        plan: &Plan,
        out: &Path,
        arithmetic: &str,
        interval: Duration,
        stop: &watch::Receiver<bool>,
    ) -> Result<Self, WorkersError> {
        let experiment = identity::describe(plan);
        let mut connection = Connection::new(address.clone());
        connection.prepare()?;
        connection.once(&mut |client| experiments::enter(client, &experiment))?;
        // A process that died may have left some.
        for run in &plan.runs {
            let former = former(out, &run.config.spec.name);
            Disk.remove_dir(&former).map_err(disk("remove", &former))?;
        }
        let name = format!("{}:{}", Process::this().host.as_deref().unwrap_or("unknown"), std::process::id());
        Ok(Self {
            held: Held::start(Connection::new(address.clone()), experiment.id, name.clone()),
            experiment,
            name,
            arithmetic: arithmetic.to_owned(),
            out: out.to_owned(),
            interval,
            address,
            connections: Mutex::new(vec![connection]),
            same: Mutex::default(),
            failed: Mutex::default(),
            stop: stop.clone(),
            trouble: Mutex::default(),
            asking: Mutex::default(),
        })
    }

    /// Its name among the workers.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How long a run goes on before what it has goes to the store, at least.
    #[must_use]
    pub fn due(&self) -> Duration {
        self.interval
    }

    /// How all runs stand in the store.
    ///
    /// # Errors
    /// Those of the store.
    pub fn standing(&self) -> Result<Vec<Stands>, WorkersError> {
        let id = self.experiment.id;
        self.ask(&mut |connection, patience| {
            connection.lasting(patience, &mut |client| experiments::standing(client, &id))
        })
    }

    /// A warning if the store has an experiment of the same title and form that has other configurations.
    ///
    /// # Errors
    /// Those of the store.
    pub fn namesake(&self) -> Result<Option<String>, WorkersError> {
        let found = self.ask(&mut |connection, patience| {
            connection.lasting(patience, &mut |client| experiments::namesakes(client, &self.experiment))
        })?;
        Ok(found.first().map(|(ended, all)| {
            format!(
                "the store has another experiment of this title and form, {ended} of {all} runs of which have ended: its file, its --set or \
                 its program is not the same. Workers share runs only where all of these are"
            )
        }))
    }

    /// Brings what others have ended into the experiment's folder, and what is complete here into the store. Whether anything came.
    ///
    /// # Errors
    /// Those of the store and of the disk.
    pub fn meet(&self, plan: &Plan, runs: &Path) -> Result<bool, WorkersError> {
        let mut came = false;
        for stands in self.standing()? {
            let Some(run) = plan.runs.iter().find(|run| run.config.spec.name == stands.name) else {
                continue;
            };
            let here = run.standing(&Disk, runs);
            if stands.ended && here != Standing::Done && !lock(&self.same).contains(&stands.name) {
                // What belongs to another state of the experiment is refused, or set aside, before runs are taken.
                if matches!(here, Standing::Absent | Standing::Unfinished(_)) {
                    self.fetch(run, runs)?;
                    lock(&self.same).insert(stands.name);
                    came = true;
                }
            } else if !stands.ended && here == Standing::Done {
                self.offer(run, runs)?;
            }
        }
        Ok(came)
    }

    /// Puts a run that is complete here into the store, unless another worker has it.
    fn offer(&self, run: &Planned, runs: &Path) -> Result<(), WorkersError> {
        let Some(claim) = self.claim(&[&run.config.spec.name])? else { return Ok(()) };
        // Its lease is renewed until it is there.
        self.held.add(claim.clone(), Instant::now() + self.interval);
        let kept = self.keep(run, &claim, runs, Then::HasEnded);
        self.held.remove(&claim.name);
        kept.map(drop)
    }

    /// The first of these runs that is free.
    fn claim(&self, among: &[&str]) -> Result<Option<Claim>, WorkersError> {
        let id = self.experiment.id;
        self.ask(&mut |connection, patience| {
            connection
                .lasting(patience, &mut |client| experiments::take(client, &id, among, (&self.name, LEASE)))
        })
    }

    /// Puts what is here of a run into the store.
    fn keep(&self, run: &Planned, claim: &Claim, runs: &Path, then: Then) -> Result<Kept, WorkersError> {
        let rounds = match run.standing(&Disk, runs) {
            Standing::Unfinished(rounds) => rounds,
            _ => run.config.spec.rounds,
        };
        let (id, directory) = (self.experiment.id, run.directory(runs));
        let mut connection = self.connection();
        let mut patience = UntilStopped(&self.stop);
        let kept = files::keep(
            &mut connection,
            &mut patience,
            &id,
            claim,
            Chosen { directory: &directory, which: &|_| true, digests: &mut Digests::default() },
            (rounds, then),
            &self.arithmetic,
        )?;
        self.put_back(connection);
        if kept == Kept::There && then == Then::HasEnded {
            lock(&self.same).insert(claim.name.clone());
        }
        Ok(kept)
    }

    /// Replaces what is here of a run by what the store has.
    fn fetch(&self, run: &Planned, runs: &Path) -> Result<(), WorkersError> {
        let (id, name) = (self.experiment.id, &run.config.spec.name);
        let old = run.directory(runs);
        let former = former(&self.out, name);
        transfer::arrival(&self.out, name, |draft| {
            loop {
                Disk.remove_dir(draft).map_err(disk("remove", draft))?;
                Disk.create_dir(draft).map_err(disk("create", draft))?;
                let fetched = self.ask(&mut |connection, patience| {
                    files::fetch(connection, patience, Of { experiment: &id, run: name }, (&Disk, draft))
                        .map(Some)
                })?;
                match fetched {
                    Fetched::Whole => break,
                    Fetched::Replaced => {}
                    Fetched::GivenUp => return Err(WorkersError::Stopped),
                }
            }
            // It is an earlier state of the same run.
            move_away(old.root(), &former)?;
            Ok::<(), WorkersError>(())
        })?;
        Ok(Disk.remove_dir(&former).map_err(disk("remove", &former))?)
    }

    /// Gives a run back as it was taken.
    fn give_back(&self, claim: &Claim) -> Result<(), WorkersError> {
        let id = self.experiment.id;
        self.ask(&mut |connection, patience| {
            connection.lasting(patience, &mut |client| experiments::give_back(client, &id, claim))
        })
    }

    /// Removes what the store has of the experiment. Whether it had anything.
    ///
    /// # Errors
    /// Those of the store.
    pub fn forget(address: StoreAddress, plan: &Plan) -> Result<bool, WorkersError> {
        let mut connection = Connection::new(address);
        connection.prepare()?;
        let id = identity::describe(plan).id;
        Ok(connection.once(&mut |client| experiments::remove(client, &id))?)
    }

    /// How the runs of `plan` stand in a store, for those who only look; empty where no worker has begun it. Makes nothing.
    ///
    /// # Errors
    /// Those of the store.
    pub fn look(mut connection: Connection, plan: &Plan) -> Result<Vec<Stands>, WorkersError> {
        let id = identity::describe(plan).id;
        Ok(connection.once(&mut |client| match schema::version(client) {
            Err(error) if schema::is_absent(&error) => Ok(Vec::new()),
            Err(error) => Err(error),
            Ok(_) => experiments::standing(client, &id),
        })?)
    }

    /// A warning if runs were computed in ways whose results differ.
    ///
    /// # Errors
    /// Those of the store.
    pub fn mixed_arithmetic(&self) -> Result<Option<String>, WorkersError> {
        let found: BTreeSet<String> =
            self.standing()?.into_iter().filter_map(|stands| stands.arithmetic).collect();
        Ok((found.len() > 1).then(|| {
            format!(
                "the runs were computed with {}: their results differ in the last digits from those of one machine",
                found.into_iter().collect::<Vec<_>>().join(" and ")
            )
        }))
    }

    /// What ended the work on all runs, if something did.
    pub fn trouble(&self) -> Option<WorkersError> {
        lock(&self.trouble).take()
    }

    /// Keeps a connection for the next question, if there are not enough.
    fn put_back(&self, connection: Connection) {
        let mut idle = lock(&self.connections);
        if idle.len() < IDLE {
            idle.push(connection);
        }
    }

    fn connection(&self) -> Connection {
        let idle = lock(&self.connections).pop();
        idle.unwrap_or_else(|| Connection::new(self.address.clone()))
    }

    /// Asks the store, through outages.
    fn ask<T>(&self, question: &mut Question<'_, T>) -> Result<T, WorkersError> {
        let mut connection = self.connection();
        let answer = question(&mut connection, &mut UntilStopped(&self.stop))?;
        self.put_back(connection);
        answer.ok_or(WorkersError::Stopped)
    }
}

/// What a run of the experiment in the folder `out` is called there, in whose place another state of it comes, until it is removed.
fn former(out: &Path, run: &str) -> PathBuf {
    out.join(format!(".former-{run}"))
}

/// Moves a run to where it is removed. In one step: a part of a run is none, and would be in the way of it.
fn move_away(run: &Path, former: &Path) -> Result<(), StoreError> {
    Disk.remove_dir(former).map_err(disk("remove", former))?;
    if Disk.length(run).map_err(disk("look at", run))?.is_some() {
        Disk.rename(run, former).map_err(disk("move", run))?;
    }
    Ok(())
}

/// No critical section of this module panics.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_run_is_moved_away_as_a_whole() {
        let out = tempfile::tempdir().expect("a temporary folder");
        let (run, former) = (out.path().join("runs/x--1"), former(out.path(), "x--1"));
        let write = |place: PathBuf, text: &str| {
            fs::create_dir_all(place.join("state")).expect("a folder");
            fs::write(place.join("state/run.json"), text).expect("written");
        };
        move_away(&run, &former).expect("there is none");
        assert!(!former.exists());
        write(run.clone(), "newer");
        // As a worker leaves it that dies before it has removed it.
        write(former.clone(), "older");
        move_away(&run, &former).expect("moved");
        assert!(!run.exists());
        assert_eq!(fs::read_to_string(former.join("state/run.json")).expect("whole"), "newer");
    }
}
